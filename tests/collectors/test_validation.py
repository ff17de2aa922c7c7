from functools import partial
from pathlib import Path

import numpy as np
import pytest

from collectors.validation import check_bool, check_device_ids, check_float, check_int, check_keys, check_path

size = partial(check_int, "size", minimum=1, maximum=9)
rate = partial(check_float, "rate", minimum=0)
place = partial(check_path, "place")
device_ids = partial(check_device_ids, "device_ids")


@pytest.mark.parametrize(
    ("check", "value", "error", "match"),
    [
        (size, np.True_, TypeError, "size must be an int from 1 to 9, but got bool"),
        pytest.param(size, 10**5000, ValueError, "from 1 to 9, but got <int object", id="too long to print"),
        (rate, 10**400, ValueError, "rate must be a finite number of at least 0, but got 1000"),
        (place, 3, TypeError, r"place must be a path \(str or os.PathLike\), but got int: 3"),
        (place, b"here", TypeError, "but got bytes"),
        (place, None, TypeError, "but got NoneType"),
        (place, "", ValueError, "place must be a path that is not blank, but got ''"),
        (place, " \t", ValueError, "a path that is not blank"),
        (place, "a\0b", ValueError, "a path without a null character"),
        (place, "~\0b", ValueError, "a path without a null character"),
        (place, "a" * 256, ValueError, "a path of at most 4095 bytes whose parts have at most 255 each"),
        (place, "ä" * 128, ValueError, "a path of at most 4095 bytes whose parts have at most 255 each"),
        (place, "a/" * 2100, ValueError, "a path of at most 4095 bytes"),
        (place, "\ud800", ValueError, "a path that can be used"),
        (place, "s3://bucket/run", ValueError, "a path on this machine, and no URL, but got 's3://bucket/run'"),
        (place, "simplecache::s3://b", ValueError, "a path on this machine, and no URL"),
        (place, "~no_such_user_here/x", ValueError, "a path that can be used .*home directory"),
        (device_ids, 0, TypeError, "device_ids must be a list of ints or None, but got int"),
        (device_ids, [True], TypeError, r"device_ids\[0\] must be an int"),
    ],
)
def test_wrong_values(check, value, error, match):
    with pytest.raises(error, match=match):
        check(value)


def test_numpy_scalars_become_plain():
    assert type(check_int("n", np.int16(3))) is int
    assert type(check_float("n", np.float16(0.5))) is float
    assert type(check_bool("n", np.True_)) is bool


def test_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert place(Path("a/b")) == tmp_path / "a" / "b"
    assert place("~/runs") == Path("/home/someone/runs")
    assert place("a" * 255) == tmp_path / ("a" * 255)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), ((9, 3), (9, 3)), (range(2), (0, 1)), (np.array([4, 2]), (4, 2))]
)
def test_device_ids(value, expected):
    assert device_ids(value) == expected


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
