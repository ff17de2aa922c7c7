"""Files of records are those that commit b7dfff6 wrote, whose encoders were written by hand."""

import hashlib
import json

import h5py
import numpy as np
import pytest
from places import ROOT

from landscape.comparison.data import ComparisonData
from landscape.curvature.data import CurvatureData
from landscape.errors import LandscapeDamagedError
from landscape.record.checks import PointStatus
from landscape.record.record import read_record, record_bytes

EXPECTED = json.loads((ROOT / "tests/data/record_files.json").read_text())
TRACEBACK = "Traceback (most recent call last):\n  File\nCurvatureError: the löss is \0 nan"


def curvature(density=(0, 0), top=2, bottom=1, share=False, status=(1, 1, 1)):
    random, size = np.random.default_rng(0), len(status)
    attributes = {
        "matrix": "hessian", "unit": "epoch", "top": top, "bottom": bottom, "weights": 1210, "network": "Net",
        "tolerance": 1e-3, "num_samples": 64, "samples": "first", "seed": 0, "notes": ["a note"],
        "identity": {"top": top, "samples": {"count": 64}}, "versions": {"numpy": "2"}, "step_per_epoch": 7,
        "learning_rate": {"0": 0.1},
    }  # fmt: skip
    known = {"number": [0, 2, 5][:size], "sha256": ["ab" * 32, "cd" * 32, "ef" * 32][:size]}
    sizes = {"pair": top + bottom, "probe": density[0], "step": density[1]}
    data = CurvatureData.empty(known, sizes, attributes)
    data.status[:] = status
    measured = data.status == PointStatus.MEASURED
    names = (
        "loss", "gradient_norm", "trace", "trace_low", "trace_high", "eigenvalues", "residuals", "angle_bound",
        "share_seen_by_optimizer", "density_nodes", "density_weights",
    )  # fmt: skip
    for name in names:
        values = getattr(data, name)
        if share or name != "share_seen_by_optimizer":
            values[measured] = random.random(values.shape)[measured]
    data.converged[measured], data.products[measured], data.forward_passes[measured] = 1, 40, 204
    for number in data.number[data.status == PointStatus.FAILED]:
        data.errors[f"number/{number}"] = TRACEBACK
    return data


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
    "curvature_whole": curvature,
    "curvature_density": lambda: curvature((2, 3)),
    "curvature_share": lambda: curvature(share=True),
    "curvature_partly": lambda: curvature((2, 3), status=(1, 0, 0)),
    "curvature_failed": lambda: curvature(bottom=0, status=(1, 3, 3)),
    "curvature_no_pairs": lambda: curvature((1, 4), top=0, bottom=0, status=(1, 1, 0)),
    "curvature_one": lambda: curvature(top=1, bottom=0, status=(1,)),
    "comparison": comparison,
    "comparison_blocks": lambda: comparison((4.0, 4.0, 3.0)),
    "comparison_partly": lambda: comparison(last=PointStatus.PENDING),
    "comparison_failed": lambda: comparison((2.0,), PointStatus.FAILED),
}


@pytest.mark.parametrize("case", CASES)
def test_files_are_those_of_before(case, tmp_path):
    data, path, expected = CASES[case](), tmp_path / "a.h5", EXPECTED[case]
    image = record_bytes(data)
    path.write_bytes(image)
    scales = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            assert item.chunks is None
            scales[name] = [scale.name for axis in item.dims for scale in axis.values()]

    with h5py.File(path) as file:
        # Of all names, types, shapes, values and attributes.
        assert json.loads(file.attrs["contents"])["sha256"] == expected["contents"]
        file.visititems(visit)
    assert {name: found for name, found in scales.items() if found} == expected["scales"]
    if h5py.version.hdf5_version == EXPECTED["hdf5"]:
        assert hashlib.sha256(image).hexdigest() == expected["bytes"]
    found = read_record(type(data), path)
    for name, column in data.schema.columns.items():
        np.testing.assert_array_equal(getattr(found, name), getattr(data, name), err_msg=name)
        kind = "U" if column.dtype is str else np.dtype(column.dtype).kind
        assert np.asarray(getattr(found, name)).dtype.kind == kind
    assert record_bytes(found) == image


def remove(name):
    return lambda file: file.__delitem__(name)


def resize(name, shape):
    return lambda file: (file.__delitem__(name), file.create_dataset(name, data=np.zeros(shape)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("loss"), "the file lacks 'loss'"),
        (remove("density/weights"), "the file lacks 'density/weights'"),
        (remove("eigenvalues"), "the file lacks 'eigenvalues'"),
        (resize("trace", 4), "trace has the length 4 along number, others have 3"),
        (resize("residuals", (3, 4)), "residuals has the length 4 along pair, others have 3"),
    ],
)
def test_arrays_that_do_not_belong_together(change, message, tmp_path):
    path = tmp_path / "a.h5"
    path.write_bytes(record_bytes(curvature((2, 3))))
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(LandscapeDamagedError, match=message):
        read_record(CurvatureData, path)
