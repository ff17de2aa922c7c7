"""Checkpoints and networks on a plane: each loss is measured once, after the coarse grid; others may join later."""

import copy
import itertools
import shutil

import h5py
import numpy as np
import pytest
import torch
from digits_networks import INPUTS, TARGETS, build, loss_with, measure, own_loss, train
from landscape_examples import as_version_before
from torch import nn

from landscape import Landscape, line_between, pca_plane, random_plane
from landscape.facts import summary_text
from landscape.planes.networks import columns_of
from landscape.record.checks import PointStatus
from landscape.record.run import Run
from landscape.sampling.grids import GridLevels
from landscape.summary_json import summary_json
from workers.pools.in_process import InProcessPool

AXIS = (-1.0, 0.0, 1.0)
COUNT = 4


@pytest.fixture(scope="module")
def trained():
    """Checkpoints with statistics of their own."""
    return [train(build(), epochs=epochs, seed=1) for epochs in range(COUNT)]


@pytest.fixture
def tasks(monkeypatch):
    """The keys of what pools are given, in order."""
    given, run = [], InProcessPool.run

    def noted(self, items):
        def note():
            for item in items:
                given.append(item.key)
                yield item

        yield from run(self, note())

    monkeypatch.setattr(InProcessPool, "run", noted)
    return given


@pytest.fixture(scope="module")
def tuned(trained):
    """Checkpoints of a network whose statistics stay as they are, as in fine-tuning."""
    networks = [copy.deepcopy(network) for network in trained]
    for network in networks:
        network[1].load_state_dict(
            {**network[1].state_dict(), **{name: value.clone() for name, value in trained[-1][1].named_buffers()}}
        )
    return networks


def names(tasks):
    return [key for key in tasks if key[0] != "grid"]


def rows(part, *numbers):
    return [(part, number) for number in numbers]


def check_path(drawn, networks):
    """Compares what is stored with PyTorch's own losses."""
    path = drawn.checkpoints
    assert all((status == PointStatus.MEASURED).all() for status in path.statuses)
    np.testing.assert_allclose(path.metrics["loss"], [own_loss(network) for network in networks], rtol=1e-5)
    buffers = dict(networks[-1].named_buffers())
    others = []
    for network in networks:
        other = copy.deepcopy(network)
        other.load_state_dict({**other.state_dict(), **buffers})
        others.append(own_loss(other))
    np.testing.assert_allclose(path.with_plane_buffers["loss"], others, rtol=1e-5)
    assert path.projected["loss"][-1] == drawn.origin.metrics["loss"] == path.metrics["loss"][-1]


def test_the_last_checkpoint_is_the_origin(trained, tasks, tmp_path):
    drawn = measure(pca_plane(trained), x=AXIS, output=tmp_path / "a.h5")
    first = range(COUNT - 1)
    assert names(tasks) == rows("own", *first) + rows("projected", *first) + rows("with_plane_buffers", *first)
    check_path(drawn, trained)
    # The origin, and what was really measured.
    assert drawn.report.measured == 1 + 9 + 3 * (COUNT - 1)
    assert drawn.report.forecast.points == 9 + 3 * (COUNT - 1)
    tasks.clear()
    again = measure(pca_plane(trained), x=AXIS, output=tmp_path / "a.h5")
    assert tasks == []
    assert again.report.measured == 1
    assert Landscape.load(tmp_path / "a.h5").complete


def test_statistics_that_stay_make_two_losses_one(tuned, tasks):
    drawn = measure(pca_plane(tuned), x=AXIS)
    first = range(COUNT - 1)
    assert names(tasks) == rows("own", *first) + rows("projected", *first)
    check_path(drawn, tuned)
    assert drawn.complete
    assert drawn.report.measured == 1 + 9 + 2 * (COUNT - 1)


def test_recalibrated_statistics_are_never_a_checkpoints_own(tuned, tasks):
    drawn = measure(pca_plane(tuned), x=AXIS, buffers="recalibrate")
    first = range(COUNT - 1)
    assert names(tasks) == (rows("own", *range(COUNT)) + rows("projected", *first) + rows("with_plane_buffers", *first))
    np.testing.assert_allclose(drawn.checkpoints.metrics["loss"], [own_loss(network) for network in tuned], rtol=1e-5)
    assert drawn.checkpoints.metrics["loss"][-1] != drawn.origin.metrics["loss"]


def test_interpolated_statistics_are_each_networks_own(trained, tasks):
    networks = trained[0], trained[-1]
    drawn = measure(line_between(*networks))
    assert names(tasks) == [("own", 1), ("projected", 1)]
    path = drawn.checkpoints
    np.testing.assert_allclose(path.metrics["loss"], [own_loss(network) for network in networks], rtol=1e-5)
    np.testing.assert_array_equal(path.with_plane_buffers["loss"], path.metrics["loss"])


def test_frozen_parameters_of_its_own_are_no_origin(tasks):
    """Of networks that differ in nothing but a frozen bias, only the origin's own is the origin."""
    networks = [build() for _ in range(3)]
    for step, network in enumerate(networks):
        network[3].bias.requires_grad_(False)
        network[3].bias += step
        with torch.no_grad():
            network[0].weight += torch.randn_like(network[0].weight) * (2 - step) * 0.1
    with torch.no_grad():
        networks[1][0].weight.copy_(networks[2][0].weight)

    def callback_fn():
        network = build()
        network[3].bias.requires_grad_(False)
        return nn.CrossEntropyLoss(), network, (INPUTS, TARGETS), {}

    drawn = measure(line_between(networks[2], networks[0]), callback_fn=callback_fn)
    assert drawn.checkpoints.metrics["loss"][0] == drawn.origin.metrics["loss"]
    assert names(tasks) == [("own", 1), ("projected", 1)]
    other = copy.deepcopy(networks[0])
    torch.manual_seed(7)
    with torch.no_grad():
        other[0].weight += 0.1 * torch.randn_like(other[0].weight)
    plane = pca_plane([networks[0], other, networks[1], networks[2]])
    tasks.clear()
    drawn = measure(plane, callback_fn=callback_fn)
    assert drawn.checkpoints.norm[2] == drawn.checkpoints.norm[3] == 0
    assert ("own", 2) in names(tasks)
    assert ("own", 3) not in names(tasks)
    np.testing.assert_allclose(drawn.checkpoints.metrics["loss"][2], own_loss(networks[1]), rtol=1e-5)


def test_what_fails_fails_for_both_and_is_tried_again(tuned, tmp_path):
    broken = {"now": True}

    def loss(outputs, targets):
        if broken["now"] and abs(float(outputs[0, 0]) - marked) < 1e-6:
            raise ArithmeticError("not this one")
        return nn.functional.cross_entropy(outputs, targets)

    with torch.no_grad():
        marked = float(tuned[1](INPUTS[:256])[0, 0])

    def callback_fn():
        return loss, build(), (INPUTS, TARGETS), {}

    path = tmp_path / "a.h5"
    drawn = measure(pca_plane(tuned), x=AXIS, callback_fn=callback_fn, output=path)
    for status in (drawn.checkpoints.status, drawn.checkpoints.with_plane_buffers_status):
        assert np.flatnonzero(status == PointStatus.FAILED).tolist() == [1]
    assert "not this one" in drawn.errors["checkpoints/1/with_plane_buffers"]
    broken["now"] = False
    drawn = measure(pca_plane(tuned), x=AXIS, callback_fn=callback_fn, output=path)
    check_path(drawn, tuned)
    assert not drawn.errors


@pytest.mark.parametrize("sampling", ["full", "adaptive"])
def test_the_coarse_grid_the_path_and_then_the_fine_grid(trained, tasks, sampling):
    plane = pca_plane(trained)
    measure(plane, None, size=20, sampling=sampling, num_samples=64)
    kinds = [(kind, len(list(group))) for kind, group in itertools.groupby(key[0] == "grid" for key in tasks)]
    first = GridLevels.of((20, 20)).first
    assert kinds[:2] == [(True, len(first[0]) * len(first[1])), (False, 3 * (COUNT - 1))]
    if sampling == "full":
        assert kinds[2:] == [(True, 400 - kinds[0][1])]


def test_a_budget_that_ends_on_the_path_leaves_a_picture(trained, monkeypatch):
    """As many measurements as the first grid has, and two more."""
    first = GridLevels.of((20, 20)).first
    count = len(first[0]) * len(first[1]) + 2
    asked = iter(range(10_000))

    def after_some(self, tasks):
        for task in tasks:
            if next(asked) >= count:
                self.stopped = True
                return
            yield task

    monkeypatch.setattr(Run, "in_time", after_some)
    with pytest.warns(UserWarning, match="budget of 60 s ended the landscape"):
        drawn = measure(pca_plane(trained), None, size=20, budget="60s", num_samples=64)
    assert (drawn.status == PointStatus.MEASURED).sum() == count - 2
    assert (drawn.status == PointStatus.INTERPOLATED).sum() == 400 - (count - 2)
    # Two were measured, and the last one is the origin.
    assert (drawn.checkpoints.status == PointStatus.MEASURED).sum() == 3


@pytest.fixture(scope="module")
def runs(trained):
    """Two runs that begin at one network with BatchNorm, and an average of the first one's last two."""
    second = [train(build(), epochs=epochs, seed=2) for epochs in (0, 2, 4)]
    average = copy.deepcopy(trained[-1])
    for tensor, other in zip(average.parameters(), trained[-2].parameters(), strict=True):
        tensor.data = (tensor.data + other.data) / 2
    return trained, second, average


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
