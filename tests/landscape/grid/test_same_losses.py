"""Each loss of a checkpoint is measured once, and the grid comes before the path."""

import copy
import itertools

import numpy as np
import pytest
import torch
from digits_networks import INPUTS, TARGETS, build, measure, own_loss, train
from torch import nn

from landscape import Landscape, line_between, pca_plane
from landscape.record.checks import PointStatus
from landscape.record.run import Run
from landscape.sampling.grids import GridLevels
from workers.pool import PointTask
from workers.pools.in_process import InProcessPool

COUNT = 4


@pytest.fixture
def tasks(monkeypatch):
    """What pools are given, in order: keys, and whether they are points of the plane."""
    given = []
    run = InProcessPool.run

    def noted(self, items):
        def note():
            for item in items:
                given.append((item.key, isinstance(item, PointTask)))
                yield item

        yield from run(self, note())

    monkeypatch.setattr(InProcessPool, "run", noted)
    return given


@pytest.fixture(scope="module")
def trained():
    """Checkpoints with statistics of their own."""
    return [train(build(), epochs=epochs, seed=1) for epochs in range(COUNT)]


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
    return [key for key, _ in tasks if key[0] != "grid"]


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
    drawn = measure(pca_plane(trained), x=(-1.0, 0.0, 1.0), output=tmp_path / "a.h5")
    first = range(COUNT - 1)
    assert names(tasks) == rows("own", *first) + rows("projected", *first) + rows("with_plane_buffers", *first)
    check_path(drawn, trained)
    # The origin, and what was really measured.
    assert drawn.report.measured == 1 + 9 + 3 * (COUNT - 1)
    assert drawn.report.forecast.points == 9 + 3 * (COUNT - 1)
    tasks.clear()
    again = measure(pca_plane(trained), x=(-1.0, 0.0, 1.0), output=tmp_path / "a.h5")
    assert tasks == []
    assert again.report.measured == 1
    assert Landscape.load(tmp_path / "a.h5").complete


def test_statistics_that_stay_make_two_losses_one(tuned, tasks):
    drawn = measure(pca_plane(tuned), x=(-1.0, 0.0, 1.0))
    first = range(COUNT - 1)
    assert names(tasks) == rows("own", *first) + rows("projected", *first)
    check_path(drawn, tuned)
    assert drawn.complete
    assert drawn.report.measured == 1 + 9 + 2 * (COUNT - 1)


def test_recalibrated_statistics_are_never_a_checkpoints_own(tuned, tasks):
    drawn = measure(pca_plane(tuned), x=(-1.0, 0.0, 1.0), buffers="recalibrate")
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
    drawn = measure(pca_plane(tuned), x=(-1.0, 0.0, 1.0), callback_fn=callback_fn, output=path)
    for status in (drawn.checkpoints.status, drawn.checkpoints.with_plane_buffers_status):
        assert np.flatnonzero(status == PointStatus.FAILED).tolist() == [1]
    assert "not this one" in drawn.errors["checkpoints/1/with_plane_buffers"]
    broken["now"] = False
    drawn = measure(pca_plane(tuned), x=(-1.0, 0.0, 1.0), callback_fn=callback_fn, output=path)
    check_path(drawn, tuned)
    assert not drawn.errors


@pytest.mark.parametrize("sampling", ["full", "adaptive"])
def test_the_coarse_grid_the_path_and_then_the_fine_grid(trained, tasks, sampling):
    plane = pca_plane(trained)
    measure(plane, None, size=20, sampling=sampling, num_samples=64)
    kinds = [(kind, len(list(group))) for kind, group in itertools.groupby(key[0] == "grid" for key, _ in tasks)]
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
