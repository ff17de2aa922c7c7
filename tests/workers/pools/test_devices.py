"""Which devices there are, and how workers share the cores."""

from __future__ import annotations

import itertools
import os
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paraboloid import Paraboloid

from collectors.files import system
from workers import hardware
from workers.measurement_options import MeasurementOptions
from workers.pools import devices
from workers.pools.devices import available_cores, choose_devices, gpu_ids, gpu_numbers, share_cores
from workers.pools.open_pool import open_pool, report_devices


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(hardware, "core_quota", lambda: None)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)


@pytest.mark.parametrize(
    ("quota", "share", "count"),
    [
        *((quota, None, count) for quota, count in ((None, 8), (0.5, 1), (2.9, 2), (100.0, 8))),
        *((None, share, count) for share, count in (("3", 3), ("64", 8), ("", 8), ("2(x3)", 8))),
    ],
)
def test_a_containers_quota_and_slurms_share_count(eight_cores, monkeypatch, quota, share, count):
    monkeypatch.setattr(hardware, "core_quota", lambda: quota)
    if share is not None:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", share)
    assert len(available_cores()) == count


@given(st.integers(1, 40))
def test_shares_are_fair(slots):
    shares = share_cores(slots, available_cores())
    assert len(shares) == slots
    sizes = [len(share) for share in shares]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    used = list(itertools.chain.from_iterable(shares))
    assert set(used) <= set(available_cores())
    if slots <= len(available_cores()):
        assert sorted(used) == list(available_cores())


def test_shares_of_eight_cores():
    assert [len(share) for share in share_cores(3, tuple(range(8)))] == [3, 2, 3]


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0", (0,)),
        ("3,5", (0, 1)),
        ("2,-1,3", (0,)),
        ("GPU-a, GPU-b,GPU-c", (0, 1, 2)),
        ("MIG-a,MIG-b", (0, 1)),
        ("1,8,2", (0,)),
    ],
)
def test_gpus_are_those_that_are_visible(monkeypatch, visible, ids):
    monkeypatch.setattr(devices, "driver_gpus", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_ids() == ids


@pytest.mark.parametrize("visible", ["4,5,6,7", "GPU-a,GPU-b", "MIG-a", "node17"])
def test_names_of_gpus_that_the_driver_does_not_have_are_none(eight_cores, monkeypatch, visible):
    """A login node or a container keeps the variable of a job."""
    monkeypatch.setattr(devices, "driver_gpus", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_ids() == ()
    assert choose_devices(None) == (0, 1)
    assert choose_devices((0, 7, 3)) == (0, 7, 3)
    assert devices.local_processes_suffice()
    monkeypatch.setattr(system, "LINUX", False)
    assert devices.local_processes_suffice(), "they are spawned elsewhere"


class Library:
    """NVIDIA's management library, of a machine with so many GPUs, or which fails."""

    def __init__(self, count, failure=0):
        self.count, self.failure, self.open = count, failure, 0

    def nvmlInit_v2(self):
        self.open += not self.failure
        return self.failure

    def nvmlDeviceGetCount_v2(self, pointer):
        pointer._obj.value = self.count
        return 0

    def nvmlShutdown(self):
        self.open -= 1


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Makes this machine one with such a library, program and files, whatever it has."""

    def make(library=None, program=None, files=(), visible=None):
        def load():
            if library is None:
                raise OSError("no such file")
            return library

        path = tmp_path / "nvidia-smi"
        if program is not None:
            path.write_text(f"#!/bin/sh\n{program}\n")
            path.chmod(0o755)
        monkeypatch.setattr(hardware, "nvidia_driver", load)
        monkeypatch.setattr(hardware, "nvidia_program", lambda: program and str(path))
        monkeypatch.setattr(hardware, "device_files", lambda names: [file for file in files if re.search(names, file)])
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        devices._ask_driver.cache_clear()

    yield make
    devices._ask_driver.cache_clear()


LISTED = "echo 'GPU 0: NVIDIA H100 (UUID: GPU-a)'; echo '  MIG 1g.10gb Device 0: (UUID: MIG-b)'; echo 'GPU 1: A (b)'"
NO_DRIVER = "exit 9"


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        # Within WSL2 there is /dev/dxg, on Windows no file at all.
        *(({"library": Library(2), "files": files}, (0, 1)) for files in ((), ["/dev/dxg"], ["/dev/nvidia0"])),
        # Its program is asked where its library does not answer.
        ({"program": LISTED, "files": ["/dev/nvidia0"]}, (0, 1)),
        ({"library": Library(0, failure=18), "program": LISTED, "files": ["/dev/nvidia0"]}, (0, 1)),
        ({}, ()),
        ({"library": Library(0)}, ()),
        ({"visible": "0,1"}, ()),
    ],
)
def test_the_driver_says_how_many_gpus_there_are(machine, arguments, ids):
    machine(**arguments)
    assert gpu_ids() == ids
    assert devices.why_the_cpu() == ""
    assert "library" not in arguments or arguments["library"].open == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"files": ["/dev/dxg"]}, r"\(there is /dev/dxg\): neither its library NVML nor nvidia-smi is there\. Install"),
        ({"files": ["/dev/nvidia0", "/dev/nvidia1"]}, r"there is a GPU \(there is /dev/nvidia0, /dev/nvidia1\): "),
        ({"library": Library(0, failure=18)}, r"whether there is a GPU: its library NVML gives error 18\. Install it"),
        ({"program": NO_DRIVER}, "whether there is a GPU: Command .*nvidia-smi.* returned non-zero exit status 9"),
        ({"files": ["/dev/kfd"]}, r"NVIDIA's or Apple's, and NVIDIA's driver has none \(there is /dev/kfd\)"),
        ({"library": Library(0), "files": ["/dev/dxg"]}, r"NVIDIA's driver has none \(there is /dev/dxg\)"),
        ({"library": Library(2), "visible": ""}, "CUDA_VISIBLE_DEVICES='' names none of NVIDIA's 2 GPUs here"),
    ],
)
def test_one_line_says_why_the_cpu_measures(machine, arguments, text):
    machine(**arguments)
    assert gpu_ids() == ()
    with pytest.warns(UserWarning, match=rf"^the CPU measures: .*{text}") as told:
        assert report_devices([0]).kind == "CPU"
    assert len(told) == 1
    with pytest.warns(UserWarning, match=text) as told:
        open_pool(Paraboloid, MeasurementOptions(), device_ids=[0]).close()
    assert len(told) == 1


def test_a_cluster_without_gpus_beside_a_gpu(machine):
    machine()
    assert devices.why_the_cpu(of_ray=True) == ""
    machine(Library(2))
    with pytest.warns(UserWarning, match="Ray offers no GPU, but NVIDIA's driver has 2 here; see ray start --num-gpus"):
        devices.tell_why_the_cpu(of_ray=True)


@pytest.fixture
def on_a_mac(machine, monkeypatch):
    machine()
    monkeypatch.setattr(system, "MACOS", True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


def test_an_apple_gpu_is_one_worker_where_nothing_else_is_asked_for(on_a_mac, machine, eight_cores):
    report = report_devices()
    assert (report.where, report.kind) == ("in process", "Apple GPU")
    assert [worker.devices for worker in report.workers] == [(0,)]
    assert str(report).startswith("1 worker on the Apple GPU, in this process\n")
    for asked in ({"device_ids": [0]}, {"workers_per_device": 2}, {"address": "local"}):
        with pytest.warns(UserWarning, match=r"this Mac's GPU \(mps\) is for one worker .*device_ids") as told:
            assert report_devices(**asked).kind == "CPU"
        assert len(told) == 1
    machine(Library(1))
    assert report_devices().kind == "GPU", "NVIDIA's comes first"


def test_a_mac_whose_gpu_pytorch_cannot_use(on_a_mac, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="CPU measures: PyTorch is not there, or cannot use this Mac's GPU"):
        assert report_devices().kind == "CPU"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert devices.apple_gpu() == ""


@pytest.mark.parametrize(
    ("names", "visible", "numbers"),
    [
        (["3"], ["3", "5"], (3,)),
        (["1", "0"], [], (1, 0)),
        (["GPU-7f2e", "GPU-0a1b"], ["GPU-0a1b", "GPU-5c6d", "GPU-7f2e"], (2, 0)),
        (["MIG-2b3c"], ["MIG-0a1b", "MIG-2b3c"], (1,)),
        (["MIG-2b3c"], [], ()),
    ],
)
def test_gpus_are_counted_where_they_have_uuids(names, visible, numbers):
    assert gpu_numbers(names, visible) == numbers


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ((8,), r"device_ids \[8\] go beyond .* no NVIDIA GPU and 8 CPU cores: .* one worker computes on all of them"),
        (tuple(range(9)), r"only the number of a slot, so 9 workers share them\. Ids from 0 to 7 use everything"),
    ],
)
def test_ids_beyond_the_cores_are_not_taken_silently(eight_cores, monkeypatch, asked, text):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.warns(UserWarning, match=text):
        assert len(report_devices(asked).workers) == len(asked)


@pytest.mark.parametrize(
    ("asked", "address"), [([10**6], None), ([0, 10**6], None), pytest.param([10**6], "local", marks=pytest.mark.slow)]
)
def test_each_call_says_once_that_ids_are_beyond(monkeypatch, own_ray, asked, address):
    """A private Ray chose its devices a second time."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.warns(UserWarning, match="go beyond") as told:
        open_pool(Paraboloid, MeasurementOptions(), device_ids=asked, address=address).close()
    assert sum(f"device_ids {asked} go beyond" in str(warning.message) for warning in told) == 1
