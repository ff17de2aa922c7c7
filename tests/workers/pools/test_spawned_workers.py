"""Scripts that measure on two workers of this machine: without Ray, and without ``if __name__ == "__main__":``."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from places import ROOT
from waiting import PATIENCE

SCRIPT = """
import sys

sys.modules["ray"] = None  # as where it is not installed
import torch
from torch import nn

from collectors.files import system
from landscape import LandscapeError, evaluate, random_plane
from workers.measurement_plan import MeasurementPlan

print("begun")
forked = system.forks_workers() and sys.argv[1] == "forked"
system.forks_workers = lambda: forked


def network():
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def callback_fn():
    return nn.MSELoss(), network(), (torch.ones(8, 2), torch.zeros(8, 1)), {}


def measure(address=None):
    plane, plan = random_plane(network(), seed=0), MeasurementPlan(8, 1)
    return evaluate(plane, callback_fn, size=5, plan=plan, progress=False, device_ids=[0, 1], address=address)


found = measure()
print(found.report.workers, found.loss.shape)
try:
    measure("10.0.0.1:6379")
except LandscapeError as error:
    print(type(error).__name__, error)
"""
NEEDED = (
    r"PoolError Ray cannot be imported \(.*\)\. Clusters need it, and several GPUs, .*: install it with `pip install "
    r"ray` .*Without Ray, leave address and RAY_ADDRESS out, .*several workers on CPU cores need no Ray\."
)


@pytest.mark.slow
@pytest.mark.room("landscape/measure.py")
@pytest.mark.filterwarnings("ignore:device_ids .* go beyond")
@pytest.mark.parametrize("kind", ["forked", "spawned"])
def test_a_script_without_ray_and_without_a_guard(run_python, own_ray, kind):
    begun, measured, needed = run_python(SCRIPT, kind, timeout=1.5 * PATIENCE).stdout.splitlines()
    assert begun == "begun"
    assert measured == "2 (5, 5)"
    assert re.fullmatch(NEEDED, needed)


@pytest.mark.parametrize(
    ("system", "machine", "needed"),
    [
        ("linux", "x86_64", True),
        ("linux", "aarch64", True),
        ("darwin", "arm64", True),
        ("darwin", "x86_64", False),
        ("win32", "AMD64", True),
        ("win32", "ARM64", False),
    ],
)
def test_ray_is_a_dependency_where_it_has_a_wheel(system, machine, needed):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (ray,) = (item for item in map(Requirement, project["dependencies"]) if item.name == "ray")
    assert ray.marker.evaluate({"sys_platform": system, "platform_machine": machine}) is needed
