"""Our own side of the benchmarks runs; ``make stress`` runs the peers' too."""

import json

import pytest
from places import ROOT
from scripts import run_python
from waiting import PATIENCE

pytestmark = pytest.mark.room("tests/benchmarks")
BENCHMARKS = ROOT / "tests" / "benchmarks"
PREPARE = 'from networks import prepare_work; from pathlib import Path; prepare_work(Path("work.pt"), "LeNet-5", 32, 1)'


def run(folder, *arguments):
    printed = run_python(*arguments, cwd=folder, patience=4 * PATIENCE)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.mark.slow
def test_what_is_timed_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{BENCHMARKS}")
    run(tmp_path, "-c", PREPARE)
    wanted = {"work": "work.pt", "axis": [-1.0, 0.0, 1.0], "devices": [0, 1], "output": "landscape.h5"}
    (found,) = run(tmp_path, BENCHMARKS / "ours.py", json.dumps(wanted))
    assert found["measured"] >= 9
    assert found["workers"] == 2
    assert found["plan"].startswith("batches of ")
