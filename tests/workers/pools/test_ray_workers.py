"""Workers on Ray: weights and samples that they read by themselves, and those that hang or lag; all share one Ray."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from cluster_devices import wait_longer_for_places, wait_until_free
from held_evaluator import HELD, HeldUp
from paraboloid import Paraboloid, paraboloid_plane
from torch import nn
from torch.utils.data import DataLoader, Dataset
from waiting import wait_until
from worker_cases import ConvNet, case, plane_of, seeded, state_of, values

from collectors.networks.readers import describe_network
from collectors.networks.weight_space import describe_arrays
from collectors.weights.aligned import CompletedState, NetworkState, align
from collectors.weights.safetensors_file import CheckpointFile, portable, write_checkpoint
from workers.errors import ChangedSamplesError
from workers.evaluator import SampleMemory
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.measuring.checks import check_determinism
from workers.pool import PointTask, StateTask
from workers.pools import crew
from workers.pools.in_process import InProcessPool
from workers.pools.open_pool import open_pool, report_devices
from workers.pools.ray_pool import RayPool
from workers.pools.ray_session import RaySession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray"),
]


@pytest.fixture(scope="module", autouse=True)
def session():
    with pytest.MonkeyPatch.context() as patch, RaySession(None, slots=10):
        wait_longer_for_places(patch.setattr)
        yield


@pytest.fixture(scope="module")
def paraboloid():
    with RayPool(Paraboloid, MeasurementOptions(), device_ids=(0, 1)) as pool:
        pool.load(*paraboloid_plane())
        yield pool


@pytest.fixture(params=["reached", "of the driver alone"])
def folder(request, tmp_path):
    """A folder that workers reach, or one that a process sees only through a file descriptor of its own."""
    if request.param == "reached":
        yield tmp_path, True
        return
    descriptor = os.open(tmp_path, os.O_RDONLY)
    # A number that no worker has for a folder.
    high = os.dup2(descriptor, 777)
    os.close(descriptor)
    yield type(tmp_path)(f"/proc/self/fd/{high}"), False
    os.close(high)


def counting(read, reads):
    reads.append(1)
    return read()


def normalized():
    return (*case("batchnorm"), {})


@pytest.fixture(scope="module")
def pools():
    """In this process, and of two workers; both have the same plane."""
    options, plan = MeasurementOptions(), MeasurementPlan(16, 1)
    with (
        InProcessPool(normalized, options, plan=plan) as alone,
        RayPool(normalized, options, device_ids=(0, 1), plan=plan) as pool,
    ):
        for each in (alone, pool):
            each.load(*plane_of(normalized()[1]))
        yield alone, pool


def test_the_same_bits_as_in_one_process(pools, folder):
    """Names with prefixes, frozen parameters in a file of their own, and buffers of three kinds."""
    place, is_reached = folder
    alone, pool = pools
    space = describe_network(normalized()[1])
    readers = []
    for number in range(3):
        parameters, buffers = state_of(seeded(ConvNet, seed=1 + number))
        frozen = {name: parameters.pop(name) for name in ("head.bias", "features.0.weight")}
        wrapped = {f"module.{name}": array for name, array in (parameters | buffers).items()}
        write_checkpoint(place / f"{number}.safetensors", wrapped)
        write_checkpoint(place / f"{number}_frozen.safetensors", {f"module.{name}": frozen[name] for name in frozen})
        files = [CheckpointFile(place / f"{number}{end}.safetensors") for end in ("", "_frozen")]
        readers.append(align(CompletedState(*files), space))
    given = state_of(seeded(ConvNet, seed=9))[1]
    reads = []
    tasks = [
        StateTask(
            (number, kind),
            functools.partial(counting, NetworkState(lambda reader=reader: reader, space, own, buffers), reads),
            NetworkState(portable(reader), space, own, buffers),
        )
        for number, reader in enumerate(readers)
        for kind, own, buffers in (("own", True, None), ("plane's", False, None), ("given", False, given))
    ]
    expected = values(alone.run(tasks))
    assert len({str(item) for item in expected.values()}) == 9
    assert len(reads) == 9
    reads.clear()
    assert values(pool.run(tasks)) == expected
    assert bool(reads) != is_reached


def file_task(place, number, reads, held=None):
    """A set of weights that the driver reads at any rate, and workers from its file."""
    write_checkpoint(place / f"{number}.safetensors", {"x": np.array([number, 0.0, 0.0])})
    space = describe_arrays({"x": np.zeros(3)})
    reader = align(CheckpointFile(place / f"{number}.safetensors"), space)

    def read():
        reads.append(number)
        if held is not None:
            gc.collect()
            assert not [array for array in held if array() is not None]
        array = np.array([number, 0.0, 0.0])
        if held is not None:
            held.append(weakref.ref(array))
        return {"x": array}, {}

    return StateTask(number, read, NetworkState(portable(reader), space, True))


def test_slots_of_a_cluster_may_be_joined_and_the_threads_with_them(paraboloid):
    import ray

    layout = {"devices_per_worker": 2}
    free = int(ray.available_resources()["CPU"])
    with open_pool(Paraboloid, MeasurementOptions(), device_ids=[0, 1, 2, 3], **layout) as pool:
        assert pool.workers == 2
        wait_until_free(free - 4, "CPU")
        report = report_devices([0, 1], **layout)
        assert [(worker.devices, worker.cores, worker.threads) for worker in report.workers] == [((0, 1), None, 2)]
        assert "cores as the cluster gives them, 2 threads" in str(report), str(report)
    wait_until_free(free, "CPU")


def test_the_driver_holds_one_at_a_time(paraboloid, folder):
    place, is_reached = folder
    reads = []
    held = []
    tasks = [file_task(place, number, reads, held) for number in range(8)]
    assert len(values(paraboloid.run(tasks))) == 8
    assert sorted(reads) == ([] if is_reached else list(range(8)))


def test_a_worker_that_dies_of_it_costs_no_other(paraboloid, tmp_path):
    reads = []
    tasks = [file_task(tmp_path, number, reads) for number in (1, 2, -11, 3)]
    results = {result.key: result for result in paraboloid.run(tasks)}
    assert {key: result.values["loss"] for key, result in results.items() if result.values} == {1: 1.0, 2: 4.0, 3: 9.0}
    assert "died" in results[-11].error
    assert not reads


COUNT, WIDTH = 1000, 64 * 1024  # 64 MB of uint8
NAME = "memfd:landscape"
reads_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Pictures(Dataset):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        values = torch.full((WIDTH,), index * 7 % 256, dtype=torch.uint8)
        return values, index % 3


class Network(nn.Linear):
    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(16, 3)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return super().forward(pictures[:, :16].float() / 255)


def callback_fn(pictures=Pictures):
    return nn.CrossEntropyLoss(), Network(), DataLoader(pictures(), batch_size=50), {}


def mapped(process: int) -> tuple[int, int, set[str]]:
    """Returns the bytes of samples that a process has in memory, its share (Pss) of them, and the files' inodes."""
    resident = share = 0
    inodes, ours = set(), False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            ours = NAME in line
            if ours:
                inodes.add(words[4])
        elif ours and words[0] == "Rss:":
            resident += int(words[1]) * 1024
        elif ours and words[0] == "Pss:":
            share += int(words[1]) * 1024
    return resident, share, inodes


PLANE = plane_of(Network(), axes=1)
TASKS = [PointTask(index, (float(x),)) for index, x in enumerate(np.linspace(-1, 1, 40))]
PLAN, OPTIONS = MeasurementPlan(50, 1), MeasurementOptions()
on_two = functools.partial(RayPool, options=OPTIONS, device_ids=(0, 1), plan=PLAN)


@pytest.fixture(scope="module")
def expected():
    with InProcessPool(callback_fn, OPTIONS, plan=PLAN) as alone:
        alone.load(*PLANE)
        return losses(alone.run(TASKS))


@reads_proc
def test_two_workers_have_the_samples_once(expected):
    with on_two(callback_fn) as pool:
        pool.load(*PLANE)
        pool.measure_origin()
        first, second = pool.process_ids
        (resident, share, files), (other_resident, other_share, other_files) = mapped(first), mapped(second)
        size = COUNT * WIDTH
        assert files == other_files
        assert resident > 0.9 * size, "pages that nobody read need not be there"
        assert other_resident > 0.9 * size
        assert share + other_share < 1.1 * size, "each page is counted once, half for each"
        # Whoever takes the place of the worker that read them maps what the other one has.
        os.kill(first, signal.SIGKILL)
        found = losses(pool.run(TASKS))
        pool.measure_origin()
        new = next(process for process in pool.process_ids if process != second)
        assert mapped(new)[2] == other_files
    assert found == expected
    wait_until(lambda: not Path(f"/proc/{second}").exists(), what="the worker's end")


class Fickle(Pictures):
    """From the moment at which a file is there, the last sample is another one."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        values, target = super().__getitem__(index)
        return (values + (index == COUNT - 1 and self.marker.exists()), target)


@pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning")
@reads_proc
def test_workers_read_what_does_not_fit_in_passes(expected, tmp_path):
    """The same numbers as in memory, a pass for each chunk; passes that differ end the run with one clear error."""
    marker = tmp_path / "changed"
    memory = SampleMemory(limit=COUNT * WIDTH // 4)
    with on_two(callback_fn, memory=memory) as pool:
        pool.load(*PLANE)
        for origin in pool.measure_origin():
            assert origin.measured.pass_cost.points >= 1
        assert pool.description.streamed
        assert losses(pool.run(TASKS)) == pytest.approx(expected, rel=1e-6)
        assert all(mapped(process)[0] < COUNT * WIDTH / 2 for process in pool.process_ids)
    with on_two(
        functools.partial(callback_fn, functools.partial(Fickle, marker)), device_ids=(0,), memory=memory
    ) as pool:
        pool.load(*PLANE)
        pool.measure_origin()
        marker.touch()
        for measure in (lambda: pool.load(*PLANE), lambda: losses(pool.run(TASKS))):
            with pytest.raises(ChangedSamplesError, match=r"batch 19 .* is another one now"):
                measure()


@pytest.fixture
def pool(tmp_path):
    with RayPool(functools.partial(HeldUp, str(tmp_path)), MeasurementOptions(), device_ids=(0, 1)) as pool:
        pool.load(*paraboloid_plane())
        # Both workers have measured, so their speed is known.
        assert len(losses(pool.run(line(*range(-9, 0))))) == 9
        yield pool


def line(*coordinates):
    return [PointTask(value, (float(value), 0.0)) for value in coordinates]


def losses(results):
    return {key: float.fromhex(found["loss"]) for key, found in values(results).items()}


POINTS = (0.5, 1, 2, 3, 4, HELD, 7, 8)


def squares(points):
    return {value: float(value) ** 2 for value in points}


def test_a_run_ends_without_the_worker_that_is_held_up(pool, tmp_path):
    assert losses(pool.run(line(*POINTS))) == squares(POINTS)
    assert (tmp_path / f"first at {HELD}").exists()
    # It still is: what it answers later is not taken for a result of this run.
    others = [-value / 4 for value in range(1, 20)]
    assert losses(pool.run(line(*others))) == squares(others)
    (tmp_path / "go").touch()
    processes = pool.process_ids
    assert losses(pool.run(line(*POINTS, *others))) == squares([*POINTS, *others])
    pool.load(*paraboloid_plane())
    check_determinism(pool.measure_origin())
    assert pool.process_ids == processes
    assert losses(pool.run(line(*POINTS))) == squares(POINTS)


def test_a_set_of_weights_is_measured_elsewhere_and_read_once(pool, tmp_path):
    read = []

    def state():
        read.append(1)
        return {"x": np.array([HELD, 0.0, 1.0])}, None

    tasks = [StateTask("state", state), *line(1, 2, 3)]
    assert losses(pool.run(tasks)) == {"state": HELD**2 + 1, **squares((1, 2, 3))}
    assert (tmp_path / f"first at {HELD}").exists()
    assert read == [1]


def test_a_worker_that_does_not_come_back_is_replaced(pool, monkeypatch):
    monkeypatch.setattr(crew, "_PATIENCE_SECONDS", 1.0)
    first, second = pool.process_ids
    os.kill(first, signal.SIGSTOP)
    try:
        assert losses(pool.run(line(*range(7, 10)))) == squares(range(7, 10))
        pool.load(*paraboloid_plane())
        assert pool.workers == 2
        assert first not in pool.process_ids
        assert second in pool.process_ids
        assert losses(pool.run(line(0.5, 1, 2))) == squares((0.5, 1, 2))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
