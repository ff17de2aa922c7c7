"""The pool of one process, and when it is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from false_clock import FalseClock
from paraboloid import Paraboloid, paraboloid_plane
from places import SUPPORT
from scripts import run_script
from torch import nn
from worker_cases import ConvNet, case, classes, features, found, mlp, plane_of, seeded, state_of

from workers.errors import NondeterministicLossError
from workers.evaluator import OriginMeasurement
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.measuring.checks import check_determinism
from workers.pool import OriginValues, PointTask, StateTask
from workers.pools.in_process import InProcessPool
from workers.pools.open_pool import open_pool

PLAN = MeasurementPlan(16)


def opened(loss, network, dataset):
    return InProcessPool(lambda: (loss, network, dataset, {}), MeasurementOptions(), plan=PLAN)


def test_results_are_the_evaluators():
    loss, network, dataset = case("batchnorm")
    before = found(network)
    other = seeded(ConvNet, seed=3)
    with opened(loss, network, dataset) as pool:
        assert pool.workers == 1
        assert pool.description.metrics == ("loss", "loss_stderr")
        pool.load(*plane_of(network))
        tasks = [PointTask(("a", 1), (0.0, 0.0)), StateTask("b", lambda: state_of(other)), PointTask(3, (0.1, 0.2))]
        results = list(pool.run(iter(tasks)))
        evaluator = pool._worker.evaluator
        expected = evaluator.measure(np.array([[0.0, 0.0], [0.1, 0.2]]))["loss"]
        own = evaluator.measure_state(*state_of(other))
    assert [result.key for result in results] == [("a", 1), "b", 3]
    assert [result.error for result in results] == [None] * 3
    assert [results[0].values["loss"], results[2].values["loss"]] == expected.tolist()
    assert results[1].values == own
    assert found(network) == before


class Threaded(Paraboloid):
    """Measures with two threads, which take ten times as long from the fourth call on."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.calls = clock, 0
        self.use_plan(2)

    def use_plan(self, threads):
        self._description = replace(self.description, plan=MeasurementPlan(threads=threads))

    def measure(self, points):
        self.calls += 1
        self.clock.go_on(len(points) * (1 if self.calls <= 3 or self.description.plan.threads == 1 else 10))
        return super().measure(points)

    def use_one_thread(self):
        self.use_plan(1)


@pytest.mark.parametrize(("plan", "threads", "seconds"), [(None, 1, 3 + 5 * 10 + 15), (PLAN, 2, 3 + 20 * 10)])
def test_several_threads_that_become_slow_give_way_to_one_unless_the_plan_is_given(monkeypatch, plan, threads, seconds):
    clock = FalseClock(monkeypatch)
    begin, evaluator = clock.now, Threaded(clock)
    with InProcessPool(lambda: evaluator, MeasurementOptions(), plan=plan) as pool:
        pool.load(*paraboloid_plane())
        pool.measure_origin()
        assert all(result.error is None for result in pool.run(PointTask(place, (0.1, 0.0)) for place in range(20)))
        assert pool.description.plan.threads == threads
    assert clock.now - begin == seconds


def test_a_task_that_raises_costs_only_itself():
    def unreadable():
        raise OSError("the disk is gone")

    with InProcessPool(Paraboloid, MeasurementOptions()) as pool:
        pool.load(*paraboloid_plane())
        tasks = [
            PointTask(0, (0.5, 0.0)),
            PointTask(1, (20.0, 0.0)),
            StateTask(2, unreadable),
            StateTask(3, lambda: ({"x": np.full(3, 11.0)}, {})),
            PointTask(4, (0.5, 0.0)),
        ]
        results = list(pool.run(iter(tasks)))
    assert [result.values is None for result in results] == [False, True, True, True, False]
    assert results[0].values == results[4].values
    assert "ValueError: the trap is sprung" in results[1].error
    assert results[1].error.startswith("Traceback")
    assert "OSError: the disk is gone" in results[2].error
    assert "the trap is sprung" in results[3].error


def test_the_network_is_put_back_when_the_caller_raises():
    loss, network, dataset = case("plain")
    before = found(network)

    def measure_and_raise():
        with opened(loss, network, dataset) as pool:
            pool.load(*plane_of(network))
            next(iter(pool.run([PointTask(0, (1.0, 1.0))])))
            raise KeyError("the caller's own")

    with pytest.raises(KeyError, match="the caller's own"):
        measure_and_raise()
    assert found(network) == before


class Forgetful(nn.Linear):
    """Drops values in eval mode too."""

    def forward(self, inputs):
        return nn.functional.dropout(super().forward(inputs), 0.5, training=True)


def test_a_network_with_randomness_is_found_out():
    network = Forgetful(6, 4).train()
    before = found(network)
    text = r"same weights and samples, but loss is .* draws random numbers in eval mode"
    with pytest.raises(NondeterministicLossError, match=text):
        opened(nn.CrossEntropyLoss(), network, (features(), classes()))
    assert found(network) == before


class Drifting(nn.Linear):
    """Changes its own state a little with each pass, in a buffer that no checkpoint holds."""

    def __init__(self):
        super().__init__(6, 4)
        self.register_buffer("scale", torch.ones(()), persistent=False)

    def forward(self, inputs):
        self.scale += 1e-5
        return super().forward(inputs) * self.scale


def test_a_network_that_drifts_is_found_out_at_the_origin():
    torch.manual_seed(0)  # with some weights, the drift shows before a plane is loaded
    network = Drifting()
    with opened(nn.MSELoss(), network, (features(), features(inputs=4))) as pool:
        origin, directions, buffers = plane_of(network)
        origin["weight"] *= 30
        with pytest.raises(NondeterministicLossError, match="changes its own state while it is evaluated"):
            pool.load(origin, directions, buffers)


def test_a_nan_origin_is_deterministic():
    network = mlp()
    origin, directions, buffers = plane_of(network)
    origin["0.weight"][0, 0] = np.nan
    with opened(nn.CrossEntropyLoss(), network, (features(), classes())) as pool:
        pool.load(origin, directions, buffers)
        (values,) = pool.measure_origin()
        assert np.isnan(check_determinism([values])["loss"])
        assert values.device == "cpu"


def origin(loss, again=None, device="cpu", elsewhere=None, **others):
    both = ({"loss": loss, **others}, {"loss": loss if again is None else again, **others})
    return OriginValues("a worker", device, OriginMeasurement(both, elsewhere=elsewhere or {}))


FAR = {"loss": 5.0}
OTHER = [(1.0, 1 + 3e-5), (np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (np.inf, 1e300), (0.0, 3e-7)]
A_FEW = OriginMeasurement(({"loss": 1.0},), ({"loss": 3.0}, {"loss": 3.001}))


@pytest.mark.parametrize(
    "origins",
    [
        *([origin(value), origin(value)] for value in (0.0, 1.0, -3.0, np.nan, np.inf, 1e300)),
        [origin(1.0), origin(1 + 5e-5, device="cuda")],
        [origin(2e-6, 2e-6 + 4e-8, elsewhere=FAR)],  # rounding of logits, where losses are 5
        [origin(1.0, loss_stderr=0.1), origin(1.0, loss_stderr=0.1 + 5e-5)],
    ],
)
def test_origins_that_are_equal(origins):
    assert check_determinism(origins)["loss"] is origins[0].measured.values[0]["loss"]


@pytest.mark.parametrize(
    ("origins", "text"),
    [
        *(([origin(one, other)], r"on a worker\. Likely causes") for one, other in OTHER),
        *(([origin(one), origin(other)], "Make the evaluation deterministic and run again") for one, other in OTHER),
        ([origin(1.0), origin(1 + 3e-4, device="cuda")], "measured twice"),
        # A converged network's loss that is 4 per cent off was equal while 1e-7 was allowed.
        ([origin(2e-6, 2.08e-6)], r"loss is 2e-06"),
        ([origin(2e-6, 2e-6 + 8e-8, elsewhere=FAR)], r"loss is 2e-06"),
        ([OriginValues("a worker", "cpu", A_FEW)], r"loss is 3\.0 and then 3\.001 on a worker"),
        ([origin(1.0, accuracy=0.5), origin(1.0, accuracy=0.6)], r"but accuracy is 0\.5"),
    ],
)
def test_origins_that_differ(origins, text):
    with pytest.raises(NondeterministicLossError, match=text):
        check_determinism(origins)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"callback_fn": 3}, TypeError, "callback_fn must be a function without arguments, but got int"),
        ({"device_ids": []}, ValueError, "device_ids must be a list with at least one device id"),
        ({"device_ids": [1, 1]}, ValueError, "no device id is repeated"),
        ({"device_ids": [-1]}, ValueError, r"device_ids\[0\] must be an int of at least 0"),
        ({"device_ids": "0"}, TypeError, "device_ids must be a list of ints or None"),
        ({"devices_per_worker": 0}, ValueError, "devices_per_worker must be an int of at least 1, but got 0"),
        ({"workers_per_device": -1}, ValueError, "workers_per_device must be an int of at least 1, but got -1"),
        ({"devices_per_worker": 1.5}, TypeError, "devices_per_worker must be an int"),
        ({"workers_per_device": True}, TypeError, "workers_per_device must be an int"),
        ({"devices_per_worker": 2, "workers_per_device": 3}, ValueError, "one of .* may exceed 1, but got 2 and 3"),
        (
            {"device_ids": [0, 1], "devices_per_worker": 3},
            ValueError,
            r"device_ids must be ids whose number is a multiple of devices_per_worker=3, but got \[0, 1\]",
        ),
        ({"device_ids": [0], "devices_per_worker": 2}, ValueError, r"multiple of devices_per_worker=2, .*\[0\]"),
        ({"compile": "yes"}, ValueError, 'compile must be True, False or "auto"'),
        *(({"compile": choice}, TypeError, 'compile must be True, False or "auto"') for choice in (1, None)),
    ],
)
def test_arguments_are_checked(arguments, error, text):
    with pytest.raises(error, match=text):
        open_pool(**{"callback_fn": Paraboloid, "options": MeasurementOptions(), **arguments})


def test_nothing_is_started():
    assert run_script(NOTHING_STARTED, SUPPORT).split() == ["InProcessPool", "measured"]


NOTHING_STARTED = """
import sys
sys.path.insert(0, sys.argv[1])
import psutil
from paraboloid import Paraboloid, paraboloid_plane
from workers.measurement_options import MeasurementOptions
from workers.pools.open_pool import open_pool
from workers.pool import PointTask

pool = open_pool(Paraboloid, MeasurementOptions(), device_ids=[0])
print(type(pool).__name__)
pool.load(*paraboloid_plane())
(result,) = pool.run([PointTask(0, (2.0, 1.0))])
assert result.values == {"loss": 9.0}
process = psutil.Process()
assert process.children(recursive=True) == []
assert [item for item in process.net_connections() if item.status == psutil.CONN_LISTEN] == []
assert not {"ray", "torch"} & set(sys.modules)
pool.close()
print("measured")
"""
