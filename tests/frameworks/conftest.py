"""Which frameworks' tests run here: those that are installed, and all that the session asks for."""

import os

import pytest
from cases import PACKAGES, installed

# Set by make: a session fails, instead of testing nothing, where one of its frameworks is missing.
ASKED = os.environ.get("FRAMEWORKS", "").split()

collect_ignore_glob = [f"test_{name}*.py" for name in PACKAGES if not installed(name)]


def pytest_configure(config):
    unknown = sorted(set(ASKED) - set(PACKAGES))
    missing = [name for name in ASKED if name in PACKAGES and not installed(name)]
    if unknown or missing:
        raise pytest.UsageError(f"FRAMEWORKS asks for {ASKED}, but {missing} are not installed, {unknown} unknown.")
