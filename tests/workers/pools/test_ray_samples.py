"""The samples of a machine lie once in memory for all of its workers."""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from worker_cases import plane_of

from workers.errors import ChangedSamplesError
from workers.evaluator import SampleMemory
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import PointTask
from workers.pools.in_process import InProcessPool
from workers.pools.ray_pool import RayPool

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
COUNT, WIDTH = 1000, 64 * 1024  # 64 MB of uint8
NAME = "memfd:landscape"


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


def losses(pool):
    return {result.key: result.values["loss"] for result in pool.run(TASKS)}


@pytest.fixture(scope="module")
def expected():
    with InProcessPool(callback_fn, OPTIONS, plan=PLAN) as alone:
        alone.load(*PLANE)
        return losses(alone)


@pytest.mark.slow
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
        found = losses(pool)
        pool.measure_origin()
        new = next(process for process in pool.process_ids if process != second)
        assert mapped(new)[2] == other_files
    assert found == expected
    assert not Path(f"/proc/{second}").exists() or not mapped(second)[0]


class Fickle(Pictures):
    """From the moment at which a file is there, the last sample is another one."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        values, target = super().__getitem__(index)
        return (values + (index == COUNT - 1 and Path(os.environ["MARKER"]).exists()), target)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning")
def test_workers_read_what_does_not_fit_in_passes(expected, tmp_path, monkeypatch):
    """The same numbers as in memory, a pass for each chunk; passes that differ end the run with one clear error."""
    marker = tmp_path / "changed"
    monkeypatch.setenv("MARKER", str(marker))
    memory = SampleMemory(limit=COUNT * WIDTH // 4)
    with on_two(callback_fn, memory=memory) as pool:
        pool.load(*PLANE)
        for origin in pool.measure_origin():
            assert origin.measured.pass_cost.points >= 1
        assert pool.description.streamed
        assert losses(pool) == pytest.approx(expected, rel=1e-6)
        assert all(mapped(process)[0] < COUNT * WIDTH / 2 for process in pool.process_ids)
    with on_two(functools.partial(callback_fn, Fickle), memory=memory) as pool:
        pool.load(*PLANE)
        pool.measure_origin()
        marker.touch()
        for measure in (lambda: pool.load(*PLANE), lambda: losses(pool)):
            with pytest.raises(ChangedSamplesError, match=r"batch 19 .* is another one now"):
                measure()
