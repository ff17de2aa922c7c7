"""The network's description before GPUs or nodes are reserved: one call of callback_fn in a process that ends."""

import os
import re
import sys
from pathlib import Path

import pytest
from paraboloid import Paraboloid

from workers.errors import CallbackFunctionError, PoolError
from workers.measurement_options import MeasurementOptions
from workers.pools import first_call, open_pool
from workers.pools.first_call import FirstCall, describe_without_gpus, space_before_devices
from workers.pools.local_pool import LocalPool


def test_one_call_in_a_process_that_ended_and_saw_no_gpu(tmp_path):
    def callback_fn():
        tmp_path.joinpath(str(os.getpid())).write_text(os.environ["CUDA_VISIBLE_DEVICES"])
        return Paraboloid()

    space = describe_without_gpus(callback_fn)
    (mark,) = tmp_path.iterdir()
    assert mark.name != str(os.getpid())
    assert not Path("/proc", mark.name).exists()
    assert mark.read_text() == ""
    assert space == FirstCall(Paraboloid).space


@pytest.mark.parametrize("callback_fn", [lambda: {}["x"], lambda: (Paraboloid(), 2)])
def test_it_fails_with_a_workers_words(callback_fn):
    found = []
    for call in (describe_without_gpus, lambda function: LocalPool(function, MeasurementOptions(), device_ids=(0,))):
        with pytest.raises(CallbackFunctionError) as caught:
            call(callback_fn)
        found.append((str(caught.value), getattr(caught.value, "__notes__", [])))
    assert found[0] == found[1]


def test_a_process_that_dies(tmp_path):
    with pytest.raises(PoolError, match=r"in which callback_fn was called on a CPU died: its process ended with exit"):
        describe_without_gpus(lambda: os._exit(3))


@pytest.fixture
def described(monkeypatch):
    """Who was described."""
    found = []
    monkeypatch.setattr("workers.pools.first_call.describe_without_gpus", lambda function: found.append(function) or 7)
    return found


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(open_pool, "gpu_ids", lambda: (0, 1))
    for module in (first_call, open_pool):
        monkeypatch.setattr(module, "local_processes_suffice", lambda: False)
    monkeypatch.setattr("workers.pools.devices.gpu_ids", lambda: (0, 1))


@pytest.mark.parametrize(("devices", "waits"), [(None, True), ([0, 1], True), ([1], False)])
def test_gpus_of_this_machine(two_gpus, described, devices, waits):
    """One GPU is that of this process, which is reserved from nobody."""
    assert space_before_devices(Paraboloid, {"device_ids": devices}) == (7 if waits else None)
    assert len(described) == waits


def test_nodes_of_a_cluster(described, monkeypatch):
    monkeypatch.setattr(first_call, "check_ray", lambda address: None)
    assert space_before_devices(Paraboloid, {"device_ids": [0], "address": "ray://head:10001"}) == 7


@pytest.mark.parametrize("how", [{}, {"device_ids": [0, 1]}, {"address": "local"}])
def test_cpus_of_this_machine(described, how):
    assert space_before_devices(Paraboloid, how) is None
    assert described == []


@pytest.mark.parametrize("describe", [space_before_devices, FirstCall])
def test_an_absent_ray_is_noticed_before_the_network_is_described(two_gpus, described, describe, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PoolError, match=r"Ray cannot be imported"):
        describe(Paraboloid, {"device_ids": [0, 1]})
    assert described == []


def test_what_is_asked_for_is_checked(described):
    with pytest.raises(ValueError, match=re.escape("device_ids")):
        space_before_devices(Paraboloid, {"device_ids": [-1]})


def test_a_plane_that_is_made_before_the_workers_take_no_gpu_either(two_gpus, tmp_path):
    def callback_fn():
        tmp_path.joinpath(str(os.getpid())).touch()
        return Paraboloid()

    assert FirstCall(callback_fn, {"device_ids": [0, 1]}).space == Paraboloid().description.space
    assert str(os.getpid()) not in {path.name for path in tmp_path.iterdir()}
    # One that needs a GPU is called here, as the only network of an alignment is.
    driver = os.getpid()
    call = FirstCall(lambda: Paraboloid() if os.getpid() == driver else 1 / 0, {"device_ids": [0, 1]})
    assert call.space == Paraboloid().description.space
    assert FirstCall(call, {"device_ids": [0, 1]}).space is call.space
