"""Every file-system call of what writes files fails once: with EIO, on a full disk, with short writes, by SIGKILL.

Nothing waits for ever, each error is typed and names no temporary file, and what lies on the disk is whole: a run can
be resumed or overwritten, a survey goes on, and a file that is replaced is the old one or the new one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_files import tried

PLAYS = (
    "train", "resume", "overwrite", "refused", "import checkpoints", "checkpoints", "survey", "records", "import",
    "figure", "page", "gif", "mp4",
)  # fmt: skip
EXPORTS = ("csv", "landscaper", "li", "mindinsight", "netcdf", "npz", "vtk")


def check(folder: Path, plays: tuple[str, ...], every: int) -> None:
    for play, found in tried(",".join(plays), folder, every).items():
        assert not found["findings"], f"{play}: {found['findings'][:5]}"
        assert found["outcomes"].get("error"), f"{play}: no fault was noticed"


@pytest.mark.parametrize(("plays", "every"), [(("train",), 50), (("vtk", "li", "netcdf", "page"), 8)])
def test_a_sample_of_calls(plays: tuple[str, ...], every: int, tmp_path: Path) -> None:
    check(tmp_path, plays, every)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plays", [*((play,) for play in PLAYS), EXPORTS], ids=", ".join)
def test_every_call(plays: tuple[str, ...], tmp_path: Path) -> None:
    check(tmp_path, plays, 1)
