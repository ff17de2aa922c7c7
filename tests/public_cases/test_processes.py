"""Reports of other projects on devices and processes."""

from __future__ import annotations

import sys

import pytest
from scripts import run_python

from workers.pools import devices


class Library:
    @staticmethod
    def nvmlInit_v2():
        return 0

    @staticmethod
    def nvmlDeviceGetCount_v2(pointer):
        pointer._obj.value = 1

    @staticmethod
    def nvmlShutdown():
        return 0


def test_nvidias_library_is_asked(monkeypatch):
    """utkuozdemir/nvidia_gpu_exporter#125: within WSL2 there is no /dev/nvidia0, but NVIDIA's library knows the GPU."""
    monkeypatch.setattr("ctypes.CDLL", lambda name: Library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices._ask_driver.cache_clear()
    try:
        assert devices.gpu_ids() == (0,)
    finally:
        devices._ask_driver.cache_clear()


UUIDS = ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-4c60d78c-506f-5593-938d-a136eaa1fa52"]


@pytest.mark.parametrize(("visible", "count"), [*((name, 0) for name in [*UUIDS, "4,5,6,7"]), ("2", 1)])
def test_names_of_gpus_that_are_not_there_are_none(monkeypatch, visible, count):
    """pytorch/pytorch#90543 and pytorch/examples#115: CUDA_VISIBLE_DEVICES was believed without asking the driver."""
    monkeypatch.setattr(devices, "driver_gpus", lambda: count, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.gpu_ids() == ()


def test_slurms_number_is_a_limit(monkeypatch):
    """galilai-group/stable-pretraining#24: Slurm gave a task fewer cores than the machine has, and all were used."""
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    before = devices.available_cores()
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    assert devices.available_cores() == before[:1]


def test_the_command_line_starts_without_docstrings():
    """lark-parser/lark#283: a module that reads its own docstrings cannot be imported with python -OO."""
    run_python("-OO", "-c", "from landscape.cli import main; main()", "--help")


SCRIPT = """
import multiprocessing, warnings
import torch
from torch import nn
from landscape import evaluate, random_plane

INPUTS, TARGETS = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
NETWORK = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 32 * 32, 10))
PLANE = random_plane(NETWORK)

def callback_fn():
    return nn.CrossEntropyLoss(), NETWORK, (INPUTS, TARGETS), {}

def survey(results):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = evaluate(PLANE, callback_fn, size=3, device_ids=[0], progress=False, compile=False)
    results.put((found.loss[1, 1], {str(item.message) for item in caught}))

torch.set_num_threads(2)
expected = nn.functional.cross_entropy(NETWORK(INPUTS), TARGETS)
expected.backward()
context = multiprocessing.get_context("fork")
results = context.SimpleQueue()
child = context.Process(target=survey, args=(results,))
child.start()
loss, texts = results.get()
child.join()
assert abs(loss - expected.item()) < 1e-5 * abs(loss), (loss, expected)
assert sum("forked from one in which PyTorch may have computed" in text for text in texts) == 1, texts
print("good")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks by itself")
def test_a_survey_in_a_forked_process_ends():
    """pytorch/pytorch#41197: a process that was forked from one that computed waits for threads that are not there."""
    assert run_python("-W", "ignore", "-c", SCRIPT) == "good\n"
