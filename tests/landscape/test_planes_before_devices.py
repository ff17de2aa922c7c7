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

from landscape import LandscapeError, SummaryLandscape, refine
from landscape.record import workers
from landscape.record.workers import Workers
from workers.errors import CallbackFunctionError

SETTINGS = {"landscape_size": 3, "num_samples": 32}


@pytest.fixture
def events(monkeypatch):
    """What happened, in order, on a machine whose one worker has a GPU that it would reserve."""
    from landscape import regridding, run_jobs
    from workers.pools import first_call, open_pool

    found = []

    def noted(module, name):
        function = getattr(module, name)

        def note(*arguments, **more):
            found.append(name)
            return function(*arguments, **more)

        monkeypatch.setattr(module, name, note)

    for module, name in (
        (workers, "open_pool"),
        (run_jobs, "plane_of_runs"),
        (run_jobs, "random_plane_of"),
        (regridding, "plane_of"),
    ):
        noted(module, name)
    monkeypatch.setattr(first_call, "local_processes_suffice", lambda: False)

    def where(*_):
        return ("in process" if "open_pool" in found else "private Ray"), (0,), ""

    for module in (first_call, open_pool):
        monkeypatch.setattr(module, "where_it_runs", where)
    return found


@pytest.mark.slow
def test_the_planes_of_a_run_and_of_a_finer_grid(trained, tmp_path, events):
    calls = tmp_path / "calls"
    calls.mkdir()

    def counted():
        (calls / str(os.getpid())).touch()
        return batch_norm()

    def generate(folder, callback_fn):
        return SummaryLandscape(trained).gen_landscapes_with_multi_process(
            callback_fn, SETTINGS, [0], output=tmp_path / folder, progress=False
        )

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

    with Workers(needs_a_gpu, {"device_ids": [0]}) as opened:
        with pytest.warns(
            UserWarning, match=r"not on a CPU, so the devices waited for it\. Build the network on the CPU"
        ):
            assert opened.space == Paraboloid().description.space
    assert events == ["open_pool"]


def test_a_function_that_fails_everywhere_has_the_words_of_a_worker(events):
    def raises():
        raise RuntimeError("the disk is gone")

    with Workers(raises, {"device_ids": [0]}) as opened, pytest.raises(CallbackFunctionError, match="the disk is gone"):
        opened.space


def test_another_network_on_the_workers(events):
    with Workers(different_networks, {"device_ids": [0]}) as opened:
        assert opened.space.dimension != os.getpid()
        with pytest.raises(LandscapeError, match="must return the same network on a CPU and on the workers' devices"):
            opened.pool


RAY = """
import sys
sys.path[:0] = sys.argv[1:2]
import ray
from cluster_devices import wait_until_free
from landscape.record.workers import Workers
from paraboloid import Paraboloid
from places import SUPPORT
from ray_environment import AS_OTHERS, without_ray
from scripts import run_script

if __name__ == "__main__":
    # Ray believes in two GPUs that are not there, and hands them out as it does real ones.
    ray.init("local", num_cpus=2, num_gpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    with Workers(Paraboloid, {}) as workers:
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
    assert run_script(RAY, SUPPORT, env={**without_ray(), **AS_OTHERS}).split() == ["good"]
