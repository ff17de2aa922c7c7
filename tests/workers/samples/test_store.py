"""Samples lie in memory once: while they are read, and for all workers of a machine."""

import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from scripts import run_script
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from collectors.files import system
from workers.errors import SampleMemoryError
from workers.evaluator import SampleMemory
from workers.measurement_options import MeasurementOptions
from workers.samples.batches import Batch, quick_mark
from workers.samples.samples import Samples
from workers.samples.store import SampleFile, SampleWriter, hold, open_held
from workers.samples.torch_samples import place_samples, read_samples

MEGABYTE = 1 << 20
SHARED = SampleMemory(shared=True)
Pair = namedtuple("Pair", "first second")


def every_kind_of_array() -> list[Batch]:
    """Two batches of each kind of leaf that a loader gives."""

    def batch(start: int, stop: int) -> Batch:
        rows = np.arange(start, stop)
        inputs = {
            "bytes": torch.from_numpy(rows.astype(np.uint8)).reshape(-1, 1).expand(-1, 7),
            "bfloat16": torch.from_numpy(rows.astype(np.float32)).bfloat16(),
            "complex": Pair(torch.complex(torch.ones(stop - start, 2), torch.ones(stop - start, 2)).conj(), rows),
            "text": "the same in every batch",
        }
        return Batch(inputs, [torch.from_numpy(rows % 2 == 0), rows.astype(">i2")[::1]], stop - start)

    return [batch(0, 5), batch(5, 8)]


def written(batches: list[Batch], **options: bool) -> Samples:
    writer = SampleWriter()
    for batch in batches:
        writer.add(batch)
    return writer.finish(without_batches=False, **options)


def shared_names() -> set[Path]:
    return set(Path("/dev/shm").iterdir()) if Path("/dev/shm").exists() else set()


def test_arrays_of_every_kind_come_back_as_they_were_and_no_folder_lists_them():
    batches, before = every_kind_of_array(), shared_names()
    samples = written(batches)
    assert shared_names() == before
    assert samples.count == 8
    (whole,) = samples.batches(100)
    for start, expected in zip((0, 5), batches, strict=True):
        found = samples.own_batches[0 if start == 0 else 1]
        rows = slice(start, start + expected.size)
        for name in ("bytes", "bfloat16"):
            assert found.inputs[name].dtype == expected.inputs[name].dtype
            assert torch.equal(found.inputs[name], expected.inputs[name])
            assert torch.equal(whole.inputs[name][rows], expected.inputs[name])
        assert torch.equal(found.inputs["complex"].first, expected.inputs["complex"].first.resolve_conj())
        np.testing.assert_array_equal(found.inputs["complex"].second, expected.inputs["complex"].second)
        assert found.inputs["text"] == "the same in every batch"
        assert torch.equal(found.targets[0], expected.targets[0])
        assert found.targets[1].dtype == np.dtype(">i2")
        np.testing.assert_array_equal(found.targets[1], expected.targets[1])


def test_what_is_written_to_a_batch_reaches_no_other_process():
    samples = written(every_kind_of_array())
    other = open_held(pickle.loads(hold(samples)))
    samples.own_batches[0].inputs["bytes"][0] = 200
    assert int(other.own_batches[0].inputs["bytes"][0, 0]) == 0


_PEAK = """
    import sys, resource
    import numpy as np, torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset
    from workers.measurement_options import MeasurementOptions
    from workers.samples.torch_samples import read_samples

    ROWS, COUNT = 1 << 17, {count}

    class Rows(Dataset):
        def __len__(self): return COUNT
        def __getitem__(self, index): return torch.full((ROWS,), index % 251, dtype=torch.uint8), index % 3

    class Stream(IterableDataset):
        def __iter__(self): return (Rows()[index] for index in range(COUNT))

    def peak():
        return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

    dataset = {{"indexed": Rows, "stream": Stream}}["{kind}"]()
    read_samples(Rows(), MeasurementOptions(num_samples=4))[0].sha256(with_batches=True)
    before = peak()
    samples, _ = read_samples(DataLoader(dataset, batch_size=32), MeasurementOptions())
    samples.sha256(with_batches=True)
    assert samples.count == COUNT and samples.can_be_cut
    print((peak() - before) / (ROWS * COUNT))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads VmHWM")
@pytest.mark.parametrize("kind", ["indexed", "stream"])
def test_reading_and_hashing_take_no_second_copy(kind):
    """256 MB in batches of 4 MB: the peak was 2.0 times the samples before, with one list of batches and its copy."""
    program = textwrap.dedent(_PEAK.format(count=2048, kind=kind))
    assert float(run_script(program)) < 1.15


def test_quick_marks_tell_batches_apart():
    values = torch.rand(9, 11)
    marks = {
        quick_mark(Batch(inputs, torch.arange(9), 9))
        for inputs in (values, values.flip(0), values.double(), values.reshape(9, 11, 1), values + 1e-6)
    }
    assert len(marks) == 5
    assert quick_mark(Batch(values.clone(), torch.arange(9), 9)) in marks


class _Other(Dataset):
    """Ninety samples of which one in the middle may differ."""

    def __init__(self, changed: int = -1) -> None:
        self.changed = changed
        self.read: list[int] = []

    def __len__(self) -> int:
        return 90

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.read.append(index)
        return torch.full((1000,), float(index) + (index == self.changed)), index


def held_by_another_worker() -> tuple[Samples, SampleMemory]:
    first, _ = read_samples(DataLoader(_Other(), batch_size=10), MeasurementOptions(), memory=SHARED)
    return first, SampleMemory((hold(first),), shared=True)


def test_the_second_worker_maps_what_the_first_one_read():
    first, memory = held_by_another_worker()
    dataset = _Other()
    second, _ = read_samples(DataLoader(dataset, batch_size=10), MeasurementOptions(), memory=memory)
    assert len(set(dataset.read)) == 30, "three batches are compared, the others are not read"
    assert second.sha256(with_batches=True) == first.sha256(with_batches=True)
    assert torch.equal(second.batches(90)[0].inputs, first.batches(90)[0].inputs)


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (_Other(changed=3), {}),
        (_Other(changed=45), {}),
        (_Other(changed=89), {}),
        (_Other(), {"num_samples": 80}),
        (_Other(), {"samples": "random", "seed": 1, "num_samples": 40}),
    ],
)
def test_a_worker_with_other_samples_reads_its_own(dataset, options):
    """Their hash then says that callback_fn gave it other ones."""
    first, memory = held_by_another_worker()
    loader = DataLoader(dataset, batch_size=10)
    second, _ = read_samples(loader, MeasurementOptions(**options), memory=memory)
    expected, _ = read_samples(loader, MeasurementOptions(**options))
    assert second.sha256(with_batches=True) == expected.sha256(with_batches=True) != first.sha256(with_batches=True)


class _Counted(IterableDataset):
    def __iter__(self):
        return ((torch.full((4,), float(index)), index) for index in range(300))


def test_a_stream_is_mapped_too():
    first, _ = read_samples(_Counted(), MeasurementOptions(), memory=SHARED)
    second, _ = read_samples(_Counted(), MeasurementOptions(), memory=SampleMemory((hold(first),)))
    assert second.sha256(with_batches=False) == first.sha256(with_batches=False)
    assert second.count == 300


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="files without names are shared on Linux")
def test_nothing_is_left_of_a_killed_worker_and_its_samples_are_out_of_reach():
    program = textwrap.dedent("""
        import sys, torch
        from workers.samples.batches import Batch
        from workers.samples.store import SampleWriter, hold
        writer = SampleWriter()
        writer.add(Batch(torch.ones(9, 9), torch.ones(9), 9))
        samples = writer.finish(without_batches=False)
        print(hold(samples).hex(), flush=True)
        sys.stdin.read()  # until it is killed
    """)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        held = bytes.fromhex(process.stdout.readline().decode())
        samples = open_held(pickle.loads(held))
        assert torch.equal(samples.own_batches[0].inputs, torch.ones(9, 9))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert open_held(pickle.loads(held)) is None
    assert torch.equal(samples.own_batches[0].inputs, torch.ones(9, 9)), "what is mapped stays"
    assert open_held(pickle.loads(hold(samples))) is not None, "and can be handed on"


def test_another_file_under_the_same_number_is_not_taken():
    first, _ = held_by_another_worker()
    handle = first.store.files[0].handle()
    for changed in ({"inode": (0, 0)}, {"size": 1}, {"machine": "another"}, {"path": "/dev/null"}):
        assert SampleFile.open(type(handle)(**{**vars(handle), **changed})) is None
    assert SampleFile.open(handle) is not None


def test_elsewhere_others_map_a_file_of_a_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(system, "LINUX", False)
    monkeypatch.setattr(system, "machine_identity", lambda: "")
    dataset, memory = DataLoader(_Other(), batch_size=10), SampleMemory(shared=True, folder=str(tmp_path))
    first, _ = read_samples(dataset, MeasurementOptions(), memory=memory)
    assert list(tmp_path.iterdir())
    other = open_held(pickle.loads(hold(first)))
    assert other.sha256(with_batches=True) == first.sha256(with_batches=True)
    assert hold(read_samples(dataset, MeasurementOptions(), memory=SHARED)[0]) is None, "of no folder"
    assert open_held(pickle.loads(hold(other))) is not None, "and can be handed on"
    del other
    assert list(tmp_path.iterdir()), "it is not this one's"
    del first
    assert not list(tmp_path.iterdir())


def test_a_sealed_file_takes_nothing_more():
    file = SampleFile()
    file.append(memoryview(b"abc"), 1)
    file.seal()
    with pytest.raises(SampleMemoryError, match="no room for the samples"):
        file.append(memoryview(b"d"), 1)


@pytest.mark.slow
def test_no_room_is_an_error_that_says_what_to_do():
    """A real limit: the process may make no file, and no memory file, of more than 1 MB."""
    program = textwrap.dedent("""
        import resource, signal, torch
        from workers.errors import SampleMemoryError
        from workers.measurement_options import MeasurementOptions
        from workers.samples.torch_samples import read_samples
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            read_samples((torch.ones(1 << 19), torch.ones(1 << 19)), MeasurementOptions())
        except SampleMemoryError as error:
            print(error)
    """)
    assert re.search("there is no room for the samples.*num_samples", run_script(program))


def test_many_images_are_laid_out_as_they_are_used(monkeypatch):
    """A copy of all would take as much memory again, in each worker."""
    monkeypatch.setattr("workers.samples.torch_samples._LAID_OUT_AT_ONCE", 0)
    images = torch.rand(40, 3, 8, 8)
    samples, _ = read_samples(TensorDataset(images, torch.zeros(40)), MeasurementOptions())
    placed = place_samples(samples, torch.device("cpu"), channels_last=True)
    found = placed.batches(16)[1]
    assert found.inputs.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found.inputs, images[16:32])
    assert [batch.size for batch in placed.batches(16)[1:]] == [16, 8]
    (unchanged,) = samples.own_batches
    assert unchanged.inputs.is_contiguous()


def test_batches_that_are_never_joined_take_one_file():
    """A process may have few files open, and such a batch may have hundreds of arrays."""
    cut, whole = (SampleWriter(), SampleWriter())
    for number in range(3):
        arrays = tuple(np.full(place + 1, number, np.float32) for place in range(100))
        whole.add(Batch((arrays,), None, 100, can_be_cut=False))
        cut.add(Batch(np.full((4, 2), number, np.float32), np.full(4, number), 4))
    assert (len(cut._files), len(whole._files)) == (2, 1)
    for number, batch in enumerate(whole.finish(without_batches=False).own_batches):
        for place, array in enumerate(batch.inputs[0]):
            np.testing.assert_array_equal(array, np.full(place + 1, number))
