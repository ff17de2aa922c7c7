"""Lines and planes between networks with BatchNorm: losses drawn at the networks are their own, or that is said."""

import copy
import math

import numpy as np
import pytest
import torch
from digits_networks import build, callback_fn, loss_with, measure, own_loss, train
from torch import nn

from landscape import line_between, pca_plane, random_plane
from landscape.errors import LandscapeIdentityError
from landscape.facts import summary_text
from landscape.grid.differences import OwnValue, own_values, own_values_text
from landscape.interactive.content import landscape_content
from landscape.planes import custom_plane, plane_through


@pytest.fixture(scope="module")
def networks():
    """The start, and two networks trained from it in other orders."""
    start = build()
    return start, train(start, seed=1), train(start, seed=2)


def test_between_and_beyond_the_networks_buffers_are_their_mean_with_the_shares_cut_at_zero(networks):
    plane = plane_through(*networks)
    drawn = measure(plane)
    buffers = [dict(network.named_buffers()) for network in networks]
    for row, y in enumerate(drawn.y):
        for column, x in enumerate(drawn.x):
            shares = np.maximum([1 - x - y, x, y], 0)
            shares /= shares.sum()
            state = plane.point((x, y), "fixed")
            for name in ("1.running_mean", "1.running_var"):
                rows = [share * own[name].double() for share, own in zip(shares, buffers, strict=True)]
                state[name] = sum(rows).float().numpy()
            assert drawn.loss[row, column] == pytest.approx(loss_with(state), rel=1e-5, abs=1e-6), (x, y)
            assert loss_with(plane.point((x, y))) == pytest.approx(loss_with(state), rel=1e-6)
    assert state["1.num_batches_tracked"] == 0
    assert drawn.attributes["buffers"] == "interpolate"
    assert drawn.attributes["identity"]["buffers"] == {"policy": "interpolate", "at_networks": "own"}
    assert any("between the networks" in note for note in drawn.attributes["notes"])


@pytest.fixture(scope="module")
def fixed(networks, tmp_path_factory):
    """A line whose trained end has the loss of the start's statistics, in a file."""
    output = tmp_path_factory.mktemp("fixed") / "line.h5"
    with pytest.warns(UserWarning, match=r"the loss drawn at b is 0\.\d+, but its own is 0\.\d+: something that is no"):
        return measure(line_between(*networks[:2]), buffers="fixed", output=output)


def test_what_the_user_asks_for_wins(networks, fixed):
    start, trained, _ = networks
    moved = copy.deepcopy(trained)
    for name in ("running_mean", "running_var"):
        getattr(moved[1], name).copy_(getattr(start[1], name))
    assert fixed.loss[3] == pytest.approx(own_loss(moved), rel=1e-5)
    assert abs(fixed.loss[3] - own_loss(trained)) > 0.1
    with pytest.raises(LandscapeIdentityError, match=r'buffers.policy: the file has "fixed", this run "interpolate"'):
        measure(line_between(start, trained), output=fixed.path)


def test_networks_with_the_same_statistics_have_nothing_to_interpolate(networks):
    start, trained, _ = networks
    same = copy.deepcopy(trained)
    same[1].load_state_dict(start[1].state_dict())
    same[1].num_batches_tracked += 7  # which no evaluation reads
    line = line_between(start, same)
    assert line.end_buffers == ()
    assert measure(line).attributes["buffers"] == "fixed"
    plain = [nn.Linear(64, 10) for _ in range(2)]
    assert line_between(*plain).end_buffers == ()


def test_buffers_that_are_not_finite_are_not_interpolated(networks):
    start, trained, _ = networks
    broken = copy.deepcopy(trained)
    broken[1].running_mean[0] = math.inf
    with pytest.warns(UserWarning, match=r"the buffers '1\.running_mean' differ .* networks they are those of"):
        line = line_between(start, broken)
    assert line.between.interpolated == ("1.running_var",)
    assert line.point((0.5,))["1.running_mean"][0] == 0
    assert line.point((1.0,))["1.running_mean"][0] == math.inf


def test_other_planes_keep_the_origins_buffers_and_say_why(networks):
    start, trained, _ = networks
    plane = random_plane(trained)
    assert measure(plane, (-0.1, 0.0, 0.1)).attributes["buffers"] == "fixed"
    direction = {name: value.detach().numpy() for name, value in trained.named_parameters()}
    for other in (plane, custom_plane(start, [direction])):
        with pytest.raises(
            ValueError, match=r'buffers="interpolate" needs a line, a plane or a curve through given networks'
        ):
            measure(other, (-0.1, 0.0, 0.1), buffers="interpolate")
        with pytest.raises(ValueError, match="buffers must be"):
            measure(other, (-0.1, 0.0, 0.1), buffers="mean")


def entry(ax):
    (found,) = [text.get_text() for text in ax.figure.legends[0].get_texts() if "own loss" in text.get_text()]
    return " ".join(found.split())


def test_fixed_buffers_miss_the_trained_ends_own_loss_and_it_is_said(networks, fixed):
    (found,) = own_values(fixed.checkpoints, "loss")
    own = own_loss(networks[1])
    assert found.own == pytest.approx(own, abs=1e-6)
    assert found.drawn == pytest.approx(fixed.loss[3], rel=1e-6)
    assert found.drawn > 2 * own
    assert (found.row, found.buffers, found.residual, found.frozen) == (1, True, None, False)
    assert found.reason == "own buffers such as BatchNorm's statistics"
    text = own_values_text(fixed.checkpoints, "loss", "checkpoint")
    assert f"own loss {own:.3g}, drawn {fixed.loss[3]:.3g}" in text
    assert f"drawn losses {text}" in " ".join(summary_text(fixed).split())
    assert landscape_content(fixed, "a")["checkpoints"]["own"]["loss"] == [{"row": 1, "reason": found.reason}]


def test_a_profile_marks_it(networks, fixed):
    ax = fixed.plot_profile()
    (marks,) = [line for line in ax.get_lines() if "own loss" in str(line.get_label())]
    np.testing.assert_allclose(marks.get_xydata(), [[1.0, own_loss(networks[1])]], atol=1e-6)
    low, high = ax.get_ylim()
    assert low < own_loss(networks[1]) < high
    assert "BatchNorm" in entry(ax)


def test_interpolated_buffers_leave_nothing_to_mark(networks):
    drawn = measure(line_between(*networks[:2]))
    assert own_values(drawn.checkpoints, "loss") == []
    assert "drawn losses" not in summary_text(drawn)
    assert not [line for line in drawn.plot_profile().get_lines() if "own loss" in str(line.get_label())]


def test_frozen_parameters_of_another_network_are_a_reason_of_their_own(networks):
    start, trained = map(copy.deepcopy, networks[:2])
    for network in (start, trained):
        network[3].bias.requires_grad_(False)
    trained[3].bias += 2 * torch.arange(10)

    def frozen():
        loss, network, data, metrics = callback_fn()
        network[3].bias.requires_grad_(False)
        return loss, network, data, metrics

    with pytest.warns(UserWarning, match=r"the loss drawn at b is .* its own is .* \(a frozen parameter, or"):
        drawn = measure(line_between(start, trained), callback_fn=frozen)
    (found,) = own_values(drawn.checkpoints, "loss")
    assert found.reason == "own frozen parameters"


@pytest.mark.slow
def test_what_lies_off_the_plane_says_how_far():
    networks = [train(build(), epochs=epochs, seed=1) for epochs in (0, 1, 2, 3)]
    drawn = measure(pca_plane(networks), x=(-1.0, 0.0, 1.0))
    found = {value.row: value for value in own_values(drawn.checkpoints, "loss")}
    path = drawn.checkpoints
    error = 2 * np.maximum(path.metrics["loss_stderr"], path.projected["loss_stderr"])
    far = np.flatnonzero(abs(path.metrics["loss"] - path.projected["loss"]) > error)
    assert list(found) == far.tolist()
    assert 0 in found
    for row, value in found.items():
        assert value.buffers or value.residual == path.residual[row]
    assert "own loss differs at" in entry(drawn.plot_contour())
    assert "own loss differs at" in entry(drawn.plot_surface())


def test_without_standard_errors_one_per_cent_counts(fixed):
    path = copy.deepcopy(fixed.checkpoints)
    for values in (path.metrics, path.projected, path.with_plane_buffers):
        values["other"] = np.array([1.0, 2.0])
    path.projected["other"] = path.with_plane_buffers["other"] = np.array([1.0099, 2.03])
    assert own_values(path, "other") == [OwnValue(1, 2.0, 2.03, True, None, frozen=False)]
    path.with_plane_buffers["other"] = np.full(2, np.nan)  # not measured yet: no reason is known
    assert own_values(path, "other")[0].reason == ""
    path.metrics["other"] = np.array([np.nan, np.inf])
    assert own_values(path, "other") == []
