"""Own losses beside the drawn ones: where they differ by more than two standard errors, and why."""

import copy

import numpy as np
import pytest
import torch
from digits_networks import build, measure, own_loss, train

from landscape import line_between, pca_plane
from landscape.facts import summary_text
from landscape.grid.differences import OwnValue, own_values, own_values_text
from landscape.interactive.content import landscape_content


@pytest.fixture(scope="module")
def start_and_trained():
    return build(), train(build(), seed=1)


@pytest.fixture(scope="module")
def fixed(start_and_trained):
    """A line whose trained end has the loss of the start's statistics."""
    with pytest.warns(UserWarning, match=r"the loss drawn at b is 0\.\d+, but its own is 0\.\d+: something that is no"):
        return measure(line_between(*start_and_trained), buffers="fixed")


def entry(ax):
    (found,) = [text.get_text() for text in ax.figure.legends[0].get_texts() if "own loss" in text.get_text()]
    return " ".join(found.split())


def test_fixed_buffers_miss_the_trained_ends_own_loss_and_it_is_said(start_and_trained, fixed):
    (found,) = own_values(fixed.checkpoints, "loss")
    own = own_loss(start_and_trained[1])
    assert found.own == pytest.approx(own, abs=1e-6)
    assert found.drawn == pytest.approx(fixed.loss[3], rel=1e-6)
    assert found.drawn > 2 * own
    assert (found.row, found.buffers, found.residual, found.frozen) == (1, True, None, False)
    assert found.reason == "own buffers such as BatchNorm's statistics"
    text = own_values_text(fixed.checkpoints, "loss", "checkpoint")
    assert f"own loss {own:.3g}, drawn {fixed.loss[3]:.3g}" in text
    assert f"drawn losses {text}" in " ".join(summary_text(fixed).split())
    assert landscape_content(fixed, "a")["checkpoints"]["own"]["loss"] == [{"row": 1, "reason": found.reason}]


def test_a_profile_marks_it(start_and_trained, fixed):
    ax = fixed.plot_profile()
    (marks,) = [line for line in ax.get_lines() if "own loss" in str(line.get_label())]
    np.testing.assert_allclose(marks.get_xydata(), [[1.0, own_loss(start_and_trained[1])]], atol=1e-6)
    low, high = ax.get_ylim()
    assert low < own_loss(start_and_trained[1]) < high
    assert "BatchNorm" in entry(ax)


def test_interpolated_buffers_leave_nothing_to_mark(start_and_trained):
    drawn = measure(line_between(*start_and_trained))
    assert own_values(drawn.checkpoints, "loss") == []
    assert "drawn losses" not in summary_text(drawn)
    assert not [line for line in drawn.plot_profile().get_lines() if "own loss" in str(line.get_label())]


def test_frozen_parameters_of_another_network_are_a_reason_of_their_own(start_and_trained):
    start, trained = map(copy.deepcopy, start_and_trained)
    for network in (start, trained):
        network[3].bias.requires_grad_(False)
    trained[3].bias += 2 * torch.arange(10)

    def callback_fn():
        from digits_networks import callback_fn as plain

        loss, network, data, metrics = plain()
        network[3].bias.requires_grad_(False)
        return loss, network, data, metrics

    with pytest.warns(UserWarning, match=r"the loss drawn at b is .* its own is .* \(a frozen parameter, or"):
        drawn = measure(line_between(start, trained), callback_fn=callback_fn)
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
