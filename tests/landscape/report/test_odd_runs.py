"""A report on runs that are odd: no sentence is untrue, and what cannot be answered has its true reason."""

import math
import re

import numpy as np
import pytest
import torch
from planted_runs import Point, Surface, answers, bowl, checked_answers, measuring_of, moves, spiral, train

from collectors.errors import CheckpointError, RunDirectoryError
from landscape import SummaryLandscape
from landscape.record.run import Run
from landscape.report import measuring as report_measuring
from landscape.report.report import _unknown
from workers.errors import CurvatureError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:num_samples is", "ignore:the two random directions have a cosine"),
]


class Masked(Point):
    """Has a buffer that is infinite from the beginning, as the mask of an attention is."""

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("mask", torch.full((2, 2), -math.inf))


def with_nan(count):
    points = spiral(4)
    points[-count:] = math.nan
    return points


@pytest.mark.parametrize(
    ("points", "network", "last", "why"),
    [
        (spiral(4), Masked, 12, None),
        (with_nan(1), Masked, 11, "the weights of epoch 12 are not finite, so epoch 11 counts as the end"),
        (1e39 * spiral(4), Point, 12, None),
        (with_nan(3), Point, 9, "the weights of epochs 10 to 12 are not finite, so epoch 9 counts as the end"),
    ],
)
def test_what_training_made_infinite_ends_the_run(tmp_path, points, network, last, why):
    measuring = measuring_of(tmp_path, points, bowl(1, 2, 3, 4), moves(200, 4), network)
    assert measuring.numbers == list(range(last + 1))
    assert measuring.missing.get("diverged") == why


def test_checkpoints_that_are_not_finite_on_the_way_are_left_out(tmp_path):
    points = spiral(4)
    points[[0, 5]] = math.nan
    measuring = measuring_of(tmp_path, points, bowl(1, 2, 3, 4), moves(200, 4))
    findings = measuring.findings(None)
    assert measuring.numbers == [1, 2, 3, 4, *range(6, 13)]
    found = checked_answers(measuring, findings)
    assert found["end"].verdict.startswith("a minimum")
    text = "Checkpoints that were left out: epochs [0, 5], whose weights are not finite."
    assert text in _unknown(findings, tmp_path, tmp_path, measuring.chosen)
    points[:11] = math.nan
    measuring = measuring_of(tmp_path / "few", points, bowl(1, 2, 3, 4), moves(200, 4))
    with pytest.raises(CheckpointError, match="holds NaN or infinite values in 'weight'"):
        measuring.findings(None)


def test_fewer_than_three_checkpoints_are_said_to_be_too_few(tmp_path):
    text = r"fewer than three checkpoints with finite weights; it has those of epochs \[0, 1\]\. Train longer"
    with pytest.raises(RunDirectoryError, match=text):
        measuring_of(tmp_path, with_nan(11), bowl(1, 2, 3, 4), moves(200, 4))
    with pytest.raises(RunDirectoryError, match=r"it has those of epochs \[\]\."):
        measuring_of(tmp_path / "none", with_nan(13), bowl(1, 2, 3, 4), moves(200, 4))
    run = train(tmp_path / "few", spiral(4))
    for number in range(2, 13):
        (run / f"ckpt_dir/Point_{number}_epoch.safetensors").unlink()
    with pytest.raises(
        RunDirectoryError, match=r"three checkpoints; it has those of epochs \[0, 1\]\. Train longer, or"
    ):
        SummaryLandscape(run).report(lambda: None)


def test_a_loss_that_bends_down_on_a_slope_has_no_maximum_there(tmp_path):
    noise = 0.01 * np.random.default_rng(0).normal(size=(13, 3))
    loss = Surface(lambda outputs, targets: torch.log(1 + outputs**2).sum(1) + targets % 2)
    points = np.concatenate([spiral(3), spiral(3)[-1] + noise])
    found = answers(tmp_path, points, loss, moves(200, 3, spread=0.2))
    assert found["end"].verdict.startswith("not known: the gradient is not zero there")
    # Where the loss bends down everywhere, less of it is sharper; a share of a negative number would say nothing.
    (along,) = [item for item in found["flatness"].statements if item.text.startswith("Of 5 checkpoints")]
    assert re.search(
        r"epoch \d+ is the sharpest: .* -0\.\d+\. The largest eigenvalue of epoch \d+ is -0\.2", along.text
    )
    assert along.number.high < 0


def test_losses_that_are_not_finite_are_not_passed_over(tmp_path):
    def height(outputs, targets):
        low = torch.where(outputs[:, 0] > 4.5, -math.inf, ((outputs - 2) ** 2).sum(1) + targets % 2)
        return torch.where(outputs[:, 1] < 0.5, math.nan, low)

    measuring = measuring_of(tmp_path, spiral(4), Surface(height), moves(200, 4))
    with pytest.warns(UserWarning, match="the curvature at 1 of 5 epochs could not be measured"):
        findings = measuring.findings(None)
    found = checked_answers(measuring, findings)
    assert found["path"].statements[-1].text.startswith("No measured point of the plane with a finite loss is lower")
    left_out = r"at the points near it\); at \d+ points there it is not finite$"
    assert re.search(left_out, found["flatness"].verdict)
    assert any(
        text.startswith("The sharpness along the run: epoch 0: ")
        for text in _unknown(findings, tmp_path, tmp_path, measuring.chosen)
    )


@pytest.mark.filterwarnings("ignore:the budget of")
def test_a_budget_that_ends_on_the_way_is_the_reason_that_is_given(tmp_path, monkeypatch):
    measuring = measuring_of(tmp_path, spiral(4), bowl(1, 2, 3, 4), moves(200, 4))
    measure, line = SummaryLandscape.gen_curvature, report_measuring.measure_plane
    late = {"end"}

    def when_late(part, function):
        def measured(*arguments, **options):
            with monkeypatch.context() as patch:
                if part(options) in late:
                    patch.setattr(Run, "is_late", True)
                return function(*arguments, **options)

        return measured

    part = lambda options: options["name"].removeprefix("report_")  # noqa: E731
    monkeypatch.setattr(SummaryLandscape, "gen_curvature", when_late(part, measure))
    monkeypatch.setattr(report_measuring, "measure_plane", when_late(lambda _: "bottom", line))
    assert checked_answers(measuring, measuring.findings(None))["end"].verdict == (
        "not known: the budget ended before it was measured"
    )
    late.clear()
    late.add("bottom")
    measuring.missing.clear()
    findings = measuring.findings(None)
    assert checked_answers(measuring, findings)["end"].verdict == "not known: the budget ended before it was measured"
    late.clear()
    measuring.missing.clear()
    assert checked_answers(measuring, measuring.findings(None))["end"].verdict.startswith("a minimum")


def test_a_network_of_two_weights_has_no_eigenvalues_between(tmp_path):
    run = train(tmp_path / "run", spiral(2))
    report = SummaryLandscape(run).report(
        lambda: (bowl(1, 2), Point(2), moves(200, 2), {}), device_ids=[0], progress=False
    )
    assert report.answers[1].verdict.startswith("a minimum on these 200 samples")
    assert not any("of the 2 eigenvalues" in text for text in report.unknown)


class Summed(Surface):
    """The sum of a function of each sample's output and target."""

    def __init__(self, height_of):
        super().__init__(height_of)
        self.reduction = "sum"

    def forward(self, outputs, targets):
        values = self.height_of(outputs, targets)
        return {"mean": torch.mean, "sum": torch.sum, "none": lambda item: item}[self.reduction](values)


def test_sums_over_samples_bend_as_their_sum_does_and_sets_of_other_sizes_have_no_gap(tmp_path):
    sets = {"train": moves(200, 4), "test": moves(100, 4, shift=0.4, seed=1)}
    found = answers(tmp_path, spiral(4), Summed(bowl(1, 2, 3, 4).height_of), sets)
    minimum = "a minimum on these 200 samples: the loss bends up in every direction of its 4 trainable weights"
    assert found["end"].verdict == minimum
    assert [item.number.value for item in found["end"].statements[-2:]] == pytest.approx([200, 100], rel=1e-3)
    reason = "the losses are sums over samples, 100 of test and 200 of train"
    assert found["gap"].verdict == f"not known on test: {reason}"


def test_a_single_sample_has_no_interval(tmp_path):
    sets = {"train": moves(1, 4), "test": moves(1, 4, shift=0.4)}
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), sets)
    assert found["end"].verdict == "not known: 1 sample is too few, at least 30 are needed"
    assert found["gap"].verdict == "not known on test: a single sample has no standard error"
    assert found["gap"].statements[0].number.interval == "no interval: a single sample has no standard error"


def test_a_plane_that_the_budget_left_interpolated_is_said(tmp_path):
    measuring = measuring_of(tmp_path, spiral(4), bowl(1, 2, 3, 4), moves(200, 4))
    findings = measuring.findings(None)
    text = r"\d+ of 121 points of the plane of the path are only interpolated, because the budget ended"
    said = (_unknown(findings, tmp_path, tmp_path, measuring.chosen) for _ in range(2))
    assert not re.match(text, next(said)[0])
    findings.path.attributes["sampling"]["finished"] = False
    assert re.match(text, next(said)[0])


def test_a_reason_that_was_cut_keeps_its_dots(tmp_path):
    measuring = measuring_of(tmp_path, spiral(4), bowl(1, 2, 3, 4), moves(200, 4))
    for text, shown in (("none has a second ...", "none has a second ..."), ("none has one.", "none has one.")):
        with measuring._missing_after("end", CurvatureError):
            raise CurvatureError(text)
        assert f"{measuring.missing['end']}." == shown
