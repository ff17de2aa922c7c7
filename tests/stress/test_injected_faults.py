"""Every file-system call of what writes files fails once: with EIO, on a full disk, with short writes, by SIGKILL.

Nothing waits for ever, each error is typed and names no temporary file, and what lies on the disk is whole: a run can
be resumed or overwritten, a survey goes on, and a file that is replaced is the old one or the new one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from faulty_files import tried

# 1 tries all calls of all plays (`make stress`).
EVERY = int(os.environ.get("FAULTY_EVERY", "0"))
RUNS = ("train", "resume", "overwrite", "refused")
OTHERS = ("checkpoints", "survey", "records", "import", "figure", "page", "gif", "mp4")
EXPORTS = ("csv", "landscaper", "li", "mindinsight", "netcdf", "npz", "vtk")


def check(folder: Path, plays: tuple[str, ...], every: int) -> None:
    for play, found in tried(",".join(plays), folder, EVERY or every).items():
        assert not found["findings"], f"{play}: {found['findings'][:5]}"
        assert found["outcomes"].get("error"), f"{play}: no fault was noticed"


@pytest.mark.parametrize(("plays", "every"), [(("train",), 50), (("vtk", "li", "netcdf", "page"), 8)])
def test_a_sample_of_calls(plays: tuple[str, ...], every: int, tmp_path: Path) -> None:
    check(tmp_path, plays, every)


@pytest.mark.slow
@pytest.mark.parametrize("play", RUNS)
def test_every_call_of_a_training(play: str, tmp_path: Path) -> None:
    check(tmp_path, (play,), 1)


@pytest.mark.slow
@pytest.mark.parametrize(("plays", "every"), [*(((play,), 8) for play in OTHERS), (EXPORTS, 3)])
def test_calls_of_all_other_writers(plays: tuple[str, ...], every: int, tmp_path: Path) -> None:
    check(tmp_path, plays, every)
