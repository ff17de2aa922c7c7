"""Workers that hang or lag: a run ends without them, and the pool goes on. All tests share one private Ray."""

from __future__ import annotations

import contextlib
import functools
import os
import signal

import numpy as np
import pytest
from cluster_devices import wait_longer_for_places
from held_evaluator import HELD, HELD_AND_DEADLY, HeldUp
from paraboloid import paraboloid_plane

from workers.measurement_options import MeasurementOptions
from workers.measuring.checks import check_determinism
from workers.pool import PointTask, StateTask
from workers.pools import crew
from workers.pools.ray_pool import RayPool
from workers.pools.ray_session import RaySession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray"),
]


@pytest.fixture(scope="module")
def session():
    with pytest.MonkeyPatch.context() as patch, RaySession(None, slots=2) as session:
        wait_longer_for_places(patch.setattr)
        yield session


@pytest.fixture
def pool(session, tmp_path):
    with RayPool(functools.partial(HeldUp, str(tmp_path)), MeasurementOptions(), device_ids=(0, 1)) as pool:
        pool.load(*paraboloid_plane())
        # Both workers have measured, so their speed is known.
        assert len(losses(pool.run(line(*range(-9, 0))))) == 9
        yield pool


def line(*coordinates):
    return [PointTask(value, (float(value), 0.0)) for value in coordinates]


def losses(results):
    results = list(results)
    assert [result.error for result in results] == [None] * len(results)
    found = {result.key: result.values["loss"] for result in results}
    assert len(found) == len(results)
    return found


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


def test_a_death_of_the_worker_that_helps_costs_nothing(pool, tmp_path):
    """The first worker has the point and goes on; the second had it too and died."""
    points = (1, 2, 3, HELD_AND_DEADLY, 7)
    assert losses(pool.run(line(*points))) == squares(points)
    assert (tmp_path / "second").exists()
    pool.load(*paraboloid_plane())
    assert pool.workers == 2
    assert losses(pool.run(line(*points))) == squares(points)
