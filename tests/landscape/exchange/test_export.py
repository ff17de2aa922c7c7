"""What all formats share: names, overwriting, metrics, failures."""

import os
import sys

import h5py
import numpy as np
import pytest
from surfaces import landscape, surface

from landscape import Landscape
from landscape.errors import LandscapeExportError, LandscapeWriteError
from landscape.exchange import FORMATS
from landscape.record.checks import PointStatus

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
