"""The options with which the gate chooses slow tests reach pytest as the gate gives them."""

import os

import pytest
from chosen import in_share
from places import ROOT, SUPPORT
from scripts import run_python

TESTS = [f"tests/test_{letter}.py::test_it" for letter in "abcdefghij"]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (folder / "tests" / "conftest.py").write_text(
        "import chosen\ndef pytest_addoption(parser):\n    chosen.add_options(parser)\n"
        "def pytest_collection_modifyitems(config, items):\n    chosen.deselect(config, items)\n"
    )
    for test in TESTS:
        (folder / test.partition("::")[0]).write_text("def test_it():\n    pass\n")
    return folder


def passed(project, *options):
    """Returns the tests that passed, run as the gate runs them."""
    environment = {
        **os.environ, "PYTHONPATH": str(SUPPORT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_cov.plugin",
    }  # fmt: skip
    printed = run_python(ROOT / ".ci" / "second_chance.py", "-v", *options, cwd=project, env=environment)
    return {line.split()[0] for line in printed.splitlines() if " PASSED " in line}


def test_chosen_files_run_and_a_share_of_the_others(project, tmp_path):
    (tmp_path / "chosen").write_text("tests/test_a.py\ntests/test_c.py\n")
    found = [passed(project, f"--chosen-files={tmp_path / 'chosen'}", f"--share={number}/5") for number in range(2)]
    for number, tests in enumerate(found):
        share = {test for test in TESTS if in_share(test, f"{number}/5")}
        assert tests == {"tests/test_a.py::test_it", "tests/test_c.py::test_it"} | share


def test_a_single_case_may_be_chosen(project, tmp_path):
    (project / "tests" / "test_a.py").write_text(
        "import pytest\n@pytest.mark.parametrize('page', ['a.md', 'b.md'])\ndef test_it(page):\n    pass\n"
    )
    (tmp_path / "chosen").write_text("tests/test_a.py[b.md]\n")
    found = passed(project, f"--chosen-files={tmp_path / 'chosen'}", "--share=1/97")
    assert "tests/test_a.py::test_it[b.md]" in found
    assert "tests/test_a.py::test_it[a.md]" not in found


def test_without_the_options_everything_runs(project):
    assert passed(project) == set(TESTS)


def test_a_share_may_hold_no_test(project, tmp_path):
    (tmp_path / "chosen").write_text("")
    share = next(f"{number}/97" for number in range(97) if not any(in_share(test, f"{number}/97") for test in TESTS))
    assert passed(project, f"--chosen-files={tmp_path / 'chosen'}", f"--share={share}") == set()
