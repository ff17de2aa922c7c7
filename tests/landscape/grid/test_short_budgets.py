"""What a budget suffices for, and what a landscape says of itself that it ended too early."""

import copy
import re

import pytest
import torch
from false_clock import FalseClock
from torch import nn

from landscape import MeasurementPlan, evaluate, pca_plane
from landscape.facts import summary_text
from landscape.grid.forecast import Forecast
from landscape.record.checks import PointStatus


def curve(count):
    """A plane through checkpoints on a curve, with buffers of their own; and their network."""
    network = nn.BatchNorm1d(4)
    networks = []
    for step in range(count):
        with torch.no_grad():
            network.weight.copy_(torch.tensor([step, 0.1 * step**2, 0.0, 0.0]))
            network.running_mean.fill_(step)
        networks.append(copy.deepcopy(network))
    return pca_plane(networks), network


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["full", "adaptive"])
def test_a_budget_below_the_coarse_grid_leaves_no_picture_and_says_so(tmp_path, capsys, sampling, monkeypatch):
    """Forecast, warning and file: 20 points at most, as most of 48 passes are at the origin; the grid has 121."""
    (plane, network), clock = curve(4), FalseClock(monkeypatch)

    def callback_fn():
        def loss(outputs, targets):
            clock.go_on(1 / 32)
            return nn.functional.mse_loss(outputs, targets)

        return loss, copy.deepcopy(network), (torch.ones(4, 4), torch.zeros(4, 4)), {}

    how = {"size": 40, "device_ids": [0], "sampling": sampling, "plan": MeasurementPlan(4), "buffers": "fixed"}
    with pytest.warns(UserWarning, match="the budget of 1.5 s ended the landscape after") as told:
        landscape = evaluate(plane, callback_fn, output=tmp_path / "landscape.h5", budget=1.5, **how)
    counts = landscape.status_counts
    assert counts[PointStatus.INTERPOLATED] == 0
    measured = counts[PointStatus.MEASURED]
    assert 0 < measured <= 20
    assert "loss_error" not in landscape.metrics
    text = next(str(item.message) for item in told if "budget" in str(item.message))
    assert (
        f"of the others {1600 - measured} have no value yet: it is a coarse picture so far, as {measured} of the 121 "
        "points are measured between which it is interpolated. 9 of 12 losses of checkpoints are not measured. The "
        "same call"
    ) in text
    said = capsys.readouterr().err
    assert "100 %" not in said
    assert re.search(
        r"the budget ends it after 1.5 s, about \d+ points?: too few for the coarse grid of 121, without which", said
    )
    facts = " ".join(summary_text(landscape).split())
    assert f"no, and coarse so far: {measured} of the 121 points of its first grid are measured; the call" in facts
    assert f", {1600 - measured} without a value yet" in facts
    assert "not finite" not in facts
    assert "4 checkpoints, numbers 0 to 3; the own loss of 3 is not measured" in facts
    assert f"measured ({measured} of 1,600 points)" in landscape.plot_contour().get_title()


def forecast(**more):
    known = {"points": 1000, "sampling": "full", "seconds_per_point": 0.1, "workers": 2, "memory": 1, "disk": 1}
    return str(Forecast(**known | {"coarse": 121, "path": 30} | more))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"budget": 7}, "after 7 s, about 140 points: the coarse grid and 19 of 30 losses of checkpoints"),
        ({"budget": 7, "spent": 2}, "after 7 s, about 100 points: too few for the coarse grid of 121, without which"),
        ({"budget": 10}, "after 10 s, about 200 points: the coarse grid, the checkpoints, 49 others"),
        ({"budget": 10, "sampling": "adaptive"}, "after 10 s at the latest, about 200 points: the coarse grid, the"),
        ({"budget": 10, "coarse": 0, "path": 0}, "after 10 s, about 200 points: 200 others"),
        ({"budget": 1, "spent": 5}, "after 1 s, about 0 points: too few"),
    ],
)
def test_the_forecast_says_what_a_budget_suffices_for(more, says):
    assert f"; the budget ends it {says}" in forecast(**more)


def test_a_budget_that_suffices_is_not_mentioned():
    assert "budget" not in forecast(budget=60, spent=5)
    assert "budget" in forecast(budget=60, spent=15)


def test_a_budget_is_not_mentioned_where_nothing_is_left_to_measure():
    """Reading the data may have taken longer than the budget of a call that finds all measured."""
    assert "budget" not in forecast(points=0, coarse=0, path=0, budget=1, spent=5)
