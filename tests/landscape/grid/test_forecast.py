"""What a run says of its cost before it measures, and of itself where budget, memory or disk do not suffice."""

import contextlib
import copy
import errno
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from false_clock import FalseClock
from hungry_network import memory_limit
from torch import nn

from collectors.errors import LandscapeError
from landscape import MeasurementPlan, evaluate, pca_plane, random_plane
from landscape.facts import summary_text
from landscape.grid.experiment import load_plane
from landscape.grid.forecast import Forecast
from landscape.planes import random_line
from landscape.record.checks import PointStatus
from workers.measurement_options import MeasurementOptions
from workers.pools.open_pool import open_pool


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


@pytest.mark.parametrize(
    ("more", "is_said"),
    [
        ({"budget": 60, "spent": 5}, False),
        ({"budget": 60, "spent": 15}, True),
        # Reading the data may have taken longer than the budget of a call that finds all measured.
        ({"points": 0, "coarse": 0, "path": 0, "budget": 1, "spent": 5}, False),
    ],
)
def test_a_budget_is_mentioned_where_it_does_not_suffice(more, is_said):
    assert ("budget" in forecast(**more)) is is_said


WIDTH = 1500
"""Of a layer whose plane takes 36 MB on each worker."""


def wide(width=WIDTH):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Linear(width, 2))
    return nn.CrossEntropyLoss(), network, (torch.ones(8, 4), torch.zeros(8, dtype=torch.int64)), {}


def measure(path, callback_fn=wide, **how):
    plane = random_plane(callback_fn()[1], seed=0)
    return evaluate(plane, callback_fn, size=3, device_ids=[0], progress=False, output=path, **how)


def load_in(megabytes, plane, device_ids):
    with open_pool(wide, MeasurementOptions(), device_ids=device_ids) as pool, memory_limit(megabytes):
        # Whether it fits in the end is another question.
        with contextlib.suppress(LandscapeError):
            load_plane(pool, plane, [(1.0,) * plane.dimension])


def test_one_process():
    text = (
        "the plane takes 36.2 MB of this machine's memory, but no more than 2.* MB seem to be free, so the system may "
        "end workers or become slow; measure a line instead of a plane, or use a machine with more memory."
    )
    with pytest.warns(UserWarning, match=text):
        load_in(20, random_plane(wide()[1], seed=0), [0])
    with pytest.warns(UserWarning, match=r"takes 27.* MB .* become slow; use a machine with more\."):
        load_in(20, random_line(wide()[1], seed=0), [0])


@pytest.mark.filterwarnings("ignore:.*device:UserWarning")
@pytest.mark.slow
def test_several_workers():
    text = (
        "takes 109 MB .*, once on each of 2 workers and once for all of them, .*; pass at most 1 of device_ids, measure"
    )
    with pytest.warns(UserWarning, match=text):
        load_in(85, random_plane(wide()[1], seed=0), [0, 1])


def test_nothing_is_said_where_there_is_enough(recwarn, tmp_path):
    measure(tmp_path / "a.h5")
    assert not [item for item in recwarn if re.search("seem to be free|has .* for it", str(item.message))]


def test_a_disk_that_does_not_say_how_much_it_has_left_ends_nothing(tmp_path, monkeypatch):
    def fails(folder):
        raise OSError(errno.EIO, "Input/output error", str(folder))

    monkeypatch.setattr(shutil, "disk_usage", fails)
    assert np.isfinite(measure(tmp_path / "a.h5").loss).all()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_disk_with_less_than_the_file_takes(dry_run, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=100))
    with pytest.warns(UserWarning, match=r"a\.h5 will have up to [\d.]+ kB, but its disk has .*B for it; give output="):
        found = measure(tmp_path / "a.h5", lambda: wide(3), keep_samples=True, dry_run=dry_run)
    assert dry_run or np.isfinite(found.loss).all()
