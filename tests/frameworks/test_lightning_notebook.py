"""The notebook about trainers, where Lightning is installed: the same training gives the same weights."""

import json
import os
from pathlib import Path

import pytest
from scripts import run_python

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "05_your_own_trainer.ipynb"

RESULT = """
import json
print(json.dumps({name: [item.origin.metrics["loss"] for item in both] for name, both in landscapes.items()}))
print(json.dumps([item.checkpoints.metrics["loss"].tolist() for item, _ in landscapes.values()]))
"""


def test_lightning_and_the_plain_loop_come_to_the_same_weights(tmp_path):
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    script = tmp_path / "notebook.py"
    # A kernel's own commands are no Python.
    script.write_text(code.replace("%matplotlib inline\n", "") + RESULT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "CUDA_VISIBLE_DEVICES": ""}
    *text, losses, paths = run_python(script, cwd=tmp_path, env=environment).splitlines()
    assert "Lightning is installed" in text
    found = json.loads(losses)
    assert list(found) == ["plain loop", "Lightning"]
    # Both measured the same samples, one by a loss function, the other by the module's own step.
    assert found["Lightning"] == pytest.approx(found["plain loop"], rel=1e-4)
    own, lightnings = json.loads(paths)
    assert lightnings == pytest.approx(own, rel=1e-4)
