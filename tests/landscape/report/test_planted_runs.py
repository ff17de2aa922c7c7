"""A report on runs whose answers are known, and on runs that cannot tell: there it says so."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted_runs import (
    Point,
    Surface,
    answers,
    bowl,
    checked_answers,
    measuring_of,
    moves,
    of_numbers,
    spiral,
    train,
    turned,
    two_sets,
)
from torch import nn

from landscape import SummaryLandscape
from landscape.report.path import answer_gap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:num_samples is", "ignore:the two random directions have a cosine"),
    pytest.mark.filterwarnings("ignore:the path is nearly straight", "ignore:loss hardly differs between batches"),
]


def well():
    """Returns a loss that bends by 1 around -2 and by 30 around 2."""

    def height(outputs, _targets):
        flat, sharp = ((outputs + 2) ** 2).sum(1) / 2, 15 * ((outputs - 2) ** 2).sum(1)
        return torch.minimum(flat, sharp) + 1

    return Surface(height)


class InHalves(Surface):
    """Its elements are two of each sample, in one row."""

    def forward(self, outputs, targets):
        values = self.height_of(outputs, targets).repeat_interleave(2)
        return values.mean() if self.reduction == "mean" else values


class NoSecondDerivative(torch.autograd.Function):
    """The identity, which can be differentiated once."""

    @staticmethod
    def forward(context, values):
        return values.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, gradient):
        return gradient.clone()


def spike():
    points, number = np.full((25, 4), 2.0), np.arange(1, 25)
    points[0, 1] += 40
    points[1:, :2] += np.stack([3 * np.exp(-number / 40), 0.3 * np.exp(-number / 3)], axis=1)
    return points


def slope():
    points, number = np.full((25, 2), 2.0), np.arange(12)
    points[:12] += np.stack([np.linspace(-0.5, 0, 12), 0.45 * np.cos(number) * np.exp(-number / 3)], axis=1)
    points[12:] += 1e-4 * np.random.default_rng(0).normal(size=(13, 2))
    return points


def lowered():
    points = np.full((51, 4), 2.0)
    points[:40, :2] += np.stack([np.ones(40), 0.5 * np.cos(np.arange(40) / 2)], axis=1)
    points[0, 0] += 3
    points[40:] += 1e-7 * np.random.default_rng(1).normal(size=(11, 4))
    return points


def growing():
    points = spiral(4)
    points[6:, 2] += 2.0 ** np.arange(7)
    return points


def there_and_back():
    points, height = np.full((21, 4), 2.0), np.sin(np.linspace(0, np.pi, 21))
    points[:, :2] += np.stack([2 * height, height**2], axis=1)
    points[-1] = points[0]
    return points


def an_end(verdict, *bends, points=None, data=None, loss=None, height=1.0):
    """Returns a case: by default a spiral into a minimum, seen by 200 samples."""
    points, data = spiral(4) if points is None else points, moves(200, 4) if data is None else data
    return verdict, points, loss or bowl(*bends or (1, 2, 3, 4), height=height), data


MINIMUM = "a minimum on these 200 samples: the loss bends up in every direction of its 4 trainable weights"
FLAT = "flat on these 200 samples: in its lowest direction the loss bends by less.*"
ENDS = {
    "a minimum": an_end(f"{MINIMUM};.*"),
    "a minimum that test samples confirm": an_end(MINIMUM, data=two_sets(moves(200, 4), count=100)),
    "samples under two names": an_end(
        f"{MINIMUM}; a second data set would tell whether it is one on other samples too",
        data={"train": moves(200, 4), "test": moves(200, 4)},
    ),
    "a loss whose elements are not the samples": an_end(
        "not known: .*the loss has no value for each sample, so its curvature has no interval",
        loss=InHalves(bowl(1, 2, 3, 4).height_of),
    ),
    "a loss that grows without an end": an_end(
        "not known: the gradient is not zero there, and the loss .*ris.*", points=growing(),
    ),
    "a saddle": an_end("a saddle on these 200 samples: the loss bends down in at least one direction.*", 1, 2, 3, -0.5),
    "a maximum": an_end(
        "a maximum on these 200 samples.*", -1, -2, -3, -4, height=5.0, points=spiral(4, start=0.5)
    ),
    "a direction that hardly bends up": an_end(FLAT, 1, 2, 3, 0.001),
    "a direction that hardly bends down": an_end(FLAT, 1, 2, 3, -0.01),
    "a loss that still falls": an_end(
        "still falling: from epoch 4 to epoch 8 a straight line .* changes by -.*", points=spiral(4, start=3.0)[:-4]
    ),
    # One step of the rate 1 / 100 gains next to nothing, but the loss falls from one checkpoint to the next.
    "a flat valley": an_end(
        "still falling: from epoch 8 to epoch 12 a straight line .* changes by -.*", 100, 100, 0.1, height=0.1,
        points=turned(spiral(3, start=0.2), 2, 6, 1), data=moves(200, 3, spread=0.02),
    ),
    "nothing but a direction that does not bend": an_end(FLAT, 1, 2, 3, 0.0),
    "a loss of zero": an_end(f"{MINIMUM};.*", 1, 2, 3, 4, height=0.0, data=moves(200, 4, spread=0.0)),
    # The first loss is a thousand times all others, which still fall.
    "a fall behind a spike": an_end("still falling: from epoch 18 to epoch 24 .*", points=spike()),
    "a slope that bends down": an_end(
        "not known: the gradient is not zero there, but .*", points=slope(), data=moves(200, 2, spread=0.01),
        loss=Surface(lambda at, _targets: 50 * (at[:, 1] - 2) ** 2 + torch.sin(2 * at[:, 0] - 4 + 0.75 * math.pi) + 2),
    ),
    "a rate that was lowered": an_end(f"{MINIMUM};.*", points=lowered()),
    "a way back to the start": an_end(f"{MINIMUM};.*", points=there_and_back()),
    "too few samples": an_end("not known: 12 samples are too few, at least 30 are needed", data=moves(12, 4)),
    "samples that disagree": an_end(
        "not known: the lowest curvature may be chance, with so few samples", data=moves(100, 4, spread=0.05),
        loss=of_numbers(
            lambda outputs, drawn: 2 + ((outputs[:, :3] - 2) ** 2).sum(1) / 2 + drawn * (outputs[:, 3] - 2) ** 2 / 2,
            np.random.default_rng(0).normal(0.1, 2.0, 100),
        ),
    ),
    "no second derivatives": an_end(
        "not known: .*has none.*", data=moves(100, 4),
        points=np.concatenate([spiral(4)[:-4], spiral(4)[-1] + 1e-3 * np.eye(4)]),
        loss=Surface(lambda outputs, _targets: 1 + NoSecondDerivative.apply(outputs - 2).pow(2).sum(1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("verdict", "points", "loss", "data"), ENDS.values(), ids=ENDS)
def test_the_end(tmp_path, verdict, points, loss, data):
    found = answers(tmp_path, points, loss, data)
    assert re.fullmatch(verdict, found["end"].verdict)
    assert found["end"].known != verdict.startswith("not known")
    if verdict.startswith(MINIMUM):
        lowest = found["end"].statements[2].number
        assert lowest.low <= 1 <= lowest.high
    elif verdict.startswith("a saddle"):
        assert "bends by -0.5" in found["end"].statements[3].text
    elif verdict.startswith("a maximum"):
        assert not any("lowers" in statement.text for statement in found["end"].statements)
    elif "has none" in verdict:
        assert found["flatness"].known
        assert found["flatness"].verdict.startswith("at a distance of 2 from the end the loss differs by ")


@pytest.mark.parametrize("height", [-3.0, 0.0])
def test_a_constant_in_the_loss_changes_no_answer(tmp_path, height):
    data = moves(200, 4, spread=0.4)
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4, height=height), data)
    assert found["end"].verdict.startswith("a minimum on these 200 samples")
    falling = moves(200, 4, spread=0.1)
    found = answers(tmp_path / "falling", spiral(4)[:-4], bowl(1, 2, 3, 4, height=height), falling)
    assert found["end"].verdict.startswith("still falling")


def test_a_loss_that_rises_at_the_end_is_not_falling_and_nothing_has_overfitted(tmp_path):
    points = spiral(4)
    points[-1] += [1, 1, 0, 0]
    found = answers(tmp_path, points, bowl(1, 2, 3, 4), two_sets(moves(200, 4)))
    assert not found["end"].known
    assert "the gradient is not zero there" in found["end"].verdict
    assert "overfitted" not in found["gap"].verdict


def test_a_path_that_the_plane_shows_and_one_that_it_does_not(tmp_path):
    shown = answers(tmp_path / "shown", spiral(4), bowl(1, 2, 3, 4), moves(200, 4))["path"]
    assert shown.verdict == "the plane shows the path: it holds 100.0 % of its variance"
    # Checkpoints that all lie at right angles to each other have no plane.
    walk = 2 + np.vstack([3 * np.eye(25), np.zeros((1, 25))])
    hidden = answers(tmp_path / "hidden", walk, bowl(*[1.0] * 25), moves(200, 25))["path"]
    assert hidden.verdict.startswith("the plane does not show the path: it holds ")
    points = spiral(4)
    points[5, 2] += 0.01
    nearly = answers(tmp_path / "nearly", points, bowl(1, 2, 3, 4), moves(200, 4))["path"]
    assert re.match(r"the plane shows the path: it holds 99\.99\d* % of its variance", nearly.verdict)


def test_the_plane_has_a_lower_point_than_the_end(tmp_path):
    points = turned(spiral(4), 0, 0, 1.5)
    lowest = answers(tmp_path, points, bowl(1, 2, 3, 4), moves(200, 4))["path"].statements[-1]
    assert lowest.text.startswith("The loss of the lowest measured point of the plane (x = ")
    assert lowest.number.high < 0


def hard():
    inputs, targets = moves(200, 4, seed=1)
    inputs[:2] += 5
    return inputs, targets


def skewed():
    """Returns samples whose losses are skewed, and so small that they do not count beside others."""
    inputs, targets = moves(40, 4, spread=1e-2, seed=1)
    inputs[0] *= 20
    return inputs, targets


def batched(outputs, targets):
    """Returns a loss without values of single samples."""
    return bowl(1, 2, 3, 4)(outputs, targets)


HIGHER = r"the loss on test is \S+ higher than on train"
# The data and the verdict; also what is said since, and points and loss of the run where they are not the usual ones.
GAPS = {
    "overfitting": (
        two_sets(moves(200, 4), shift=0.4),
        f"{HIGHER}, and has risen while that on train has not: the network has overfitted",
        "On test the loss was lowest at .* Since then it has changed by .*",
    ),
    "harder samples": (
        two_sets(moves(200, 4), spread=0.5), HIGHER, "On test the loss is lowest at the last checkpoint.*",
    ),
    "easier samples": (two_sets(moves(200, 4, spread=0.5)), r"the loss on test is \S+ lower than on train.*"),
    "one data set": (moves(200, 4), "not known: callback_fn returns one data set"),
    "too few samples": (two_sets(moves(200, 4), count=4), "not known .*4 samples are too few, at least 30.*"),
    "a training loss that rises too": (
        {"train": moves(200, 4), "test": moves(200, 4, shift=0.5, seed=1)},
        ".*, and has risen by more than on train: the network has overfitted", "", turned(spiral(4), 1, 0, 1),
    ),
    "losses without a standard error": (
        two_sets(moves(40, 4), count=40, spread=0.3), "not known on test: the losses have no standard error", "",
        spiral(4), batched,
    ),
    "equal sets": (two_sets(moves(200, 4), seed=0), "not known .*the interval of the difference holds 0"),
    "samples of the training that hardly differ": (
        {"train": skewed(), "test": moves(200, 4, spread=0.5, seed=1)}, HIGHER,
    ),
    "a few hard samples": (
        {"train": moves(200, 4), "test": hard()}, "not known .*a few of the samples weigh most: .* on test",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GAPS.values(), ids=GAPS)
def test_the_gap(tmp_path, case):
    data, verdict, *more = case
    since, points, loss = [*more, *("", spiral(4), bowl(1, 2, 3, 4))[len(more) :]]
    gap = answers(tmp_path, points, loss, data)["gap"]
    assert re.fullmatch(verdict, gap.verdict)
    assert gap.known != verdict.startswith("not known")
    assert not since or re.fullmatch(since, gap.statements[1].text)


def test_a_gap_without_the_losses_of_samples_says_what_is_not_known_of_them(tmp_path):
    measuring = measuring_of(tmp_path, spiral(4), bowl(1, 2, 3, 4), two_sets(moves(200, 4), shift=0.4))
    findings = measuring.findings(None)
    (verdict,), _ = answer_gap(findings)
    (without,), _ = answer_gap(replace(findings, bottom=None))
    assert without == f"{verdict}; how skewed the losses of the samples are, and how much each counts, is not known"


def ends(folder, at, count):
    runs = []
    for number in range(count):
        points = spiral(4, end=at, start=0.5)
        points += np.random.default_rng(number).normal(scale=0.01, size=points.shape)
        runs.append(train(folder / f"{at}_{number}", points))
    return runs


@pytest.mark.parametrize(
    ("seeds", "verdict"),
    [(3, "flat is flatter"), (2, "not known for sharp and flat: an interval needs at least 3 networks of each.*")],
)
def test_the_sharper_of_two_recipes(tmp_path, seeds, verdict):
    recipes = {"sharp": ends(tmp_path, 2.0, seeds), "flat": ends(tmp_path, -2.0, seeds)}
    found = answers(tmp_path, spiral(4, start=0.5), well(), moves(100, 4), recipes)["recipes"]
    assert re.fullmatch(verdict, found.verdict)
    assert found.known == (found.statements[0].number.low > 0) == (seeds == 3)


def test_the_sharpness_along_the_run(tmp_path):
    points = np.linspace(-2, 2, 9)[:, None] + spiral(4, end=0.0, start=0.2, count=9)
    found = answers(tmp_path, points, well(), moves(100, 4))["flatness"]
    assert found.known
    sentence = "Of 5 checkpoints the last one is the sharpest, epoch 8; its largest eigenvalue is 30"
    assert found.statements[2].text.startswith(sentence)


def test_a_direction_that_only_these_samples_bend_down_in_is_no_saddle_for_others(tmp_path):
    """The lowest of many directions bends down by chance; samples on which it was not searched tell."""
    size, count = 30, 60
    drawn = np.random.default_rng(0).normal(0.05, 1.0, (2 * count, size))
    surface = of_numbers(lambda outputs, bends: 2 + (bends * (outputs - 2) ** 2).sum(1) / 2, drawn)
    zeros, numbers = torch.zeros(count, size, dtype=torch.float64), torch.arange(count, dtype=torch.float64)
    sets = {"train": (zeros, numbers), "test": (zeros, numbers + count)}
    found = answers(tmp_path, spiral(size), surface, sets)
    assert found["end"].statements[2].number.high < 0
    assert not found["end"].known


@pytest.mark.filterwarnings("ignore")
def test_a_diverged_end_leaves_all_unknown(tmp_path):
    def height(outputs, _targets):
        return torch.where(outputs[:, 0] > 4, math.nan, ((outputs - 2) ** 2).sum(1) / 2)

    points = turned(spiral(4), 0, 0, 6)
    found = answers(tmp_path, points, Surface(height), two_sets(moves(100, 4), count=100))
    assert not found["end"].known
    assert "not finite" in found["gap"].verdict
    assert not found["flatness"].known


def test_noise_around_a_minimum_is_neither_overfitting_nor_falling(tmp_path):
    noise = np.random.default_rng(0)
    sets = two_sets(moves(200, 4, seed=1), seed=2)
    for number in range(4):
        points = 2 + 0.15 * noise.normal(size=(21, 4))
        found = answers(tmp_path / str(number), points, bowl(1, 2, 3, 4), sets)
        assert "overfitted" not in found["gap"].verdict
        assert "falling" not in found["end"].verdict


def test_the_last_quarter_is_one_of_the_training_and_not_of_the_checkpoints(tmp_path):
    points = np.concatenate([spiral(4, count=13), np.repeat(spiral(4)[-1:], 12, 0)])
    points[13:] += 1e-6 * np.random.default_rng(0).normal(size=(12, 4))
    trend = answers(tmp_path, points, bowl(1, 2, 3, 4), moves(200, 4))["end"].statements[0]
    assert trend.text.startswith(
        "From epoch 18 to epoch 24 a straight line through the losses of 7 checkpoints changes"
    )


def test_a_surface_that_is_equal_in_all_directions_is_said_to_be(tmp_path):
    ring = answers(tmp_path, spiral(4), bowl(1, 1, 1, 1), moves(200, 4))["flatness"].statements[-1].number
    assert ring.low == pytest.approx(ring.high, rel=0.03)


def report_on(folder, points, network=Point):
    def callback_fn():
        return bowl(1, 2, 3, 4), network(4), moves(200, 4), {}

    run = train(folder / "run", points, network=network)
    return SummaryLandscape(run).report(callback_fn, device_ids=[0], progress=False)


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_diverged_ends_with_its_last_finite_weights(tmp_path):
    report = report_on(tmp_path, np.concatenate([spiral(4), np.full((2, 4), np.nan)]))
    assert report.answers[1].verdict.startswith("a minimum on these 200 samples")
    why = "the weights of epochs 13 to 14 are not finite, so epoch 12 counts as the end"
    assert f"The training diverged: {why}." in report.unknown
    # It would take the last weights, which are not finite.
    assert not any("landscape run" in text for text in report.unknown)


def test_a_straight_path_leaves_the_plane_of_the_path_out(tmp_path):
    report = report_on(tmp_path, np.linspace(1, 2, 5)[:, None] * np.ones((1, 4)))
    assert [answer.known for answer in report.answers] == [False, True, True, False]
    assert report.answers[1].verdict.startswith(MINIMUM)
    assert any(text.startswith("The plane of the path: ") for text in report.unknown)


def test_a_loss_that_has_risen_along_a_straight_path_names_the_epoch(tmp_path):
    verdict = report_on(tmp_path, np.linspace(2, 3, 5)[:, None] * np.ones((1, 4))).answers[1].verdict
    assert "the loss has risen since epoch 0, from " in verdict


class Frozen(Point):
    """A point of which only the first coordinate is trained."""

    def __init__(self, size):
        super().__init__(size)
        self.first = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.weight.requires_grad_(requires_grad=False)

    def forward(self, moves):
        return super().forward(moves) + self.first


def test_weights_that_are_not_trained_have_no_eigenvalues(tmp_path):
    report = report_on(tmp_path, np.full((5, 4), 1.5), Frozen)
    assert report.answers[2].verdict.startswith("the largest eigenvalue is 10")


class Biased(Frozen):
    """A point that only a bias moves."""

    def __init__(self, size):
        super().__init__(size)
        self.first = torch.nn.Parameter(torch.ones(size, dtype=torch.float64))


def test_the_command_for_another_plane_moves_what_that_around_the_end_moved(tmp_path):
    unknown = report_on(tmp_path, np.full((5, 4), 1.5), Biased).unknown
    assert any("landscape run" in text and " --perturb-one-dimensional " in text for text in unknown)


class Logits(Point):
    """Three classes, of which the first has the logit zero."""

    def forward(self, moves):
        return nn.functional.pad(super().forward(moves), (1, 0))


def test_targets_that_are_ignored_change_no_answer(tmp_path):
    drawn, _ = moves(200, 2, spread=1.0)
    targets = torch.from_numpy(np.random.default_rng(0).integers(0, 3, 200))
    targets[::10] = -100
    weight = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=100, tolerance_grad=1e-12, tolerance_change=1e-15)
    loss = nn.CrossEntropyLoss()

    def closure():
        optimizer.zero_grad()
        value = loss(nn.functional.pad(weight + drawn, (1, 0)), targets)
        value.backward()
        return value

    optimizer.step(closure)
    points = spiral(2, end=0.0) + weight.detach().numpy()
    measuring = measuring_of(tmp_path, points, loss, (drawn, targets), Logits)
    found = checked_answers(measuring, measuring.findings(None))
    assert found["end"].verdict.startswith("a minimum on these 180 samples: the loss bends up in every direction of")
    lowest, bend = found["end"].statements[2].number, found["end"].statements[3].number
    assert bend.low <= lowest.value <= bend.high
