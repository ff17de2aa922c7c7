"""What a comparison file holds, in memory: the loss along lines through networks, and the numbers made of it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from collectors.networks.batches import sample_count
from collectors.shapes import Float64, Int64, UInt8
from collectors.validation import check_float, check_instance, check_int
from workers.metric_names import name_in_group
from workers.users_code import warn_user

from ..errors import error_message
from ..record.checks import PointStatus, check_axis
from ..record.hdf5 import COMPARISON
from ..record.record import Record, column

TRACE_LINES = "trace_lines"
"""The attribute that says of how many lines each network's trace was made, by the SHA-256 of its weights."""
RISE = "rise_at_radius"
TRACE = "trace"
_LARGEST = 1e60  # squares of squares of it are numbers still
MOST_BLOCKS = 64
_MOST_SAMPLES = 2**53
_NAMED = 8
_LINE = ("network", "direction")


class ComparisonData(Record, kind=COMPARISON, coordinates=("t",), key=("recipe", "sha256")):
    """The loss along lines through n networks, in arrays that ``Comparison`` explains; NaN where not measured."""

    t: Float64[np.ndarray, " points"] = column("t")
    loss: Float64[np.ndarray, "n directions points"] = column(*_LINE, "t")
    status: UInt8[np.ndarray, "n directions"] = column(*_LINE, dtype=np.uint8)
    recipe: tuple[str, ...] = column("network", dtype=str, place="network/recipe")
    name: tuple[str, ...] = column("network", dtype=str, place="network/name")
    sha256: tuple[str, ...] = column("network", dtype=str, place="network/sha256")
    trace: Float64[np.ndarray, " n"] = column("network", place="network/trace")
    trace_low: Float64[np.ndarray, " n"] = column("network", place="network/trace_low")
    trace_high: Float64[np.ndarray, " n"] = column("network", place="network/trace_high")
    block_rise: Float64[np.ndarray, "n directions blocks"] = column(*_LINE, "block", place="blocks/rise")
    block_size: Float64[np.ndarray, " blocks"] = column("block", place="blocks/size")

    @property
    def trace_lines(self) -> Mapping[str, int]:
        """Of how many lines the traces were made, by the SHA-256 of the networks' weights."""
        lines = self.attributes.get(TRACE_LINES)
        return lines if isinstance(lines, Mapping) else {}

    def validate(self) -> None:
        super().validate()
        count, points = len(self.recipe), len(self.t)
        for label, texts in (("name", self.name), ("sha256", self.sha256)):
            if len(set(zip(self.recipe, texts, strict=True))) < count:
                raise ValueError(f"{label} must tell the networks of a recipe apart, but two are the same.")
        check_axis("t", self.t)
        if points < 3 or points % 2 == 0 or self.t[points // 2] != 0:
            raise ValueError(f"t must be an odd number of places, at least 3, with 0 in the middle, but got {self.t}.")
        sizes = self.block_size
        if sizes.size and not (((sizes >= 0) & (sizes < _MOST_SAMPLES)).all() and sizes.any()):
            raise ValueError(f"block_size must be how much samples count, at least 0, not all 0; got {sizes[:6]}.")
        attributes = self.attributes
        for label in ("radius", "confidence", "rise"):
            check_float(label, attributes.get(label))
        check_int("seed", attributes.get("seed"), minimum=0)
        check_int("directions", attributes.get("directions"), minimum=1, maximum=max(self.status.shape[1], 1))
        check_instance("normalization", attributes.get("normalization"), str, "a str")
        if attributes.get("num_samples") is not None:
            check_int("num_samples", attributes["num_samples"], minimum=0)
        if not 0 < attributes["confidence"] < 1:
            raise ValueError(f"confidence must be between 0 and 1, but got {attributes['confidence']}.")
        for label in ("recipes", "paired"):
            items: Any = attributes.get(label)
            for item in check_instance(label, items, list, "a list of recipes"):
                check_instance(label, item, str, "a list of recipes")
        if sorted(attributes["recipes"]) != sorted(set(self.recipe)):
            raise ValueError(f"recipes must be those of the networks, but got {attributes['recipes']}.")

    def _rescale_traces(self, before: float) -> None:
        """Makes the intervals of the traces, which were of another confidence, those of this record's."""
        from scipy.special import stdtrit

        now = self.attributes["confidence"]
        if now != before:
            degrees = np.array([self.trace_lines.get(digest, 0) for digest in self.sha256]) - 1.0
            factor = stdtrit(degrees, (1 + now) / 2) / stdtrit(degrees, (1 + before) / 2)
            for ends in (self.trace_low, self.trace_high):
                ends[:] = self.trace + factor * (ends - self.trace)

    def joined(self, stored: Self) -> Self:
        joined = super().joined(stored)
        further = range(len(self.recipe), len(joined.recipe))
        names = list(self.name)
        for row in further:
            recipe, name = joined.recipe[row], joined.name[row]
            while (recipe, name) in zip(joined.recipe, names, strict=False):
                name = f"{name} before"
            names.append(name)
        joined.name = tuple(names)
        given, before = self.attributes, stored.attributes
        recipes = list(dict.fromkeys([*given["recipes"], *joined.recipe]))
        # A recipe of which only the file has networks is paired if it was so there.
        paired = {*given["paired"], *(set(before["paired"]) - set(given["recipes"]))}
        joined._rescale_traces(before["confidence"])
        joined.attributes |= {"recipes": recipes, "paired": [name for name in recipes if name in paired]}
        if further:
            shown = ", ".join(f"{joined.recipe[row]} {names[row]}" for row in further[:_NAMED])
            warn_user(
                f"the file holds {len(further)} more networks than were given, which count too: {shown}"
                f"{', ...' if len(further) > _NAMED else ''}. Give another output= to keep both, or overwrite=True.",
            )
        return joined


@dataclass(frozen=True)
class Measure:
    text: str  # what it is; "{radius}" and "{rise}" stand for the comparison's
    lower: str = "flatter"  # what texts call a recipe for which it is lower
    higher: str = "sharper"


MEASURES = {
    RISE: Measure("rise of the loss at radius {radius:g}, the mean over directions"),
    "steepest_rise": Measure("rise of the loss at radius {radius:g}, along the steepest of the directions"),
    "radius_of_rise": Measure("radius at which the loss has risen by {rise:g}", lower="sharper", higher="flatter"),
    "loss": Measure("loss of the networks themselves", lower="lower in loss", higher="higher in loss"),
    TRACE: Measure("trace of the loss's Hessian, by random lines"),
}


def measure_text(data: ComparisonData, measure: str) -> str:
    return MEASURES[measure].text.format(radius=data.attributes["radius"], rise=data.attributes["rise"])


def left_out(data: ComparisonData, measure: str = RISE) -> dict[int, str]:
    """Returns why networks do not count; one whose trace failed counts for every other measure."""
    reasons = {}
    wanted = _wanted(data)
    for row in range(len(data.recipe)):
        states = data.status[row, :wanted]
        failures = [
            text
            for place, text in sorted(data.errors.items())
            if f"{place}/".startswith(f"network/{row}/") and (measure == TRACE or not place.endswith(f"/{TRACE}"))
        ]
        if failures:
            reasons[row] = error_message(failures[0])
        elif len(states) < wanted or (states == PointStatus.PENDING).any():
            reasons[row] = f"{int((states == PointStatus.MEASURED).sum())} of {wanted} lines are measured"
        elif (states == PointStatus.FAILED).any():
            reasons[row] = "a line failed"
        elif not (np.abs(data.loss[row, :wanted]) < _LARGEST).all():
            reasons[row] = "the loss is not a finite number along one of its lines"
    return reasons


def rows_of(data: ComparisonData, recipe: str, measure: str = RISE) -> Int64[np.ndarray, " networks"]:
    out = left_out(data, measure)
    return np.array([row for row, name in enumerate(data.recipe) if name == recipe and row not in out], np.int64)


@np.errstate(all="ignore")  # of networks that do not count
def curves_of(data: ComparisonData) -> Float64[np.ndarray, "n directions points"]:
    """Returns how far the loss rises from each network, along the directions of the last call."""
    losses = data.loss[:, : _wanted(data)]
    return np.asarray(losses - losses[:, :, [len(data.t) // 2]])


@np.errstate(all="ignore")
def rises_of(data: ComparisonData) -> Float64[np.ndarray, "n directions"]:
    """Returns the rise at the radius along each line, the mean of its two ends."""
    curves = curves_of(data)
    return np.asarray((curves[:, :, 0] + curves[:, :, -1]) / 2)


def block_rises_of(data: ComparisonData) -> Float64[np.ndarray, "n directions blocks"]:
    """Returns the rise along each line for each block of samples; one block of all where samples have no losses."""
    if not data.block_size.size:
        return rises_of(data)[:, :, np.newaxis]
    return data.block_rise[:, : _wanted(data)]


@np.errstate(all="ignore")
def values_of(data: ComparisonData, measure: str) -> Float64[np.ndarray, " n"]:
    """Returns one of ``MEASURES`` of each network; NaN where it is not measured, or where a rise is not reached."""
    if measure == TRACE:
        return data.trace
    middle = len(data.t) // 2
    if measure == "loss":
        return np.asarray(data.loss[:, 0, middle])
    if measure == "radius_of_rise":
        mean = curves_of(data).mean(1)
        both = (mean[:, middle:] + mean[:, middle::-1]) / 2
        return np.array([_first_at(data.t[middle:], curve, data.attributes["rise"]) for curve in both])
    rises = rises_of(data)
    return np.asarray(rises.mean(1) if measure == RISE else rises.max(1))


def _wanted(data: ComparisonData) -> int:
    return int(data.attributes["directions"])


def _first_at(radius: Float64[np.ndarray, " r"], curve: Float64[np.ndarray, " r"], rise: float) -> float:
    """Returns the first radius at which a curve has risen so far; between its places it is taken for a parabola."""
    if not np.isfinite(curve).all() or curve.max() < rise:
        return float("nan")
    after = int(np.argmax(curve >= rise))
    heights = np.sqrt(np.maximum(curve[after - 1 : after + 1], 0))
    return float(np.interp(np.sqrt(rise), heights, radius[after - 1 : after + 1]))


class InBlocks:
    """Gives the block of each sample: its number in the data set modulo 64."""

    # It is asked once for each batch, in order, by each worker, of which each has one.

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self, inputs: Any, targets: Any) -> Int64[np.ndarray, " samples"]:
        count = sample_count(inputs, targets)
        numbers = np.arange(self._asked, self._asked + count) % MOST_BLOCKS
        self._asked += count
        return numbers


def block_names(metrics: Container[str]) -> list[str]:
    """Returns what the losses of the blocks are called; nothing where samples are not told apart."""
    names = [name_in_group("loss", block) for block in range(MOST_BLOCKS)]
    return [name for name in names if name in metrics]
