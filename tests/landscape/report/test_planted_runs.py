"""A report on runs whose answers are known, and on runs that cannot tell: there it says so."""

import math

import h5py
import numpy as np
import pytest
import torch
from planted_runs import Point, Surface, bowl, moves, spiral, train

from collectors.run_directory import RunDirectory
from landscape import SummaryLandscape
from landscape.record.options import checked
from landscape.report.measuring import ReportMeasuring
from landscape.report.options import ReportOptions
from landscape.report.report import answers_of
from landscape.report.statement import EXACT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:num_samples is", "ignore:the two random directions have a cosine"),
    pytest.mark.filterwarnings("ignore:the path is nearly straight"),
]


def answers(folder, points, loss, data, recipes=None, **options):
    """Returns the answers by the name of their question."""
    run = train(folder / "run", points)
    chosen = checked(ReportOptions, {"device_ids": [0], "progress": False, **options})

    def callback_fn():
        return loss, Point(points.shape[1]), data, {}

    measuring = ReportMeasuring(SummaryLandscape(run), RunDirectory(run), callback_fn, run, chosen)
    found = {answer.name: answer for answer in answers_of(measuring.findings(recipes), recipes)}
    for answer in found.values():
        for statement in answer.statements:
            check_number(statement.number, run)
    return found


def check_number(number, folder):
    """Recomputes a number and its interval from the arrays of its file."""
    if number.formula.startswith("Comparison"):
        return
    with h5py.File(folder / number.file) as file:
        arrays = {name: np.asarray(file[place][()], np.float64) for name, place in number.arrays.items()}
    for formula, expected in (
        (number.formula, number.value), (number.low_formula, number.low), (number.high_formula, number.high),
    ):  # fmt: skip
        if formula:
            np.testing.assert_equal(float(eval(formula, vars(np) | arrays)), expected)
    assert number.low_formula or math.isnan(number.low) or number.kind == EXACT


def test_a_minimum(tmp_path):
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), moves(200, 4))
    assert found["end"].known
    assert found["end"].verdict.startswith("a minimum on these 200 samples: the loss bends up in every direction;")
    lowest = found["end"].statements[2].number
    assert lowest.low <= 1 <= lowest.high


def test_a_minimum_that_test_samples_confirm(tmp_path):
    sets = {"train": moves(200, 4), "test": moves(100, 4, seed=1)}
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), sets)
    assert found["end"].known
    assert found["end"].verdict == "a minimum on these 200 samples: the loss bends up in every direction"


def test_a_saddle(tmp_path):
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, -0.5), moves(200, 4))
    assert found["end"].known
    assert found["end"].verdict.startswith(
        "a saddle on these 200 samples: the loss bends down in at least one direction"
    )
    assert "bend by -0.5" in found["end"].statements[3].text


def test_a_maximum(tmp_path):
    found = answers(tmp_path, spiral(4, start=0.5), bowl(-1, -2, -3, -4, height=5.0), moves(200, 4))
    assert found["end"].verdict.startswith("a maximum on these 200 samples")
    assert "eigenvalue" not in found["end"].statements[1].text or "lowers" not in found["end"].statements[1].text


@pytest.mark.parametrize("curvature", [0.001, -0.01])
def test_a_flat_direction_is_neither_a_minimum_nor_a_saddle(tmp_path, curvature):
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, curvature), moves(200, 4))
    assert found["end"].known
    assert found["end"].verdict.startswith("flat on these 200 samples: in its lowest direction the loss bends by less")


def test_a_loss_that_is_still_falling(tmp_path):
    found = answers(tmp_path, spiral(4, start=3.0)[:-4], bowl(1, 2, 3, 4), moves(200, 4))
    assert found["end"].known
    assert found["end"].verdict.startswith("still falling: from epoch 4 to epoch 8 the loss changed by -")


@pytest.mark.parametrize("height", [-3.0, 0.0, 5.0])
def test_a_constant_in_the_loss_changes_no_answer(tmp_path, height):
    data = moves(200, 4, spread=0.4)
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4, height=height), data)
    assert found["end"].verdict.startswith("a minimum on these 200 samples")
    falling = moves(200, 4, spread=0.1)
    found = answers(tmp_path / "falling", spiral(4)[:-4], bowl(1, 2, 3, 4, height=height), falling)
    assert found["end"].verdict.startswith("still falling")


def test_a_loss_that_falls_slowly_along_a_flat_valley(tmp_path):
    # One step of the rate 1 / 100 gains next to nothing, but the loss falls from one checkpoint to the next.
    points = spiral(3, start=0.2)
    points[:, 2] += np.linspace(6, 1, len(points))
    found = answers(tmp_path, points, bowl(100, 100, 0.1, height=0.1), moves(200, 3, spread=0.02))
    assert found["end"].known
    assert found["end"].verdict.startswith("still falling: from epoch 8 to epoch 12 the loss changed by -")


def test_a_loss_that_rises_at_the_end_is_not_falling_and_nothing_has_overfitted(tmp_path):
    points = spiral(4)
    points[-1] += [1, 1, 0, 0]
    sets = {"train": moves(200, 4), "test": moves(200, 4, seed=1)}
    found = answers(tmp_path, points, bowl(1, 2, 3, 4), sets)
    assert not found["end"].known
    assert "the gradient is not zero there" in found["end"].verdict
    assert "overfitted" not in found["gap"].verdict


def test_a_path_that_the_plane_shows_and_one_that_it_does_not(tmp_path):
    shown = answers(tmp_path / "shown", spiral(4), bowl(1, 2, 3, 4), moves(200, 4))["path"]
    assert shown.verdict == "the plane shows the path: it holds 100 % of its variance"
    # Checkpoints that all lie at right angles to each other have no plane.
    walk = 2 + np.vstack([3 * np.eye(25), np.zeros((1, 25))])
    hidden = answers(tmp_path / "hidden", walk, bowl(*[1.0] * 25), moves(200, 25))["path"]
    assert hidden.verdict.startswith("the plane does not show the path: it holds ")


def test_the_plane_has_a_lower_point_than_the_end(tmp_path):
    points = spiral(4)
    points[:, 0] += np.linspace(0, 1.5, len(points))
    lowest = answers(tmp_path, points, bowl(1, 2, 3, 4), moves(200, 4))["path"].statements[-1]
    assert lowest.text.startswith("The lowest measured point of the plane, at x = ")
    assert lowest.number.high < 0


def test_a_gap_without_and_with_overfitting(tmp_path):
    sets = {"train": moves(200, 4), "test": moves(200, 4, shift=0.4, seed=1)}
    overfitted = answers(tmp_path / "over", spiral(4), bowl(1, 2, 3, 4), sets)["gap"]
    assert overfitted.known
    assert "higher than on train" in overfitted.verdict
    assert overfitted.verdict.endswith("and has risen while the other has not: it has overfitted")
    assert overfitted.statements[1].text.endswith(" since.")
    harder = {"train": moves(200, 4), "test": moves(200, 4, spread=0.5, seed=1)}
    gap = answers(tmp_path / "gap", spiral(4), bowl(1, 2, 3, 4), harder)["gap"]
    assert gap.known
    assert "higher than on train" in gap.verdict
    assert gap.statements[1].text.startswith("On test no checkpoint is lower than the last one")


def test_a_test_set_that_is_easier(tmp_path):
    sets = {"train": moves(200, 4, spread=0.5), "test": moves(200, 4, seed=1)}
    gap = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), sets)["gap"]
    assert gap.known
    assert "lower than on train" in gap.verdict


def well():
    """Returns a loss that bends by 1 around -2 and by 30 around 2."""

    def height(outputs, _targets):
        flat, sharp = ((outputs + 2) ** 2).sum(1) / 2, 15 * ((outputs - 2) ** 2).sum(1)
        return torch.minimum(flat, sharp) + 1

    return Surface(height)


def ends(folder, at, count):
    runs = []
    for number in range(count):
        points = spiral(4, end=at, start=0.5)
        points += np.random.default_rng(number).normal(scale=0.01, size=points.shape)
        runs.append(train(folder / f"{at}_{number}", points))
    return runs


def test_the_sharper_of_two_recipes(tmp_path):
    recipes = {"sharp": ends(tmp_path, 2.0, 3), "flat": ends(tmp_path, -2.0, 3)}
    found = answers(tmp_path, spiral(4, start=0.5), well(), moves(100, 4), recipes)["recipes"]
    assert found.known
    assert found.verdict == "flat is flatter"
    assert found.statements[0].number.low > 0


def test_the_sharpness_along_the_run(tmp_path):
    found = answers(
        tmp_path, np.linspace(-2, 2, 9)[:, None] + spiral(4, end=0.0, start=0.2, count=9), well(), moves(100, 4)
    )
    assert found["flatness"].known
    text = found["flatness"].statements[2].text
    assert text.startswith(
        "Of 5 checkpoints none is sharper than the last one, epoch 8, with a largest eigenvalue of 30"
    )


# What cannot be told.


def test_one_data_set_leaves_the_gap_unknown(tmp_path):
    gap = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), moves(200, 4))["gap"]
    assert not gap.known
    assert gap.verdict == "not known: callback_fn returns one data set"


@pytest.mark.parametrize(("count", "seed"), [(4, 1), (200, 0)])
def test_too_few_test_samples_leave_the_gap_unknown(tmp_path, count, seed):
    sets = {"train": moves(200, 4), "test": moves(count, 4, seed=seed)}
    gap = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), sets)["gap"]
    assert not gap.known
    few, wide = "4 samples are too few, at least 30", "the interval of the difference holds 0"
    assert (few if count < 30 else wide) in gap.verdict


def test_losses_without_a_standard_error_leave_the_gap_and_the_curvature_unknown(tmp_path):
    surface = bowl(1, 2, 3, 4)
    sets = {"train": moves(40, 4), "test": moves(40, 4, spread=0.3, seed=1)}
    found = answers(tmp_path, spiral(4), lambda outputs, targets: surface(outputs, targets), sets)
    assert not found["gap"].known
    assert found["gap"].verdict == "not known on test: the losses have no standard error"
    assert not found["end"].known


def test_a_few_hard_samples_leave_the_gap_unknown(tmp_path):
    inputs, targets = moves(200, 4, seed=1)
    inputs[:2] += 5
    gap = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), {"train": moves(200, 4), "test": (inputs, targets)})["gap"]
    assert not gap.known
    assert "a few samples make most of it" in gap.verdict


def test_too_few_samples_leave_the_sign_of_the_curvature_unknown(tmp_path):
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), moves(12, 4))
    assert not found["end"].known
    assert found["end"].verdict == "not known: 12 samples are too few, at least 30 are needed"


def test_a_direction_that_only_these_samples_bend_down_in_is_no_saddle_for_others(tmp_path):
    """The lowest of many directions bends down by chance; samples on which it was not searched tell."""
    size, count = 30, 60
    drawn = torch.from_numpy(np.random.default_rng(0).normal(0.05, 1.0, (2 * count, size)))

    def height(outputs, targets):
        return 2 + (drawn[targets.long()] * (outputs - 2) ** 2).sum(1) / 2

    zeros, numbers = torch.zeros(count, size, dtype=torch.float64), torch.arange(count, dtype=torch.float64)
    sets = {"train": (zeros, numbers), "test": (zeros, numbers + count)}
    found = answers(tmp_path, spiral(size), Surface(height), sets)
    assert found["end"].statements[2].number.high < 0
    assert not found["end"].known


def test_samples_that_disagree_leave_the_sign_of_the_curvature_unknown(tmp_path):
    drawn = torch.from_numpy(np.random.default_rng(0).normal(0.1, 2.0, 100))

    def height(outputs, targets):
        return 2 + ((outputs[:, :3] - 2) ** 2).sum(1) / 2 + drawn[targets.long()] * (outputs[:, 3] - 2) ** 2 / 2

    data = moves(100, 4, spread=0.05)
    found = answers(tmp_path, spiral(4), Surface(height), data)
    assert not found["end"].known
    assert found["end"].verdict == "not known: the lowest curvature may be chance, with so few samples"


def test_one_seed_of_each_recipe_says_which_networks_and_no_more(tmp_path):
    recipes = {"sharp": ends(tmp_path, 2.0, 2), "flat": ends(tmp_path, -2.0, 2)}
    found = answers(tmp_path, spiral(4, start=0.5), well(), moves(100, 4), recipes)["recipes"]
    assert not found.known
    assert "an interval needs at least 3 networks of each" in found.verdict


@pytest.mark.filterwarnings("ignore")
def test_a_diverged_end_leaves_all_unknown(tmp_path):
    def height(outputs, _targets):
        return torch.where(outputs[:, 0] > 4, math.nan, ((outputs - 2) ** 2).sum(1) / 2)

    points = spiral(4)
    points[:, 0] += np.linspace(0, 6, len(points))
    found = answers(tmp_path, points, Surface(height), {"train": moves(100, 4), "test": moves(100, 4, seed=1)})
    assert not found["end"].known
    assert "not finite" in found["gap"].verdict
    assert not found["flatness"].known


class NoSecondDerivative(torch.autograd.Function):
    """The identity, which can be differentiated once."""

    @staticmethod
    def forward(context, values):
        return values.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, gradient):
        return gradient.clone()


def test_a_loss_without_second_derivatives_leaves_the_curvature_unknown(tmp_path):
    loss = Surface(lambda outputs, _targets: 1 + NoSecondDerivative.apply(outputs - 2).pow(2).sum(1))
    points = spiral(4)
    points[-4:] = points[-1] + 1e-3 * np.eye(4)
    found = answers(tmp_path, points, loss, moves(100, 4))
    assert not found["end"].known
    assert "has none" in found["end"].verdict
    assert found["flatness"].known
    assert found["flatness"].verdict.startswith("at the distance 2 around it the loss differs by ")


def test_noise_around_a_minimum_is_neither_overfitting_nor_falling(tmp_path):
    noise = np.random.default_rng(0)
    sets = {"train": moves(200, 4, seed=1), "test": moves(200, 4, seed=2)}
    for number in range(4):
        points = 2 + 0.15 * noise.normal(size=(21, 4))
        found = answers(tmp_path / str(number), points, bowl(1, 2, 3, 4), sets)
        assert "overfitted" not in found["gap"].verdict
        assert "falling" not in found["end"].verdict


def test_the_last_quarter_is_one_of_the_training_and_not_of_the_checkpoints(tmp_path):
    points = np.concatenate([spiral(4, count=13), np.repeat(spiral(4)[-1:], 12, 0)])
    points[13:] += 1e-6 * np.random.default_rng(0).normal(size=(12, 4))
    trend = answers(tmp_path, points, bowl(1, 2, 3, 4), moves(200, 4))["end"].statements[0]
    assert trend.text.startswith("From epoch 18 to epoch 24 the loss changed by ")


def test_a_surface_that_is_equal_in_all_directions_is_said_to_be(tmp_path):
    ring = answers(tmp_path, spiral(4), bowl(1, 1, 1, 1), moves(200, 4))["flatness"].statements[-1].number
    assert ring.low == pytest.approx(ring.high, rel=0.03)


@pytest.mark.filterwarnings("ignore")
def test_a_training_that_diverged_ends_with_its_last_finite_weights(tmp_path):
    points = np.concatenate([spiral(4), np.full((2, 4), np.nan)])
    run = train(tmp_path / "run", points)
    report = SummaryLandscape(run).report(
        lambda: (bowl(1, 2, 3, 4), Point(4), moves(200, 4), {}), device_ids=[0], progress=False
    )
    assert report.answers[1].verdict.startswith("a minimum on these 200 samples")
    why = "the weights of epochs 13 to 14 are not finite, so epoch 12 counts as the end"
    assert f"The training diverged: {why}." in report.unknown


def test_a_straight_path_leaves_the_plane_of_the_path_out(tmp_path):
    points = np.linspace(1, 2, 5)[:, None] * np.ones((1, 4))
    run = train(tmp_path / "run", points)
    report = SummaryLandscape(run).report(
        lambda: (bowl(1, 2, 3, 4), Point(4), moves(200, 4), {}), device_ids=[0], progress=False
    )
    assert [answer.known for answer in report.answers] == [False, False, True, False]
    assert any(text.startswith("The plane of the path: ") for text in report.unknown)
