import copy
import io
import json
import pickle
import sys
import traceback

import numpy as np
import pytest
import xarray
from figure_cases import build as build_plane
from landscape_examples import HEADER
from landscape_examples import build as build_hard
from PIL import Image
from who_is_there import with_runs

from landscape.errors import PlaneError
from landscape.exchange import export_landscape
from landscape.facts import failures, summary_text
from landscape.figures import plot_contour
from landscape.grid.checkpoints import CheckpointsData
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.interactive.content import landscape_content
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus
from workers import FunctionEvaluator


def build(*, line=False):
    path = CheckpointsData.empty(
        [1, 2, 3], np.array([-1.0, -0.5, 0.0]), None if line else np.array([9.0, 4.0, 0.0]), np.zeros(3), np.ones(3)
    )
    data = LandscapeData.empty(
        np.linspace(-1, 1, 5),
        None if line else np.array([0.0, 4, 9]),
        DirectionsData(np.ones(1 if line else 2), None if line else np.array([0.632, 0.214]), None if line else 0.01),
        ("loss", "accuracy"),
        path,
        {"decomposition": "custom" if line else "pca", "network": "LeNet", "unit": "epoch"},
    )
    data.metrics["loss"][...] = np.arange(data.status.size).reshape(data.shape) + 0.5
    data.metrics["accuracy"][...] = 0.25
    data.status[...] = PointStatus.MEASURED
    path.projected["loss"][:] = [3, 2, 1]
    path.status[:] = path.projected_status[:] = PointStatus.MEASURED
    data.origin.metrics["loss"] = 1.0
    data.origin.status = PointStatus.MEASURED
    return data


class TestContents:
    def test_an_unknown_metric(self):
        with pytest.raises(KeyError, match=r"no metric 'recall'; it has \['accuracy', 'loss'\]"):
            Landscape(build())["recall"]

    def test_the_range_is_of_finite_values(self):
        data = build()
        data.metrics["loss"][0] = [np.nan, np.inf, -np.inf, 3, 4]
        assert Landscape(data).loss_range == (3, 14.5)
        data.metrics["loss"][:] = np.nan
        assert np.isnan(Landscape(data).loss_range).all()


class TestReadOnly:
    def test_nothing_can_be_changed_through_it(self):
        landscape = Landscape(build())
        path = landscape.checkpoints
        arrays = [landscape.x, landscape.y, landscape.loss, landscape["accuracy"], landscape.status]
        arrays += [landscape.explained_variance_ratio, path.x, path.number, path.projected["loss"], path.status]
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        for mapping in (landscape.metrics, landscape.attributes, landscape.errors):
            with pytest.raises(TypeError, match="does not support item assignment"):
                mapping["loss"] = 0
        for name in ("x", "loss", "status", "checkpoints", "complete"):
            with pytest.raises(AttributeError):
                setattr(landscape, name, 0)

    def test_later_changes_of_the_data_do_not_show(self):
        data = build()
        landscape = Landscape(data)
        before = copy.deepcopy(landscape.loss)
        data.metrics["loss"][:] = -1
        data.attributes["unit"] = "step"
        np.testing.assert_array_equal(landscape.loss, before)
        assert landscape.attributes["unit"] == "epoch"

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it)), Landscape])
    def test_a_copy_holds_the_same_and_is_read_only_too(self, copied):
        landscape = Landscape(build(), "a.h5")
        other = copied(landscape)
        assert other is not landscape
        assert other.path == landscape.path
        assert other.attributes == landscape.attributes
        np.testing.assert_array_equal(other.loss, landscape.loss)
        assert other.loss is not landscape.loss
        with pytest.raises(ValueError, match="read-only"):
            other.loss[...] = 0
        with pytest.raises(AttributeError, match="a Landscape is read-only, so its 'path' cannot be set"):
            other.path = None

    def test_figures_exports_and_pages_take_the_data_alone(self, tmp_path):
        data = build()
        assert plot_contour(data).name == "rectilinear"
        assert export_landscape(data, tmp_path / "a.csv") == [tmp_path / "a.csv"]
        assert summary_text(data) == summary_text(Landscape(data))
        assert landscape_content(data, "a") == landscape_content(Landscape(data), "a")


class TestXarray:
    def test_dataset(self):
        dataset = Landscape(build()).to_xarray()
        assert dataset["loss"].dims == ("y", "x")
        assert dataset["loss"].sel(x=0.5, y=4.0) == 8.5
        assert dataset["status"].dtype == np.uint8
        assert dataset.attrs["network"] == "LeNet"
        dataset["loss"][0, 0] = 7
        assert Landscape(build(line=True)).to_xarray()["loss"].dims == ("x",)

    def test_attributes_of_every_kind_come_back_numbers_and_texts_as_they_are_others_as_json(self, tmp_path):
        data = build_hard()
        data.attributes["broken"] = "half a \ud83d"
        landscape = Landscape(data)
        landscape.to_xarray().to_netcdf(tmp_path / "grid.nc", engine="h5netcdf")
        with xarray.open_dataset(tmp_path / "grid.nc", engine="h5netcdf") as found:
            assert found.attrs.keys() == landscape.attributes.keys()
            for name, value in landscape.attributes.items():
                stored = found.attrs[name]
                is_plain = isinstance(value, int | float | str) and not isinstance(value, bool)
                may_be_json = not is_plain or name in ("title", "broken")
                assert stored == value or (may_be_json and json.loads(stored) == value), name

    def test_without_xarray(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "xarray", None)
        with pytest.raises(ImportError, match=r"pip install 'summary-landscape\[xarray\]'"):
            Landscape(build()).to_xarray()


class TestInNotebooks:
    def test_repr_says_it_at_a_glance(self):
        text = "Landscape(pca, 5 x 3 points; loss 0.5 to 14.5; 84.6 % of the variance explained)"
        assert repr(Landscape(build())) == text
        data = build()
        data.status[0] = PointStatus.PENDING
        data.metrics["loss"][0] = np.nan
        assert repr(Landscape(data)).endswith("10 of 15 points measured)")

    @pytest.mark.parametrize("line", [True, False])
    def test_shows_itself_as_a_picture(self, line):
        image = Landscape(build(line=line))._repr_png_()
        with Image.open(io.BytesIO(image)) as picture:
            assert picture.format == "PNG"
            assert np.unique(np.asarray(picture)).size > 20


def test_what_is_not_finite_and_what_failed_are_counted_apart():
    data = build_plane(rows=4, columns=5, points=2)
    data.metrics["loss"][0, :3] = np.inf
    data.metrics["loss"][1, :2] = np.nan
    data.status[1, :2] = PointStatus.FAILED
    assert ", 3 not finite, 2 failed" in repr(Landscape(data))


def test_the_text_says_where_and_why_points_failed():
    data = build()
    data.errors = {f"grid/0,{column}": f"{HEADER}  line\nValueError: number {column}" for column in range(12)}
    data.errors["origin"] = ""
    told = [line.split(maxsplit=1) for line in summary_text(Landscape(data)).splitlines()]
    assert [text for name, text in told if name == "failed"] == [
        *(f"grid/0,{column}: ValueError: number {column}" for column in range(10)),
        "... and 3 more",
    ]
    data.errors = {"origin": ""}
    assert summary_text(Landscape(data)).splitlines()[-1].split() == ["failed", "origin:", "no", "text"]


def one_error():
    raise KeyError("first")


def error_with_a_cause():
    try:
        one_error()
    except KeyError as error:
        found = ValueError("the shapes differ:\n  weight (2, 3)\n  bias (4)")
        found.add_note("See the docs.")
        raise found from error


def long_error():
    raise RuntimeError("x" * 1000)


def our_error():
    raise PlaneError("no plane. Give another one.")


def syntax_error():
    compile("a b", "user.py", "exec")


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (one_error, "KeyError: 'first'"),
        (error_with_a_cause, "ValueError: the shapes differ: weight (2, 3) bias (4) See the docs."),
        (long_error, f"RuntimeError: {'x' * 286} ..."),
        (syntax_error, "SyntaxError: invalid syntax"),
        (our_error, "no plane. Give another one."),
    ],
)
def test_the_message_of_a_traceback(failing, message):
    data = build()
    try:
        failing()
    except Exception:
        data.errors = {"grid/0,0": traceback.format_exc()}
    assert failures(Landscape(data), 1) == [f"grid/0,0: {message}"]


def test_the_text_says_who_is_there():
    data = with_runs()
    data.checkpoints.status[-1] = PointStatus.PENDING
    lines = [line.split("  ") for line in summary_text(Landscape(data)).splitlines()]
    rows = [(parts[0], parts[-1].strip()) for parts in lines]
    own = f"{data.checkpoints.projected['loss'][-1]:.4g}"
    assert ("origin", "final weights of SGD (epoch 20)") in rows
    assert [text for name, text in rows if name == "run"] == [
        "SGD: 5 checkpoints, epochs 0 to 20",
        "Adam: 8 checkpoints, epochs 0 to 35",
    ]
    assert ("network", f"EMA: own loss pending, on the plane {own}") in rows
    unknown = summary_text(Landscape(build_plane(points=0)))
    assert "weights without a name, of no known run" in unknown


def test_samples_of_a_function_that_are_objects_are_the_same_in_each_process():
    def described(*words):
        return FunctionEvaluator(lambda _: 0.0, {"w": np.zeros(2)}, samples=[np.array(words, object)]).description

    assert (
        described("a", "b").samples_sha256 == described("a", "b").samples_sha256 != described("a", "c").samples_sha256
    )
