"""The answers of a comparison: what each recipe gives, and which of two is flatter, with intervals."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collectors.shapes import Float64

from .data import MEASURES, RISE, ComparisonData, block_rises_of, curves_of, measure_text, rises_of, rows_of, values_of
from .statistics import (
    Corrected,
    Estimate,
    bootstrap_difference,
    count_needed,
    crossed_difference,
    crossed_mean,
    holm,
    mean,
    noise_of,
    welch,
)

FEWEST = 3  # networks of a recipe, without which no interval says how well it is known
EFFECT = 0.1  # the share of the mean for which it is said how much it would need
INCONCLUSIVE = "inconclusive"
NO_INTERVAL = "no interval"
PAIRED, WELCH = "paired t", "Welch's t"
BOOTSTRAP, OF_DIRECTIONS = "bootstrap over directions and samples", "bootstrap over directions"
OF_ONE_EACH = (BOOTSTRAP, OF_DIRECTIONS)
_NOT_OF_DIRECTIONS = "the interval is over networks along these directions; other directions are not in it."
_NOT_OF_LINES = (
    "the interval is over networks along these random lines, which are the same for all; other lines are not in it."
)
_ONE_EACH = (
    "this is about these two networks, not about the recipes: another seed may turn it round. Give at least "
    f"{FEWEST} networks of each."
)


@dataclass(frozen=True)
class RecipeMean:
    """What the networks of a recipe give."""

    recipe: str
    networks: int  # how many count
    mean: float
    low: float  # lower end of its interval; NaN for fewer than three
    high: float
    spread: float  # standard deviation between networks; NaN for fewer than two
    direction_spread: float  # of the rise between the directions of one network, the mean over networks
    # How many would make what directions add to the spread's variance a tenth of that; None where they make most of it.
    directions_needed: int | None


@dataclass(frozen=True)
class Answer:
    """How two recipes differ in a measure."""

    first: str
    second: str
    measure: str  # one of ``MEASURES``
    difference: float  # how much larger it is for the first one
    low: float  # lower end of its interval; NaN where there is none
    high: float
    # Of that interval: larger than what was asked for where several pairs are looked at, so that it holds 0 exactly
    # where the verdict is "inconclusive".
    confidence: float
    p_value: float  # the chance of such a difference between equal recipes, corrected for the pairs (Holm 1979)
    method: str  # by which the interval was made
    verdict: str  # such as "sgd is flatter", or "inconclusive", or "no interval"
    reason: str  # what must be known beside it, or nothing
    # How many networks of each (or, for one network of each, directions) would show a difference of a tenth of the mean
    # in four of five cases; None where that is not known.
    needed: int | None


@dataclass(frozen=True)
class _Difference:
    """How a pair differs, its method and reason as an ``Answer`` has them, and what says how many show an effect."""

    estimate: Estimate
    method: str = ""
    reason: str = ""
    spread: float = math.nan
    effect: float = math.nan
    sides: int = 1


class Answers(tuple[Answer, ...]):
    """Answers, one for each pair of recipes; printed, and in a notebook, they are a table."""

    __slots__ = ()

    @property
    def rows(self) -> list[tuple[str, ...]]:
        heading = ("recipes", "difference", "interval", "p", "method", "verdict")
        return [heading, *(_row(answer) for answer in self)]

    def __str__(self) -> str:
        rows = self.rows
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        def line(row: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in row) + "</tr>"

        heading, *rows = self.rows
        return f"<table>{line(heading, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def recipe_means(data: ComparisonData, measure: str = RISE) -> list[RecipeMean]:
    values, rises, means = values_of(data, measure), rises_of(data), []
    for recipe in data.attributes["recipes"]:
        rows = rows_of(data, recipe, measure)
        estimate = crossed_mean(rises[rows]) if measure == RISE and len(rows) else mean(values[rows])
        low, high = estimate.interval(data.attributes["confidence"]) if len(rows) >= FEWEST else (math.nan, math.nan)
        spread = float(values[rows].std(ddof=1)) if len(rows) > 1 else math.nan
        several = len(rows) > 0 and rises.shape[1] > 1
        between = float(rises[rows].std(axis=1, ddof=1).mean()) if several else math.nan
        needed = _directions_needed(rises[rows]) if len(rows) > 1 and several else None
        means.append(RecipeMean(recipe, len(rows), estimate.value, low, high, spread, between, needed))
    return means


def band_of(
    data: ComparisonData, recipe: str
) -> tuple[Float64[np.ndarray, " points"], Float64[np.ndarray, " points"], Float64[np.ndarray, " points"]]:
    curves, unknown = curves_of(data)[rows_of(data, recipe)], np.full(len(data.t), np.nan)
    middle = curves.mean((0, 1)) if len(curves) else unknown
    if len(curves) < FEWEST:
        return middle, unknown, unknown
    ends = [crossed_mean(curves[:, :, place]).interval(data.attributes["confidence"]) for place in range(len(middle))]
    return middle, *np.array(ends).T


def answer_pairs(data: ComparisonData, measure: str = RISE) -> Answers:
    pairs = list(itertools.combinations(data.attributes["recipes"], 2))
    differences = [_difference(data, measure, pair) for pair in pairs]
    corrected = holm([found.estimate.p_value for found in differences], data.attributes["confidence"])
    return Answers(_answer(measure, *parts) for parts in zip(pairs, differences, corrected, strict=True))


def _difference(data: ComparisonData, measure: str, pair: tuple[str, str]) -> _Difference:
    rows = [rows_of(data, recipe, measure) for recipe in pair]
    of_all, lines, of_lines = values_of(data, measure), rises_of(data), measure == RISE
    values = [of_all[of_recipe] for of_recipe in rows]
    nonlinear = measure in ("steepest_rise", "radius_of_rise")
    caution = _NOT_OF_DIRECTIONS if nonlinear or (of_lines and lines.shape[1] == 1) else ""
    caution = _NOT_OF_LINES if measure == "trace" else caution
    means = [float(item.mean()) if len(item) else math.nan for item in values]
    effect = EFFECT * float(np.mean(np.abs(means)))
    counts = [len(of_recipe) for of_recipe in rows]
    unknown = Estimate(means[0] - means[1], math.nan, 0.0)
    if any(np.isnan(item).any() for item in values):
        remedy = "; measure it with trace_lines=30" if measure == "trace" and np.isnan(of_all).all() else ""
        reason = f"for some networks there is no {measure}: {measure_text(data, measure)}{remedy}"
        return _Difference(unknown, reason=reason)
    both = in_pairs(data, *pair, measure)
    if both is not None and len(both[0]) >= FEWEST:
        apart = lines[both[0]] - lines[both[1]]
        each = apart.mean(1) if of_lines else of_all[both[0]] - of_all[both[1]]
        estimate = crossed_mean(apart) if of_lines else mean(each)
        return _Difference(estimate, PAIRED, caution, float(each.std(ddof=1)), effect)
    if min(counts) >= FEWEST:
        estimate = crossed_difference(*(lines[of_recipe] for of_recipe in rows)) if of_lines else welch(*values)
        spread = math.sqrt(sum(float(item.var(ddof=1)) for item in values) / 2)
        return _Difference(estimate, WELCH, caution, spread, effect, sides=2)
    if counts == [1, 1] and of_lines:
        weights = data.block_size if data.block_size.size else np.ones(1)
        counted = weights > 0  # a block in which no sample counts has no loss
        one, other = (block_rises_of(data)[of_recipe[0]][:, counted] for of_recipe in rows)
        # Blocks tell how sure the difference is; the whole loss says what it is.
        blocks = bootstrap_difference(one, other, weights[counted], seed=int(data.attributes["seed"]))
        between = float((lines[rows[0][0]] - lines[rows[1][0]]).std(ddof=1)) if lines.shape[1] > 1 else math.nan
        method = BOOTSTRAP if data.block_size.size else OF_DIRECTIONS
        return _Difference(replace(blocks, value=unknown.value), method, _ONE_EACH, between, effect)
    few = " and ".join(f"{count} of {name}" for name, count in zip(pair, counts, strict=True) if count < FEWEST)
    return _Difference(unknown, reason=f"an interval needs at least {FEWEST} networks of each, but there are {few}")


def _answer(measure: str, pair: tuple[str, str], found: _Difference, corrected: Corrected) -> Answer:
    estimate, confidence = found.estimate, corrected.confidence
    low, high = estimate.interval(confidence)
    if math.isnan(low):
        verdict = NO_INTERVAL
    elif not corrected.differs:
        verdict = INCONCLUSIVE
    else:
        # One word for all pairs: which of the two is the flatter one.
        words, (lower, higher) = MEASURES[measure], pair if estimate.value < 0 else pair[::-1]
        verdict = f"{higher} is {words.higher}" if words.lower == "sharper" else f"{lower} is {words.lower}"
    needed = count_needed(found.spread, found.effect, confidence=confidence, floor=estimate.floor, sides=found.sides)
    return Answer(
        *pair, measure, estimate.value, low, high, confidence, corrected.p_value, found.method, verdict, found.reason,
        needed,
    )  # fmt: skip


def in_pairs(
    data: ComparisonData, first: str, second: str, measure: str = RISE
) -> tuple[Sequence[int], Sequence[int]] | None:
    """Returns the rows of the networks of two recipes that share a name; None where names say nothing."""
    if not {first, second} <= set(data.attributes["paired"]):
        return None
    one, other = ({data.name[row]: int(row) for row in rows_of(data, recipe, measure)} for recipe in (first, second))
    shared = [name for name in one if name in other]
    return [one[name] for name in shared], [other[name] for name in shared]


def _directions_needed(rises: Float64[np.ndarray, "networks directions"]) -> int | None:
    """Returns how many directions make their part of the variance between networks a tenth of that."""
    count = rises.shape[1]
    # What all networks have in common of a direction moves none of them against the others.
    by_chance = noise_of(rises)
    between = float(rises.mean(1).var(ddof=1)) - by_chance / count
    # Where directions make most of the spread, what is left for the networks is too uncertain to say.
    return math.ceil(9 * by_chance / between) if between > by_chance / count else None


def _row(answer: Answer) -> tuple[str, ...]:
    interval = "none"
    if not math.isnan(answer.low):
        interval = f"{answer.low:+.3g} to {answer.high:+.3g} ({100 * answer.confidence:.4g} %)"
    p_value = "" if math.isnan(answer.p_value) else p_text(answer.p_value)
    difference = "unknown" if math.isnan(answer.difference) else f"{answer.difference:+.3g}"
    return (f"{answer.first} - {answer.second}", difference, interval, p_value, answer.method, answer.verdict)


def p_text(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.2g}"
