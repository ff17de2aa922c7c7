"""MindInsight's summary file; tests/frameworks/test_mindspore_export.py reads it with MindSpore's own messages."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from figure_cases import build
from surfaces import landscape, loss, surface
from tensorboard.compat.tensorflow_stub.errors import OutOfRangeError
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
from who_is_there import with_networks, with_runs

from landscape import Landscape
from landscape.errors import LandscapeExportError
from landscape.exchange.mindinsight import messages
from landscape.record.checks import PointStatus


def events(path):
    """Reads the records with TensorBoard's reader, which checks both checksums."""
    reader, found = PyRecordReader_New(str(path)), []
    while True:
        try:
            reader.GetNext()
        except OutOfRangeError:
            return found
        found.append(messages().Event.FromString(reader.record()))


def exported(data, folder, **options):
    """Returns what the file of a landscape holds beside its version."""
    return events(Landscape(data).export(folder / "summary.1_MS", "mindinsight", **options)[0])[1].summary.value[0]


def values(tensor):
    return np.array(tensor.float_data).reshape(tensor.dims)


def test_each_value_has_its_place(tmp_path):
    first, second = events(landscape().export(tmp_path / "summary.1_MS", "mindinsight")[0])
    assert first.version == "MindSpore.Event:1"
    (value,) = second.summary.value
    assert value.tag == "landscape_[2, 9]"
    message = value.loss_landscape
    x, y, z = (values(tensor) for tensor in (message.landscape.x, message.landscape.y, message.landscape.z))
    assert (x.shape, y.shape, z.shape) == ((11,), (7,), (7, 11))
    np.testing.assert_allclose(z, loss(*np.meshgrid(x, y)), rtol=1e-5)
    path = message.loss_path
    assert list(path.intervals) == [2, 5, 9]
    np.testing.assert_allclose(values(path.points.z), loss(values(path.points.x), values(path.points.y)), rtol=1e-5)
    known = message.metadata
    assert (known.decomposition, known.unit, known.step_per_epoch) == ("PCA", "epoch", 4)
    np.testing.assert_allclose(values(message.convergence_point.z), [loss(0, 0)], rtol=1e-6)
    assert values(message.convergence_point.x).tolist() == [0]


def test_without_a_trajectory_it_is_a_final_landscape(tmp_path):
    message = exported(surface(path=False, decomposition="random", intervals=[[9]]), tmp_path)
    assert message.tag == "landscape_[9]"
    assert not message.loss_landscape.loss_path.intervals
    assert message.loss_landscape.metadata.decomposition == "Random"


def test_another_metric(tmp_path):
    message = exported(surface(), tmp_path, metric="accuracy").loss_landscape
    np.testing.assert_allclose(values(message.landscape.z), landscape()["accuracy"], rtol=1e-6)
    # The origin's accuracy is not known.
    assert not message.HasField("convergence_point")


def test_names(tmp_path):
    (path,) = landscape().export(tmp_path, "mindinsight")
    assert path.name == "events.out.events.summary.1795255200.0.landscape_MS"
    (path,) = Landscape.load(landscape().save(tmp_path / "mine.h5")).export(tmp_path, "mindinsight")
    assert path.name == "events.out.events.summary.1795255200.0.mine_MS"
    for name in ("a.h5", "summary.x", "summary.1_lineage"):
        with pytest.raises(ValueError, match=r"a directory that exists, or a file whose name has 'summary\.' and a"):
            landscape().export(tmp_path / name, "mindinsight")


def test_the_moment_is_now_where_the_landscape_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr("landscape.exchange.mindinsight.time", SimpleNamespace(time=lambda: 1234567890.5))
    (path,) = landscape(created="soon").export(tmp_path / "summary.1_MS", "mindinsight")
    assert {event.wall_time for event in events(path)} == {1234567890.5}


class TestWhatItsPageCannotShow:
    @pytest.mark.parametrize("gap", [np.nan, np.inf, 1e39])
    def test_points_without_a_number(self, gap, tmp_path):
        data = surface(5, 5)
        data.metrics["loss"][1, 2] = gap
        data.status[1, 2] = PointStatus.FAILED
        with pytest.raises(LandscapeExportError, match=r"finite float32 numbers only .* 1 of 25 points have none"):
            Landscape(data).export(tmp_path / "summary.1", "mindinsight")
        assert not list(tmp_path.iterdir())

    def test_a_constant_surface(self, tmp_path):
        data = surface(5, 5)
        data.metrics["loss"][:] = 1 + 1e-12 * np.arange(25.0).reshape(5, 5)
        with pytest.raises(LandscapeExportError, match=r"'loss' is 1\.0 \(as float32\) at every point"):
            Landscape(data).export(tmp_path / "summary.1", "mindinsight")

    @pytest.mark.parametrize("gap", [np.nan, 1e39])
    def test_checkpoints_without_a_height(self, gap, tmp_path):
        data = surface()
        data.checkpoints.projected["loss"][1] = gap
        with pytest.warns(UserWarning, match=r"the checkpoints \[5\] are left out of MindInsight's"):
            message = exported(data, tmp_path)
        assert list(message.loss_landscape.loss_path.intervals) == [2, 9]


def test_without_protobuf(tmp_path, monkeypatch):
    messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ImportError, match=r"the format mindinsight needs protobuf: pip install 'protobuf>=4\.22'"):
        landscape().export(tmp_path / "summary.1", "mindinsight")


def test_only_a_runs_checkpoint_is_a_convergence_point(tmp_path):
    for data, there in ((with_networks(), False), (build(points=0), False), (build(), True)):
        message = exported(data, tmp_path, overwrite=True).loss_landscape
        assert message.HasField("convergence_point") is there
        assert bool(message.loss_path.intervals) is there


def test_two_runs_are_not_joined(tmp_path):
    with pytest.warns(UserWarning, match="holds the path of one run, but the landscape has 2; it is written without"):
        message = exported(with_runs(), tmp_path)
    assert not message.loss_landscape.loss_path.intervals
