"""Processes on the nodes of a Ray, here a private one of this machine, that compute on files there."""

import os
import signal

import numpy as np
import pytest
from waiting import PATIENCE

from collectors.errors import CheckpointError
from collectors.networks.weight_space import describe_arrays
from collectors.weights.safetensors_file import CheckpointFile, write_checkpoint
from landscape.planes import node_processes, passes
from landscape.planes.from_checkpoints import plane_of_runs
from landscape.planes.networks import checkpoints_of_run
from landscape.planes.node_processes import NodeProcesses
from workers.pools.ray_session import RaySession

# Ray and its processes take a busy machine long to start.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(5 * PATIENCE)]


@pytest.fixture(scope="module", autouse=True)
def ray():
    with RaySession("local", slots=2) as session:
        yield session.ray


@pytest.fixture
def trajectory(tmp_path):
    """Files of six checkpoints of 24 weights, and the description of their network."""
    generator = np.random.default_rng(0)
    state = {"a.weight": np.zeros((4, 5), np.float32), "b.bias": np.zeros(4, np.float32)}
    paths = [tmp_path / f"{number}.safetensors" for number in range(6)]
    for path in paths:
        for values in state.values():
            values += generator.standard_normal(values.shape, np.float32)
        write_checkpoint(path, state)
    return paths, describe_arrays(state)


def plane_of(paths, space, processes):
    readers = [CheckpointFile(path) for path in paths]
    return plane_of_runs(checkpoints_of_run(readers, range(len(paths)), ""), space, passes=processes)


def assert_same(plane, other):
    for one, two in zip(plane.directions, other.directions, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, two[name])
    for one, two in zip(vars(plane.projection).values(), vars(other.projection).values(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.fixture(autouse=True)
def small_shards_and_patience(monkeypatch):
    monkeypatch.setattr(passes, "_FEWEST_ELEMENTS", 3)
    monkeypatch.setattr(node_processes, "_START_SECONDS", 5 * PATIENCE)


def test_a_plane_has_the_same_bits_whoever_computes_it(trajectory, monkeypatch):
    paths, space = trajectory
    monkeypatch.chdir(paths[0].parent)
    with NodeProcesses(None, print, paths) as processes:
        assert len(processes) == 2
        there = plane_of([path.relative_to(path.parent) for path in paths], space, processes)
    assert_same(there, plane_of(paths, space, passes.HERE))


def test_a_node_with_other_files_is_not_asked(trajectory, monkeypatch):
    paths, space = trajectory

    class OtherFacts:
        def __call__(self, files):
            return [(0, 0) for _ in files]

        def __reduce__(self):
            """On the node it is what it replaced."""
            return getattr, (node_processes, "facts_of")

    monkeypatch.setattr(node_processes, "facts_of", OtherFacts())
    with NodeProcesses(None, print, paths) as processes:
        assert not processes
        assert_same(plane_of(paths, space, processes), plane_of(paths, space, passes.HERE))


def test_what_a_dead_process_had_is_computed_here(trajectory):
    paths, space = trajectory

    def process_of(_):
        return os.getpid()

    with NodeProcesses(None, print, paths) as processes:
        one, two = processes.each(process_of, None, [(), ()])
        os.kill(one, signal.SIGKILL)
        with pytest.warns(UserWarning, match="a process on a node of the cluster failed, and its part was comp"):
            there = plane_of(paths, space, processes)
        assert list(processes.each(process_of, None, [(), ()])) == [two, two]
    assert_same(there, plane_of(paths, space, passes.HERE))


def test_an_error_is_that_of_this_process(trajectory):
    paths, space = trajectory
    state = {"a.weight": np.full((4, 5), np.nan, np.float32), "b.bias": np.zeros(4, np.float32)}
    write_checkpoint(paths[2], state)
    with (
        NodeProcesses(None, print, paths) as processes,
        pytest.raises(CheckpointError, match=r"2\.safetensors holds NaN or infinite values in 'a\.weight'"),
    ):
        plane_of(paths, space, processes)
