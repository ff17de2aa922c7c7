"""Records in memory: what belongs together, what is tried once more, and how the rows of two become one."""

import numpy as np
import pytest

from landscape.record.checks import PointStatus
from landscape.record.hdf5 import COMPARISON, CURVATURE
from landscape.record.record import Record, column


class Numbered(Record, kind=CURVATURE, coordinates=("number",), key=("number",)):
    number: np.ndarray = column("number", dtype=np.int64)
    status: np.ndarray = column("number", dtype=np.uint8)
    loss: np.ndarray = column("number")


class Named(Record, kind=COMPARISON, key=("name",)):
    name: tuple[str, ...] = column("network", dtype=str)
    scale: np.ndarray = column("point")
    status: np.ndarray = column("network", "line", dtype=np.uint8)
    loss: np.ndarray = column("network", "line", "point")


def numbered(numbers, **attributes):
    return Numbered.empty({"number": numbers}, attributes={"notes": [], **attributes})


def named(names, lines=2):
    return Named.empty({"name": list(names), "scale": [0.0, 1.0]}, {"line": lines}, {"notes": []})


def test_nothing_is_measured_at_first():
    data = named("ab")
    assert data.sizes == {"point": 2, "network": 2, "line": 2}
    assert np.isnan(data.loss).all()
    assert data.status_counts[PointStatus.PENDING] == 4
    assert not data.complete
    assert list(data.columns) == ["scale", "status", "loss"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": np.zeros((2, 2, 3))}, r"loss must be float64 of the shape \(2, 2, 2\)"),
        ({"loss": np.zeros((2, 2, 2), np.float32)}, "loss must be float64 of the shape .* but got float32"),
        ({"status": np.zeros((2, 2), np.int64)}, "status must be uint8"),
        ({"status": np.full((2, 2), 9, np.uint8)}, "status must hold the numbers 0 to 3, but got 9"),
        ({"name": ("a",)}, r"status must be uint8 of the shape \(1, 2\)"),
    ],
)
def test_arrays_that_do_not_belong_together(change, message):
    data = named("ab")
    data.validate()
    vars(data).update(change)
    with pytest.raises(ValueError, match=message):
        data.validate()


def test_nothing_at_all_is_no_record():
    with pytest.raises(ValueError, match="curvature must have at least one number"):
        numbered([]).validate()


def test_what_failed_is_tried_once_more():
    data = named("ab")
    data.status[:] = [[1, 3], [3, 3]]
    data.errors = {"network/0/line/1": "x", "network/1": "y", "network/1/line/0": "z", "network/11": "another"}
    data.forget_failed([1])
    assert data.status.tolist() == [[1, 3], [0, 0]]
    assert data.errors.keys() == {"network/0/line/1", "network/11"}
    numbers = numbered([0, 5])
    numbers.status[:] = 3
    numbers.errors = {"number/0": "x", "number/5": "y"}
    numbers.forget_failed([1])
    assert (numbers.status.tolist(), numbers.errors) == ([3, 0], {"number/0": "x"})


def test_rows_with_coordinates_are_joined_in_their_order():
    stored = numbered([0, 4], notes=["a"], created="then", old=1)
    fresh = numbered([4, 2], notes=["b", "a"], created="now")
    stored.loss[:], stored.status[:] = [1, np.nan], [1, 3]
    stored.errors["number/4"] = "failed"
    joined = fresh.joined(stored)
    assert joined.number.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(joined.loss, [1, np.nan, np.nan])
    assert joined.status.tolist() == [1, 0, 3]
    assert joined.errors == {"number/4": "failed"}
    assert joined.attributes == {"notes": ["a", "b"], "created": "then", "old": 1}


def test_rows_without_coordinates_begin_with_those_of_now():
    stored, fresh = named("abc"), named("dcb", lines=3)
    stored.loss[:] = np.arange(12.0).reshape(3, 2, 2)
    stored.status[:] = 1
    stored.errors = {"network/0/line/1": "of a", "network/2": "of c", "network/7": "of nobody"}
    joined = fresh.joined(stored)
    assert joined.name == ("d", "c", "b", "a")
    assert joined.sizes == {"point": 2, "network": 4, "line": 3}
    np.testing.assert_array_equal(joined.loss[1:, :2], stored.loss[::-1])
    assert joined.status.tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0]]
    assert np.isnan(joined.loss[:, 2]).all()
    assert joined.errors == {"network/3/line/1": "of a", "network/1": "of c"}
