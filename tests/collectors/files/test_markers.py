"""Markers behind a URL: who writes there, and what a dead holder leaves."""

from __future__ import annotations

import json
import subprocess
import threading
import time

import fsspec.implementations.memory
import pytest
from remote_stores import empty_memory
from waiting import PATIENCE

from collectors.files import markers
from collectors.files.locks import LockHeldError
from collectors.files.markers import Marker
from collectors.files.remote_path import RemotePath

PATH = "/bucket/run/ckpt_dir/.landscape-writer"
SINCE = r"since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(markers, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(markers, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(markers, "SETTLING_SECONDS", 0.0)
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


def leave(memory, **changes):
    """Leaves the marker of a holder that does not renew it."""
    marker = Marker(file(memory))
    content = facts(memory)
    marker.release()
    memory.pipe_file(PATH, json.dumps({**content, **changes}).encode())


def dead_process():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_one_holder_who_is_named(memory):
    marker = Marker(file(memory))
    with pytest.raises(LockHeldError, match=rf"^process \d+ of .+ on .+ {SINCE}$"):
        Marker(file(memory))
    marker.check()
    marker.release()
    marker.release()
    assert not memory.exists(PATH)
    Marker(file(memory)).release()


def test_a_holder_elsewhere_that_lives_is_noticed_by_its_renewals(memory):
    marker = Marker(file(memory))
    for _ in range(3):
        first = memory.cat_file(PATH)
        deadline = time.monotonic() + PATIENCE
        while memory.cat_file(PATH) == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    machine = markers._machine
    try:
        markers._machine = lambda: "another machine"
        with pytest.raises(LockHeldError, match=SINCE):
            Marker(file(memory))
    finally:
        markers._machine = machine
    marker.check()
    marker.release()


def test_a_dead_holder_on_this_machine_is_followed_at_once(memory, monkeypatch):
    monkeypatch.setattr(markers, "PATIENCE_SECONDS", 1e6)
    leave(memory, process=dead_process())
    Marker(file(memory)).release()
    # This process has the id of one that is dead.
    leave(memory, identity="0" * 32)
    Marker(file(memory)).release()
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
        Marker(file(memory)).release()
        return
    with pytest.warns(RuntimeWarning, match=r"names .* but has not changed for 0.5 s; that process is taken for dead"):
        marker = Marker(file(memory))
    assert facts(memory)["identity"] == marker._identity
    marker.release()


def test_a_holder_that_gives_it_back_while_others_wait(memory):
    leave(memory, machine="another machine")
    timer = threading.Timer(0.1, memory.rm_file, [PATH])
    timer.start()
    Marker(file(memory)).release()
    timer.join()


def test_who_was_taken_for_dead_stops(memory):
    marker = Marker(file(memory))
    other = {**facts(memory), "identity": "other", "owner": "process 7 of eve on moon"}
    deadline = time.monotonic() + PATIENCE
    while marker._renewal.error is None:
        memory.pipe_file(PATH, json.dumps(other).encode())
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(LockHeldError, match="process 7 of eve on moon since"):
        marker.check()
    marker.release()
    assert facts(memory)["identity"] == "other"


def test_of_two_who_begin_at_the_same_moment_one_remains(memory, monkeypatch):
    monkeypatch.setattr(markers, "SETTLING_SECONDS", 0.3)
    barrier, got, refused = threading.Barrier(6), [], []

    def begin():
        barrier.wait()
        try:
            got.append(Marker(file(memory)))
        except LockHeldError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 5)
    got[0].release()


def test_a_server_that_is_away_does_not_end_it(memory, monkeypatch):
    marker = Marker(file(memory))
    cat_file = fsspec.implementations.memory.MemoryFileSystem.cat_file
    failed = []

    def away(self, *arguments, **options):
        failed.append(1)
        raise TimeoutError("the network is down")

    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "cat_file", away)
    deadline = time.monotonic() + PATIENCE
    while len(failed) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "cat_file", cat_file)
    marker.check()
    marker.release()
    assert not memory.exists(PATH)


def test_without_the_right_to_remove(memory, monkeypatch):
    marker = Marker(file(memory))

    def forbidden(self, path):
        raise PermissionError("no right to remove")

    monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, "rm_file", forbidden)
    marker.release()
    assert memory.cat_file(PATH) == b"{}"
    Marker(file(memory)).release()
