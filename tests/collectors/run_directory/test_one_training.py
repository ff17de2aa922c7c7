"""One training at a time writes a run directory."""

import errno
import fcntl
import os
import signal
from unittest.mock import Mock

import pytest
from remote_stores import empty_memory
from runs import SETTINGS, SmallNetwork, collected, names, writer
from waiting import wait_until

from collectors import SummaryCollector, import_checkpoints
from collectors.errors import CheckpointWriteError, RunDirectoryError
from collectors.files import locks
from collectors.networks.readers import describe_network, read_network
from collectors.run_directory import RunDirectory
from collectors.run_directory.directory import CheckpointFolder
from collectors.run_directory.writer import RunWriter

URL = "memory://bucket/run"


@pytest.mark.slow
def test_of_trainings_that_start_together_one_is_accepted(tmp_path):
    """24 starts of two processes at the same moment, in every mode: never both."""
    space = describe_network(SmallNetwork())
    for trial in range(24):
        existing = ("error", "resume", "overwrite")[trial % 3]
        begin, end = os.pipe(), os.pipe()
        children = []
        for _ in range(2):
            child = os.fork()
            if not child:
                os.close(begin[1])
                os.close(end[1])
                os.read(begin[0], 1)
                try:
                    RunWriter(tmp_path / str(trial), SETTINGS, space, existing=existing)
                except RunDirectoryError as error:
                    os._exit(1 if "is being written by" in str(error) else 3)
                except BaseException:
                    os._exit(2)
                # Holds the directory until both have tried, and dies without giving it back.
                os.read(end[0], 1)
                os._exit(0)
            children.append(child)
        os.close(begin[1])
        refused, status = os.waitpid(-1, 0)
        os.close(end[1])
        children.remove(refused)
        assert os.waitstatus_to_exitcode(status) == 1
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
        for descriptor in (begin[0], end[0]):
            os.close(descriptor)


def test_the_error_names_the_other_training_and_a_kill_frees_the_directory(tmp_path):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            collector = SummaryCollector(tmp_path / "run", collect_landscape={"intervals": [range(9)]})
            with collector.watch(SmallNetwork()):
                os.write(writing, b"ready")
                signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        assert os.read(reading, 5) == b"ready"
        for existing in ("error", "resume", "overwrite"):
            with pytest.raises(RunDirectoryError, match=rf"written by process {child}\. Wait for it or end it"):
                collected(tmp_path / "run", existing=existing)
        # Reading is not kept out.
        assert RunDirectory(tmp_path / "run").settings.intervals == (tuple(range(9)),)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    run, _, _ = collected(tmp_path / "run", existing="resume")
    assert sorted(run.metadata.files) == list(range(9))
    assert names(tmp_path / "run" / "ckpt_dir") == sorted([*run.metadata.files.values(), "train_metadata.json"])


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setattr(locks, "SETTLING_SECONDS", 0.0)
    with empty_memory() as system:
        yield system


@pytest.mark.parametrize("where", ["here", "there"])
def test_two_in_one_program(tmp_path, memory, where):
    place = tmp_path / "run" if where == "here" else URL
    first = writer(place)
    expected = (
        rf"run is being written by process {os.getpid()}\. An earlier training of this program has not ended: leave "
        r"its collector's `with` block, or restart the program or notebook, or choose"
        if where == "here"
        else rf"run is being written by process {os.getpid()} of .* on .* since 20.*\. Wait for it or end it"
    )
    for existing in ("error", "resume", "overwrite"):
        with pytest.raises(RunDirectoryError, match=expected):
            writer(place, existing=existing)
    first.save(0, read_network(SmallNetwork()))
    first.close()
    again = writer(place, existing="resume")
    assert sorted(RunDirectory(place).metadata.files) == [0]
    again.discard()
    writer(place).discard()
    assert memory.find("/bucket") == []
    assert where == "there" or names(tmp_path / "run" / "ckpt_dir") == []


def test_it_is_free_after_every_end(tmp_path):
    with pytest.raises(ArithmeticError, match="oops"):
        collected(tmp_path, error=ArithmeticError("oops"))
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        collected(tmp_path)
    with pytest.raises(RunDirectoryError, match="cannot be resumed"):
        collected(tmp_path, existing="resume", intervals=[range(4)])
    collected(tmp_path, existing="overwrite")
    assert not [name for name in names(tmp_path / "ckpt_dir") if name.startswith(".")]


def test_a_training_that_was_taken_for_dead_stops_and_spoils_nothing(memory, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.05)
    network = SmallNetwork()
    collector = SummaryCollector(URL, keep_default_action=False, collect_landscape={"intervals": [range(9)]})
    marker = "/bucket/run/ckpt_dir/.landscape-writer"

    def train_until_it_stops():
        with collector.watch(network):

            def go_on():
                # Again and again: its last renewal may have been under way.
                memory.pipe_file(marker, b'{"identity": "other", "owner": "process 7 of eve on moon", "since": "now"}')
                memory.pipe_file("/bucket/run/ckpt_dir/train_metadata.json", b"the other's")
                collector._recorder._writer.check()

            wait_until(go_on, what="the training to see who has taken over")

    with pytest.raises(CheckpointWriteError, match="has been taken over by process 7 of eve on moon since now"):
        train_until_it_stops()
    assert memory.cat_file("/bucket/run/ckpt_dir/train_metadata.json") == b"the other's"
    assert b"moon" in memory.cat_file(marker)


def test_what_was_taken_over_is_not_discarded(memory, monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.05)
    started = writer(URL)

    def taken_over():
        # Again and again: its last renewal may have been under way.
        memory.pipe_file("/bucket/run/ckpt_dir/.landscape-writer", b'{"identity": "other"}')
        return started._lock._renewal.error

    wait_until(taken_over, what="the writer to see that another one has taken over")
    started.discard()
    assert memory.exists("/bucket/run/ckpt_dir/train_metadata.json")


def test_a_lock_that_cannot_be_taken_and_a_file_system_without_locks(tmp_path, monkeypatch):
    (tmp_path / "ckpt_dir" / ".train_metadata.json.lock").mkdir(parents=True)
    with pytest.raises(RunDirectoryError, match=r"cannot be locked for writing \(.*\.lock: Is a directory\)\. Choose"):
        writer(tmp_path)
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))))
    with pytest.warns(RuntimeWarning, match=r"has no locks, so nothing keeps a second training from writing there"):
        run, _, _ = collected(tmp_path / "run")
    assert sorted(run.metadata.files) == list(range(9))


def test_an_import_that_fails_leaves_no_lock(tmp_path):
    run, _, _ = collected(tmp_path / "run")
    files = [run.checkpoint_path(number) for number in range(3)]
    import_checkpoints(tmp_path / "target", files)
    lock = CheckpointFolder(tmp_path / "target").lock()
    with pytest.raises(RunDirectoryError, match=r"is being written by process"):
        import_checkpoints(tmp_path / "target", files, existing="overwrite")
    lock.release()
    import_checkpoints(tmp_path / "target", files, existing="overwrite")
    assert not [name for name in names(tmp_path / "target" / "ckpt_dir") if name.startswith(".")]
