"""Locks of this machine: one holder, freed by every death, and lock files that are anything."""

import os
import stat
import subprocess
import sys
import tempfile

import pytest

from collectors.files import system
from collectors.files.locks import LockHeldError, ProcessLock, holder, is_held, private_lock_folder


def test_one_holder(tmp_path):
    file = tmp_path / "a.lock"
    lock = ProcessLock(file)
    assert (holder(file), is_held(file)) == (os.getpid(), True)
    with pytest.raises(LockHeldError, match=rf"^process {os.getpid()}$"):
        ProcessLock(file)
    lock.check()
    lock.release()
    lock.release()
    assert list(tmp_path.iterdir()) == []
    assert not is_held(file)
    again = ProcessLock(file)
    # A released lock does not take away its successor's.
    lock.release()
    assert is_held(file)
    again.release()


def test_a_forked_process_neither_frees_nor_keeps_it(tmp_path):
    lock = ProcessLock(tmp_path / "a.lock")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        lock.release()
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    assert is_held(tmp_path / "a.lock")
    with pytest.raises(LockHeldError):
        ProcessLock(tmp_path / "a.lock")
    lock.release()
    ProcessLock(tmp_path / "a.lock").release()
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0


def test_a_killed_holder_frees_it(tmp_path):
    script = "import os, sys, signal; from pathlib import Path; from collectors.files.locks import ProcessLock; "
    script += "lock = ProcessLock(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.lock")], check=False)
    assert (tmp_path / "a.lock").exists()
    assert not is_held(tmp_path / "a.lock")
    ProcessLock(tmp_path / "a.lock").release()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_holder_whose_id_nobody_could_write(monkeypatch, tmp_path):
    """On Windows a locked file cannot be written to; what a killed process left does not count as locked."""
    monkeypatch.setattr(system, "WINDOWS", True)
    file = tmp_path / "a.lock"
    file.touch()
    assert not is_held(file)
    assert not is_held(tmp_path / "another.lock")
    lock = ProcessLock(file)
    file.write_bytes(b"")
    assert (holder(file), is_held(file)) == (None, True)
    lock.release()
    assert not is_held(file)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", "²".encode(), b"9" * 5000, b"-1", b"1.5", b"process"])
def test_lock_files_that_hold_anything(tmp_path, content):
    file = tmp_path / "a.lock"
    file.write_bytes(content)
    assert holder(file) is None
    assert is_held(file)
    ProcessLock(file).release()
    assert not file.exists()


def test_lock_files_that_are_anything(tmp_path):
    pipe, link, folder = (tmp_path / name for name in ("pipe", "link", "folder"))
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("1")
    folder.mkdir()
    for file in (pipe, link, folder):
        assert holder(file) is None
        assert is_held(file)
    ProcessLock(pipe).release()
    for file in (link, folder):
        with pytest.raises(OSError, match=r"Is a directory|Too many levels of symbolic links"):
            ProcessLock(file)
    assert (tmp_path / "secret").read_text() == "1"


def test_the_private_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = private_lock_folder()
    assert private_lock_folder() == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="not a folder that only you can write; set TMPDIR"):
        private_lock_folder()
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="not a folder that only you can write; set TMPDIR"):
        private_lock_folder()
