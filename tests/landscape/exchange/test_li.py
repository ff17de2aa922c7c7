"""Li et al.'s files, opened as their plot_2D.py, plot_1D.py, h52vtp.py and plot_surface.py open them."""

import os
from dataclasses import replace

import h5py
import numpy as np
import pytest
from data_sets import with_test_set
from examples import bowl, partly_frozen
from surfaces import landscape, loss, surface
from who_is_there import with_runs

from collectors.weights.safetensors_file import write_checkpoint
from landscape import Landscape, evaluate, random_plane
from landscape.errors import LandscapeDamagedError, LandscapeFormatError, LandscapeNotFoundError
from landscape.planes import custom_plane, random_line
from landscape.planes.plane_file import directions_path
from landscape.record.checks import PointStatus


def exported(data, folder):
    """Returns what Li et al.'s surface file of a landscape holds, by name."""
    with h5py.File(Landscape(data).export(folder / "a.h5", "li")[0], "r") as file:
        return {name: file[name].asstr()[()] if name == "dir_file" else file[name][:] for name in file}


def surveyed(plane, callback_fn, folder):
    """Measures a plane, whose directions are kept beside it, and returns the file of directions of its export."""
    how = {"save_directions": True, "progress": False, "device_ids": [0]}
    return evaluate(plane, callback_fn, size=3, output=folder / "a.h5", **how).export(folder / "li.h5", "li")[1]


class TestSurface:
    def test_as_plot_2d_reads_it(self, tmp_path):
        file = exported(surface(9, 9), tmp_path)
        x, y, values = (file[name] for name in ("xcoordinates", "ycoordinates", "train_loss"))
        assert x.dtype == values.dtype == np.float64
        np.testing.assert_allclose(values, loss(*np.meshgrid(x, y)))
        np.testing.assert_array_equal(file["train_acc"], 100 * landscape(9, 9)["accuracy"])
        np.testing.assert_array_equal(file["accuracy"], landscape(9, 9)["accuracy"])
        assert file["dir_file"] == "a_directions.h5"
        # Their scheduler's rule for what is still to be measured.
        assert not (values <= 0).any()

    @pytest.mark.parametrize("dataset", ["test", "validation"])
    def test_a_second_data_set_is_their_test_set(self, dataset, tmp_path):
        both = with_test_set(surface(9, 9), dataset=dataset)
        file = exported(both, tmp_path)
        np.testing.assert_array_equal(file["train_loss"], both.loss)
        np.testing.assert_array_equal(file["test_loss"], both[f"loss@{dataset}"])
        np.testing.assert_array_equal(file["train_acc"], 100 * both["accuracy"])
        np.testing.assert_array_equal(file["test_acc"], 100 * both[f"accuracy@{dataset}"])
        assert f"loss@{dataset}" not in file
        read = Landscape.import_file(tmp_path / "a.h5")
        np.testing.assert_array_equal(read["loss@test"], both[f"loss@{dataset}"])
        assert read.plot_difference("loss@test", "loss").get_title()

    def test_of_several_only_the_test_set_is_theirs(self, tmp_path):
        data = with_test_set(with_test_set(surface(9, 9)), dataset="other")
        file = exported(data, tmp_path)
        np.testing.assert_array_equal(file["test_loss"], data.metrics["loss@test"])
        np.testing.assert_array_equal(file["loss@other"], data.metrics["loss@other"])

    def test_as_plot_1d_reads_it(self, tmp_path):
        file = exported(surface(None), tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]
        np.testing.assert_allclose(file["train_loss"], loss(file["xcoordinates"], 3.0))
        assert file["train_acc"].shape == (11,)
        assert "ycoordinates" not in file

    def test_losses_that_it_takes_for_missing(self, tmp_path):
        data = surface(5, 5)
        data.metrics["loss"][0, :3] = [0, -2, 1]
        with pytest.warns(UserWarning, match="2 of 25 points have a loss of 0 or less; they are written as they are"):
            file = exported(data, tmp_path)
        assert file["train_loss"][0, :3].tolist() == [0, -2, 1]

    def test_nan_stays_nan(self, tmp_path):
        data = surface(5, 5)
        data.metrics["loss"][1, 2] = np.nan
        data.status[1, 2] = PointStatus.FAILED
        with pytest.warns(UserWarning, match="1 of 25 points have no finite loss.*The scripts leave them blank"):
            file = exported(data, tmp_path)
        assert np.isnan(file["train_loss"][1, 2])
        assert np.isfinite(file["train_loss"]).sum() == 24

    def test_a_metric_of_a_name_that_is_taken(self, tmp_path):
        data = surface(5, 5)
        data.metrics["train_loss"] = data.metrics["loss"] + 1
        with pytest.warns(UserWarning, match="the metric 'train_loss' is left out"):
            file = exported(data, tmp_path)
        np.testing.assert_array_equal(file["train_loss"], data.metrics["loss"])


class TestDirections:
    def test_what_plot_contour_trajectory_reads(self, tmp_path):
        written = landscape(9, 9).export(tmp_path / "a.h5", "li")
        assert [path.name for path in written] == ["a.h5", "a_directions.h5", "a_directions.h5_proj_cos.h5"]
        with h5py.File(written[1], "r") as file:
            assert [file["explained_variance_ratio_"][axis] for axis in (0, 1)] == [0.7, 0.2]
        with h5py.File(written[2], "r") as file:
            np.testing.assert_array_equal(file["proj_xcoord"], [-0.8, -0.3, 0])
            np.testing.assert_array_equal(file["proj_ycoord"], [3.5, 1.5, 0])

    def test_each_run_has_a_file_and_networks_have_none(self, tmp_path):
        data = with_runs()
        data = replace(data, y=data.x.copy(), metrics={"loss": np.ones((30, 30))}, status=np.ones((30, 30), np.uint8))
        names = [path.name for path in Landscape(data).export(tmp_path / "a.h5", "li")]
        assert names[2:] == ["a_directions.h5_run_0_proj_cos.h5", "a_directions.h5_run_1_proj_cos.h5"]
        with h5py.File(tmp_path / names[3]) as file:
            np.testing.assert_array_equal(file["proj_xcoord"], data.checkpoints.x[5:13])


def test_directions_list_all_parameters_in_the_networks_order(tmp_path):
    network = partly_frozen()[1]
    plane = random_plane(network, seed=1)
    with h5py.File(surveyed(plane, partly_frozen, tmp_path), "r") as file:
        for group, direction in zip(("xdirection", "ydirection"), plane.directions, strict=True):
            # Their h5_util.read_list.
            tensors = [np.array(file[group][str(index)]) for index in range(len(file[group]))]
            # As their net_plotter.set_weights pairs them.
            for (name, parameter), tensor in zip(network.named_parameters(), tensors, strict=True):
                assert (tensor.shape, tensor.dtype) == (tuple(parameter.shape), np.float32)
                expected = direction[name] if parameter.requires_grad else np.zeros(parameter.shape)
                np.testing.assert_array_equal(tensor, expected)


def test_the_direction_of_a_line(tmp_path):
    with pytest.warns(UserWarning, match="neither 'accuracy' nor 'train_acc', without which plot_1D.py stops"):
        directions = surveyed(random_line(partly_frozen()[1], seed=1), partly_frozen, tmp_path)
    with h5py.File(directions, "r") as file:
        assert list(file) == ["xdirection"]


def test_directions_of_unknown_order(tmp_path):
    path = landscape(5, 5).save(tmp_path / "a.h5")
    write_checkpoint(directions_path(path), {"direction_0/weight": np.ones(3, np.float32)})
    with pytest.warns(UserWarning, match="are left out: the file does not say the order of the parameters"):
        written = Landscape.load(path).export(tmp_path / "li.h5", "li")
    with h5py.File(written[1], "r") as file:
        assert list(file) == ["explained_variance_ratio_"]


def test_directions_of_another_landscape(tmp_path):
    directions = [{"weight": np.array([1.0, 0.5, 0.0, 0.0])}, {"weight": np.array([0.0, 0.0, -2.0, 1.0])}]
    first, second = (custom_plane(bowl()[1], pair) for pair in (directions, directions[::-1]))
    surveyed(first, bowl, tmp_path)
    how = {"overwrite": True, "progress": False, "device_ids": [0]}
    replaced = evaluate(second, bowl, size=3, output=tmp_path / "a.h5", **how)
    with pytest.warns(UserWarning, match=r"a_directions\.safetensors are left out: they are another landscape's"):
        assert [path.name for path in replaced.export(tmp_path / "again.h5", "li")] == ["again.h5"]


def written_as_theirs(path, x, y, values, **more):
    """Writes a surface as their ``crunch`` does: declared (nx, ny), filled in the order of (ny, nx)."""
    with h5py.File(path, "w") as file:
        file["dir_file"] = "/etc/passwd"
        file["xcoordinates"] = x
        if y is not None:
            file["ycoordinates"] = y
        stored = -np.ones((len(x),) if y is None else (len(x), len(y)))
        stored.ravel()[:] = np.ravel(values)
        file["train_loss"] = stored
        for name, array in more.items():
            file[name] = array
    return path


class TestImport:
    @pytest.mark.parametrize(("columns", "rows"), [(5, 5), (7, 4), (3, 8)])
    def test_axes_also_where_they_scramble_them(self, columns, rows, tmp_path):
        x, y = np.linspace(-1, 1, columns), np.linspace(0, 4, rows)
        expected = loss(*np.meshgrid(x, y))
        path = written_as_theirs(tmp_path / "a.h5", x, y, expected, train_acc=np.full((columns, rows), 50.0))
        read = Landscape.import_file(path)
        np.testing.assert_array_equal(read.loss, expected)
        np.testing.assert_array_equal(read.x, x)
        np.testing.assert_array_equal(read.y, y)
        assert read["train_acc"].shape == (rows, columns)
        assert (read.status == PointStatus.MEASURED).all()
        assert read.attributes["imported"] == {"format": "li", "file": "a.h5", "loss": "train_loss"}

    def test_what_they_lack_is_absent(self, tmp_path):
        x = np.linspace(-1, 1, 4)
        read = Landscape.import_file(written_as_theirs(tmp_path / "a.h5", x, x, loss(*np.meshgrid(x, x))))
        assert read.checkpoints is None
        assert read.explained_variance_ratio is None
        assert read.cosine is None
        assert "decomposition" not in read.attributes
        assert "num_samples" not in read.attributes
        assert list(read.metrics) == ["loss"]
        # No grid point lies on the origin, which nobody measured.
        assert read.origin.status == PointStatus.PENDING
        assert not read.complete
        # On another grid one does.
        x = np.linspace(-1, 1, 5)
        read = Landscape.import_file(written_as_theirs(tmp_path / "b.h5", x, x, loss(*np.meshgrid(x, x))))
        assert read.origin.metrics["loss"] == read.loss[2, 2] == loss(0.0, 0.0)
        assert read.complete

    def test_their_mark_for_missing(self, tmp_path):
        x = np.linspace(-1, 1, 3)
        values = np.array([[1.0, -1, 3], [-1, 0, 6], [7, 8, np.nan]])
        path = written_as_theirs(
            tmp_path / "a.h5", x, x, values, train_acc=np.full((3, 3), -1.0), min_eig=-np.ones((3, 3))
        )
        read = Landscape.import_file(path)
        np.testing.assert_array_equal(read.loss, [[1, np.nan, 3], [np.nan, 0, 6], [7, 8, np.nan]])
        np.testing.assert_array_equal(read.status, [[1, 0, 1], [0, 1, 1], [1, 1, 1]])
        assert np.isnan(read["train_acc"]).all()
        # An eigenvalue of -1 may be one where the loss is measured.
        np.testing.assert_array_equal(read["min_eig"], np.where(read.status == PointStatus.PENDING, np.nan, -1))

    def test_a_line_and_another_loss(self, tmp_path):
        x = np.linspace(-1, 1, 3)
        path = written_as_theirs(tmp_path / "a.h5", x, None, [1, 2, 3], test_loss=[4.0, 5, 6])
        both = Landscape.import_file(path)
        assert both.loss.tolist() == [1, 2, 3]
        assert both["loss@test"].tolist() == [4, 5, 6]
        assert both.plot_profile(others="loss@test").get_ylabel() == "loss"
        read = Landscape.import_file(path, loss="test_loss")
        assert read.y is None
        assert read.loss.tolist() == [4, 5, 6]
        assert read["train_loss"].tolist() == [1, 2, 3]
        with pytest.raises(LandscapeFormatError, match=r"no values 'val' for its grid; it has \['test_loss', 'train_l"):
            Landscape.import_file(path, loss="val")

    def test_round_trip_through_our_export_and_our_file(self, tmp_path):
        original = landscape(9, 9)
        read = Landscape.import_file(original.export(tmp_path / "a.h5", "li")[0])
        np.testing.assert_array_equal(read.loss, original.loss)
        np.testing.assert_array_equal(read["accuracy"], original["accuracy"])
        again = Landscape.load(read.save(tmp_path / "b.h5"))
        np.testing.assert_array_equal(again.loss, original.loss)
        assert again.attributes == read.attributes
        assert again.plot_contour().name == "rectilinear"


class TestHostileFiles:
    def bad(self, path, match):
        with pytest.raises(LandscapeDamagedError, match=match):
            Landscape.import_file(path)

    def test_links_out_of_the_file(self, tmp_path):
        with h5py.File(tmp_path / "secret.h5", "w") as secret:
            secret["xcoordinates"] = np.arange(3.0)
        for link in (h5py.ExternalLink("secret.h5", "/xcoordinates"), h5py.SoftLink("/elsewhere")):
            with h5py.File(tmp_path / "a.h5", "w") as file:
                file["xcoordinates"] = link
            self.bad(tmp_path / "a.h5", "'xcoordinates' is a link to another place")

    def test_storage_in_another_file(self, tmp_path):
        (tmp_path / "secret").write_bytes(np.arange(3.0).tobytes())
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("xcoordinates", (3,), "f8", external=[(str(tmp_path / "secret"), 0, 24)])
        self.bad(tmp_path / "a.h5", "in another file")

    def test_sizes_that_lie(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("xcoordinates", (10**8,), "f8")
        self.bad(tmp_path / "a.h5", "claims 800000000 bytes, more than are there")
        with h5py.File(tmp_path / "b.h5", "w") as file:
            file.create_dataset("xcoordinates", (10**6,), "f8", compression="gzip", fillvalue=1.0)
        self.bad(tmp_path / "b.h5", "is stored in chunks")

    def test_truncated(self, tmp_path):
        x = np.linspace(-1, 1, 200)
        path = written_as_theirs(tmp_path / "a.h5", x, x, loss(*np.meshgrid(x, x)))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        self.bad(path, "cannot be read as Li et al.'s surface file")

    @pytest.mark.parametrize("x", [[1.0, 0.5, 0.0], [0.0, np.nan, 1.0], [[0.0, 1.0]]])
    def test_coordinates_that_are_none(self, x, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["xcoordinates"] = x
            file["train_loss"] = np.ones(np.shape(x))
        self.bad(tmp_path / "a.h5", "cannot be read as Li et al.'s surface file")

    def test_other_kinds_of_files(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_group("xdirection")
        landscape().save(tmp_path / "ours.h5")
        (tmp_path / "text").write_text("hello")
        os.mkfifo(tmp_path / "pipe")
        for name, options, error, match in (
            ("a.h5", {}, LandscapeFormatError, "it has no 'xcoordinates', but .'xdirection'.*not the directions"),
            ("ours.h5", {}, LandscapeFormatError, "is a landscape file of this program already. Open it as it is"),
            ("text", {}, LandscapeFormatError, r"of no known format \(landscaper, li\): it begins as neither"),
            ("", {}, LandscapeFormatError, "is a directory"),
            ("pipe", {}, LandscapeFormatError, "is no regular file"),
            ("missing", {}, LandscapeNotFoundError, "there is no file"),
            ("text", {"format": "csv"}, ValueError, "format must be one of 'landscaper', 'li', but got 'csv'"),
            ("a.h5", {"axis_order": "xy"}, ValueError, "axis_order belongs to the format 'landscaper'"),
        ):
            with pytest.raises(error, match=match):
                Landscape.import_file(tmp_path / name, **options)
