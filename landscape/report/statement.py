"""A sentence of a report, and the evidence for its number: arrays of a file, and a formula over them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import MetricName

from ..comparison.statistics import Estimate
from ..curvature.data import CurvatureData
from ..facts import samples_of
from ..grid.data import LandscapeData
from ..grid.landscape_file import checkpoint_columns

EXACT = "exact but for rounding"
OVER_SAMPLES = "95 % interval over samples"
BY_RESIDUAL = "its residual: a true eigenvalue lies within"
FEWEST = 30  # samples, with fewer of which nothing is concluded from a mean: Student's interval needs about so many
_SKEWED = 25  # and so many times the square of the skewness, where that is known (Cochran 1977)
_EXACT = 1e-9  # an interval that is narrower than this share of its number is but rounding, and is not written
_NARROW = 0.005  # an interval that is narrower than this share of its number is written behind ±
NEGLIGIBLE = 1e-5  # a share below which its digits say nothing
_FUNCTIONS = {
    name: getattr(np, name)
    for name in ("abs", "hypot", "isfinite", "maximum", "nanmax", "nanmin", "nanmean", "sqrt", "where")
}


@dataclass(frozen=True)
class Number:
    """A number, its interval, and what both were computed from.

    Attributes:
        value: the number.
        low: lower end of its interval; the number itself where it is exact, NaN where nobody knows.
        high: upper end.
        kind: what the interval is, such as "95 % interval over samples".
        file: the name of the file with the arrays.
        arrays: by the name in the formulas, the place of each in the file, such as "checkpoints/loss".
        formula: of the number, a NumPy expression of these arrays in float64.
        low_formula: of the lower end; "" where the number is exact.
        high_formula: of the upper end.
    """

    value: float
    low: float
    high: float
    kind: str
    file: str
    arrays: Mapping[str, str]
    formula: str
    low_formula: str = ""
    high_formula: str = ""

    @property
    def interval(self) -> str:
        """The interval in words."""
        if self.kind == EXACT:
            return EXACT
        if math.isnan(self.low):
            return f"no interval: {self.kind}"
        ends = f"± {self.half_width:.1g}" if self.is_narrower(_NARROW) else f"{self.low:.4g} to {self.high:.4g}"
        return f"{ends} ({self.kind})"

    @property
    def half_width(self) -> float:
        """Half the width of the interval; 0 where the number is exact, NaN where nobody knows."""
        return (self.high - self.low) / 2

    def is_narrower(self, share: float) -> bool:
        """Whether the interval is narrower to each side than a share of the number."""
        return 0 <= self.half_width < share * abs(self.value)


@dataclass(frozen=True)
class Statement:
    """A sentence with its number, and the picture that shows it ("" if none does)."""

    text: str
    number: Number
    picture: str = ""

    @classmethod
    def of(cls, text: str, number: Number, picture: str) -> Statement:
        """Returns the sentence that has the number, with its interval, in place of {}."""
        return cls(text.format(plus_minus(number)), number, picture)


class Unknown(str):
    """A verdict that says why the answer is not known."""


Found: TypeAlias = tuple[list[str], list[Statement]]  # the verdicts on a question, and the sentences that they rest on


@dataclass(frozen=True)
class Answer:
    """What a report says to one question.

    Attributes:
        name: of the question, such as "end".
        question: as a heading.
        verdict: the answer in a few words.
        known: whether there is one.
        statements: the sentences that it rests on.
    """

    name: str
    question: str
    verdict: str
    known: bool
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Evidence:
    """The arrays of a file by their places in it, and how many samples its values are means over."""

    file: str  # its name
    arrays: Mapping[str, NDArray[Any]]  # by place
    # How many, by the name of the data set, "" for the main one; None where the file does not say.
    samples: Mapping[str, int | None] = field(default_factory=dict)

    @classmethod
    def of_landscape(cls, landscape: LandscapeData, datasets: tuple[str, ...] = ()) -> Evidence:
        checkpoints = landscape.checkpoints
        folders: dict[str, Mapping[str, Any]] = {
            "checkpoints": {} if checkpoints is None else checkpoint_columns(checkpoints),
            "origin": landscape.origin.metrics,
            "directions": vars(landscape.directions),
        }
        for name, kept in landscape.kept_samples.items():
            folders[f"samples/{name}"] = {"loss": kept.losses(), "weight": kept.weights}
        found = {"x": landscape.x, "y": landscape.y, "status": landscape.status, **landscape.metrics}
        for folder, members in folders.items():
            found |= {f"{folder}/{name}": values for name, values in members.items()}
        arrays = {place: np.asarray(values) for place, values in found.items() if values is not None}
        counts = {name: samples_of(landscape.attributes, name) for name in ("", *datasets)}
        return cls(_name(landscape), arrays, counts)

    @classmethod
    def of_curvature(cls, curvature: CurvatureData) -> Evidence:
        places = {curvature.declared[name].place: values for name, values in curvature.columns.items()}
        return cls(_name(curvature), places, {"": curvature.attributes.get("num_samples")})

    def exact(self, formula: str, /, **places: str) -> Number:
        return self.number(formula, kind=EXACT, **places)

    def mean(self, formula: str, error: str, /, *datasets: str, **places: str) -> Number:
        """Returns a mean over samples of data sets, or a difference of such means, with its 95 % interval.

        Where the file lacks an array of the error, there is none. The smallest set gives Student's degrees of freedom.
        """
        there = {name: place for name, place in places.items() if place in self.arrays}
        if len(there) < len(places):
            return self.number(formula, kind="the losses have no standard error", **there)
        counts = [count for name in datasets or ("",) if (count := self.samples.get(name)) is not None]
        if (fewest := min(counts, default=math.inf)) < 2:
            return self.number(formula, kind="a single sample has no standard error", **there)
        reach = Estimate(0.0, 1.0, fewest - 1).interval()[1]
        ends = (f"{formula} {sign} {reach:.6g} * {error}" for sign in "-+")
        return self.number(formula, *ends, kind=OVER_SAMPLES, **places)

    def loss_difference(self, parts: Sequence[tuple[str, int, int]]) -> Number:
        """Returns a sum of losses of checkpoints; a part is a data set, "" for the main one, a row and a sign."""
        sets = list(dict.fromkeys(name for name, *_ in parts))
        places = {f"loss_{place}": f"checkpoints/{MetricName('loss', dataset=name)}" for place, name in enumerate(sets)}
        signed = (f"{'-' if sign < 0 else '+'} loss_{sets.index(name)}[{row}]" for name, row, sign in parts)
        formula = " ".join(signed).removeprefix("+ ")
        errors = {f"{key}_stderr": place.replace("/loss", "/loss_stderr") for key, place in places.items()}
        squares = " + ".join(f"loss_{sets.index(name)}_stderr[{row}] ** 2" for name, row, _ in parts)
        return self.mean(formula, f"sqrt({squares})", *sets, **places, **errors)

    def eigenvalue(self, place: int, row: int = 0, *, form: str = "{}", kind: str = BY_RESIDUAL) -> Number:
        """Returns an eigenvalue of a curvature, or a formula of it, with its residual."""
        value, residual = f"values[{row}, {place}]", f"residuals[{row}, {place}]"
        formulas = (form.format(text) for text in (value, f"{value} - {residual}", f"{value} + {residual}"))
        return self.number(*formulas, kind=kind, values="eigenvalues", residuals="residuals")

    def number(self, formula: str, low: str = "", high: str = "", /, *, kind: str, **places: str) -> Number:
        """Returns a number by its formula, and the ends of its interval by theirs."""
        # Losses of samples are kept in float32, in which second differences would be rounding.
        known = {name: np.asarray(self.arrays[place], np.float64) for name, place in places.items()}

        def computed(text: str) -> float:
            # Only the formulas of this room come here; a reader can type the same text.
            with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
                warnings.simplefilter("ignore", RuntimeWarning)  # of a mean over nothing
                return float(eval(text, {**_FUNCTIONS, **known}))

        value = computed(formula)
        without = value if kind == EXACT else math.nan
        ends = (computed(low), computed(high)) if low else (without, without)
        return Number(value, *ends, kind, self.file, places, formula, low, high)


def plus_minus(number: Number) -> str:
    """Returns a number with its interval, for a sentence: with as many digits as the interval leaves."""
    if number.low == number.high or math.isnan(number.low) or number.is_narrower(_EXACT):
        return f"{number.value:.4g}"
    if number.is_narrower(_NARROW):
        return f"{number.value:.4g} ± {number.half_width:.1g}"
    return f"{number.value:.3g} ({number.low:.3g} to {number.high:.3g})"


def few_samples(count: int) -> str:
    """Returns why so many samples are too few for Student's interval; nothing where they are not."""
    are = "sample is" if count == 1 else "samples are"
    return f"{count} {are} too few, at least {FEWEST} are needed" if count < FEWEST else ""


def deviations(values: NDArray[Any], weights: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """Returns what each value adds to the error of their mean, as far as it counts; in the mean as much as it does."""
    weights = np.ones(len(values)) if weights is None else weights * len(weights) / weights.sum()
    return np.asarray(weights * (values - (weights * values).mean()))


def too_few(values: NDArray[Any], share: float = 1.0, weights: NDArray[Any] | None = None) -> str:
    """Returns why Student's interval of a mean is not to be trusted; ``share`` is that of the interval's variance."""
    count = len(values)
    if few := few_samples(count):
        return few
    # A sample that counts much is its own mean, so that its deviation is small (Kish 1965).
    if weights is not None and (effective := float(weights.sum() ** 2 / (weights**2).sum())) < FEWEST:
        return f"their weights make the {count:,} samples as few as {effective:.3g}, at least {FEWEST} are needed"
    each = deviations(values, weights)
    spread = float(each.std())
    skewness = float((((each - each.mean()) / spread) ** 3).mean()) if spread > 0 else 0.0
    if count < (needed := math.ceil(_SKEWED * skewness**2 * share**3)):
        return f"a few of the samples weigh most: an interval takes {needed:,} samples, but there are {count:,}"
    return ""


def percent(share: Number) -> str:
    if 0 <= share.value < NEGLIGIBLE:
        return f"less than {100 * NEGLIGIBLE:g} %"
    scaled = replace(share, value=100 * share.value, low=100 * share.low, high=100 * share.high)
    return f"{plus_minus(scaled)} %"


def _name(data: LandscapeData | CurvatureData) -> str:
    return "" if data.path is None else data.path.name
