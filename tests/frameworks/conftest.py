"""Which frameworks' tests run here."""

import pytest
from cases import ASKED, PACKAGES, installed, runs_here

collect_ignore_glob = [f"test_{name}*.py" for name in PACKAGES if not runs_here(name)]


def pytest_configure(config):
    unknown = sorted(set(ASKED) - set(PACKAGES))
    missing = [name for name in ASKED if name in PACKAGES and not installed(name)]
    if unknown or missing:
        raise pytest.UsageError(f"FRAMEWORKS asks for {ASKED}, but {missing} are not installed, {unknown} unknown.")
