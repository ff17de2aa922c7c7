from pathlib import Path

import numpy as np
import pytest

from collectors.validation import check_bool, check_device_ids, check_float, check_int, check_keys, check_path


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (True, TypeError, "size must be an int from 1 to 9, but got bool: True"),
        (np.True_, TypeError, "size must be an int from 1 to 9, but got bool"),
        (1.0, TypeError, "but got float: 1.0"),
        (0, ValueError, "size must be an int from 1 to 9, but got 0"),
        (10, ValueError, "but got 10"),
        pytest.param(10**5000, ValueError, "from 1 to 9, but got <int object", id="too long to print"),
    ],
)
def test_check_int(value, error, match):
    with pytest.raises(error, match=match):
        check_int("size", value, 1, 9)


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (float("nan"), ValueError, "rate must be a finite number of at least 0, but got nan"),
        (float("inf"), ValueError, "but got inf"),
        (10**400, ValueError, "but got 1000"),
        (-1, ValueError, "but got -1"),
        (False, TypeError, "but got bool"),
        ("1", TypeError, "but got str: '1'"),
    ],
)
def test_check_float(value, error, match):
    with pytest.raises(error, match=match):
        check_float("rate", value, minimum=0)


def test_numpy_scalars_become_plain():
    assert type(check_int("n", np.int16(3))) is int
    assert type(check_float("n", np.float16(0.5))) is float
    assert type(check_bool("n", np.True_)) is bool


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (3, TypeError, r"place must be a path \(str or os.PathLike\), but got int: 3"),
        (b"here", TypeError, "but got bytes"),
        (None, TypeError, "but got NoneType"),
        ("", ValueError, "place must be a path that is not blank, but got ''"),
        (" \t", ValueError, "a path that is not blank"),
        ("a\0b", ValueError, "a path without a null character"),
        ("~\0b", ValueError, "a path without a null character"),
        ("a" * 256, ValueError, "a path of at most 4095 bytes whose parts have at most 255 each"),
        ("ä" * 128, ValueError, "a path of at most 4095 bytes whose parts have at most 255 each"),
        ("a/" * 2100, ValueError, "a path of at most 4095 bytes"),
        ("\ud800", ValueError, "a path that can be used"),
        ("~no_such_user_here/x", ValueError, "a path that can be used .*home directory"),
    ],
)
def test_check_path(value, error, match):
    with pytest.raises(error, match=match):
        check_path("place", value)


def test_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert check_path("place", Path("a/b")) == tmp_path / "a" / "b"
    assert check_path("place", "~/runs") == Path("/home/someone/runs")
    assert check_path("place", "a" * 255) == tmp_path / ("a" * 255)


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (0, TypeError, "device_ids must be a list of ints or None, but got int"),
        ("01", TypeError, "but got str"),
        ([], ValueError, "a list with at least one device id, or None for all devices"),
        ([0, 0], ValueError, r"no device id is repeated, but got \[0, 0\]"),
        ([0, -1], ValueError, r"device_ids\[1\] must be an int of at least 0, but got -1"),
        ([True], TypeError, r"device_ids\[0\] must be an int"),
    ],
)
def test_check_device_ids(value, error, match):
    with pytest.raises(error, match=match):
        check_device_ids("device_ids", value)


def test_device_ids():
    assert check_device_ids("ids", None) is None
    assert check_device_ids("ids", (9, 3)) == (9, 3)
    assert check_device_ids("ids", range(2)) == (0, 1)
    assert check_device_ids("ids", np.array([4, 2])) == (4, 2)


def test_an_error_about_very_many_keys_stays_short():
    with pytest.raises(ValueError, match="table has unknown keys") as raised:
        check_keys("table", {f"key {index}": 1 for index in range(10_000)}, ("size",))
    assert len(str(raised.value)) < 400


def test_an_object_whose_text_fails_is_still_named():
    class Mute:
        def __repr__(self):
            raise ArithmeticError("no text")

    with pytest.raises(TypeError, match=r"flag must be a bool, but got Mute: <.*Mute object"):
        check_bool("flag", Mute())
