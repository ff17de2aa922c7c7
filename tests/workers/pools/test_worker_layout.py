"""Several devices for one worker, several workers on one device: cores, threads and GPUs are never shared by chance."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import SUPPORT
from ray_environment import AS_OTHERS
from scripts import run_script
from waiting import PATIENCE

from workers.pools.devices import WorkerLayout


@given(st.integers(1, 4), st.integers(1, 6), st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 5)]))
def test_shares_are_disjoint_and_complete(groups, extra_cores, numbers):
    layout = WorkerLayout(*numbers)
    devices = tuple(range(groups * layout.devices_per_worker))
    cores = tuple(range(10, 10 + groups * layout.workers_per_device * extra_cores))
    places = layout.places(devices, cores=cores)
    assert len(places) == layout.workers(len(devices)) == groups * layout.workers_per_device
    assert sorted(itertools.chain.from_iterable(place.cores for place in places)) == list(cores)
    assert sorted({device for place in places for device in place.devices}) == list(devices)
    assert all(len(place.devices) == layout.devices_per_worker for place in places)
    assert len({place.label for place in places}) == len(places)
    unpinned = layout.places(devices, cores=None)
    assert [(place.devices, place.part) for place in unpinned] == [(place.devices, place.part) for place in places]
    assert {place.cores for place in unpinned} == {None}


def test_workers_of_one_device_have_cores_of_that_device():
    split = WorkerLayout(1, 2).places((4, 7), cores=tuple(range(8)))
    assert [place.cores for place in split] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    labels = [f"worker {part} of device {device}" for device in (4, 7) for part in (0, 1)]
    assert [place.label for place in split] == labels
    joined = WorkerLayout(2).places((0, 1, 2, 3), cores=tuple(range(8)))
    assert [place.cores for place in joined] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert joined[0].label == "the worker of devices 0, 1"
    crowded = WorkerLayout(1, 3).places((0,), cores=(5, 6))
    assert [place.cores for place in crowded] == [(5,), (6,), (5,)]


def test_devices_that_are_left_over_stay_free():
    layout = WorkerLayout(devices_per_worker=3)
    assert layout.workers(7) == 2
    assert [place.devices for place in layout.places(tuple(range(7)), cores=None)] == [(0, 1, 2), (3, 4, 5)]
    assert layout.workers(2) == 0
    assert layout.places((0, 1), cores=None) == ()


PINNED = """
import sys
sys.path[:0] = sys.argv[1:2]
from place_reports import numbers, torch_places
from workers.pools.devices import available_cores
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pools.open_pool import open_pool
import numpy as np

if __name__ == "__main__":
    cores = len(available_cores())
    everything = sum(1 << core for core in available_cores())
    # Slots, workers, and the arguments that make them.
    cases = [
        ([0, 1], 2, {}),
        ([0], 2, {"workers_per_device": 2}),
        ([0, 1, 2, 3], 2, {"devices_per_worker": 2}),
    ]
    for ids, workers, arguments in cases:
        share = max(1, cores // 2)
        plan = MeasurementPlan(8, share)
        with open_pool(torch_places, MeasurementOptions(), device_ids=ids, plan=plan, **arguments) as pool:
            assert pool.workers == workers, pool.workers
            pool.load({"weight": np.zeros((1, 3), np.float32), "bias": np.zeros(1, np.float32)},
                      [{"weight": np.ones((1, 3), np.float32), "bias": np.ones(1, np.float32)}], {})
            said = [item.measured.values[0] for item in pool.measure_origin()]
        masks = [int(values["mask"]) for values in said]
        print(ids, arguments, said)
        assert len({values["process"] for values in said}) == workers
        for values, mask in zip(said, masks):
            assert mask & everything == mask
            own = mask.bit_count()
            assert values["torch"] == share <= own, values
            assert values["openmp"] <= own and values["blas"] <= own, values
        if cores >= 2:
            assert masks[0] & masks[1] == 0, masks
            assert masks[0] | masks[1] == everything, masks
    print("good")
"""

LOGICAL_GPUS = """
import os, re, signal, sys
sys.path[:0] = sys.argv[1:2]
import pytest
import ray
from cluster_devices import wait_longer_for_places, wait_until_free
from place_reports import GivenDevices, numbers
from workers.errors import PoolError
from workers.measurement_options import MeasurementOptions
from workers.pool import PointTask
from workers.pools.in_process import InProcessPool
from workers.pools.open_pool import open_pool, report_devices
from workers.pools.ray_pool import RayPool

OPTIONS = MeasurementOptions()
wait_longer_for_places(setattr)

def refused(text, **arguments):
    with pytest.raises(PoolError, match=re.escape(text)):
        open_pool(GivenDevices, OPTIONS, **arguments)

def ids(pool):
    return [worker.place.devices for worker in pool._crew.workers]

if __name__ == "__main__":
    # Ray believes in three GPUs that are not there, and hands them out as it does real ones. GPUs and MIG instances
    # that have UUIDs are meant by their places in the list.
    os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-7,MIG-8,GPU-9"
    ray.init("local", num_cpus=8, num_gpus=3, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    # JAX may set aside three quarters of a GPU's memory, which its workers share.
    with open_pool(GivenDevices, OPTIONS, device_ids=[0], workers_per_device=2) as halves:
        assert numbers(halves) == [17.375, 17.375], numbers(halves)
        assert ids(halves) == [(0,), (0,)]
        # Two halves of a GPU are nobody else's, and neither is the one whose second half is free.
        wait_until_free(2)
        with open_pool(GivenDevices, OPTIONS, workers_per_device=2) as others:
            assert sorted(numbers(others)) == [18.375, 18.375, 19.375, 19.375], numbers(others)
            refused("every GPU of the cluster is busy")
            refused("every GPU of the cluster is busy", workers_per_device=2)
            refused("no 2 devices are free", devices_per_worker=2)
            assert report_devices().workers == ()
        wait_until_free(2)
        with open_pool(GivenDevices, OPTIONS, devices_per_worker=2) as pair:
            assert numbers(pair) == [198], numbers(pair)
            assert [set(devices) for devices in ids(pair)] == [{1, 2}]
        assert ray.is_initialized()
        wait_until_free(2)
        with open_pool(GivenDevices, OPTIONS, device_ids=[2, 1]) as rest:
            assert type(rest) is RayPool
            assert sorted(zip(ids(rest), numbers(rest))) == [((1,), 18), ((2,), 19)], (ids(rest), numbers(rest))
            results = {item.key: item.values["loss"] for item in rest.run([PointTask(n, (n / 9,)) for n in range(9)])}
            assert results.keys() == set(range(9)) and {*results.values()} <= {18, 19}, results
        wait_until_free(2)
        refused("device_ids [0] are busy or absent on the cluster; free are [1, 2]", device_ids=[0])
        wait_until_free(2)
        refused("device_ids [0] are busy", device_ids=[0], workers_per_device=2)
        wait_until_free(2)
        report = report_devices(workers_per_device=2)
        assert (report.where, report.kind, len(report.workers)) == ("cluster", "GPU", 4), report
        (node,) = report.nodes
        assert (node.resources, node.free["GPU"]) == ({"GPU": 3, "CPU": 8}, 2), report
        assert "2 of 3 GPU free" in str(report)
        # A worker that is started again gets its own GPU back.
        os.kill(halves.process_ids[0], signal.SIGKILL)
        assert numbers(halves) == [17.375, 17.375], numbers(halves)
    wait_until_free(3)
    assert ray.get(ray.put(3)) == 3
    ray.shutdown()
    del os.environ["CUDA_VISIBLE_DEVICES"]
    assert type(open_pool(GivenDevices, OPTIONS, device_ids=[0])) is InProcessPool
    print("good")
"""


@pytest.mark.slow
@pytest.mark.timeout(5 * PATIENCE)  # some fifteen workers of Ray start, which takes a busy machine long
@pytest.mark.parametrize("script", [PINNED, LOGICAL_GPUS], ids=["pinned", "logical GPUs"])
def test_places(own_ray, script):
    environment = {**os.environ, "RAY_AUTH_TOKEN": "0123456789" * 4, **AS_OTHERS}
    assert run_script(script, SUPPORT, env=environment, patience=PATIENCE * 4).splitlines()[-1] == "good"
