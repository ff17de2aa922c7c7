"""A warning points at the user's own line, however deep in our code, and in which libraries' frames, it is raised."""

import inspect
import warnings
from pathlib import Path

import pytest

from workers import users_code

DEEP = """
import contextlib
from workers.users_code import warn_user

@contextlib.contextmanager
def opened():
    warn_user("the CPU measures")
    yield

def door():
    with opened():
        pass
"""


@pytest.fixture(scope="module")
def door():
    """A function of a module that lies in a package of ours."""
    names = {}
    exec(compile(DEEP, str(Path(users_code.__file__).parent / "pools" / "imagined.py"), "exec"), names)
    return names["door"]


def test_the_line_that_called_us_is_named(door):
    line = inspect.currentframe().f_lineno + 2
    with pytest.warns(UserWarning, match="the CPU measures") as caught:
        door()
    (found,) = caught
    assert (found.filename, found.lineno) == (__file__, line)


def test_each_line_of_the_user_is_told_once(door):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            door()
        door()
    assert len({found.lineno for found in caught}) == len(caught) == 2


def test_where_no_code_of_the_user_is_on_the_way_it_is_told_all_the_same(door, monkeypatch):
    monkeypatch.setattr(users_code, "_is_users", lambda filename: False)
    with pytest.warns(UserWarning, match="the CPU measures"):
        door()
