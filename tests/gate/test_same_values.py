"""Two commits give the same numbers, or it is said which call and which number differ."""

import importlib.util
import shutil
import subprocess
import sys

import numpy as np
import pytest
from places import ROOT

HOME = ROOT / "tests" / "support" / "same_values"
CALLS = ["--calls", "random line", "line between two networks"]


@pytest.fixture(scope="module")
def command():
    sys.path.insert(0, str(HOME))
    spec = importlib.util.spec_from_file_location("same_values_command", HOME / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name], sys.modules["retired"]
    sys.path.remove(str(HOME))


def same_values(*arguments):
    command = [sys.executable, HOME, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


OLD = {"loss": np.array([[1.0, 2.0], [3.0, np.nan]]), "name": np.array("the identity of a plane"), "count": np.int64(3)}


@pytest.mark.parametrize(
    ("new", "lines"),
    [
        ({}, []),
        ({"loss": np.array([[1.0, 2.0], [np.nextafter(3.0, 4), np.nan]])},
         ["loss[1, 0] is 3.0 in OLD and 3.0000000000000004 in NEW"]),
        ({"loss": np.array([[1.0, 2.0], [3.0, -np.nan]])}, ["loss[1, 1] is nan (000000000000f87f) in OLD and nan "]),
        ({"loss": OLD["loss"].astype(np.float32)},
         ["loss is float64 of the shape (2, 2) in OLD and float32 of the shape (2, 2) in NEW"]),
        ({"loss": OLD["loss"][0]},
         ["loss is float64 of the shape (2, 2) in OLD and float64 of the shape (2,) in NEW"]),
        ({"count": np.int64(4)}, ["count is 3 in OLD and 4 in NEW"]),
        ({"name": np.array("the identity of a line")},
         ["name is 'the identity of a plane' in OLD and 'the identity of a line' in NEW"]),
        ({"further": np.zeros(2)}, ["further is only in NEW"]),
    ],
)  # fmt: skip
def test_the_first_place_that_differs_is_named(command, new, lines):
    found = list(command.differences(OLD, OLD | new))
    assert [line[: len(wanted)] for line, wanted in zip(found, lines, strict=True)] == lines


def test_what_is_gone_is_named(command):
    assert list(command.differences(OLD, {"count": OLD["count"]})) == ["loss is only in OLD", "name is only in OLD"]


def test_what_was_removed_on_purpose_may_be_missing(command, monkeypatch):
    monkeypatch.setitem(command.retired.ARRAYS, "na*", "no names any more")
    assert list(command.differences(OLD, {"count": OLD["count"]})) == ["loss is only in OLD"]
    assert list(command.differences({"name": np.array("a")}, {"name": np.array("b")})) == [
        "name is 'a' in OLD and 'b' in NEW"
    ]


def test_the_sign_of_zero_counts(command):
    assert command.first_difference(np.array([0.0]), np.array([-0.0])) == "[0] is 0.0 in OLD and -0.0 in NEW"


def test_what_is_neither_a_commit_nor_a_folder_is_refused(tmp_path):
    done = same_values(tmp_path, ".", "--calls", "random line")
    assert done.returncode == 1
    assert f"{tmp_path} must be a commit or a folder with the packages" in done.stderr


@pytest.mark.slow
@pytest.mark.room("landscape.functions")
def test_equal_commits_are_equal():
    done = same_values("HEAD", "HEAD", *CALLS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("all equal: 2 calls, ")


@pytest.mark.slow
@pytest.mark.room("landscape.functions")
def test_an_injected_difference_is_found_and_named(tmp_path):
    """One commit adds a little to the mean of the losses, and its lines between networks fail."""
    for package in ("collectors", "workers", "landscape"):
        shutil.copytree(ROOT / package, tmp_path / package)
    through = '    return _through({"a": a, "b": b}, names, network)'
    for file, old, new in (
        ("workers/measuring/sample_loss.py", "numerators.sum(-1) / weight", "(numerators.sum(-1) + 1e-9) / weight"),
        ("landscape/planes/from_weights.py", through, '    raise AttributeError("line_between")'),
    ):
        text = (tmp_path / file).read_text()
        assert text.count(old) == 1
        (tmp_path / file).write_text(text.replace(old, new))
    done = same_values(".", tmp_path, *CALLS, "random plane")
    assert done.returncode == 1, done.stdout + done.stderr
    differs = [line for line in done.stdout.splitlines() if line.startswith("random line: ")]
    assert differs[0].startswith("random line: returned.landscape.metrics.loss[0] is ")
    assert "line between two networks: fails in NEW: AttributeError" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 of 3 calls differ or fail"


@pytest.mark.slow
@pytest.mark.room("landscape.functions")
def test_at_least_sixty_calls_need_no_other_framework():
    names = same_values(".", ".", "--list").stdout.splitlines()
    assert sum("(needs " not in name for name in names) >= 60
    assert len(set(names)) == len(names)
