"""Clusters of this machine, each with a home of its own, so that the user's token is neither used nor touched."""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from own_processes import processes_of
from places import SUPPORT
from ray_environment import AS_OTHERS, FOLDER, without_ray
from runs import collected
from scripts import run_python
from waiting import PATIENCE, wait_until

NETWORK_PARTS = """
import torch

def make():
    return torch.nn.Linear(3, 2)
"""

MY_TRAINING = """
import os

def callback_fn():
    import network_parts  # beside this file, and imported only here
    import torch
    inputs = torch.arange(24.0).reshape(8, 3) / 24
    return torch.nn.CrossEntropyLoss(), network_parts.make(), (inputs, torch.arange(8) % 2), {}
"""


@pytest.fixture(scope="session", autouse=True)
def token_of_the_user():
    """The tests neither make, change nor remove it."""
    token = Path.home() / ".ray" / "auth_token"
    before = token.read_bytes() if token.exists() else None
    yield
    assert (token.read_bytes() if token.exists() else None) == before


@pytest.fixture
def home():
    """A home directory with a short name, as Ray's sockets lie in it; all processes that live in it end."""
    folder = Path(tempfile.mkdtemp(prefix="landscape-home-", dir="/tmp"))
    yield folder
    wait_until(lambda: not kill(processes_of(folder)), what=lambda: f"these to end: {processes_of(folder)}")
    shutil.rmtree(folder)


def kill(processes):
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return processes


@pytest.fixture
def environment(home):
    """What a shell of that user has: its commands are found, and nothing of Ray is set but the place of its files."""
    plain = {key: value for key, value in without_ray().items() if not key.startswith("AWS_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{plain.get('PATH', '')}"
    return {**plain, **AS_OTHERS, "HOME": str(home), "PATH": path, FOLDER: str(home / "ray"), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def project(home):
    """A folder with a callback_fn and a module that it imports."""
    folder = home / "project"
    folder.mkdir()
    (folder / "network_parts.py").write_text(NETWORK_PARTS)
    (folder / "my_training.py").write_text(MY_TRAINING)
    return folder


@pytest.fixture
def run(home):
    """A run directory of the project's network."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Linear(3, 2)
    settings = {"landscape_size": 5, "num_samples": 8, "create_landscape": {"train": True, "result": False}}
    collected(home / "run", network, epochs=1, intervals=[range(5)], **settings)
    return home / "run"


@pytest.fixture
def run_alone(home, environment):
    """Runs a script, which must end well and say so, in a fresh process of that user."""

    def run(script, *arguments, patience=4 * PATIENCE):  # it starts one Ray after another
        path = home / "script.py"
        path.write_text(script)
        printed = run_python(path, SUPPORT, *arguments, cwd=home, env=environment, patience=patience)
        assert printed.splitlines()[-1] == "good"

    return run
