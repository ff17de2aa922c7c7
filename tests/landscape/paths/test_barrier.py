"""The barrier on the line between two networks."""

import copy
import math
import re
import warnings

import digits_networks
import numpy as np
import pytest
import torch
from torch import nn
from two_networks import INPUTS, TARGETS, barrier_between, build, callback_fn, outputs_between, trained

from landscape import Landscape, evaluate, line_between, random_plane
from landscape.errors import PlaneError
from landscape.facts import page_facts
from landscape.functions import barrier
from landscape.paths.barrier import Barrier
from workers import FunctionEvaluator, OwnLoss

OPTIONS = {"device_ids": [0], "progress": False}


def test_barrier_is_the_largest_rise_of_plain_pytorch_with_its_paired_error():
    a, b = trained(0, epochs=6), trained(1, epochs=6)
    found = barrier(a, b, callback_fn, points=11, **OPTIONS)
    height, at, stderr = barrier_between(a, b, 11)
    assert (found.height, found.stderr) == pytest.approx((height, stderr), rel=1e-5)
    assert found.at == at
    assert found.height > 0.1
    # What all three places have in common does not count: unpaired, the error would be another one.
    errors = found.landscape["loss_stderr"][[0, round(10 * at), 10]]
    assert stderr != pytest.approx(np.sqrt(errors**2 @ [(1 - at) ** 2, 1, at**2]), rel=0.05)
    assert repr(found).startswith(f"Barrier({height:.4g} ± {stderr:.2g} at t = {at:.3g}; losses at the ends ")
    facts = dict(page_facts(found.landscape))
    assert re.fullmatch(rf"barrier [\d.]+ ± {stderr:.2g} at {at:.3g} of the way", facts["between the networks"])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_paired_error_follows_class_weights_and_sums(reduction):
    a, b, weight = trained(0), trained(1), torch.linspace(0.2, 2, 10)

    def weighted():
        return nn.CrossEntropyLoss(weight=weight, reduction=reduction), build(7), (INPUTS, TARGETS), {}

    found = barrier(a, b, weighted, points=5, **OPTIONS)
    each = [
        nn.functional.cross_entropy(outputs_between(a, b, t), TARGETS, weight.double(), reduction="none").numpy()
        for t in (0, found.at, 1)
    ]
    rises = each[1] - (1 - found.at) * each[0] - found.at * each[2]
    weights = weight.double()[TARGETS].numpy()
    if reduction == "sum":
        expected = rises.sum(), np.sqrt(len(rises)) * rises.std(ddof=1)
    else:
        mean = rises.sum() / weights.sum()
        spread = np.square(rises - mean * weights).sum() * len(rises) / (len(rises) - 1)
        expected = mean, np.sqrt(spread) / weights.sum()
    assert (found.height, found.stderr) == pytest.approx(expected, rel=1e-4)


def test_statistics_of_batchnorm_are_computed_anew():
    a, b = (digits_networks.train(digits_networks.build(seed), epochs=3, seed=seed) for seed in (0, 1))
    found = barrier(a, b, digits_networks.callback_fn, points=5, **OPTIONS)
    assert found.landscape.attributes["buffers"] == "recalibrate"
    ends = [digits_networks.own_loss(network) for network in (a, b)]
    np.testing.assert_allclose(found.landscape.loss[[0, -1]], ends, rtol=1e-5)
    with pytest.warns(UserWarning, match="the loss drawn at b is"):
        fixed = barrier(a, b, digits_networks.callback_fn, points=5, buffers="fixed", **OPTIONS)
    assert found.height < fixed.height
    # By hand at the place of the barrier: one pass in train mode with a cumulative average.
    middle = copy.deepcopy(a)
    with torch.no_grad():
        for target, other in zip(middle.parameters(), b.parameters(), strict=True):
            target.add_(found.at * (other - target))
        middle[1].reset_running_stats()
        middle[1].momentum = None
        middle.train()
        for rows in torch.arange(600).split(256):
            middle(digits_networks.INPUTS[rows])
    loss = found.landscape.loss[found.landscape.x == found.at][0]
    assert loss == pytest.approx(digits_networks.own_loss(middle), rel=1e-4)


def test_convex_loss_has_no_barrier():
    def convex():
        return nn.MSELoss(), nn.Linear(64, 1), (INPUTS, TARGETS[:, None].float()), {}

    torch.manual_seed(0)
    found = barrier(nn.Linear(64, 1), nn.Linear(64, 1), convex, points=5, **OPTIONS)
    assert (found.height, found.limit) == (0, 0)
    assert math.isnan(found.stderr)
    assert "none: no point rises above the chord, at most 0 with 95 % confidence; losses" in repr(found)
    assert (found.landscape.loss[1:-1] < found.landscape.loss[[0, -1]].max()).all()


def test_points_that_are_not_finite_count_nothing_and_are_said():
    def loss_at(holes):
        def loss(parameters):
            (t,) = parameters["t"]
            return {"loss": math.nan if any(abs(t - hole) < 1e-6 for hole in holes) else 4 * t * (1 - t)}

        return lambda: FunctionEvaluator(loss, {"t": np.zeros(1, np.float32)})

    ends = [{"t": np.array([end], np.float32)} for end in (0.0, 1.0)]
    with pytest.warns(UserWarning, match="not measured, at 1 of 5 points"):
        found = barrier(*ends, loss_at([0.5]), points=5, **OPTIONS)
    assert (found.height, found.at) == (pytest.approx(0.75), 0.25)
    assert math.isnan(found.stderr)  # a function has no samples
    with pytest.warns(UserWarning, match="not finite at one of the two networks"):
        found = barrier(*ends, loss_at([1.0]), points=5, **OPTIONS)
    assert math.isnan(found.height)


def test_loss_of_whole_batches_has_no_paired_error():
    def own():
        step = OwnLoss(lambda network, batch: nn.functional.cross_entropy(network(batch[0]), batch[1]))
        return step, build(7), [(INPUTS, TARGETS)], {}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = barrier(trained(0), trained(1), own, points=5, **OPTIONS)
    assert found.height > 0.3
    assert math.isnan(found.stderr)
    assert "±" not in repr(found)


@pytest.mark.slow
def test_file_keeps_the_barrier_and_is_continued(tmp_path):
    a, b, path = trained(0), trained(1), tmp_path / "line.h5"
    found = barrier(a, b, callback_fn, points=7, output=path, **OPTIONS)
    again = Barrier.of(Landscape.load(path))
    assert (again.height, again.stderr, again.at) == (found.height, found.stderr, found.at)
    more = barrier(a, b, callback_fn, points=13, output=path, **OPTIONS)
    assert more.landscape.report.resumed >= 7
    assert more.height >= found.height
    assert math.isfinite(more.stderr)


@pytest.mark.slow
def test_workers_of_ray_find_the_same(tmp_path):
    a, b = trained(0), trained(1)
    one = barrier(a, b, callback_fn, points=7, output=tmp_path / "line.h5", **OPTIONS)
    two = barrier(a, b, callback_fn, points=7, device_ids=[0, 1], progress=False, plan=tmp_path / "line.h5")
    assert (two.height, two.stderr, two.at) == (one.height, pytest.approx(one.stderr, rel=1e-9), one.at)


@pytest.mark.slow
def test_wrong_arguments_say_what_is_right():
    a, b = trained(0), trained(1)
    for other, options, error, text in (
        (b, {"points": 2}, ValueError, "points must be an int of at least 3"),
        (b, {"margin": 0.5}, TypeError, "unexpected keyword argument 'margin'"),
        (a, {}, PlaneError, "have the same weights"),
    ):
        with pytest.raises(error, match=text):
            barrier(a, other, callback_fn, **options, **OPTIONS)
    with pytest.raises(ValueError, match="the landscape is a plane"):
        Barrier.of(evaluate(random_plane(a), callback_fn, size=3, **OPTIONS))
    beyond = evaluate(line_between(a, b), callback_fn, x=[0, 0.5, 1.5], **OPTIONS)
    with pytest.raises(ValueError, match="must have points at 0 and at 1"):
        Barrier.of(beyond)


def test_barrier_draws_itself():
    found = barrier(trained(0), trained(1), callback_fn, points=5, **OPTIONS)
    ax = found.plot({"again": found}, title="both")
    texts = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert texts == [f"{name}: barrier {found.height:.3g} ± {found.stderr:.2g}" for name in ("straight", "again")]
    arrows = [text for text in ax.texts if text.arrow_patch is not None]
    (x, top), (foot_x, foot) = arrows[0].xy, arrows[0].xyann
    assert (x, foot_x, top - foot) == pytest.approx((found.at, found.at, found.height))
    assert ax.get_title() == "both"
    assert ax.get_yscale() == "linear"


def test_an_infinite_loss_on_the_way_is_an_infinite_barrier():
    ends = {"w": np.array([-1.0])}, {"w": np.array([1.0])}

    def wall_between():
        return FunctionEvaluator(lambda arrays: np.inf if abs(arrays["w"][0]) < 0.3 else 1.0, ends[0])

    with pytest.warns(UserWarning, match="the loss is infinite between the two networks, and so is the barrier"):
        found = barrier(*ends, wall_between, points=9, device_ids=[0], progress=False)
    assert found.height == math.inf
