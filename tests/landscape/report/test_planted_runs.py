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
    found = {answer.name: answer for answer in answers_of(measuring.findings(recipes))}
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
    assert number.low_formula or number.low == number.high == number.value or math.isnan(number.value)


def test_a_minimum(tmp_path):
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), moves(200, 4))
    assert found["end"].known
    assert found["end"].verdict == "a minimum: the loss bends up in every direction"
    lowest = found["end"].statements[2].number
    assert lowest.low <= 1 <= lowest.high


def test_a_minimum_at_which_the_path_arrived_only_now(tmp_path):
    points = spiral(4)
    points[-2] = points[3]
    found = answers(tmp_path, points, bowl(1, 2, 3, 4), moves(200, 4))
    assert found["end"].verdict.startswith("a minimum")


def test_a_saddle(tmp_path):
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, -0.5), moves(200, 4))
    assert found["end"].known
    assert found["end"].verdict == "a saddle: the loss bends down in at least one direction"
    assert "bend by -0.5" in found["end"].statements[3].text


def test_a_minimum_with_a_flat_direction(tmp_path):
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 0.001), moves(200, 4))
    assert found["end"].known
    assert found["end"].verdict.startswith("a minimum, flat in some directions")


def test_a_loss_that_is_still_falling(tmp_path):
    points = spiral(4, start=3.0)
    found = answers(tmp_path, points[:-4], bowl(1, 2, 3, 4), moves(200, 4))
    assert found["end"].known
    assert found["end"].verdict.startswith("still falling: a step of gradient descent would lower the loss by ")


def test_a_loss_that_falls_slowly_along_a_flat_valley(tmp_path):
    # One step of the rate 1 / 100 gains next to nothing, but the loss falls from one checkpoint to the next.
    points = spiral(3, start=0.2)
    points[:, 2] += np.linspace(6, 1, len(points))
    found = answers(tmp_path, points, bowl(100, 100, 0.1, height=0.1), moves(200, 3, spread=0.02))
    assert found["end"].known
    assert found["end"].verdict.startswith("still falling: over the last quarter of the path")


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
    assert overfitted.statements[1].text.endswith("since: it has overfitted.")
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


def test_too_few_test_samples_leave_the_gap_unknown(tmp_path):
    sets = {"train": moves(200, 4), "test": moves(4, 4, spread=0.15, seed=1)}
    gap = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), sets)["gap"]
    assert not gap.known
    assert gap.verdict == "not known on test: the interval of the difference holds 0"


def test_too_few_samples_leave_the_sign_of_the_curvature_unknown(tmp_path):
    found = answers(tmp_path, spiral(4), bowl(1, 2, 3, 4), moves(12, 4))
    assert not found["end"].known
    assert found["end"].verdict == "not known: 12 samples are too few, at least 30 are needed"


def test_samples_that_disagree_leave_the_sign_of_the_curvature_unknown(tmp_path):
    drawn = torch.from_numpy(np.random.default_rng(0).normal(0.1, 2.0, 100))

    def height(outputs, targets):
        return 2 + ((outputs[:, :3] - 2) ** 2).sum(1) / 2 + drawn[targets.long()] * (outputs[:, 3] - 2) ** 2 / 2

    data = moves(100, 4, spread=0.0)
    found = answers(tmp_path, spiral(4), Surface(height), data)
    assert not found["end"].known
    assert "may be chance, with so few samples" in found["end"].verdict


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
    assert found["flatness"].verdict.startswith("around it the loss rises by ")
