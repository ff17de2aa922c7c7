"""CSV, npz and NetCDF: every number as it was, and what xarray reads."""

import csv
import json

import numpy as np
import pytest
import xarray
from landscape_examples import build
from surfaces import landscape, loss, surface

from landscape import Landscape


def rows(path):
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


class TestCSV:
    def test_each_point_has_its_place(self, tmp_path):
        table = rows(landscape(3, 4).export(tmp_path / "a.csv")[0])
        assert list(table[0]) == ["x", "y", "loss", "accuracy", "status"]
        assert len(table) == 12
        for row in table:
            assert float(row["loss"]) == pytest.approx(loss(float(row["x"]), float(row["y"])), abs=1e-12)
        assert [float(row["x"]) for row in table[:4]] == landscape(3, 4).x.tolist()
        assert len({row["y"] for row in table[:4]}) == 1

    @pytest.mark.parametrize("line", [True, False])
    def test_every_bit_of_every_number(self, line, tmp_path):
        original = Landscape(build(None if line else 3))
        table = rows(original.export(tmp_path / "a.csv")[0])
        assert list(table[0]) == [*(["x"] if line else ["x", "y"]), *original.metrics, "status"]
        for name, values in original.metrics.items():
            read = np.array([float(row[name]) for row in table])
            np.testing.assert_array_equal(read, values.ravel())
            np.testing.assert_array_equal(np.signbit(read), np.signbit(np.where(np.isnan(values), 1, values)).ravel())
        assert [row["status"] for row in table[:4]] == ["pending", "measured", "interpolated", "failed"]

    def test_names_with_commas_and_quotes(self, tmp_path):
        data = surface(2, 2)
        data.metrics['top "5", <b>%'] = np.full((2, 2), 3.0)
        assert rows(Landscape(data).export(tmp_path / "a.csv")[0])[0]['top "5", <b>%'] == "3.0"


class TestNPZ:
    @pytest.mark.parametrize("line", [True, False])
    def test_holds_everything_as_it_was(self, line, tmp_path):
        data = build(None if line else 3)
        # A name that numpy.savez could not take, and one that is ours.
        data.metrics["file"] = data.metrics["loss"] + 1
        data.metrics["attributes"] = data.metrics["loss"] + 2
        original = Landscape(data)
        with np.load(original.export(tmp_path / "a.npz")[0], allow_pickle=False) as archive:
            for name, values in original.metrics.items():
                np.testing.assert_array_equal(archive[name], values)
                assert archive[name].dtype == np.float64
            np.testing.assert_array_equal(archive["status"], original.status)
            np.testing.assert_array_equal(archive["x"], original.x)
            assert ("y" in archive) == (not line)
            np.testing.assert_array_equal(archive["checkpoints/number"], [3, 5, 8, 9])
            found, ours = original.checkpoints, archive["checkpoints/loss_with_plane_buffers"]
            np.testing.assert_array_equal(archive["checkpoints/projected_loss"], found.projected["loss"])
            np.testing.assert_array_equal(ours, found.with_plane_buffers["loss"])
            assert archive["origin/accuracy"] == 0.5
            assert json.loads(str(archive["attributes/json"]))["identity"] == {"b": {"c": [1.5, None, "x"]}, "a": True}


def opened(path, group=None):
    with xarray.open_dataset(path, engine="h5netcdf", group=group) as dataset:
        return dataset.load()


def test_the_export_has_the_axes_right(tmp_path):
    dataset = opened(landscape().export(tmp_path / "a.nc")[0])
    assert dataset["loss"].dims == ("y", "x")
    expected = loss(dataset.coords["x"], dataset.coords["y"])
    xarray.testing.assert_allclose(dataset["loss"], expected.transpose("y", "x"), atol=1e-12)
    assert dataset["status"].attrs["flag_meanings"] == "pending measured interpolated failed"
    assert dataset["status"].attrs["flag_values"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("group", [None, "checkpoints", "origin"])
@pytest.mark.parametrize("line", [True, False])
def test_everything_has_a_long_name_every_number_a_unit_and_every_named_variable_is_there(line, group, tmp_path):
    dataset = opened(Landscape(build(None if line else 3)).export(tmp_path / "a.nc")[0], group)
    assert len(dataset.variables) > 5
    for name in dataset.variables:
        attributes = dataset[name].attrs
        assert len(attributes["long_name"]) > 1, name
        assert attributes.get("units") == (None if name == "name" else "1"), name
        assert set(attributes.get("ancillary_variables", "").split()) <= set(dataset.variables)


def test_the_words_of_the_conventions(tmp_path):
    path = Landscape(build()).export(tmp_path / "a.nc")[0]
    grid, checkpoints = opened(path), opened(path, "checkpoints")
    assert grid["x"].attrs["long_name"].startswith("first principal direction (explained variance")
    assert grid["y"].attrs["comment"] == "a multiple of the direction"
    assert grid["loss"].attrs["ancillary_variables"] == "loss_stderr status"
    assert grid["loss_stderr"].attrs["long_name"] == "standard error of the loss"
    assert checkpoints["projected_accuracy"].attrs["long_name"] == "accuracy at the foot on the plane"
    assert checkpoints["projected_accuracy"].attrs["ancillary_variables"] == "projected_status"
    assert checkpoints["loss_with_plane_buffers"].attrs["ancillary_variables"] == "with_plane_buffers_status"
    assert checkpoints["final"].attrs["flag_meanings"] == "no yes"
    for name in ("status", "projected_status", "with_plane_buffers_status"):
        assert checkpoints[name].attrs["flag_meanings"] == "pending measured interpolated failed"
    number = opened(landscape().export(tmp_path / "b.nc")[0], "checkpoints")["number"]
    assert number.attrs["long_name"] == "epoch of the checkpoint"


@pytest.mark.parametrize("line", [True, False])
def test_the_export_holds_everything_as_it_was(line, tmp_path):
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
    group, found = opened(path, "checkpoints"), original.checkpoints
    np.testing.assert_array_equal(group["loss"].values, found.metrics["loss"])
    np.testing.assert_array_equal(group["loss_with_plane_buffers"].values, found.with_plane_buffers["loss"])
    assert opened(path, "origin")["accuracy"] == 0.5


def test_attributes_of_every_size_and_kind(tmp_path):
    odd = {"identity": {"x": ["0.123456789"] * 20_000}, "big": 2**70, "absent": None, "yes": True, "nul": "a\0b"}
    attributes = opened(landscape(**odd).export(tmp_path / "a.nc")[0]).attrs
    assert {name: json.loads(attributes[name]) for name in odd} == odd
