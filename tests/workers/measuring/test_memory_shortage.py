"""Memory that runs out for real (RLIMIT_AS): smaller batches for every worker, or a clear text."""

from __future__ import annotations

import pickle
import re
import warnings
from concurrent.futures import ProcessPoolExecutor

import h5py
import hungry_network
import numpy as np
import pytest
import torch
from loaded_processes import PROCESSES
from paraboloid import Paraboloid, paraboloid_plane

import landscape
from landscape import MeasurementPlan
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError, MemoryShortageError
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measuring.memory_shortage import halved, is_memory_shortage, within_memory
from workers.pools.crew_worker import MeasurementActor
from workers.pools.in_process import InProcessPool, Worker

PLAN = MeasurementPlan(64)
GRID = {"x": np.linspace(-1, 1, 4), "y": np.linspace(-1, 1, 5), "progress": False, "compile": False, "plan": PLAN}
SMALLER = r"memory ran out in batches of 64 samples; every worker measures in batches of \d+ from here on"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray")


@pytest.fixture(scope="module")
def plane():
    return landscape.random_plane(hungry_network.HungryNetwork(), seed=1)


def survey(plane, callback, devices, output):
    """Returns the landscape and the texts of all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = landscape.evaluate(plane, callback, device_ids=devices, output=output / "landscape.h5", **GRID)
    return found, [str(item.message) for item in caught]


def elsewhere(function, *arguments):
    """Calls it in a new process: one that has freed much takes memory from there, under no limit of new memory."""
    with ProcessPoolExecutor(1, PROCESSES) as executor:
        return executor.submit(function, *arguments).result()


@pytest.fixture(scope="module")
def undisturbed(plane):
    return landscape.evaluate(plane, hungry_network.unlimited, device_ids=[0], **GRID).loss


@pytest.mark.slow
@pytest.mark.parametrize(
    ("callback", "devices"),
    [
        (hungry_network.hungry_from_the_start, [0, 1]),
        (hungry_network.hungry_at_the_origin, [0, 1]),
        (hungry_network.hungry_after_some_points, [0, 1]),
        (hungry_network.hungry_after_some_points, [0]),
    ],
)
def test_batches_are_halved_for_all_workers(plane, undisturbed, tmp_path, devices, callback):
    found, told = elsewhere(survey, plane, callback, devices, tmp_path)
    assert [text for text in told if re.search(SMALLER, text)], told
    np.testing.assert_allclose(found.loss, undisturbed, rtol=1e-6)
    assert found.attributes["measurement_plan"]["batch_size"] <= 32
    stored = landscape.Landscape.load(tmp_path / "landscape.h5")
    assert stored.attributes["measurement_plan"] == found.attributes["measurement_plan"]
    with h5py.File(tmp_path / "landscape.h5") as file:
        assert (file["status"][:] == 1).all()


@pytest.mark.slow
def test_a_loss_that_does_not_split_fails_at_its_points(plane, tmp_path):
    found, told = elsewhere(survey, plane, hungry_network.hungry_and_not_to_be_cut, [0], tmp_path)
    assert any("loss depends on how samples are batched" in text for text in told), told
    assert any("points failed and are marked so in the file" in text for text in told), told
    failed = found.status == 3
    assert 0 < failed.sum() < failed.size
    assert len(found.errors) == failed.sum()
    for text in found.errors.values():
        assert "MemoryShortageError: memory ran out while a point was measured in the data set's own batches" in text
        assert "fewer device_ids on one machine" in text


@pytest.mark.slow
def test_batches_of_the_data_set_that_are_too_large(plane, tmp_path):
    with pytest.raises(CallbackFunctionError, match=r"Memory ran out; give the data set in smaller batches, such as"):
        elsewhere(survey, plane, hungry_network.hungry_in_large_batches, [0], tmp_path)


def load_without_memory(where):
    """Loads a plane of 48 MB where 24 MB are left; returns the error."""
    plane = landscape.random_plane(hungry_network.wide()[1], seed=1)
    vectors = (plane.origin, plane.directions, plane.buffers)
    if where == "in this process":
        pool = InProcessPool(hungry_network.wide, MeasurementOptions(), plan=PLAN)
        with hungry_network.memory_limit(24), pytest.raises(MemoryShortageError) as raised:
            pool.load(*vectors)
        return str(raised.value)
    worker = MeasurementActor(None, 1, ["cpu"], [])
    assert worker.prepare(pickle.dumps(hungry_network.wide), ()) is None
    assert worker.call() is None
    worker.start(MeasurementSetup(plan=PLAN))
    with hungry_network.memory_limit(24):
        error = worker.ask("load", *vectors, (), [(1.0, 1.0)])
    assert isinstance(error, MemoryShortageError)
    return str(error)


def get_ready_without_memory():
    built = hungry_network.wide()
    with hungry_network.memory_limit(8), pytest.raises(MemoryShortageError) as raised:
        make_evaluator(built, MeasurementSetup(plan=PLAN))
    return str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in this process", "in an actor of Ray"])
def test_a_plane_that_does_not_fit_beside_the_network(where):
    text = elsewhere(load_without_memory, where)
    assert re.match(r"memory ran out while a plane was loaded: beside the network, each worker holds the origin", text)
    assert "and 2 directions, 0.048 GB" in text
    assert re.search(r"\(.*allocate", text)
    assert "fewer device_ids on one machine" in text


@pytest.mark.slow
def test_a_network_that_does_not_fit_twice():
    text = elsewhere(get_ready_without_memory)
    assert text.startswith("memory ran out while the network and its samples were put on their device (")


class Greedy(Paraboloid):
    """Runs out of memory at one point."""

    def _loss(self, x):
        if x[0] == 3:
            raise MemoryError
        return super()._loss(x)


def test_an_evaluator_without_batches_fails_at_the_point_alone():
    evaluator = Greedy()
    evaluator.load(*paraboloid_plane())
    (first, third) = Worker(evaluator).measure_points([(1.0, 0.0), (3.0, 0.0)])
    assert (first.values, first.error) == ({"loss": 1.0}, None)
    assert third.values is None
    assert "memory ran out while a point was measured in the data set's own batches, which cannot be cut" in third.error
    with pytest.raises(MemoryShortageError, match="the same call measures it again"):
        within_memory(evaluator, lambda: evaluator.measure(np.array([[3.0, 0.0]])))


@pytest.mark.parametrize(
    ("size", "samples", "smaller"), [(64, 1000, 32), (64, 40, 20), (5, 5, 3), (2, 9, 1), (3, 2, 1)]
)
def test_the_next_smaller_batch_size(size, samples, smaller):
    assert halved(size, samples) == smaller


def chained():
    try:
        raise MemoryError
    except MemoryError as error:
        result = ValueError("the step failed")
        result.__cause__ = error
        return result


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (MemoryError(), True),
        (chained(), True),
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("Memory not enough: current free memory size is smaller than required"), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), False),
        (RuntimeError("GET was unable to find an engine to execute this computation"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (None, False),
    ],
)
def test_what_counts_as_a_shortage(error, answer):
    assert is_memory_shortage(error) is answer
