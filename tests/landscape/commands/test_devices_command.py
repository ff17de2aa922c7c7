"""``landscape info`` without a path says what a run would compute on."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest
from command_line import command
from ray_environment import without_ray
from waiting import PATIENCE

from workers import hardware
from workers.pools import devices
from workers.pools.open_pool import report_devices

COMMAND = [sys.executable, "-W", "error", "-c", "from landscape.cli import main; main()", "info"]


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3, 4, 5, 6, 9})
    monkeypatch.setattr(hardware, "core_quota", lambda: None)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {},
            "2 workers on CPU cores, in processes of this machine\n"
            "  the worker of device 0: cores 0-3, 4 threads\n"
            "  the worker of device 1: cores 4-6, 9, 4 threads",
        ),
        (
            {"device_ids": [7]},
            "1 worker on CPU cores, in this process\n  the worker of device 7: cores 0-6, 9, 8 threads",
        ),
        (
            {"device_ids": [0, 1], "devices_per_worker": 2},
            "1 worker on CPU cores, in this process\n  the worker of devices 0, 1: cores 0-6, 9, 8 threads",
        ),
        (
            {"device_ids": [3], "workers_per_device": 2},
            "2 workers on CPU cores, in processes of this machine\n"
            "  worker 0 of device 3: cores 0-3, 4 threads\n"
            "  worker 1 of device 3: cores 4-6, 9, 4 threads",
        ),
        (
            {"device_ids": list(range(8))},
            "8 workers on CPU cores, in processes of this machine\n"
            + "\n".join(f"  the worker of device {i}: cores {core}, 1 thread" for i, core in enumerate([*range(7), 9])),
        ),
    ],
)
def test_without_gpus(eight_cores, arguments, text):
    assert str(report_devices(**arguments)) == text


def test_a_private_ray_where_it_is_asked_for(eight_cores, monkeypatch):
    assert str(report_devices(address="local")).startswith("2 workers on CPU cores, on a private Ray\n")
    one = report_devices([1], address="local")
    assert (one.where, len(one.workers)) == ("private Ray", 1)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert report_devices().where == "private Ray"


@pytest.mark.parametrize(
    ("arguments", "where", "expected"),
    [
        ({}, "private Ray", [(0,), (1,), (2,), (3,)]),
        ({"device_ids": [2]}, "in process", [(2,)]),
        ({"devices_per_worker": 2}, "private Ray", [(0, 1), (2, 3)]),
        # A worker with several GPUs must not see the others, so it is a process of its own.
        ({"device_ids": [1, 3], "devices_per_worker": 2}, "private Ray", [(1, 3)]),
        ({"device_ids": [3], "workers_per_device": 2}, "private Ray", [(3,), (3,)]),
    ],
)
def test_with_gpus(eight_cores, monkeypatch, arguments, where, expected):
    """They are only names here."""
    monkeypatch.setattr(devices, "driver_gpus", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    report = report_devices(**arguments)
    assert (report.where, report.kind) == (where, "GPU")
    assert [worker.devices for worker in report.workers] == expected
    cores = [core for worker in report.workers for core in worker.cores]
    assert sorted(cores) == [0, 1, 2, 3, 4, 5, 6, 9]
    assert [worker.threads for worker in report.workers] == [len(worker.cores) for worker in report.workers]


def test_what_is_not_there(eight_cores, monkeypatch):
    monkeypatch.setattr(devices, "driver_gpus", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ValueError, match=r"device_ids must be among this machine's GPUs \[0, 1\], but got \[2\]"):
        report_devices([2])
    with pytest.raises(ValueError, match=r"a multiple of devices_per_worker=2, but got \[0\]"):
        report_devices([0], devices_per_worker=2)
    with pytest.raises(TypeError, match="device_ids must be a list of ints"):
        report_devices("0,1")


def test_the_command_prints_the_report(tmp_path):
    typed = partial(command, "info", folder=tmp_path, environment={"CUDA_VISIBLE_DEVICES": "", "RAY_ADDRESS": ""})
    arguments = ("--devices", "0,1", "--workers-per-device", "1", "--devices-per-worker", "2")
    expected = report_devices([0, 1], devices_per_worker=2)
    assert typed(*arguments).stdout.strip() == str(expected)
    said = json.loads(typed(*arguments, "--json").stdout)
    assert said == json.loads(json.dumps(expected.to_json()))
    assert (said["where"], said["kind"], said["nodes"]) == ("in process", "CPU", [])
    wrong = typed("--devices", "0", "--devices-per-worker", "2", check=False)
    assert wrong.returncode == 1
    assert "--devices must be ids whose number is a multiple of --devices-per-worker 2" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    wrong = typed("--devices", "0,x", check=False)
    assert "--devices must be whole numbers separated by commas" in wrong.stderr


CLUSTER = """
import subprocess, sys
import ray

ray.init("local", num_cpus=9, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
address = ray.get_runtime_context().gcs_address
for arguments in (("--json",), ("--devices", "4", "--workers-per-device", "2")):
    print(subprocess.check_output([*sys.argv[1:], "--address", address, *arguments], text=True))
    print("---")
"""


@pytest.mark.slow
def test_of_a_cluster_the_nodes_are_shown(tmp_path):
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    environment = {
        **without_ray(),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0123456789" * 4,
        "CUDA_VISIBLE_DEVICES": "",
    }
    result = subprocess.run(
        [sys.executable, str(script), *COMMAND], capture_output=True, text=True, timeout=PATIENCE, env=environment
    )
    assert result.returncode == 0, result.stderr
    first, second, _ = result.stdout.split("---\n")
    said = json.loads(first)
    assert (said["where"], said["kind"]) == ("cluster", "CPU")
    # A worker of one thread on each CPU; of nine, two had one.
    assert [worker["devices"] for worker in said["workers"]] == [[number] for number in range(9)]
    assert {(worker["cores"], worker["threads"]) for worker in said["workers"]} == {(None, 1)}
    (node,) = said["nodes"]
    assert node["resources"] == {"CPU": 9}
    assert node["free"] == {"CPU": 9}
    assert second.startswith("2 workers on CPU cores, on a Ray cluster\n  worker 0 of device 4: cores as the cluster")
    assert "9 of 9 CPU free" in second


def test_where_no_cluster_is(tmp_path):
    nowhere = command("info", "--address", "127.0.0.1:1", folder=tmp_path, check=False)
    assert nowhere.returncode == 1
    assert "--address 127.0.0.1:1 is not a Ray cluster" in nowhere.stderr
