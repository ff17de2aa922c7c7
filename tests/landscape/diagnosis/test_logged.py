"""When a measured loss is another one than training logged: laws of the comparison, with numbers that are known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from collectors.summary.recorded_values import RecordedTraining
from landscape.diagnosis.checking import logged_facts
from landscape.diagnosis.diagnosis import ComparedLoss
from landscape.diagnosis.measuring import Comparison, MeasuredLoss, compare

STEPS = {number: 10 * number for number in range(5)}


def curve(step):
    return 0.2 + 2 * math.exp(-step / 10)


def logged(noise=0.05, seed=0, steps=range(1, 41)):
    generator = np.random.default_rng(seed)
    return {step: curve(step - 1) + noise * generator.standard_normal() for step in steps}


def measured(change=lambda loss: loss, stderr=0.01):
    return {number: MeasuredLoss(change(curve(step)), stderr) for number, step in STEPS.items()}


def found(losses, known, factor=1.0):
    return compare(losses, STEPS, known, factor)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5])
def test_the_same_loss_fits_whatever_the_noise(noise, seed):
    comparison = found(measured(), logged(noise, seed))
    assert comparison.fits
    assert not comparison.does_not_fall


@pytest.mark.parametrize("factor", [2, 0.1])
def test_a_loss_that_is_much_higher_or_lower_does_not_fit(factor):
    comparison = found(measured(lambda loss: factor * loss), logged())
    assert (comparison.is_higher, comparison.is_lower) == (factor > 1, factor < 1)
    assert not comparison.does_not_fall
    assert [row.number for row in comparison.trained] == [1, 2, 3, 4]


def test_what_many_samples_show_few_leave_open():
    higher = [found(measured(lambda loss: loss + 0.3, stderr), logged()).is_higher for stderr in (0.01, 0.5)]
    assert higher == [True, False]


def test_a_loss_without_an_error_has_that_of_a_batch():
    (row, *_) = found(measured(stderr=math.nan), logged(0.1)).trained
    (other, *_) = found(measured(stderr=0.0), logged(0.1)).trained
    assert row.allowed > other.allowed
    assert "±" not in row.text("epoch")


def test_one_checkpoint_alone_decides_nothing():
    losses = measured()
    losses[4] = MeasuredLoss(50.0, 0.01)
    assert found(losses, logged()).fits
    losses = measured(lambda loss: 5 * loss)
    losses[4] = measured()[4]
    assert found(losses, logged()).fits


def test_a_loss_that_stays_where_it_was_does_not_fall():
    assert found(measured(lambda _: 2.2), logged()).does_not_fall


def test_the_factor_is_that_of_a_batch():
    sums = {step: 64 * loss for step, loss in logged().items()}
    assert not found(measured(), sums).fits
    assert found(measured(), sums, 64.0).fits


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_how_much_higher_a_loss_may_be_unnoticed(noise):
    rows, least = found(measured(), logged(noise)).rows, found(measured(), logged(noise)).least_factor
    for factor in (0.99 * least, 1.01 * least):
        losses = {row.number: MeasuredLoss(factor * row.logged, 0.01) for row in rows}
        assert found(losses, logged(noise)).is_higher == (factor > least)


@pytest.mark.parametrize(("noise", "says"), [(0.02, False), (0.3, True)])
def test_wide_ranges_are_named(noise, says):
    known = RecordedTraining(losses=logged(noise))
    texts = [fact.text for fact in logged_facts(found(measured(), known.losses), known, "epoch")]
    assert any("these ranges are wide: a loss up to" in text for text in texts) == says


def test_of_losses_around_zero_no_factor_is_named():
    known = {step: loss - 0.2 for step, loss in logged(0.0).items()} | {40: -0.5}
    assert found(measured(lambda loss: loss - 0.2), known).least_factor == math.inf


@pytest.mark.parametrize("known", [{}, {1: 2.0, 2: 1.9}, dict.fromkeys(range(40), math.nan)], ids=["no", "few", "nan"])
def test_too_few_logged_losses_decide_nothing(known):
    comparison = found(measured(), known)
    assert not comparison.decides
    assert not comparison.fits
    assert comparison.rows == ()


def test_losses_that_are_no_numbers_are_left_out():
    losses = measured() | {3: MeasuredLoss(math.nan, math.nan), 4: MeasuredLoss(math.inf, math.nan)}
    comparison = found(losses, {**logged(), 40: math.inf})
    assert [row.number for row in comparison.rows] == [0, 1, 2]
    assert comparison.fits


def test_the_interval_of_a_loss_that_is_never_negative_begins_at_zero():
    row = found(measured(), logged(0.0)).rows[-1]
    assert row.interval.startswith(f"between 0 and {row.logged + row.allowed:.3g}") or row.allowed < row.logged
    below = found(measured(lambda loss: loss - 5), {step: loss - 5 for step, loss in logged().items()}).rows[-1]
    assert below.interval.startswith("between -")


@pytest.mark.parametrize(("loss", "logs", "stays"), [
    ((-1.0, -0.5), (-1.0, -0.9), False),  # both rise
    ((-1.0, -1.0), (-1.0, -9.0), True),
    ((2.0, 2.0), (2.0, 0.5), True),
    ((2.0, 0.5), (2.0, 0.5), False),
])  # fmt: skip
def test_also_of_losses_below_zero_it_is_known_whether_they_fall(loss, logs, stays):
    rows = [
        ComparedLoss(n, m, 0.1, known, 0.1, known, known, 3) for n, m, known in zip((0, 5), loss, logs, strict=True)
    ]
    assert Comparison(tuple(rows), 0).does_not_fall == stays


def test_losses_of_another_data_set_than_the_main_one_are_called_so():
    compared = replace(found(measured(), logged()), data_set="test")
    texts = [fact.text for fact in logged_facts(compared, RecordedTraining(losses=logged()), "epoch")]
    assert all(text.startswith("on 'test', epoch ") for text in texts[:4])
    assert "those of the main data set, which pictures show first, do not fit" in texts[4]
