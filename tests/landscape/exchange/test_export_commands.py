"""``landscape convert`` and ``landscape info --json``, as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import command
from landscape_examples import build
from surfaces import landscape, loss, surface

from landscape import Landscape
from landscape.record.checks import PointStatus
from landscape.summary_json import summary_json


def test_there_and_back(tmp_path):
    original = landscape(9, 9)
    original.save(tmp_path / "a.h5")
    exported = command("convert", "a.h5", "-o", "li.h5", "--format", "li", folder=tmp_path)
    assert [Path(line).name for line in exported.stdout.splitlines()] == [
        "li.h5", "li_directions.h5", "li_directions.h5_proj_cos.h5",
    ]  # fmt: skip
    imported = command("convert", "li.h5", "--from", "auto", "-o", "b.h5", folder=tmp_path)
    assert "b.h5\n  Landscape(unknown, 9 x 9 points" in imported.stdout
    np.testing.assert_array_equal(Landscape.load(tmp_path / "b.h5").loss, original.loss)
    text = command("info", "b.h5", folder=tmp_path).stdout
    assert "imported from" in text
    assert "None" not in text


def test_errors_are_one_line_with_the_remedy(tmp_path):
    landscape(9, 7).save(tmp_path / "a.h5")
    (tmp_path / "a.csv").write_text("x,loss\n")
    for arguments, text in (
        ("a.h5 -o a.csv", "Pass --overwrite to replace it"),
        ("a.h5 -o a.xlsx --format excel", "format must be one of 'csv', 'glb', 'gltf', 'landscaper'"),
        ("a.h5 -o li.h5 --format li", "holds square grids only, but the landscape has 7 x 9 points"),
        ("missing.h5 -o b.csv", "there is no landscape file missing.h5"),
    ):
        result = command("convert", *arguments.split(), folder=tmp_path, check=False)
        assert result.returncode == 1
        assert result.stderr.startswith("error: ")
        assert text in result.stderr
        assert len(result.stderr.splitlines()) == 1
    command("convert", "a.h5", "-o", "a.csv", "--overwrite", folder=tmp_path)
    assert (tmp_path / "a.csv").read_text().startswith("x,y,loss")


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line_too(tmp_path):
    data = surface(5, 5)
    data.metrics["loss"][0, 0] = 0
    Landscape(data).save(tmp_path / "a.h5")
    result = command("convert", "a.h5", "-o", "li.h5", "--format", "li", folder=tmp_path)
    assert result.stderr.startswith("warning: 1 of 25 points have a loss of 0 or less")


class TestInfoAsJSON:
    def test_is_strict_json(self, tmp_path):
        Landscape(build()).save(tmp_path / "a.h5")
        result = command("info", "a.h5", "--json", folder=tmp_path)
        facts = json.loads(result.stdout, parse_constant=pytest.fail)
        assert facts["summary_version"] == 2
        assert facts["file"] == "a.h5"
        assert facts["complete"] is False
        assert facts["points"] == {"pending": 12, "measured": 1, "interpolated": 1, "failed": 1}
        assert facts["origin"]["metrics"]["loss"] is None
        assert facts["origin"]["status"] == "failed"
        assert facts["metrics"]["loss"]["not_finite"] == 4
        assert facts["checkpoints"]["loss"][0] is None
        assert facts["attributes"]["extra"] is None
        assert facts["errors"] == ["checkpoints/4/own", "grid/1,2", "origin"]

    def test_says_where_the_extremes_are(self):
        facts = summary_json(landscape())
        assert facts["file"] is None
        x, y = {"size": 11, "minimum": -1, "maximum": 1}, {"size": 7, "minimum": 0, "maximum": 4}
        assert facts["grid"] == {"shape": [7, 11], "x": x, "y": y}
        found = facts["metrics"]["loss"]
        assert found["maximum_at"] == [-1, 0]
        assert found["maximum"] == landscape().loss.max()
        assert found["minimum"] == landscape().loss.min() == pytest.approx(loss(*found["minimum_at"]))
        along_eigenvectors = {"eigenvalues": None, "residuals": None}
        assert facts["directions"] == {"explained_variance_ratio": [0.7, 0.2], "cosine": 0, **along_eigenvectors}
        assert facts["checkpoints"]["number"] == [2, 5, 9]

    def test_of_a_line_without_a_finite_value(self):
        data = surface(None, path=False)
        data.metrics["loss"][:] = np.nan
        data.status[:] = PointStatus.FAILED
        facts = summary_json(Landscape(data))
        assert facts["grid"]["y"] is None
        assert facts["grid"]["shape"] == [11]
        assert facts["checkpoints"] is None
        assert facts["points"] == {"pending": 0, "measured": 0, "interpolated": 0, "failed": 11}
        unknown = dict.fromkeys(("minimum", "maximum", "minimum_at", "maximum_at"))
        assert facts["metrics"]["loss"] == {**unknown, "not_finite": 11}
        assert len(facts["metrics"]["accuracy"]["minimum_at"]) == 1
