"""Curvature on several workers: the same bits as in one process, whoever has which samples, and whatever dies."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from paraboloid import Paraboloid
from torch import nn
from torch.utils.data import TensorDataset
from worker_cases import classes, features, plane_of, seeded, state_of

from workers.curvature.measuring import CurvatureSettings
from workers.curvature.products import SHARES, add_shares, whole_halves
from workers.errors import CurvatureError
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import CurvatureTask, PointTask
from workers.pools.crew_worker import MeasurementActor
from workers.pools.in_process import InProcessPool, Worker
from workers.pools.local_pool import LocalPool
from workers.pools.ray_pool import RayPool

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray")
PLAN = MeasurementPlan(16, 1)
SETTINGS = CurvatureSettings(top=2, bottom=1, trace_probes=3, density_probes=1, density_steps=5, keep_vectors=True)


class Trap(nn.Module):
    """Ends the process, or raises, where weights are very large, as long as a file is there."""

    def forward(self, value):
        largest = float(value.detach().abs().max())
        if largest > 1e5 and "TRAP" in os.environ:
            # Only one of the workers that come here at once removes the file.
            with suppress(FileNotFoundError):
                os.unlink(os.environ["TRAP"])  # noqa: PTH108
                os.kill(os.getpid(), signal.SIGKILL)
        if largest > 1e9:
            os._exit(9)
        return value.tanh()


def network(seed=0):
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), Trap(), nn.Linear(8, 4)), seed=seed)


def user_data():
    return nn.CrossEntropyLoss(), network(), TensorDataset(features(), classes()), {}


def weights(seed, scale=1.0):
    parameters, buffers = state_of(network(seed))
    return {name: array * np.float32(scale) for name, array in parameters.items()}, buffers


def tasks(*scales, settings=SETTINGS, source=True):
    return [
        CurvatureTask(
            number, partial(weights, number, scale), settings, partial(weights, number, scale) if source else None
        )
        for number, scale in enumerate(scales)
    ]


def bits(results):
    """Pickled values by key; each key once."""
    results = list(results)
    assert [result.error for result in results] == [None] * len(results)
    found = {result.key: pickle.dumps(result.values) for result in results}
    assert len(found) == len(results)
    return found


@pytest.fixture(scope="module")
def expected():
    with InProcessPool(user_data, MeasurementOptions(), plan=PLAN) as pool:
        return bits(pool.run_curvature(tasks(1.0, 1.1, 1.2, 1.3)))


def test_halves_of_shares_add_up_to_the_same_bits():
    numbers = np.random.default_rng(0).standard_normal((SHARES, 50)) * np.geomspace(1, 1e9, SHARES)[:, None]

    def single(part):
        return numbers[part.start] if len(part) == 1 else None

    whole = add_shares(range(SHARES), single)
    for workers in range(1, SHARES + 1):
        ends = [SHARES * number // workers for number in range(workers + 1)]
        parts = [part for start, stop in itertools.pairwise(ends) for part in whole_halves(range(start, stop))]
        assert [share for part in parts for share in part] == list(range(SHARES))
        found = {part: add_shares(part, single) for part in parts}
        np.testing.assert_array_equal(add_shares(range(SHARES), found.get), whole)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Three workers; those that are killed are started again, as on Ray, where that takes ten times as long."""
    trap = str(tmp_path_factory.mktemp("trap") / "armed")

    def data():
        os.environ["TRAP"] = trap
        return user_data()

    with LocalPool(data, MeasurementOptions(), device_ids=(0, 1, 2), plan=PLAN) as pool:
        pool.trap = Path(trap)
        yield pool


def check_bits(pool, expected):
    pool.load(*plane_of(network()))
    point = PointTask("point", (0.3, -0.2))
    (before,) = pool.run([point])
    given = tasks(1.0, 1.1, 1.2, 1.3)
    assert bits(pool.run_curvature(given)) == expected
    assert bits([pool.measure_curvature(given[3])]) == {3: expected[3]}
    sent = tasks(1.0, 1.1, 1.2, 1.3, source=False)
    assert bits(pool.run_curvature(sent)) == expected
    (after,) = pool.run([point])
    assert after.values == before.values


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_the_same_bits_as_in_one_process_whoever_has_which_samples(pool, expected, count, monkeypatch):
    monkeypatch.setattr(pool._crew, "workers", pool._crew.workers[:count])
    check_bits(pool, expected)


@pytest.mark.slow
def test_the_same_bits_on_ray(expected):
    with RayPool(user_data, MeasurementOptions(), device_ids=(0, 1), plan=PLAN, address="local") as pool:
        check_bits(pool, expected)


@pytest.mark.slow
def test_a_checkpoint_of_numbers_without_meaning_fails_with_its_text(pool):
    given = tasks(1.0, float("nan"))
    found = {result.key: result for result in pool.run_curvature(given)}
    assert found[0].values
    for result in (found[1], pool.measure_curvature(given[1])):
        assert "the loss is nan" in result.error


@pytest.mark.slow
def test_a_killed_workers_checkpoint_and_shares_are_measured_again(pool, expected):
    given = tasks(1.0, 1e6, 1.2)
    with InProcessPool(user_data, MeasurementOptions(), plan=PLAN) as process:
        wanted = bits(process.run_curvature(given))
    for measure in (lambda: pool.run_curvature(given), lambda: [pool.measure_curvature(given[1])]):
        pool.trap.touch()
        before = pool.process_ids
        found = bits(measure())
        assert found == {key: wanted[key] for key in found}
        assert not pool.trap.exists()
        assert len(set(before) - set(pool.process_ids)) == 1
    assert bits([pool.measure_curvature(tasks(1.0)[0])]) == {0: expected[0]}


@pytest.mark.slow
def test_weights_that_kill_every_worker_fail_and_the_next_are_measured(pool, expected):
    deadly, good = tasks(1e12)[0], tasks(1.0)[0]
    assert "died 3 times while they measured the curvature" in pool.measure_curvature(deadly).error
    assert bits([pool.measure_curvature(good)]) == {0: expected[0]}


def test_an_evaluator_without_derivatives():
    """The error that the driver raises."""
    actor, (task,) = MeasurementActor.__new__(MeasurementActor), tasks(1.0)
    actor._worker = Worker(Paraboloid())
    for error in (actor.measure_state({}, None, task.settings), actor.ask("open_shares", task.settings.products)):
        assert type(error) is CurvatureError
        assert re.search(r"Paraboloid makes no products of the Hessian.*trace_by_lines", str(error))
