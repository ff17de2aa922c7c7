"""A device without float64, such as an Apple GPU, of which it is a stand-in: the values are those of the CPU."""

from pathlib import Path

import pytest
import torch
from twin_device import checks_of, failures_with_twins

from workers.samples.batches import float64_device, in_float64
from workers.torch.placement import full_device

CASES = Path(__file__).with_name("float64_cases.py")


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """What went wrong in a process that has such devices, by check."""
    return failures_with_twins(tmp_path_factory, CASES, float64=False)


@pytest.mark.slow
@pytest.mark.timeout(600)  # on a busy machine the compiler takes minutes, as do all checks together
@pytest.mark.room("landscape")
@pytest.mark.parametrize("check", checks_of(CASES))
def test_without_float64(check, failures):
    assert check not in failures, failures[check]


def test_sums_stay_where_they_are_on_cpus_and_nvidia_gpus():
    for name in ("cpu", "cuda:3"):
        device = torch.device(name)
        assert float64_device(device) == device
    values = torch.ones(3, dtype=torch.float64)
    assert in_float64(values) is values


def test_an_apple_gpu_has_its_number():
    """The parameters on it say "mps:0", with which it is compared."""
    assert full_device("mps") == torch.device("mps:0")
