"""Which code travels to a cluster."""

import functools
import importlib
import sys
from pathlib import Path

import pytest

import workers
from workers.pools import ray_pool
from workers.pools.ray_pool import code_of

ROOT = Path(workers.__file__).parents[1]
OURS = [str(ROOT / name) for name in ("collectors", "workers", "landscape")]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with two modules, two packages, and what is neither."""
    for name in ("own_training_module.py", "parts.py", "data.csv", "nets/__init__.py", "nets/deep/layers.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("def callback_fn(): ...\n")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("def callback_fn(): ...\n")
    for name in ("data", ".venv", "my-results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(ray_pool, "_folder_of_script", lambda: None)
    yield tmp_path
    for name in ("own_training_module", "own_package"):
        sys.modules.pop(name, None)


@pytest.fixture
def module(project):
    return importlib.import_module("own_training_module")


@pytest.mark.parametrize("wrap", [lambda function: function, functools.partial])
@pytest.mark.parametrize("name", ["own_training_module", "own_package"])
def test_modules_and_packages_beside_the_callback(project, name, wrap):
    callback = wrap(importlib.import_module(name).callback_fn)
    expected = [str(project / name) for name in ("nets", "own_package", "own_training_module.py", "parts.py")]
    assert code_of(callback) == {"py_modules": OURS + expected, "excludes": ["**/__pycache__"]}


def test_the_class_of_a_callable_object(project, module):
    kind = type("Kind", (), {"__call__": lambda self: None, "__module__": module.__name__})
    assert str(project / "parts.py") in code_of(kind())["py_modules"]


def test_what_is_installed_stays(project):
    assert code_of(Path)["py_modules"] == OURS
    assert code_of(pytest.fixture)["py_modules"] == OURS


def test_a_folder_that_is_gone(project, module):
    project.rename(project.with_name("elsewhere"))
    assert code_of(module.callback_fn)["py_modules"] == OURS


def test_a_users_file_of_our_name_does_not_replace_us(project, module):
    (project / "workers.py").touch()
    assert str(project / "workers.py") not in code_of(module.callback_fn)["py_modules"]
