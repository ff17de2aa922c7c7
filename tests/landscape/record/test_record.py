"""Records: what belongs together, what is tried once more, how the rows of two become one; and their files."""

import hashlib
import json

import h5py
import numpy as np
import pytest
from curvature_cases import curvature_record
from places import ROOT

from landscape.comparison.data import ComparisonData
from landscape.curvature.data import CurvatureData
from landscape.errors import LandscapeDamagedError
from landscape.record.checks import PointStatus
from landscape.record.hdf5 import COMPARISON, CURVATURE
from landscape.record.record import Record, column, read_record, record_bytes

EXPECTED = json.loads((ROOT / "tests/data/record_files.json").read_text())


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
    begun = {"created": "then", "versions": {"numpy": "1"}}
    stored = numbered([0, 4], notes=["a"], old=1, **begun)
    fresh = numbered([4, 2], notes=["b", "a"], created="now", versions={"numpy": "2"})
    stored.loss[:], stored.status[:] = [1, np.nan], [1, 3]
    stored.errors["number/4"] = "failed"
    joined = fresh.joined(stored)
    assert joined.number.tolist() == [0, 2, 4]
    np.testing.assert_array_equal(joined.loss, [1, np.nan, np.nan])
    assert joined.status.tolist() == [1, 0, 3]
    assert joined.errors == {"number/4": "failed"}
    assert joined.attributes == {"notes": ["a", "b"], "old": 1, **begun}


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


def test_another_plan_is_noted():
    fresh, stored = curvature_record(), curvature_record()
    for record, size in ((stored, 64), (fresh, 32)):
        record.attributes["measurement_plan"] = {"batch_size": size, "threads": 1, "compile": False, "reason": size}
    noted, text = fresh.joined(stored).attributes["notes"], "the curvature was continued in another way: first in "
    way = "batches of {} samples, 1 thread per worker, not compiled"
    assert noted == ["a note", f"{text}{way.format(64)}; then in {way.format(32)}."]
    assert stored.joined(stored).attributes["notes"] == ["a note"]


def comparison(blocks=(), last=PointStatus.MEASURED):
    random = np.random.default_rng(1)
    attributes = {
        "radius": 0.5, "confidence": 0.95, "rise": 0.1, "seed": 0, "directions": 4, "normalization": "filter",
        "num_samples": 8, "recipes": ["a", "böse"], "paired": ["a"], "notes": ["a note"],
        "trace_lines": {f"{0:064x}": 3}, "identity": {"lines": {"seed": 0}}, "buffers": "fixed", "weights": 44,
    }  # fmt: skip
    known = {
        "recipe": ["a", "a", "böse"], "name": ["1", "2", "1"], "sha256": [f"{row:064x}" for row in range(3)],
        "t": [-0.5, -0.25, 0.0, 0.25, 0.5], "block_size": blocks,
    }  # fmt: skip
    data = ComparisonData.empty(known, {"direction": 4}, attributes)
    data.loss[:2], data.block_rise[:2] = random.random((2, 4, 5)), random.random((2, 4, len(blocks)))
    data.trace[:2], data.status[:2], data.status[2] = 1.5, PointStatus.MEASURED, last
    if last == PointStatus.FAILED:
        data.errors |= {"network/2": "ValueError: none", "network/1/direction/3": "ValueError: none"}
    return data


CASES = {
    "curvature_whole": curvature_record,
    "curvature_density": lambda: curvature_record((2, 3)),
    "curvature_share": lambda: curvature_record(share=True),
    "curvature_partly": lambda: curvature_record((2, 3), status=(1, 0, 0)),
    "curvature_failed": lambda: curvature_record(bottom=0, status=(1, 3, 3)),
    "curvature_no_pairs": lambda: curvature_record((1, 4), top=0, bottom=0, status=(1, 1, 0)),
    "curvature_one": lambda: curvature_record(top=1, bottom=0, status=(1,)),
    "comparison": comparison,
    "comparison_blocks": lambda: comparison((4.0, 4.0, 3.0)),
    "comparison_partly": lambda: comparison(last=PointStatus.PENDING),
    "comparison_failed": lambda: comparison((2.0,), PointStatus.FAILED),
}


@pytest.mark.parametrize("case", CASES)
def test_files_are_those_of_before(case, tmp_path):
    """Those that commit b7dfff6 wrote, whose encoders were written by hand."""
    data, path, expected = CASES[case](), tmp_path / "a.h5", EXPECTED[case]
    image = record_bytes(data)
    path.write_bytes(image)
    scales = {}

    def visit(name, dataset):
        if isinstance(dataset, h5py.Dataset):
            assert dataset.chunks is None
            scales[name] = [scale.name for axis in dataset.dims for scale in axis.values()]

    with h5py.File(path) as file:
        # Of all names, types, shapes, values and attributes.
        assert json.loads(file.attrs["contents"])["sha256"] == expected["contents"]
        file.visititems(visit)
    assert {name: found for name, found in scales.items() if found} == expected["scales"]
    if h5py.version.hdf5_version == EXPECTED["hdf5"]:
        assert hashlib.sha256(image).hexdigest() == expected["bytes"]
    found = read_record(type(data), path)
    for name, item in data.declared.items():
        np.testing.assert_array_equal(getattr(found, name), getattr(data, name), err_msg=name)
        kind = "U" if item.dtype is str else np.dtype(item.dtype).kind
        assert np.asarray(getattr(found, name)).dtype.kind == kind
    assert record_bytes(found) == image


def remove(name):
    return lambda file: file.__delitem__(name)


def put(name, **dataset):
    return lambda file: (file.__delitem__(name), file.create_dataset(name, **dataset))


def set_attribute(name, value):
    return lambda file: file.attrs.modify(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("number"), "number"),
        (remove("loss"), "the file lacks 'loss'"),
        (remove("density/weights"), "the file lacks 'density/weights'"),
        (remove("eigenvalues"), "the file lacks 'eigenvalues'"),
        (remove("errors"), "errors"),
        (put("trace", data=np.zeros(4)), "trace has the length 4 along number, others have 3"),
        (put("residuals", data=np.zeros((3, 4))), "residuals has the length 4 along pair, others have 3"),
        (put("loss", data=np.zeros((3, 1))), "loss must be float64|Type-check error"),
        (put("loss", shape=(3, 2**40), dtype="f8"), "claims|shape|stored"),
        (put("status", data=np.array([9, 1, 1], np.uint8)), "status must hold"),
        (lambda file: (file.pop("loss"), file.__setitem__("loss", h5py.SoftLink("/trace"))), "link to another place"),
        (lambda file: file.attrs.pop("matrix"), "matrix"),
        (set_attribute("top", 7), "top and bottom must add up to 3"),
        (set_attribute("top", 2**62), "top and bottom"),
    ],
)
def test_wrong_contents_of_a_file(change, message, tmp_path):
    path = tmp_path / "a.h5"
    path.write_bytes(record_bytes(curvature_record((2, 3))))
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(LandscapeDamagedError, match=message):
        read_record(CurvatureData, path)
