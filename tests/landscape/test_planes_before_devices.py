"""Planes are computed while no GPU and no node of a cluster is reserved."""

import os
from pathlib import Path

import numpy as np
import pytest
from examples import batch_norm
from paraboloid import Paraboloid, different_networks
from places import SUPPORT
from ray_environment import AS_OTHERS, without_ray
from scripts import run_script

from landscape import LandscapeError, SummaryLandscape, summary_landscape
from landscape.functions import refine
from landscape.grid import regridding
from landscape.record import workers
from landscape.record.run import Run
from landscape.record.workers import Workers
from workers.errors import CallbackFunctionError
from workers.measurement_plan import MeasurementPlan
from workers.pools import first_call, open_pool

SETTINGS = {"landscape_size": 3, "num_samples": 32}
PLAN = MeasurementPlan(batch_size=16, threads=1)  # one that is tuned may be another on a busy machine


@pytest.fixture
def events(monkeypatch):
    """What happened, in order, on a machine whose one worker has a GPU that it would reserve."""
    found = []

    def noted(module, name):
        function = getattr(module, name)

        def note(*arguments, **more):
            found.append(name)
            return function(*arguments, **more)

        monkeypatch.setattr(module, name, note)

    for module, name in (
        (workers, "open_pool"),
        (summary_landscape, "plane_of_runs"),
        (summary_landscape, "random_plane_of"),
        (regridding, "plane_of"),
    ):
        noted(module, name)
    monkeypatch.setattr(first_call, "local_processes_suffice", lambda: False)

    def where(*_):
        return ("in process" if "open_pool" in found else "private Ray"), (0,), ""

    for module in (first_call, open_pool):
        monkeypatch.setattr(module, "where_it_runs", where)
    return found


@pytest.fixture
def generate(trained, tmp_path):
    """Measures the landscapes of a run into a folder."""

    def measure(folder, callback_fn):
        return SummaryLandscape(trained).gen_landscapes_with_multi_process(
            callback_fn, SETTINGS, [0], output=tmp_path / folder, plan=PLAN, progress=False
        )

    return measure


@pytest.mark.slow
def test_the_planes_of_a_run_and_of_a_finer_grid(trained, tmp_path, events, generate):
    calls = tmp_path / "calls"
    calls.mkdir()

    def counted():
        (calls / str(os.getpid())).touch()
        return batch_norm()

    landscapes = generate("first", counted)
    assert events == ["plane_of_runs", "random_plane_of", "open_pool"]
    (described,) = {path.name for path in calls.iterdir()} - {str(os.getpid())}
    assert not Path("/proc", described).exists()
    # As where the first worker describes the network.
    events[:] = ["open_pool"]
    for one, other in zip(landscapes, generate("second", batch_norm), strict=True):
        assert events[1] == "open_pool"
        np.testing.assert_array_equal(one.loss, other.loss)
        assert one.attributes["identity"] == other.attributes["identity"]
    events.clear()
    refine(landscapes[0].path, counted, factor=2, run=trained, device_ids=[0], progress=False)
    assert events == ["plane_of", "open_pool"]


def test_where_only_this_process_fails(events):
    """A network that is built on a GPU can be described by a worker alone."""
    driver = os.getpid()

    def needs_a_gpu():
        if os.getpid() != driver:
            raise RuntimeError("no GPU is available")
        return Paraboloid()

    with Workers(needs_a_gpu, {"device_ids": [0]}, Run()) as opened:
        with pytest.warns(UserWarning, match="by the workers, but not in a process of this machine: .*no GPU is avail"):
            assert opened.space == Paraboloid().description.space
    assert events == ["open_pool"]


def test_a_function_that_fails_everywhere_has_the_words_of_a_worker(events):
    def raises():
        raise RuntimeError("the disk is gone")

    with (
        Workers(raises, {"device_ids": [0]}, Run()) as opened,
        pytest.raises(CallbackFunctionError, match="the disk is gone"),
    ):
        opened.space


def test_another_network_on_the_workers(events):
    with Workers(different_networks, {"device_ids": [0]}, Run()) as opened:
        assert opened.space.dimension != os.getpid()
        with pytest.warns(UserWarning, match="callback_fn's network is another one where there is no GPU"):
            pool = opened.pool
        assert opened.space == pool.description.space


@pytest.mark.slow
def test_planes_are_computed_again_where_workers_have_another_network(events, generate):
    driver = os.getpid()

    def frozen_without_a_gpu():
        model, network, *rest = batch_norm()
        next(network.parameters()).requires_grad_(os.getpid() == driver)
        return model, network, *rest

    with pytest.warns(UserWarning, match="another one where there is no GPU"):
        found = generate("first", frozen_without_a_gpu)
    assert events == ["plane_of_runs", "random_plane_of", "open_pool", "plane_of_runs", "random_plane_of"]
    for one, other in zip(found, generate("second", batch_norm), strict=True):
        np.testing.assert_array_equal(one.loss, other.loss)


def test_a_file_of_another_precision_is_no_wrong_plan(events):
    """Its identity says that it is another experiment; nobody gave the plan."""
    continued = MeasurementPlan(8, 1, precision="bfloat16")
    with Workers(Paraboloid, {"device_ids": [0]}, Run(), continued=continued) as opened:
        assert opened.pool.description.space == Paraboloid().description.space


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"address": "127.0.0.1:9"}, "is not a Ray cluster that can be joined"),
        ({"plan": 64}, "plan must be a MeasurementPlan"),
    ],
)
def test_what_cannot_be_opened_is_refused_before_the_network_is_described(options, match):
    def called():
        raise AssertionError

    with pytest.raises((LandscapeError, TypeError), match=match):
        Workers(called, {"device_ids": [0], **options}, Run()).space


RAY = """
import sys
sys.path[:0] = sys.argv[1:2]
import ray
from cluster_devices import wait_until_free
from landscape.record.run import Run
from landscape.record.workers import Workers
from paraboloid import Paraboloid

if __name__ == "__main__":
    # Ray believes in two GPUs that are not there, and hands them out as it does real ones.
    ray.init("local", num_cpus=2, num_gpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    with Workers(Paraboloid, {}, Run()) as workers:
        assert workers.space == Paraboloid().description.space
        # No actor was ever made, and no GPU was taken.
        assert ray._private.state.actors() == {}, ray._private.state.actors()
        assert ray.available_resources()["GPU"] == 2
        assert workers.pool.workers == 2
        wait_until_free(0)
    print("good")
"""


@pytest.mark.slow
@pytest.mark.room("workers/pools")
def test_no_actor_has_a_gpu_while_the_network_is_described():
    # Ray writes a token into the user's home where it is given none.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    assert run_script(RAY, SUPPORT, env={**without_ray(), **AS_OTHERS, **token}).split() == ["good"]
