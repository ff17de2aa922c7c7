import contextlib
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.run_directory.settings import CreateLandscape, LandscapeSettings

THREE = [[1, 2, 3]]


def test_defaults_and_what_is_equal():
    chosen = LandscapeSettings.from_dict({"intervals": THREE})
    assert chosen == LandscapeSettings(((1, 2, 3),), "step", 40, 2048, CreateLandscape(True, True))
    assert LandscapeSettings([[1, 2, 3]]) == LandscapeSettings(((1, 2, 3),))
    assert hash(LandscapeSettings([[1, 2, 3]])) == hash(LandscapeSettings(((1, 2, 3),)))
    assert LandscapeSettings.from_dict({"intervals": [[0, 1, 2], [2, 3, 4]]}).numbers == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("intervals", [[range(1, 4)], [(1, 2, 3)], ([1, 2, 3],), np.array([[1, 2, 3]]), (range(1, 4),)])
def test_intervals_of_any_sequence(intervals):
    assert LandscapeSettings.from_dict({"intervals": intervals}).intervals == ((1, 2, 3),)


def test_numpy_numbers_become_plain_ones():
    chosen = LandscapeSettings.from_dict({"intervals": [np.arange(3)], "landscape_size": np.int64(5)})
    assert all(type(number) is int for number in (*chosen.intervals[0], chosen.landscape_size))
    for size in (3, 256):
        assert chosen.override({"landscape_size": size}).landscape_size == size


def test_the_users_dictionary_is_neither_changed_nor_shared():
    intervals = [[1, 2, 3]]
    value = {"intervals": intervals, "create_landscape": {"train": True}}
    chosen = LandscapeSettings.from_dict(value)
    intervals[0].append(9)
    assert value == {"intervals": [[1, 2, 3, 9]], "create_landscape": {"train": True}}
    assert chosen.intervals == ((1, 2, 3),)


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (None, TypeError, "collect_landscape must be a dict, but got NoneType"),
        ({}, ValueError, r"collect_landscape lacks the keys \['intervals'\]"),
        ({"intervals": THREE, "size": 3}, ValueError, r"unknown keys \['size'\]; the keys it may have are"),
        ({"intervals": THREE, 3: 3}, TypeError, "a key of collect_landscape must be a str, but got int: 3"),
        ({"intervals": []}, ValueError, r"\['intervals'\] must hold at least one interval, but it is empty"),
        ({"intervals": "123"}, TypeError, "must be a list, a tuple or a range, but got str"),
        ({"intervals": [1, 2, 3]}, TypeError, r"\['intervals'\]\[0\] must be a list, a tuple or a range, but got int"),
        ({"intervals": [{1, 2, 3}]}, TypeError, "must be a list, a tuple or a range, but got set"),
        ({"intervals": [[1, 2]]}, ValueError, r"\[0\] must hold at least three numbers .* but got \[1, 2\]"),
        ({"intervals": [[1, 2, 3], [4]]}, ValueError, r"\[1\] must hold at least three numbers"),
        ({"intervals": [[3, 2, 1]]}, ValueError, "must be sorted and without repetition, but 2 follows 3"),
        ({"intervals": [[1, 2, 3], [1, 2, 3]]}, ValueError, r"\[1\] repeats .*\['intervals'\]\[0\]"),
        ({"intervals": [[-1, 2, 3]]}, ValueError, r"\[0\]\[0\] must be an int of at least 0, but got -1"),
        ({"intervals": [[True, 2, 3]]}, TypeError, r"\[0\]\[0\] must be an int of at least 0, but got bool: True"),
        ({"intervals": [range(10**30)]}, ValueError, r"\[0\] must be at most 1000000 items long, but got range"),
        ({"intervals": THREE, "landscape_size": 2}, ValueError, "must be an int from 3 to 256, but got 2"),
        ({"intervals": THREE, "landscape_size": 257}, ValueError, "must be an int from 3 to 256, but got 257"),
        ({"intervals": THREE, "num_samples": 0}, ValueError, r"\['num_samples'\] must be an int of at least 1"),
        ({"intervals": THREE, "unit": "batch"}, ValueError, "must be one of 'step', 'epoch', but got 'batch'"),
        ({"intervals": THREE, "create_landscape": True}, TypeError, r"\['create_landscape'\] must be a dict"),
        ({"intervals": THREE, "create_landscape": {"train": 1}}, TypeError, r"\['train'\] must be a bool, but got int"),
        ({"intervals": THREE, "create_landscape": {"trian": True}}, ValueError, r"unknown keys \['trian'\]"),
        (
            {"intervals": THREE, "create_landscape": {"train": False, "result": False}},
            ValueError,
            "must ask for at least one landscape",
        ),
    ],
)  # fmt: skip
def test_wrong_settings(value, error, match):
    with pytest.raises(error, match=match):
        LandscapeSettings.from_dict(value)


@pytest.mark.parametrize(
    ("key", "value", "error", "match"),
    [
        ("intervals", ((1, 2),), ValueError, r"intervals\[0\] must hold at least three"),
        ("landscape_size", 2, ValueError, "landscape_size must be an int from 3"),
        ("create_landscape", CreateLandscape(False, False), ValueError, "create_landscape must ask for at least one"),
        ("create_landscape", None, TypeError, "create_landscape must be a dict"),
    ],
)
def test_settings_built_directly_are_checked_as_well(key, value, error, match):
    with pytest.raises(error, match=match):
        LandscapeSettings(**{"intervals": ((1, 2, 3),), key: value})


def test_override_changes_only_what_is_given():
    ours = LandscapeSettings.from_dict({"intervals": THREE, "unit": "epoch", "num_samples": 7})
    assert ours.override(None) is ours
    changed = ours.override({"landscape_size": 9, "create_landscape": {"result": False}})
    assert changed == LandscapeSettings(((1, 2, 3),), "epoch", 9, 7, CreateLandscape(True, False))
    with pytest.raises(ValueError, match="collect_landscape has unknown keys"):
        ours.override({"colour": "red"})
    with pytest.raises(ValueError, match=r"collect_landscape\['landscape_size'\] must be an int from 3 to 256"):
        ours.override({"landscape_size": 1})


anything = st.sampled_from(
    [None, True, -1, 0, 2.5, float("nan"), 10**5000, "", "step", b"abc", [], {}, [[]], {1: 2}, set()]
)
numbers = st.lists(st.integers(0, 40), max_size=6)
plausible = st.fixed_dictionaries(
    {"intervals": st.lists(numbers.map(sorted) | numbers | anything, min_size=1, max_size=2)},
    optional={
        "unit": st.sampled_from(["step", "epoch", "batch"]) | anything,
        "landscape_size": st.integers(0, 300) | anything,
        "num_samples": st.integers(-2, 2**70) | anything,
        "create_landscape": st.dictionaries(st.sampled_from(["train", "result"]), st.booleans() | anything) | anything,
        "other": anything,
    },
)


@settings(max_examples=300)
@given(plausible | anything)
def test_settings_are_valid_or_refused_with_a_typed_error(value):
    with contextlib.suppress(TypeError, ValueError):
        chosen = LandscapeSettings.from_dict(value)
        assert chosen.intervals
        assert all(len(item) >= 3 and list(item) == sorted(set(item)) and item[0] >= 0 for item in chosen.intervals)
        assert 3 <= chosen.landscape_size <= 256
        assert chosen.num_samples >= 1
        assert chosen.unit in ("step", "epoch")
        assert chosen.create_landscape.train or chosen.create_landscape.result
        assert LandscapeSettings.from_dict(dataclasses.asdict(chosen)) == chosen
