"""Tests that failed run once more, alone, and what that says is never hidden."""

import os
import subprocess
import sys

import pytest
from places import ROOT
from second_chance import MOST_RUN_AGAIN, functions_listed
from waiting import PATIENCE

# Each starts pytest twice, with up to three processes.
pytestmark = [pytest.mark.slow, pytest.mark.room(".ci"), pytest.mark.timeout(4 * PATIENCE)]
ALWAYS_FAILS = "def test_always_fails():\n    raise AssertionError('as ever')\n"
FAILS_FIRST = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("case", ["a", "b"])
def test_fails_first(case):
    mark = Path(f"seen-{case}")
    seen = mark.exists()
    mark.touch()
    assert seen or case == "b"
"""
PASSES = "def test_passes():\n    assert True\n"


def run(folder, *sources, listed="", options=()):
    """Runs pytest with second chances over test files; returns the exit status and what it printed."""
    (folder / "tests").mkdir()
    (folder / "tests" / "passed_alone.md").write_text(listed)
    for number, source in enumerate(sources):
        (folder / "tests" / f"test_{number}.py").write_text(source)
    command = [sys.executable, ROOT / ".ci" / "second_chance.py", *options]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    inherited |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_cov.plugin,xdist.plugin"}
    done = subprocess.run(
        command, cwd=folder, env=inherited, capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(("beside", "passes_alone"), [(PASSES, False), (FAILS_FIRST, True)])
def test_what_fails_twice_fails_whoever_passes_beside_it(tmp_path, beside, passes_alone):
    status, printed = run(tmp_path, beside, ALWAYS_FAILS)
    assert status == 1
    assert "failed twice:\n- tests/test_1.py::test_always_fails\n" in printed
    assert ("passed only when alone" in printed) == passes_alone
    assert ("- `tests/test_0.py::test_fails_first[a]`" in printed) == passes_alone


def test_what_passes_alone_passes_and_is_listed(tmp_path):
    status, printed = run(tmp_path, FAILS_FIRST, PASSES)
    assert status == 0
    (line,) = [line for line in printed.splitlines() if line.startswith("- `")]
    assert line.startswith("- `tests/test_0.py::test_fails_first[a]` (20")
    assert functions_listed(printed) == {"tests/test_0.py::test_fails_first"}


def test_the_second_run_holds_only_what_failed_and_one_process(tmp_path):
    _, printed = run(tmp_path, FAILS_FIRST, PASSES, options=["--numprocesses", "2"])
    first, alone = printed.split("Alone, in one process, once more: 1 that failed")
    assert "2 workers" in first
    assert "1 failed, 2 passed" in first
    assert "1 passed" in alone
    assert "worker" not in alone


@pytest.mark.parametrize("case", ["a", "another"])
def test_a_listed_test_gets_no_second_chance(tmp_path, case):
    listed = f"- `tests/test_0.py::test_fails_first[{case}]` (2026-11-25): cause: a sleep; cure: a gate\n"
    status, printed = run(tmp_path, FAILS_FIRST, listed=listed)
    assert status == 1
    assert "so their cure did not help:\n- tests/test_0.py::test_fails_first[a]\n" in printed


def test_a_listed_test_that_passes_harms_nobody(tmp_path):
    assert run(tmp_path, PASSES, listed="- `tests/test_0.py::test_passes` (2026-11-25): cause; cure\n")[0] == 0


def test_many_failures_are_no_accident(tmp_path):
    source = (
        "import pytest\n@pytest.mark.parametrize('case', range({}))\ndef test_it(case):\n    raise AssertionError\n"
    )
    status, printed = run(tmp_path, source.format(MOST_RUN_AGAIN + 1))
    assert status == 1
    assert f"{MOST_RUN_AGAIN + 1} tests failed, more than {MOST_RUN_AGAIN}: none gets a second chance." in printed


@pytest.mark.parametrize(
    ("source", "status"), [("import nothing_of_this_name\n", 2), ("x = 1\n", 5)], ids=["not importable", "no tests"]
)
def test_what_cannot_be_collected_has_no_second_chance(tmp_path, source, status):
    returned, printed = run(tmp_path, source)
    assert returned == status
    assert "once more" not in printed


def test_a_list_names_tests_between_the_first_backticks():
    text = "# Tests\n\n- `a.py::b[c]` (2026): cause `d.py::e`; cure\n* `f.py::g`\n`h.py::i`\n"
    assert functions_listed(text) == {"a.py::b"}
