"""The faults of tests/mutants are planted, told from those that nobody catches, and can all be planted still."""

import importlib.util
import re
import subprocess
import sys

import pytest
from places import ROOT

MUTANTS = ROOT / "tests" / "mutants"
PATCHES = sorted(MUTANTS.glob("*.patch"))
TEST, FAILS = "tests/test_product.py::test_add", "tests/test_product.py::test_fails"
PATCH = """\
breaks: Adding subtracts.
caught by: {test}

diff --git a/product.py b/product.py
--- a/product.py
+++ b/product.py
@@ -1,5 +1,5 @@
 def add(a, b):
-    return a {was} b
+    return a {becomes} b
 
 
 ONE = 1
"""  # noqa: W293


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("mutants_run", MUTANTS / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a function, a test of it that catches some faults, and one that fails whatever happens."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "tests" / "mutants").mkdir(parents=True)
    (tmp_path / "product.py").write_text("def add(a, b):\n    return a + b\n\n\nONE = 1\n")
    (tmp_path / "tests" / "test_product.py").write_text(
        "import product\ndef test_add():\n    assert product.add(0, 1) == 1\ndef test_fails():\n    assert False\n"
    )
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


@pytest.fixture
def seen(runner, monkeypatch):
    """Runs no tests: they fail where nothing is added, one of them always; returns what is tried."""
    tried = []

    def run_tests(folder, tests):
        tried.append((folder / "product.py").read_text().split("\n")[1].strip())
        return int("+" not in tried[-1] or FAILS in tests), "printed"

    monkeypatch.setattr(runner, "run_tests", run_tests)
    return tried


def plant(project, name, test=TEST, was="+", becomes="-"):
    path = project / "tests" / "mutants" / f"{name}.patch"
    path.write_text(PATCH.format(test=test, was=was, becomes=becomes))
    return path


def test_a_fault_is_caught_or_not(runner, project, capsys):
    plant(project, "caught")
    assert runner.main([], project) == 0
    assert capsys.readouterr().out == f"caught: caught by {TEST}\n"
    plant(project, "uncaught", becomes="|")  # 0 | 1 is 1 too
    assert runner.main(["uncaught"], project) == 1
    assert capsys.readouterr().out == f"uncaught: NOT CAUGHT by {TEST}\n"
    assert "a + b" in (project / "product.py").read_text()


def test_each_fault_is_planted_alone_and_taken_back(runner, project, seen, capsys):
    plant(project, "a")
    plant(project, "b", becomes="*")
    assert runner.main([], project) == 0
    assert seen == ["return a + b", "return a - b", "return a * b"]
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    ("statuses", "says"),
    [
        ([1, 1], f"ERROR: {TEST} fails without the fault too"),
        ([4, 4], f"ERROR: {TEST} fails without the fault too"),
        ([0, 2], f"ERROR: with the fault {TEST} cannot even begin"),
    ],
)
def test_a_test_that_tells_nothing_is_an_error(runner, project, monkeypatch, capsys, statuses, says):
    monkeypatch.setattr(runner, "run_tests", lambda *_: (statuses.pop(0), "printed"))
    plant(project, "fault")
    assert runner.main([], project) == 1
    assert f"fault: {says}" in capsys.readouterr().out


@pytest.mark.usefixtures("seen")
def test_a_patch_that_does_not_apply_is_an_error_and_the_others_go_on(runner, project, capsys):
    plant(project, "a", was="/")
    plant(project, "b")
    assert runner.main([], project) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("a: ERROR: the patch does not apply: error: patch failed: product.py:1")
    assert last == f"b: caught by {TEST}"


@pytest.mark.parametrize("header", ["breaks", "caught by"])
@pytest.mark.parametrize("options", [[], ["--list"], ["--selector"]])
def test_a_missing_header_and_a_missing_file_are_errors(runner, project, capsys, header, options):
    patch = plant(project, "fault")
    patch.write_text(patch.read_text().replace(f"{header}: ", f"+{header} "))
    assert runner.main([*options, "fault", "nowhere"], project) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"fault: ERROR: the line '{header}: ...' is missing", "nowhere: ERROR: there is no such file",
    ]  # fmt: skip


@pytest.mark.parametrize("options", [[], ["--list"]])
def test_a_fault_without_a_patch_is_an_error(runner, project, capsys, options):
    patch = plant(project, "fault")
    patch.write_text(patch.read_text().partition("diff --git")[0])
    assert runner.main([*options, "fault"], project) == 1
    assert capsys.readouterr().out == "fault: ERROR: what git diff prints is missing\n"


@pytest.mark.usefixtures("seen")
def test_a_test_that_fails_anyway_does_not_hide_the_others(runner, project, capsys):
    plant(project, "caught")
    plant(project, "untold", test=FAILS)
    assert runner.main([], project) == 1
    assert capsys.readouterr().out == (
        f"caught: caught by {TEST}\nuntold: ERROR: {FAILS} fails without the fault too:\nprinted\n"
    )


def test_the_list_says_what_they_break(runner, project, capsys):
    plant(project, "fault")
    assert runner.main(["--list"], project) == 0
    assert capsys.readouterr().out == "fault: Adding subtracts.\n"


@pytest.mark.parametrize(
    ("imports", "slow", "says"),
    [
        ("import collectors.product", "", "runs: it is quick"),
        ("import collectors.product", "@pytest.mark.slow\n", "runs: collectors/product.py"),
        ("import collectors.other", "@pytest.mark.slow\n", "DOES NOT RUN"),
        ("import collectors.other", "pytestmark = pytest.mark.slow\n", "DOES NOT RUN"),
        ("import collectors.other", "@pytest.mark.parametrize('a', [pytest.param(1, marks=pytest.mark.slow)])\n",
         "DOES NOT RUN"),
    ],
)  # fmt: skip
def test_the_selector_is_asked_about_slow_tests(runner, project, capsys, imports, slow, says):
    for package in ("collectors", "workers", "landscape"):
        (project / package).mkdir()
        (project / package / "__init__.py").touch()
    for name in ("product", "other"):
        (project / "collectors" / f"{name}.py").touch()
    patch = plant(project, "fault")
    patch.write_text(patch.read_text().replace("/product.py", "/collectors/product.py"))
    (project / "tests" / "test_product.py").write_text(f"import pytest\n{imports}\n{slow}def test_add(): pass\n")
    assert runner.main(["--selector"], project) == (says == "DOES NOT RUN")
    assert capsys.readouterr().out == f"fault: {TEST} {says}\n"


@pytest.mark.parametrize("patch", PATCHES, ids=[patch.stem for patch in PATCHES])
def test_every_fault_of_this_project_can_be_planted(runner, patch):
    mutant = runner.read(patch)
    file, *names = mutant.test.partition("[")[0].split("::")
    assert all(re.search(rf"\b{name}\b", (ROOT / file).read_text()) for name in names)
    checked = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_at_least_thirty_faults_lie_in_different_files_of_all_packages():
    changed = {line for patch in PATCHES for line in patch.read_text().splitlines() if line.startswith("+++ ")}
    assert len(changed) >= 30
    assert {line.partition("b/")[2].partition("/")[0] for line in changed} == {"collectors", "workers", "landscape"}
