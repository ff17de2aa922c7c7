"""Collecting into run directories behind URLs: the same run as on disk, whatever the network does."""

import json
import os
import re
import shutil
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from event_reading import event_files, scalars
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry as registered
from own_processes import ended_process
from remote_stores import empty_memory, temporary
from runs import SmallNetwork, assert_holds, batches, collected, contents, names, seeded, train, writer
from torch import nn
from waiting import PATIENCE, wait_until

from collectors import Model, SummaryCollector
from collectors.errors import CheckpointWriteError, RunDirectoryError
from collectors.files import locks
from collectors.files.local_files import TemporaryFolder
from collectors.files.places import check_directory
from collectors.files.remote_path import RemotePath
from collectors.networks.readers import describe_network, read_network
from collectors.recording import records
from collectors.run_directory import RunDirectory, directory

URL = "memory://bucket/run"
LANDSCAPE = {"intervals": [range(9)]}


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    """An empty in-memory file system, pauses of no time, and nothing left on this machine afterwards."""
    monkeypatch.setattr(directory, "PAUSES_SECONDS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(locks, "SETTLING_SECONDS", 0.0)
    monkeypatch.setattr(records, "LAST_PAUSES_SECONDS", (0.0, 0.0))
    threads = threading.active_count()
    with empty_memory() as system:
        yield system
    assert left() == []
    assert threading.active_count() == threads


def left():
    """Our folders in the temporary folder of this machine."""
    return [path for kind in ("upload", "records") for path in temporary(f"landscape-{kind}-{os.getpid()}-*")]


def stored(memory, folder="/bucket/run/ckpt_dir"):
    return {path.rsplit("/", 1)[-1]: memory.cat_file(path) for path in memory.find(folder)}


def of_metrics():
    """A collector of each step's loss and nothing else."""
    return SummaryCollector(URL, 1, {"collect_metric": True}, keep_default_action=False)


def of_landscapes():
    return SummaryCollector(URL, keep_default_action=False, collect_landscape=LANDSCAPE)


@pytest.fixture
def failing(monkeypatch):
    """Makes uploads fail: ``failing.times = 2`` the next two, of files whose path holds ``failing.where``."""

    state = SimpleNamespace(times=0, where="", tried=0)

    def patched(original, place):
        def replacement(self, *arguments, **options):
            if state.where in arguments[place]:
                state.tried += 1
                if state.times > 0:
                    state.times -= 1
                    raise TimeoutError("the network is down")
            return original(self, *arguments, **options)

        return replacement

    monkeypatch.setattr(MemoryFileSystem, "put_file", patched(MemoryFileSystem.put_file, 1))
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", patched(MemoryFileSystem.pipe_file, 0))
    return state


@pytest.mark.parametrize("landscape", [{"intervals": [range(9)]}, {"intervals": [[0, 1, 2]], "unit": "epoch"}])
def test_every_file_is_the_one_on_disk(memory, tmp_path, landscape):
    local, _, _ = collected(tmp_path, **landscape)
    remote, steps, epochs = collected(URL, **landscape)
    assert stored(memory) == contents(tmp_path)
    assert sorted(memory.find("/bucket")) == [f"/bucket/run/ckpt_dir/{name}" for name in sorted(contents(tmp_path))]
    assert remote.metadata == local.metadata
    for number, state in (steps if landscape["intervals"] == [range(9)] else epochs).items():
        assert_holds(remote.checkpoint(number, describe_network(SmallNetwork())), state)


def test_named_arrays(memory, tmp_path):
    for place in (tmp_path, URL):
        with SummaryCollector(place, keep_default_action=False, collect_landscape=LANDSCAPE) as collector:
            for number in range(9):
                collector.snapshot(number, {"weights": np.full((3, 2), number, np.float32)})
        # Nobody says whether training went on behind the last one.
        assert RunDirectory(place).metadata.trained_to is None
    assert stored(memory) == contents(tmp_path)


@pytest.mark.parametrize("options", [{"collect_landscape": LANDSCAPE}, {"export_options": {"tensor_format": None}}])
def test_the_address(memory, options):
    assert SummaryCollector(URL, **options).summary_dir == "memory:///bucket/run"
    assert memory.store == {}


def test_a_run_that_is_there_and_is_another_one_stays(memory):
    collected(URL)
    before = stored(memory)
    text = r"memory:///bucket/run already holds a run .*train_metadata.json exists"
    with pytest.raises(RunDirectoryError, match=text):
        collected(URL)
    with pytest.raises(RunDirectoryError, match="cannot be resumed: it holds the network"):
        writer(URL, network=SmallNetwork(width=6), existing="resume", start=3)
    with pytest.raises(RunDirectoryError, match="cannot be resumed: it was collected with"):
        collected(URL, existing="resume", intervals=[range(8)])
    memory.rm("/bucket/run/ckpt_dir/SmallNetwork_3_step.safetensors")
    with pytest.raises(RunDirectoryError, match=r"cannot be resumed.*SmallNetwork_3_step.safetensors cannot be read"):
        writer(URL, existing="resume", start=3)
    del before["SmallNetwork_3_step.safetensors"]
    assert stored(memory) == before


def test_a_hostile_file_map_removes_nothing_outside(memory):
    collected(URL)
    memory.pipe_file("/bucket/run/ckpt_dir/*.safetensors", b"odd")
    memory.pipe_file("/bucket/secret", b"mine")
    path = "/bucket/run/ckpt_dir/train_metadata.json"
    changed = json.loads(memory.cat_file(path))
    changed["model_params_file_map"].update({"7": "../../secret", "8": "?", "98": "train_metadata.json", "99": "["})
    memory.pipe_file(path, json.dumps(changed).encode())
    writer(URL, existing="overwrite").close()
    assert set(stored(memory)) == {"*.safetensors", "train_metadata.json"}
    assert memory.cat_file("/bucket/secret") == b"mine"


def test_a_file_system_with_folders_moves_whole_files_into_their_place(tmp_path, monkeypatch):
    """fsspec's own view of this machine's folders, which are replaced as those of a server behind ``sftp://``."""
    collected(tmp_path / "here")
    moved, original = [], LocalFileSystem.mv

    def mv(self, source, target, **options):
        moved.append(Path(target).name)
        assert Path(source).name == f".{moved[-1]}.landscape-unfinished"
        return original(self, source, target, **options)

    monkeypatch.setattr(LocalFileSystem, "mv", mv)
    there = RemotePath(LocalFileSystem(), str(tmp_path / "run"))
    folder = tmp_path / "run" / "ckpt_dir"
    collected(there, epochs=1, intervals=[range(5)])
    assert set(moved) == {".landscape-write-check", ".landscape-writer", *names(folder)}
    for name in (".SmallNetwork_9_step.safetensors.landscape-unfinished", "mine.landscape-unfinished"):
        (folder / name).write_bytes(b"half")
    collected(there, existing="overwrite")
    assert contents(tmp_path / "run") == {**contents(tmp_path / "here"), "mine.landscape-unfinished": b"half"}
    assert names(tmp_path / "run") == ["ckpt_dir"]


def test_discarding(memory):
    memory.pipe_file("/bucket/run/ckpt_dir/notes.txt", b"mine")
    started = writer(URL)
    started.save(0, read_network(SmallNetwork()))
    started.close()
    assert len(stored(memory)) == 3
    started.discard()
    assert stored(memory) == {"notes.txt": b"mine"}


@pytest.mark.parametrize("where", ["_4_step", "train_metadata", "ckpt_dir"])
def test_uploads_that_fail_are_tried_again(memory, tmp_path, failing, where):
    collected(tmp_path)
    started = writer(URL)
    failing.where, failing.times = where, 3
    steps, _ = train(seeded(SmallNetwork))
    for number in range(9):
        started.save(number, {name: tensor.numpy() for name, tensor in steps[number].items()})
    started.set_step_per_epoch(4)
    started.finish(8, None, trained_to=8)
    assert failing.times == 0
    assert stored(memory) == contents(tmp_path)


def test_uploads_that_always_fail_stop_the_training(memory, failing):
    network = SmallNetwork()
    failing.where, failing.times = "_4_step", 10**9
    message = (
        r"could not be written to memory:///bucket/run/ckpt_dir: .*TimeoutError: the network is down"
        r".*Training stops, .*see that memory:///bucket/run can be reached and written.*then resume with"
    )
    with pytest.raises(CheckpointWriteError, match=message), of_landscapes().watch(network) as run:
        train(network, run)
    assert failing.tried == 4
    assert sorted(RunDirectory(URL).metadata.files) == [0, 1, 2, 3]
    assert left() == []


def test_after_all_attempts_the_end_does_not_wait_for_more(memory, failing):
    started = writer(URL)
    failing.where, failing.times, failing.tried = "ckpt_dir", 10**9, 0
    started.save(0, read_network(SmallNetwork()))
    with pytest.raises(CheckpointWriteError, match="the network is down"):
        started.close()
    # The checkpoint four times, the metadata once.
    assert failing.tried == 5


def test_memory_is_bounded_while_the_network_is_slow(memory, monkeypatch, wait_until_blocked):
    """One checkpoint is on its way, two wait; the training thread waits with the next."""
    may_go, saved = threading.Event(), []
    original = MemoryFileSystem.put_file

    def put_file(self, *arguments, **options):
        assert may_go.wait(PATIENCE)
        assert len(temporary(f"landscape-upload-{os.getpid()}-*/*")) == 1
        return original(self, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, "put_file", put_file)
    started = writer(URL)

    def save():
        for number in range(9):
            started.save(number, read_network(SmallNetwork()))
            saved.append(number)

    thread = threading.Thread(target=save)
    thread.start()
    wait_until_blocked(thread)
    assert thread.is_alive()
    assert saved == [0, 1, 2]
    may_go.set()
    thread.join()
    started.close()
    assert sorted(RunDirectory(URL).metadata.files) == list(range(9))


@pytest.mark.parametrize("items", [{"collect_landscape": LANDSCAPE, "keep_default_action": False}, {}])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError("Access Denied"), "PermissionError: Access Denied. Check the address"),
        (FileNotFoundError("no such bucket"), "FileNotFoundError: no such bucket.* its bucket or server is there"),
        (None, "a file that was written there is not there"),
    ],
)
def test_it_is_said_before_the_first_step(items, error, message, monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", Mock(side_effect=error))
    run = SummaryCollector(URL, **items).watch(SmallNetwork())
    with pytest.raises(RunDirectoryError, match=f"summary_dir memory:///bucket/run cannot be written: {message}"):
        run.__enter__()


def test_folders_that_may_not_be_looked_at_may_be_written(memory, monkeypatch):
    original = MemoryFileSystem.isdir

    def isdir(self, path):
        if path == "/bucket/run":
            raise PermissionError("Access Denied")
        return original(self, path)

    monkeypatch.setattr(MemoryFileSystem, "isdir", isdir)
    with of_landscapes().watch(SmallNetwork()) as run:
        train(SmallNetwork(), run)
    assert len(stored(memory)) == 10


def test_what_may_not_be_removed_is_collected_all_the_same(memory, monkeypatch):
    monkeypatch.setattr(MemoryFileSystem, "rm_file", Mock(side_effect=PermissionError("Access Denied")))
    collected(URL)
    # A marker that names nobody stands for one that was removed.
    assert stored(memory).pop(".landscape-writer") == b"{}"
    assert len(stored(memory)) == 11
    writer(URL, existing="resume", start=8).close()


@pytest.mark.parametrize(
    ("place", "options", "error", "match"),
    [
        ("nosuch://a/b", {}, ValueError, r"summary_dir must be a path or a URL that fsspec knows .*'nosuch://a/b'"),
        # This server is asked at once.
        ("zip://run::memory://no.zip", {}, RunDirectoryError, "'zip://run::memory://no.zip' cannot be reached: Fil"),
        (URL, {"export_options": {"tensor_format": "npy"}}, ValueError, "^export_options .* the URL memory:///bucket"),
    ],
)
def test_places_that_are_refused(place, options, error, match):
    with pytest.raises(error, match=match):
        SummaryCollector(place, **options)


def test_a_missing_package(monkeypatch):
    monkeypatch.delitem(registered, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ImportError, match=r"summary_dir 's3://b/run' needs another package .*summary-landscape\[s3\]"):
        SummaryCollector("s3://b/run")


def test_a_path_object_has_lost_slashes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"summary_dir .* got s3:/b/run, .* called 's3:'. A URL must be a str; a Path"):
        SummaryCollector(Path("s3://b/run"))
    Path("s3:").mkdir()
    assert SummaryCollector(Path("s3://b/run")).summary_dir == str(tmp_path / "s3:" / "b" / "run")


def model_run(place, existing="error", collector=None, **arguments):
    """Trains a ``Model`` for eight steps with a record of each."""
    network = seeded(SmallNetwork)
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), lr=0.1))
    items = {"collect_landscape": LANDSCAPE, "collect_train_lineage": True, "collect_metric": True}
    collector = collector or SummaryCollector(
        place, collect_freq=1, collect_specified_data=items, keep_default_action=False, existing=existing, **arguments
    )
    model.train(2, batches(), callbacks=[collector])


def downloaded(memory, folder):
    memory.get("/bucket/run", str(folder), recursive=True)
    return folder


@pytest.mark.parametrize("size", [None, 500])
def test_records_arrive(memory, tmp_path, size):
    model_run(tmp_path / "here", max_file_size=size)
    model_run(URL, max_file_size=size)
    there = downloaded(memory, tmp_path / "there")
    expected = scalars(tmp_path / "here", "loss/auto")
    assert len(expected) == 8
    assert scalars(there, "loss/auto") == expected
    assert len(event_files(there)) == len(event_files(tmp_path / "here")) >= (2 if size is None else 4)
    assert contents(there) == contents(tmp_path / "here")


def test_records_arrive_while_training_goes_on(memory, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "INTERVAL_SECONDS", 0.01)
    with of_metrics().watch(SmallNetwork()) as run:
        run.step(torch.tensor(0.25))
        wait_until(lambda: memory.glob("/bucket/run/*tfevents*"), what="a record at its place")
    assert scalars(downloaded(memory, tmp_path / "there"), "loss/auto") == [(1, 0.25)]


def test_unchanged_files_are_not_sent_again(memory, failing, monkeypatch):
    monkeypatch.setattr(records, "INTERVAL_SECONDS", 0.001)
    uploads = records.RecordUploads(check_directory("summary_dir", URL))
    failing.where, failing.tried = "events", 0
    (uploads.folder / ".hidden.tmp").write_bytes(b"1")
    for number in (1, 2, 3):
        # It appears whole: between its making and its writing it would be sent empty.
        (uploads.folder.parent / "whole").write_bytes(b"1")
        (uploads.folder.parent / "whole").rename(uploads.folder / f"events.{number}")
        # By then the thread has seen all earlier ones again.
        wait_until(lambda number=number: memory.exists(f"/bucket/run/events.{number}"), what=f"events.{number}")
    uploads.close()
    uploads.close()
    assert failing.tried == 3
    assert set(stored(memory, "/bucket/run")) == {"events.1", "events.2", "events.3"}


def losses_kept(text):
    """Returns the losses in the records that a text names as kept; then removes them."""
    kept = Path(re.search(r"They are kept in (.*); copy them there", text)[1])
    losses = scalars(kept, "loss/auto")
    shutil.rmtree(kept.parent)
    return losses


def test_records_that_cannot_be_uploaded_are_kept_with_a_warning(memory, failing):
    failing.where, failing.times = "tfevents", 10**9
    text = r"records could not be uploaded to memory:///bucket/run: .* is down"
    with pytest.warns(RuntimeWarning, match=text) as seen:
        model_run(URL)
    assert len(losses_kept(str(seen[-1].message))) == 8
    assert len(stored(memory)) == 10


def test_records_that_an_interrupt_keeps_from_being_uploaded_are_kept(memory, monkeypatch):
    monkeypatch.setattr(records, "retry", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as raised:
        model_run(URL)
    assert len(losses_kept("\n".join(raised.value.__notes__))) == 8


def test_uploads_of_records_that_fail_now_and_then(memory, tmp_path, failing):
    failing.where, failing.times = "tfevents", 2
    model_run(URL)
    assert failing.times == 0
    assert len(scalars(downloaded(memory, tmp_path / "there"), "loss/auto")) == 8


def test_a_failure_is_told_once_while_training_goes_on(memory, tmp_path, failing, monkeypatch):
    monkeypatch.setattr(records, "INTERVAL_SECONDS", 0.001)
    failing.where, failing.times = "tfevents", 10**9
    with of_metrics().watch(SmallNetwork()) as run:
        with pytest.warns(RuntimeWarning, match=r"records cannot be uploaded to memory:///bucket/run now") as seen:
            step_until(run, lambda: len(seen) > 0)
        with warnings.catch_warnings(record=True) as more:
            step_until(run, lambda: failing.tried > 20)
        failing.times = 0
    assert more == []
    assert len(seen) == 1
    assert {loss for _, loss in scalars(downloaded(memory, tmp_path / "there"), "loss/auto")} == {0.25}


def run_and_fail(run, error):
    with run:
        run.step(torch.tensor(0.25))
        raise error


def step_until(run, reached):
    def stepped():
        run.step(torch.tensor(0.25))
        return reached()

    wait_until(stepped)


def test_the_error_of_a_training_is_not_hidden(failing):
    failing.where, failing.times = "tfevents", 10**9
    run = of_metrics().watch(SmallNetwork())
    with pytest.raises(ArithmeticError, match="the loop's own") as raised:
        run_and_fail(run, ArithmeticError("the loop's own"))
    (note,) = raised.value.__notes__
    assert losses_kept(note) == [(1, 0.25)]


def test_overwriting_removes_own_records_and_no_others(memory, tmp_path):
    model_run(URL)
    (old,) = [path for path in memory.glob("/bucket/run/*tfevents*") if not path.endswith("_lineage")]
    created, token = re.search(r"summary\.0*(\d+)\..*\.([0-9a-f]{12})\.", old).groups()
    export = f"/bucket/run/export_{created}_{token}/tensor"
    for path in (f"{export}/a%2Fb_1.npy", f"{export}/mine.txt", "/bucket/run/events.out.tfevents.mine"):
        memory.pipe_file(path, b"x")
    model_run(URL, existing="overwrite")
    found = sorted(memory.find("/bucket/run"))
    assert old not in found
    assert f"{export}/a%2Fb_1.npy" not in found
    assert {f"{export}/mine.txt", "/bucket/run/events.out.tfevents.mine"} < set(found)
    memory.rm("/bucket/run/events.out.tfevents.mine")
    assert len(scalars(downloaded(memory, tmp_path / "there"), "loss/auto")) == 8


@pytest.mark.filterwarnings('ignore:existing="resume", but training begins:UserWarning')
def test_resuming_adds_records(memory, tmp_path):
    model_run(URL)
    before = set(memory.glob("/bucket/run/*tfevents*"))
    model_run(URL, existing="resume")
    assert len(memory.glob("/bucket/run/*tfevents*")) == 2 * len(before)


def test_folders_of_killed_processes_are_removed_and_others_stay():
    dead = Path(tempfile.mkdtemp(prefix=f"landscape-test-{ended_process()}-"))
    (dead / "half").write_bytes(b"x")
    alive = TemporaryFolder("landscape-test-")
    other = TemporaryFolder("landscape-test-")
    assert not dead.exists()
    assert alive.path.is_dir()
    alive.remove()
    alive.remove()
    assert not alive.path.exists()
    place = other.path
    del other
    assert not place.exists()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_leaves_what_is_not_its_own(memory):
    """Workers of a data loader have copies of everything, and some end them as the first process would."""
    uploads = records.RecordUploads(check_directory("summary_dir", URL))
    (uploads.folder / "events").write_bytes(b"1")
    folder = TemporaryFolder("landscape-test-")
    child = os.fork()
    if not child:
        try:
            uploads.close()
            folder.remove()
            (uploads.folder / "events.of.child").write_bytes(b"1")
            assert memory.glob("/bucket/run/*") == []
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert folder.path.is_dir()
    folder.remove()
    uploads.close()
    assert set(stored(memory, "/bucket/run")) == {"events", "events.of.child"}


def test_a_record_that_cannot_begin_leaves_nothing(monkeypatch):
    missing = Mock(side_effect=ImportError("no TensorBoard any more"))
    monkeypatch.setattr("collectors.summary.writer.require_tensorboard", missing)
    run = of_metrics().watch(SmallNetwork())
    with pytest.raises(ImportError, match="no TensorBoard any more"):
        run.__enter__()
    assert left() == []
