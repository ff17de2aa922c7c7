"""The writing thread of SummaryRecord: slow, full and failing disks, killed and forked processes, idleness, memory."""

import io
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from event_reading import event_files, events, scalars
from places import ROOT
from tensorboard.summary.writer.record_writer import RecordWriter
from waiting import PATIENCE, wait_until

from collectors.errors import LandscapeError
from collectors.summary.record import SummaryRecord
from collectors.summary.values import SummaryStep, check_value
from collectors.summary.writer import LARGEST_QUEUE_BYTES, LONGEST_QUEUE, SummaryWriteError, SummaryWriter, record


class HeldFiles:
    """Files on a disk that writes nothing until it is let go, and then possibly fails."""

    def __init__(self, error=None):
        self.let_go = threading.Event()
        self.error = error
        self.steps = []
        self.synced = []
        self.closed = False

    def write(self, step):
        assert self.let_go.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.steps.append(step.step)

    def sync(self):
        self.synced.append(len(self.steps))

    def close(self):
        self.closed = True


def step_of(number, elements=1):
    return SummaryStep(number, 0.0, check_value("tensor", "t", np.zeros(elements)))


def training_with(files, steps):
    """Returns a writer, a thread that writes steps with it, and their numbers as it takes them, or its error."""
    writer, outcome = SummaryWriter(files, "here"), []

    def train():
        try:
            for step in steps:
                writer.write(step)
                outcome.append(step.step)
        except SummaryWriteError as error:
            outcome.append(error)

    training = threading.Thread(target=train)
    training.start()
    return writer, training, outcome


@pytest.mark.parametrize(
    ("count", "elements", "accepted"),
    [
        (LONGEST_QUEUE + 3, 1, LONGEST_QUEUE),
        (5, LARGEST_QUEUE_BYTES // 8 // 3, 2),
        (3, LARGEST_QUEUE_BYTES // 8 + 1, 1),
    ],
)
def test_a_slow_disk_holds_record_back_and_loses_nothing(count, elements, accepted, wait_until_blocked):
    files = HeldFiles()
    writer, training, outcome = training_with(files, (step_of(number, elements) for number in range(count)))
    wait_until_blocked(training)
    assert training.is_alive()
    assert len(outcome) == accepted
    files.let_go.set()
    training.join()
    writer.close()
    assert files.steps == outcome == list(range(count))
    assert files.closed


def test_a_disk_that_fails_while_record_waits_raises_there():
    files = HeldFiles(OSError(28, "No space left on device"))
    writer, training, outcome = training_with(files, map(step_of, range(LONGEST_QUEUE + 3)))
    wait_until(lambda: len(outcome) == LONGEST_QUEUE)
    files.let_go.set()
    training.join()
    assert isinstance(outcome[-1], SummaryWriteError)
    for call in (writer.flush, writer.close, writer.close, lambda: writer.write(step_of(1))):
        with pytest.raises(SummaryWriteError, match=r"cannot be written to here: .*No space left on device") as raised:
            call()
        assert isinstance(raised.value, LandscapeError)
        assert isinstance(raised.value, OSError)
    assert files.closed


def test_flush_waits_for_what_was_recorded_before_it(wait_until_blocked):
    files, done = HeldFiles(), threading.Event()
    writer = SummaryWriter(files, "here")
    for number in range(3):
        writer.write(step_of(number))
    waiting = threading.Thread(target=lambda: (writer.flush(), done.set()))
    waiting.start()
    wait_until_blocked(waiting)
    assert waiting.is_alive()
    assert not done.is_set()
    files.let_go.set()
    waiting.join()
    assert files.synced[-1] == 3
    writer.close()


def test_close_during_record_is_an_error_there():
    files = HeldFiles()
    writer, training, outcome = training_with(files, map(step_of, range(LONGEST_QUEUE + 3)))
    wait_until(lambda: len(outcome) == LONGEST_QUEUE)
    closing = threading.Thread(target=writer.close)
    closing.start()
    wait_until(lambda: not writer.is_open)
    files.let_go.set()
    training.join()
    closing.join()
    assert "was closed meanwhile" in str(outcome[-1])
    assert files.steps == list(range(LONGEST_QUEUE))
    assert files.closed


def test_records_of_many_threads_all_arrive(tmp_path):
    record = SummaryRecord(tmp_path, raise_exception=True)

    def work(index):
        for step in range(100):
            record.add_value("scalar", f"loss{index}", float(step))
            record.record(step)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record.close()
    found = {(value.tag, value.simple_value) for event in events(tmp_path) for value in event.summary.value}
    assert found == {(f"loss{index}", float(step)) for index in range(4) for step in range(100)}


def test_a_forgotten_record_ends_its_thread_and_loses_nothing(tmp_path):
    record = SummaryRecord(tmp_path, raise_exception=True)
    record.add_value("scalar", "loss", 1.0)
    record.record(1)
    thread = record._writer._thread
    del record
    wait_until(lambda: not thread.is_alive())
    assert scalars(tmp_path, "loss") == [(1, 1.0)]


HEAD = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import numpy as np
from collectors.summary.record import SummaryRecord
"""


def run(script, **options):
    command = [sys.executable, "-W", "error", "-c", HEAD + script]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_both_checksums_give_the_same_bytes_as_tensorboard(monkeypatch, size):
    content = np.random.default_rng(size).bytes(size)
    expected = io.BytesIO()
    RecordWriter(expected).write(content)
    assert record(content) == expected.getvalue()
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    assert record(content) == expected.getvalue()


def test_the_writing_thread_imports_nothing(tmp_path):
    # A process that is forked during an import would inherit half a module.
    script = f"""
VALUES = {{
    "scalar": 1.0,
    "image": np.zeros((1, 3, 4, 4)),
    "tensor": np.arange(9.0),
    "histogram": np.array([1.0, np.nan]),
    "train_lineage": {{"epoch": 3}},
    "eval_lineage": {{"metrics": {{"a": 0.5}}}},
    "dataset_graph": {{"a": [1]}},
    "custom_lineage_data": {{"a": 1}},
}}
record = SummaryRecord({str(tmp_path)!r}, raise_exception=True, export_options={{"tensor_format": "npy"}})
for plugin, value in VALUES.items():
    record.add_value(plugin, plugin, value)
before = set(sys.modules)
record.record(1)
record.close()
print(sorted(set(sys.modules) - before))
"""
    result = run(script)
    assert (result.stdout, result.stderr) == ("[]\n", "")


@pytest.mark.slow
def test_memory_stays_flat(tmp_path):
    script = f"""
import psutil
values = np.random.default_rng(0).normal(size=200)
process = psutil.Process()
with SummaryRecord({str(tmp_path)!r}, raise_exception=True, max_file_size=1_000_000) as record:
    for step in range(100_000):
        record.add_value("scalar", "loss", float(step))
        record.add_value("scalar", "accuracy", step / 100_000)
        if step % 20 == 0:
            record.add_value("histogram", "weights", values)
        record.record(step)
        if step == 20_000:
            record.flush()
            before = process.memory_info().rss
    record.flush()
    print(process.memory_info().rss - before)
"""
    result = run(script)
    assert result.stderr == ""
    assert int(result.stdout) < 24 * 2**20
    assert [event.step for event in events(tmp_path)] == list(range(100_000))


FULL_DISK = """
import itertools
from pathlib import Path
from collectors.summary.writer import SummaryWriteError
import warnings

def fill(record):
    for step in itertools.count():
        record.add_value("tensor", "t", np.full(2000, step))
        if not record.record(step):
            return step

directory = Path(DIRECTORY)
record = SummaryRecord(directory / "raises", raise_exception=True)
try:
    fill(record)
except SummaryWriteError as error:
    print("record:", error)
for call in (record.flush, record.close):
    try:
        call()
    except SummaryWriteError as error:
        print("again:", error)

record = SummaryRecord(directory / "warns")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print("false:", fill(record), record.record(1), record.record(2))
print("warnings:", [str(warning.message)[:20] for warning in caught])
try:
    record.close()
except SummaryWriteError as error:
    print("again:", error)
"""


def written_to_full_disk(directory, result, reason):
    """Checks what a script said; returns the events that it wrote."""
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["record", "again", "again", "false", "warnings", "again"]
    assert all(reason in lines[index] for index in (0, 1, 2, 5))
    assert "make room or choose another log_dir" in lines[0]
    assert lines[3].endswith("False False")
    assert lines[4] == "warnings: ['nothing is recorded:']"
    found = events(directory / "raises")
    assert [event.step for event in found] == list(range(len(found)))
    return found


@pytest.mark.parametrize("kind", ["tmpfs", "limit"])
def test_a_full_disk_is_an_error_and_what_was_written_stays_readable(tmp_path, kind):
    script = FULL_DISK.replace("DIRECTORY", repr(str(tmp_path)))
    if kind == "limit":
        # A limit on the size of files fails in the same place, for those who may not mount.
        result = run("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n" + script)
        found = written_to_full_disk(tmp_path, result, "File too large")
        assert len(found) == 6
        assert len(events(tmp_path / "warns")) == 6
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small file system")
    try:
        found = written_to_full_disk(tmp_path, run(script), "No space left on device")
        assert 10 < len(found) < 17
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


ON_A_FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
record = SummaryRecord(".")
record.add_value("tensor", "t", np.zeros(2000))
record.record(1)
"""


def test_an_error_of_training_is_not_hidden_by_a_full_disk(tmp_path):
    said = run(f"{ON_A_FULL_DISK}with record:\n    raise ZeroDivisionError('of training')", cwd=tmp_path).stderr
    assert "ZeroDivisionError: of training" in said
    assert "summaries cannot be written to" in said.rpartition("ZeroDivisionError")[2]


def test_a_killed_process_leaves_readable_records(tmp_path):
    script = f"""
import itertools
record = SummaryRecord({str(tmp_path)!r}, raise_exception=True)
for step in itertools.count():
    record.add_value("scalar", "loss", float(step))
    record.add_value("tensor", "t", np.full(8_000, step))
    record.record(step)
    if step % 10 == 0:
        record.flush()
        print(step, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", HEAD + script], stdout=subprocess.PIPE, text=True) as process:
        flushed = [int(process.stdout.readline()) for _ in range(4)][-1]
        process.send_signal(signal.SIGKILL)
    steps = [event.step for event in events(tmp_path)]
    assert steps == list(range(len(steps)))
    assert len(steps) > flushed


def test_an_exit_without_close_loses_nothing(tmp_path):
    script = f"""
record = SummaryRecord({str(tmp_path)!r}, raise_exception=True)
for step in range(500):
    record.add_value("scalar", "loss", float(step))
    record.record(step)
"""
    result = run(script)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(scalars(tmp_path, "loss")) == 500
    assert [path.stat().st_mode & 0o777 for path in event_files(tmp_path)] == [0o400]


def test_a_failure_that_nobody_was_told_shows_at_exit(tmp_path):
    assert "summaries cannot be written to" in run(ON_A_FULL_DISK, cwd=tmp_path).stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_and_spawned_processes_write_files_of_their_own(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""
import multiprocessing
import sys
sys.path.insert(0, {str(ROOT)!r})
from collectors.summary.record import SummaryRecord

def work(record, name):
    for step in range(50):
        record.add_value("scalar", name, float(step))
        record.record(step)
    record.close()

def only_leave(record):
    pass

if __name__ == "__main__":
    record = SummaryRecord({str(tmp_path / "run")!r}, raise_exception=True)
    record.add_value("scalar", "parent", -1.0)
    record.record(-1)
    record.add_value("scalar", "waiting", 1.0)
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        children = [context.Process(target=work, args=(record, f"{{method}}{{index}}")) for index in range(2)]
        children.append(context.Process(target=only_leave, args=(record,)))
        for child in children:
            child.start()
        for step in range(20):
            record.add_value("scalar", "parent", float(step))
            record.record(step)
        for child in children:
            child.join()
            assert child.exitcode == 0, child.exitcode
    record.close()
""")
    result = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert len(event_files(tmp_path / "run")) == 5
    for name in ("fork0", "fork1", "spawn0", "spawn1"):
        assert scalars(tmp_path / "run", name) == [(step, float(step)) for step in range(50)]
    assert len(scalars(tmp_path / "run", "parent")) == 41
    assert scalars(tmp_path / "run", "waiting") == [(0, 1.0)]
