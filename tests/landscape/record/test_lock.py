"""What lies where the lock of a landscape file belongs, whoever has put it there."""

import contextlib
import os
import threading

import pytest
from waiting import PATIENCE

from landscape.errors import LandscapeWriteError
from landscape.record.writer import is_being_written, lock_landscape

CONTENTS = {
    "bytes": b"\xff\xfe", "superscript": "²".encode(), "arabic digits": "٣".encode(), "long": b"9" * 5000,
    "empty": b"", "negative": b"-1", "large": b"9" * 10, "text": b"somebody",
}  # fmt: skip


@pytest.mark.parametrize("what", CONTENTS)
def test_a_lock_file_that_names_nobody(tmp_path, what):
    """It may be any writer's, as far as it says; but nobody holds the lock, so that it can be taken."""
    file = tmp_path / ".a.h5.lock"
    file.write_bytes(CONTENTS[what])
    assert is_being_written(tmp_path / "a.h5")
    with lock_landscape(tmp_path / "a.h5"):
        assert is_being_written(tmp_path / "a.h5")
    assert not is_being_written(tmp_path / "a.h5")


def take(path):
    with contextlib.suppress(LandscapeWriteError), lock_landscape(path):
        pass
    return True


@pytest.mark.parametrize("look", [is_being_written, take])
def test_a_named_pipe(tmp_path, look):
    os.mkfifo(tmp_path / ".a.h5.lock")
    found = []
    thread = threading.Thread(target=lambda: found.append(look(tmp_path / "a.h5")), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found == [True], "it waits for ever"


def test_a_directory(tmp_path):
    (tmp_path / ".a.h5.lock").mkdir()
    with pytest.raises(LandscapeWriteError, match="cannot be locked for writing"), lock_landscape(tmp_path / "a.h5"):
        pass
