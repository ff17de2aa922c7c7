"""Every file-system call of what writes files fails once: with EIO, on a full disk, with short writes, by SIGKILL.

Nothing waits for ever, each error is typed and names no temporary file, and what lies on the disk is whole: a run can
be resumed or overwritten, a survey goes on, and a file that is replaced is the old one or the new one.
The slow test tries every sixteenth call, and 16 changes in a row try all; so does ``FAULTY_EVERY=1`` (``make stress``).
"""

import os
from pathlib import Path

import pytest
from faulty_files import tried
from faulty_plays import PLAYS, TOGETHER
from places import turn

pytestmark = pytest.mark.room("tests/support/faulty_child.py")
EVERY = int(os.environ.get("FAULTY_EVERY", "16"))


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)  # for the thousands of trials of the long test; here it is a minute or a few
@pytest.mark.parametrize("plays", TOGETHER)
def test_the_calls_of(plays: str, tmp_path: Path) -> None:
    for play, found in tried(",".join(TOGETHER[plays]), tmp_path, EVERY, turn()).items():
        assert not found["findings"], f"{play}: {found['findings'][:5]}"
        assert found["outcomes"].get("error"), f"{play}: no fault was noticed"


def test_every_play_is_tried() -> None:
    assert sorted(PLAYS) == sorted(play for plays in TOGETHER.values() for play in plays)
