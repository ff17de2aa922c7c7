"""Lines and planes between networks with BatchNorm: drawn losses at the networks are the networks' own losses."""

import copy
import math
import warnings

import numpy as np
import pytest
from digits_networks import build, loss_with, measure, own_loss, train
from torch import nn

from landscape import line_between, random_plane
from landscape.errors import LandscapeIdentityError
from landscape.planes import custom_plane, plane_through


@pytest.fixture(scope="module")
def networks():
    """The start, and two networks trained from it in other orders."""
    start = build()
    return start, train(start, seed=1), train(start, seed=2)


@pytest.mark.slow
def test_the_default_is_the_policy_that_is_nearest_to_the_networks_own_losses(networks):
    for count in (2, 3):
        plane = (line_between if count == 2 else plane_through)(*networks[:count])
        own = [own_loss(network) for network in networks[:count]]

        def largest_miss(policy, plane=plane, own=own):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the loss drawn at")
                drawn = measure(plane, (0.0, 1.0), buffers=policy)
            assert drawn.attributes["buffers"] == ("interpolate" if policy == "auto" else policy)
            return float(np.abs(drawn.checkpoints.projected["loss"] - own).max())

        assert largest_miss("auto") < 1e-6
        assert largest_miss("fixed") > 1e-3
        if count == 2:  # statistics are computed anew between the networks alone
            assert largest_miss("recalibrate") < 1e-6


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


def test_what_the_user_asks_for_wins(networks, tmp_path):
    start, trained, _ = networks
    line, path = line_between(start, trained), tmp_path / "line.h5"
    with pytest.warns(UserWarning, match="the loss drawn at b is"):
        fixed = measure(line, buffers="fixed", output=path)
    moved = copy.deepcopy(trained)
    for name in ("running_mean", "running_var"):
        getattr(moved[1], name).copy_(getattr(start[1], name))
    assert fixed.loss[3] == pytest.approx(own_loss(moved), rel=1e-5)
    assert abs(fixed.loss[3] - own_loss(trained)) > 0.1
    with pytest.raises(LandscapeIdentityError, match=r'buffers.policy: the file has "fixed", this run "interpolate"'):
        measure(line, output=path)


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
