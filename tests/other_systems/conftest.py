"""What the flows read is made once, on this system, also for several workers of pytest."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    from filelock import FileLock
    from flows import make_reference

    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with FileLock(shared / "reference.lock"):
        if not (shared / "reference").exists():
            make_reference(shared / "being_made")
            (shared / "being_made").rename(shared / "reference")
    return shared / "reference"


@pytest.fixture(scope="module")
def folder(request, reference, tmp_path_factory):
    """Where the flows run under the system that the test file names."""
    found = tmp_path_factory.mktemp(request.module.SYSTEM) / "flows"
    shutil.copytree(reference, found)
    return found


@pytest.fixture(scope="module")
def ended(request, folder):
    """How each flow ended: exit code and output."""
    from flows import run_flows

    return run_flows(request.module.SYSTEM, folder)
