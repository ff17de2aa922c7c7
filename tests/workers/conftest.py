"""What the tests of the workers share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ray_environment import without_ray
from waiting import PATIENCE


@pytest.fixture
def own_ray(monkeypatch):
    """What a script's own Ray would inherit of the others' goes."""
    for name in set(os.environ) - set(without_ray()):
        monkeypatch.delenv(name)


@pytest.fixture
def tests_folder():
    return Path(__file__).parent


@pytest.fixture
def support_folder():
    return Path(__file__).parents[1] / "support"


@pytest.fixture
def run_python(tmp_path):
    """Runs a script in a fresh process; it must end well."""

    def run(script, *arguments, check=True, timeout=PATIENCE, **environment):
        path = tmp_path / "script.py"
        path.write_text(script)
        result = subprocess.run(
            [sys.executable, str(path), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, **environment},
        )
        assert not check or result.returncode == 0, result.stdout + result.stderr
        return result

    return run


@pytest.fixture(scope="module", autouse=True)
def kept_for_later_runs(tmp_path_factory):
    """What runs keep for later ones (plans, records, packages) is neither taken from the user's nor left there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
