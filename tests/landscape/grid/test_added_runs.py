"""Runs and networks that join a landscape later: only they are measured, and nothing of the file is lost."""

import copy
import shutil

import h5py
import numpy as np
import pytest
from digits_networks import build, loss_with, measure, own_loss, train
from landscape_examples import as_version_before

from landscape import Landscape, line_between, pca_plane, random_plane
from landscape.facts import summary_text
from landscape.planes.networks import columns_of
from landscape.summary_json import summary_json

AXIS = (-1.0, 0.0, 1.0)


@pytest.fixture(scope="module")
def runs():
    """Two runs that begin at one network with BatchNorm, and an average of the first one's last two."""
    first = [train(build(), epochs=epochs, seed=1) for epochs in (0, 1, 2, 3)]
    second = [train(build(), epochs=epochs, seed=2) for epochs in (0, 2, 4)]
    average = copy.deepcopy(first[-1])
    for tensor, other in zip(average.parameters(), first[-2].parameters(), strict=True):
        tensor.data = (tensor.data + other.data) / 2
    return first, second, average


@pytest.fixture(scope="module")
def joined(runs, tmp_path_factory):
    """The plane of the first run, also with all others, and what was measured of both in one file."""
    first, second, average = runs
    path = tmp_path_factory.mktemp("joined") / "a.h5"
    plane = pca_plane(first)
    grown = plane.with_checkpoints({"adam": second}, {"EMA": average}, name="sgd")
    return plane, grown, measure(plane, AXIS, output=path), measure(grown, AXIS, output=path)


def foot_loss(plane, row):
    """The loss at a member's foot on the plane with the origin's buffers, by plain PyTorch."""
    return loss_with(plane.point([float(axis[row]) for axis in (plane.projection.x, plane.projection.y)], "fixed"))


@pytest.mark.slow
def test_only_what_is_new_is_measured(runs, joined, tmp_path):
    first, second, average = runs
    _, grown, alone, both = joined
    # Two of the new rows' three losses each; the first of the second run is the first of the first, and is not.
    new = both.report.measured - 1
    assert new <= 3 * 4
    np.testing.assert_array_equal(both.loss, alone.loss)
    found, before = both.checkpoints, alone.checkpoints
    for part in ("metrics", "projected", "with_plane_buffers"):
        for name, values in getattr(before, part).items():
            np.testing.assert_array_equal(getattr(found, part)[name][:4], values)
    assert found.runs == ("sgd", "adam")
    assert found.name == ("",) * 7 + ("EMA",)
    for row, network in enumerate([*first, *second, average]):
        assert found.metrics["loss"][row] == pytest.approx(own_loss(network), rel=1e-5)
        assert found.projected["loss"][row] == pytest.approx(foot_loss(grown, row), rel=1e-4)
    assert both.complete
    assert Landscape.load(both.path).checkpoints.sha256 == columns_of(grown.networks)["sha256"]
    assert measure(grown, AXIS, output=shutil.copy(both.path, tmp_path)).report.measured == 1


@pytest.mark.slow
def test_a_file_keeps_whom_a_call_does_not_name(runs, joined, tmp_path):
    first, second, _ = runs
    plane, _, _, both = joined
    path = shutil.copy(both.path, tmp_path)
    alone = measure(plane, AXIS, output=path)
    assert alone.report.measured == 1
    assert alone.checkpoints.runs == ("sgd", "adam")
    assert alone.checkpoints.name[-1] == "EMA"
    np.testing.assert_array_equal(alone.checkpoints.metrics["loss"], both.checkpoints.metrics["loss"])
    assert (alone.origin.run, alone.complete) == ("sgd", True)
    # Another name for the same weights is no second measurement, and no second path.
    renamed = measure(plane.with_checkpoints({"Adam 0.01": second}), AXIS, output=path)
    assert renamed.report.measured == 1
    assert renamed.checkpoints.runs == ("sgd", "Adam 0.01") or renamed.checkpoints.runs == ("run", "Adam 0.01")
    assert len(renamed.checkpoints.number) == 8
    # One of the run's networks as a mark leaves the path whole.
    marked = measure(plane.with_checkpoints(networks={"end of Adam": second[-1]}), AXIS, output=path)
    assert marked.report.measured == 1
    assert [len(rows) for rows in marked.checkpoints.paths] == [4, 3]
    # The same name with other weights replaces.
    other = measure(plane.with_checkpoints(networks={"EMA": first[1]}), AXIS, output=path)
    names = [other.checkpoints.name[row] for row in other.checkpoints.networks]
    assert sorted(names) == ["EMA", "end of Adam"]
    row = other.checkpoints.name.index("EMA")
    assert other.checkpoints.metrics["loss"][row] == pytest.approx(own_loss(first[1]), rel=1e-5)


@pytest.mark.slow
def test_files_without_digests_are_recognized_by_their_identity(runs, tmp_path):
    first, second, _ = runs
    plane, path = pca_plane(first), tmp_path / "a.h5"
    landscape = measure(plane, AXIS, output=path)
    with h5py.File(path, "a") as file:
        as_version_before(file)
        del file["checkpoints/sha256"]
    assert Landscape.load(path).checkpoints.sha256 == ("",) * 4
    both = measure(plane.with_checkpoints({"adam": second}), AXIS, output=path)
    assert both.report.measured <= 1 + 3 * 3
    np.testing.assert_array_equal(both.checkpoints.metrics["loss"][:4], landscape.checkpoints.metrics["loss"])


@pytest.mark.slow
def test_on_a_random_plane_and_a_line(runs, tmp_path):
    first, second, average = runs
    path = tmp_path / "random.h5"
    plane = random_plane(first[-1], seed=0)
    assert measure(plane, AXIS, output=path).checkpoints is None
    grown = plane.with_checkpoints({"adam": second}, {"EMA": average})
    both = measure(grown, AXIS, output=path)
    for row, network in enumerate([*second, average]):
        assert both.checkpoints.metrics["loss"][row] == pytest.approx(own_loss(network), rel=1e-5)
    assert measure(plane, AXIS, output=path).checkpoints.runs == ("adam",)
    line = line_between({"first": first[-1], "second": second[-1]}).with_checkpoints(networks={"EMA": average})
    drawn = measure(line, (-0.5, 0.0, 0.5, 1.0))
    assert drawn.checkpoints.metrics["loss"][2] == pytest.approx(own_loss(average), rel=1e-5)
    assert drawn.checkpoints.name == ("first", "second", "EMA")


def test_facts_have_everybody(runs, tmp_path):
    first, second, average = runs
    plane = pca_plane({"sgd": first}).with_checkpoints({"adam": second}, {"EMA": average})
    drawn = measure(plane, AXIS)
    text = summary_text(drawn)
    assert "sgd: 4 checkpoints, numbers 0 to 3" in text
    assert "adam: 3 checkpoints, numbers 0 to 2" in text
    assert f"EMA: own loss {own_loss(average):.4g}" in text
    found = summary_json(drawn)["checkpoints"]
    assert found["runs"] == ["sgd", "adam"]
    assert found["name"][-1] == "EMA"
    assert found["sha256"] == list(columns_of(plane.networks)["sha256"])


def test_another_origin_is_another_experiment(runs):
    first, second, _ = runs
    assert pca_plane({"sgd": first, "adam": second}).identity != pca_plane(first).identity
