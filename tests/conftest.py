"""What all tests share: one thread per process, no deadlines, executed shape annotations, a folder for Ray's files."""

import gc
import os
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("support", "frameworks")]

# Small matrices on several threads that wait for each other take a busy machine a hundred times longer.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine takes longer over an example, which says nothing about the code.
hypothesis.settings.register_profile(
    "whatever the load", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("whatever the load")

from chosen import add_options, deselect  # noqa: E402

# They make each call of an annotated function slower, so only `make test-all` asks for them.
if os.environ.get("EXECUTE_SHAPES"):
    from shape_checks import execute_shapes

    execute_shapes("collectors", "workers", "landscape")


def pytest_addoption(parser):
    add_options(parser)


def pytest_ignore_collect(collection_path, config):
    """Where only slow tests run, files without any are not imported, which takes as long as some of those tests."""
    if config.option.markexpr == "slow" and collection_path.match("test_*.py"):
        return "slow" not in collection_path.read_text() or None
    return None


def pytest_collection_modifyitems(config, items):
    """The documentation's code takes longest on one worker; were it shared out last, all others would wait for it."""
    deselect(config, items)
    items.sort(key=lambda item: item.path.name != "test_documentation.py")


def pytest_collection_finish():
    """What the imports left is never garbage; looking through it again and again took a tenth of all tests' time."""
    gc.freeze()
    # The usual 700 new objects between two looks are few where a picture makes 50,000: a 25th of all tests' time.
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def ray_folder():
    """Ray notes the cluster that was started last where every later ``ray.init()`` reads it: not so that of a test."""
    from ray_environment import AS_OTHERS, FOLDER

    # Sockets have room for a short name only.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in {FOLDER: folder, **AS_OTHERS}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def browser():
    """A real Chromium, one for each process: Playwright cannot be started twice."""
    from chromium import chromium

    with chromium() as found:
        yield found
