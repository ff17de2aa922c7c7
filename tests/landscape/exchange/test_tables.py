"""CSV and npz: every number as it was."""

import csv
import json

import numpy as np
import pytest
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
