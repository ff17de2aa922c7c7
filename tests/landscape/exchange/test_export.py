"""What all formats share: names, overwriting, metrics, failures; and ``landscape convert`` and ``info --json``."""

import json
import os
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from command_line import command
from landscape_examples import build
from surfaces import landscape, loss, surface

from landscape import Landscape
from landscape.errors import LandscapeExportError, LandscapeWriteError
from landscape.exchange import FORMATS
from landscape.record.checks import PointStatus
from landscape.summary_json import summary_json

FILES = {name: f"a{chosen.suffix}" if chosen.suffix else "summary.1_MS" for name, chosen in FORMATS.items()}


@pytest.mark.parametrize("name", FORMATS)
class TestEveryFormat:
    def test_writes_whole_files_and_nothing_else(self, name, tmp_path):
        written = landscape(5, 5).export(tmp_path / FILES[name], name)
        assert written[0] == tmp_path / FILES[name]
        assert sorted(written) == sorted(tmp_path.iterdir())
        assert all(path.stat().st_size > 20 for path in written)

    def test_a_file_that_is_there_stays(self, name, tmp_path):
        path = tmp_path / FILES[name]
        path.write_text("mine")
        with pytest.raises(LandscapeWriteError, match=r"exists and was left as it is. Pass overwrite=True to replace"):
            landscape(5, 5).export(path, name)
        with pytest.raises(LandscapeWriteError, match=r"is no \.\w+ file that this program writes and was left"):
            landscape(5, 5).export(path, name, overwrite=True)
        assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]
        path.unlink()
        landscape(5, 5).export(path, name)
        assert landscape(5, 5).export(path, name, overwrite=True)

    def test_no_such_folder(self, name, tmp_path):
        with pytest.raises(NotADirectoryError, match=r"must lie in a directory that exists, but .*missing does not"):
            landscape(5, 5).export(tmp_path / "missing" / FILES[name], name)

    def test_a_full_disk_leaves_nothing(self, name, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(LandscapeWriteError, match="cannot be written: No space left on device"):
            landscape(5, 5).export(tmp_path / FILES[name], name)
        assert not list(tmp_path.iterdir())

    def test_never_the_landscape_itself(self, name, tmp_path):
        path = landscape(5, 5).save(tmp_path / "mine.h5")
        before = path.read_bytes()
        (tmp_path / FILES[name]).hardlink_to(path)
        match = r"path must not be one of the inputs, but .* is one \(given as .*mine\.h5\)"
        with pytest.raises(LandscapeWriteError, match=match):
            Landscape.load(path).export(tmp_path / FILES[name], name, overwrite=True)
        assert path.read_bytes() == before

    def test_a_line(self, name, tmp_path):
        if name in ("csv", "li", "netcdf", "npz"):
            assert landscape(None).export(tmp_path / FILES[name], name)
        else:
            with pytest.raises(LandscapeExportError, match="holds surfaces, but the landscape is a line of 11 points"):
                landscape(None).export(tmp_path / FILES[name], name)

    def test_grids_that_are_not_square(self, name, tmp_path):
        if name in ("li", "landscaper"):
            with pytest.raises(LandscapeExportError, match="holds square grids only, but the landscape has 11 x 7"):
                landscape().export(tmp_path / FILES[name], name)
            assert not list(tmp_path.iterdir())
        else:
            assert landscape().export(tmp_path / FILES[name], name)


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"mindinsight"}))
def test_a_directory_in_the_way(name, tmp_path):
    (tmp_path / FILES[name]).mkdir()
    with pytest.raises(IsADirectoryError, match=r"path must be the path of a file, but .* is a directory"):
        landscape(5, 5).export(tmp_path / FILES[name], name, overwrite=True)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_equal_landscapes_give_equal_files(name, tmp_path):
    if name == "netcdf" and h5py.version.version_tuple < (3, 15):
        pytest.skip("NetCDF files hold the second in which they were written")
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        written = landscape(5, 5).export(folder / FILES[name], name)
        contents.append([path.read_bytes() for path in written])
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", ["glb", "gltf", "vtk"])
def test_heights_need_a_finite_value(name, tmp_path):
    data = surface(5, 5)
    data.metrics["loss"][:] = np.inf
    with pytest.raises(LandscapeExportError, match="needs heights, but no point of the landscape has a finite loss"):
        Landscape(data).export(tmp_path / FILES[name], name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "magic"),
    [
        *(("a.csv", b"x,y,"), ("a.NC", b"\x89HDF"), ("a.npz", b"PK")),
        *(("a.vts", b"<?xml"), ("a.GLB", b"glTF"), ("a.gltf", b"{")),
    ],
)
def test_the_name_says_the_format(file, magic, tmp_path):
    assert landscape().export(tmp_path / file)[0].read_bytes().startswith(magic)


UNSAID = "format must be given.*The formats are csv, glb, gltf, landscaper, li, mindinsight"


@pytest.mark.parametrize(
    ("file", "options", "error", "match"),
    [
        *((file, {}, ValueError, UNSAID) for file in ("a.h5", "a", "a.xlsx")),
        ("a.txt", {"format": "csv"}, ValueError, r"path must be the name of a \.csv file, which the format 'csv' is"),
        ("a.xlsx", {"format": "excel"}, ValueError, "format must be one of 'csv', 'glb', .*'vtk', but got 'excel'"),
        ("a.csv", {"format": 3}, TypeError, "format must be one of"),
        ("a.vts", {"metric": "recall"}, ValueError, "metric must be one of 'loss', 'accuracy', but got 'recall'"),
        ("a.csv", {"metric": "loss"}, ValueError, "metric must be left out for the format 'csv', which holds them all"),
        ("a.csv", {"overwrite": "yes"}, TypeError, "overwrite must be a bool"),
    ],
)
def test_wrong_arguments(file, options, error, match, tmp_path):
    with pytest.raises(error, match=match):
        landscape().export(tmp_path / file, **options)


@pytest.mark.parametrize("name", ["landscaper", "li", "mindinsight"])
def test_interpolated_points_are_told_where_the_format_cannot_say_it(name, tmp_path):
    data = surface(5, 5)
    data.status[0, :2] = PointStatus.INTERPOLATED
    with pytest.warns(UserWarning, match="2 of 25 points are interpolated, not measured; .* has no place to say so"):
        Landscape(data).export(tmp_path / FILES[name], name)


@pytest.mark.parametrize(
    ("file", "package", "extra"),
    [
        ("a.vts", "pyvista", "vtk"),
        ("a.glb", "trimesh", "meshes"),
        ("a.gltf", "trimesh", "meshes"),
        ("a.nc", "h5netcdf", "xarray"),
        ("a.nc", "xarray", "xarray"),
    ],
)
def test_extras_that_are_not_installed(file, package, extra, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'summary-landscape\[{extra}\]'"):
        landscape().export(tmp_path / file)
    assert not list(tmp_path.iterdir())


def test_a_landscape_file_that_is_there_stays(tmp_path):
    path = tmp_path / "a.h5"
    path.write_text("mine")
    with pytest.raises(LandscapeWriteError, match=r"exists and was left as it is. Pass overwrite=True"):
        landscape().save(path)
    assert path.read_text() == "mine"
    with pytest.raises(NotADirectoryError, match=r"must lie in a directory that exists, but .*missing does not"):
        landscape().save(tmp_path / "missing" / "a.h5")


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
