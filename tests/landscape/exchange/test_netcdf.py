"""Our own file as NetCDF, and the export; both read by xarray."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from landscape_examples import build
from surfaces import landscape, loss

from landscape import Landscape

xarray = pytest.importorskip("xarray")


def opened(path: Path, group: str | None = None):
    with xarray.open_dataset(path, engine="h5netcdf", group=group) as dataset:
        return dataset.load()


def test_the_landscape_file_opens_as_it_is(tmp_path: Path) -> None:
    path = landscape().save(tmp_path / "a.h5")
    dataset = opened(path)
    assert dataset["loss"].dims == ("y", "x")
    assert dict(dataset.sizes) == {"y": 7, "x": 11}
    np.testing.assert_array_equal(dataset.coords["x"], np.linspace(-1, 1, 11))
    np.testing.assert_array_equal(dataset.coords["y"], np.linspace(0, 4, 7))
    at = dataset["loss"].sel(x=-1, y=4)
    assert float(at) == pytest.approx(loss(-1, 4), abs=1e-12)
    assert dataset.attrs["network"] == "LeNet"
    assert opened(path, "checkpoints")["projected_loss"].dims == ("number",)
    assert opened(path, "checkpoints").coords["number"].values.tolist() == [2, 5, 9]


def test_the_export_has_the_axes_right(tmp_path: Path) -> None:
    dataset = opened(landscape().export(tmp_path / "a.nc")[0])
    assert dataset["loss"].dims == ("y", "x")
    expected = loss(dataset.coords["x"], dataset.coords["y"])
    xarray.testing.assert_allclose(dataset["loss"], expected.transpose("y", "x"), atol=1e-12)
    assert dataset["status"].attrs["flag_meanings"] == "pending measured interpolated failed"
    assert dataset["status"].attrs["flag_values"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("line", [True, False])
def test_the_export_holds_everything_as_it_was(line: bool, tmp_path: Path) -> None:
    original = Landscape(build(None if line else 3))
    path = original.export(tmp_path / "a.nc")[0]
    dataset = opened(path)
    assert set(dataset.data_vars) == {*original.metrics, "status"}
    assert dataset["loss"].dims == (("x",) if line else ("y", "x"))
    for name, values in original.metrics.items():
        np.testing.assert_array_equal(dataset[name].values, values)
        assert dataset[name].dtype == np.float64
    np.testing.assert_array_equal(dataset["status"].values, original.status)
    assert dataset["status"].dtype == np.uint8
    assert json.loads(dataset.attrs["identity"]) == original.attributes["identity"]
    assert dataset.attrs["num_samples"] == 10**18
    path_group = opened(path, "checkpoints")
    np.testing.assert_array_equal(path_group["loss"].values, original.checkpoints.metrics["loss"])
    np.testing.assert_array_equal(path_group["loss_with_plane_buffers"].values,
                                  original.checkpoints.with_plane_buffers["loss"])  # fmt: skip
    assert opened(path, "origin")["accuracy"] == 0.5


def test_attributes_of_every_size_and_kind(tmp_path: Path) -> None:
    odd = {"identity": {"x": ["0.123456789"] * 20_000}, "big": 2**70, "absent": None, "yes": True, "nul": "a\0b"}
    attributes = opened(landscape(**odd).export(tmp_path / "a.nc")[0]).attrs
    assert {name: json.loads(attributes[name]) for name in odd} == odd
