"""Every module of the product can be imported under another system."""

import subprocess
import sys

import pytest
from flows import SIMULATED, environment
from places import ROOT
from scripts import run_python
from waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.room("collectors", "workers", "landscape")]


@pytest.mark.parametrize("system", ["mac", "win"])
def test_no_module_fails(system, tmp_path):
    printed = run_python(SIMULATED / f"{system}.py", SIMULATED / "imports.py", env=environment(system, tmp_path))
    first, *failed = printed.splitlines()
    assert failed == []
    count, rest = first.split(" ", 1)
    files = [file for package in ("collectors", "workers", "landscape") for file in (ROOT / package).rglob("*.py")]
    # What lies in the package of a framework that is missing is not found.
    assert 0.97 * len(files) < int(count) < len(files)
    assert rest == "modules, 0 fail"


def test_a_module_that_windows_does_not_have_is_noticed(tmp_path):
    """The simulation, and not luck: a package of the product's name that imports fcntl fails."""
    (tmp_path / "product").mkdir()
    (tmp_path / "product" / "__init__.py").write_text("import fcntl\n")
    found = subprocess.run(
        [sys.executable, SIMULATED / "win.py", "-c", "import product"], cwd=tmp_path,
        env=environment("win", tmp_path) | {"SIM_PACKAGES": "product"}, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert "No module named 'fcntl'" in found.stderr
