"""Locks of this machine: one holder, freed by every death; markers behind a URL, and what a dead holder leaves."""

import json
import os
import signal
import stat
import tempfile
import threading

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from own_processes import ended_process
from remote_stores import empty_memory
from waiting import PATIENCE, wait_until

from collectors.files import locks, system
from collectors.files.locks import LockHeldError, Marker, ProcessLock, holder, is_held, private_lock_folder
from collectors.files.remote_path import RemotePath

PATH = "/bucket/run/ckpt_dir/.landscape-writer"
# Between two looks for a sign of life.
LOOK_SECONDS = locks.BEAT_SECONDS / 2
SINCE = r"since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"


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
    child = os.fork()
    if not child:
        lock = ProcessLock(tmp_path / "a.lock")
        os.kill(lock._process, signal.SIGKILL)
    os.waitpid(child, 0)
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


class Time:
    """Passes only where somebody pauses, and then at once; ``meanwhile`` is called for each pause before a look."""

    def __init__(self, meanwhile=lambda: None):
        self.now, self.pauses, self.meanwhile = 0.0, [], meanwhile

    def clock(self):
        return self.now

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds
        if seconds == LOOK_SECONDS:
            self.meanwhile()


@pytest.fixture(autouse=True)
def no_thread_is_left():
    threads = threading.active_count()
    yield
    assert threading.active_count() == threads


@pytest.fixture
def memory():
    with empty_memory() as system:
        yield system


def file(memory):
    return RemotePath(memory, PATH)


def facts(memory):
    return json.loads(memory.cat_file(PATH))


def hold(memory, time=None):
    time = time or Time()
    return Marker(file(memory), clock=time.clock, pause=time.pause)


def leave(memory, **changes):
    """Leaves the marker of a holder that does not renew it."""
    marker = hold(memory)
    content = facts(memory)
    marker.release()
    memory.pipe_file(PATH, json.dumps({**content, **changes}).encode())


def test_one_holder_who_is_named(memory):
    marker = hold(memory)
    with pytest.raises(LockHeldError, match=rf"^process \d+ of .+ on .+ {SINCE}$"):
        hold(memory)
    marker.check()
    marker.release()
    marker.release()
    assert not memory.exists(PATH)
    hold(memory).release()


@pytest.mark.parametrize("silent_looks", [0, 4])
def test_a_holder_elsewhere_that_lives_is_noticed_by_its_renewals(memory, silent_looks):
    leave(memory, machine="another machine")

    def renew():
        if len(time.pauses) > silent_looks:
            memory.pipe_file(PATH, json.dumps({**facts(memory), "renewed": 2}).encode())

    time = Time(renew)
    with pytest.raises(LockHeldError, match=SINCE):
        hold(memory, time)
    assert time.pauses == [LOOK_SECONDS] * (silent_looks + 1)
    assert facts(memory)["renewed"] == 2


def test_a_dead_holder_on_this_machine_is_followed_at_once(memory):
    time = Time()
    leave(memory, process=ended_process())
    hold(memory, time).release()
    # This process has the id of one that is dead.
    leave(memory, identity="0" * 32)
    hold(memory, time).release()
    assert time.pauses == [locks.SETTLING_SECONDS] * 2
    assert not memory.exists(PATH)


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"[]", b"\xff", b'{"owner": 1}', b'{"owner": "\\u001b", "since": ""}']
)
def test_a_holder_without_a_sign_of_life_is_taken_for_dead(memory, content):
    if content is None:
        leave(memory, machine="another machine")
    else:
        memory.pipe_file(PATH, content)
    if content == b"":
        hold(memory).release()
        return
    time = Time()
    with pytest.warns(RuntimeWarning, match=r"names .* but has not changed for 60 s; that process is taken for dead"):
        marker = hold(memory, time)
    assert time.pauses == [LOOK_SECONDS] * 6 + [locks.SETTLING_SECONDS]
    assert facts(memory)["identity"] == marker._identity
    marker.release()


def test_a_holder_that_gives_it_back_while_others_wait(memory):
    leave(memory, machine="another machine")
    time = Time(lambda: memory.rm_file(PATH))
    hold(memory, time).release()
    assert time.pauses == [LOOK_SECONDS, locks.SETTLING_SECONDS]


def test_of_six_who_begin_at_the_same_moment_one_remains(memory):
    """All have written the marker before the first one looks whether it is still its own."""
    barrier, got, refused = threading.Barrier(6, timeout=PATIENCE), [], []

    def settle(seconds):
        assert seconds == locks.SETTLING_SECONDS > 0
        barrier.wait()
        settled.append(seconds)

    settled = []

    def begin():
        try:
            got.append(Marker(file(memory), pause=settle))
        except LockHeldError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused), len(settled)) == (1, 5, 6)
    got[0].release()


def test_a_holder_renews_its_marker_and_a_server_that_is_away_does_not_end_it(memory, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.01)
    marker = hold(memory)
    for _ in range(3):
        first = memory.cat_file(PATH)
        wait_until(lambda first=first: memory.cat_file(PATH) != first, what="a renewal")
    failed = []

    def away(self, *arguments, **options):
        failed.append(1)
        raise TimeoutError("the network is down")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "cat_file", away)
        wait_until(lambda: len(failed) >= 3, what="three renewals")
    marker.check()
    marker.release()
    assert not memory.exists(PATH)
