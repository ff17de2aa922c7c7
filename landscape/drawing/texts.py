"""What pictures say: titles and axis labels, from attributes that may hold anything."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import UInt8
from workers.metric_names import MetricName, other_datasets

from ..grid.data import LOSS_ERROR, LandscapeData, PlaneGeometry
from ..grid.differences import Rise, highest_rise, own_values_text
from ..planes.axis_curvature import BOTTOM, FROM_THE_TOP
from ..planes.pca import is_almost_nothing, percentages
from ..record.checks import PointStatus
from ..roles import CHECKPOINT
from ..scales.levels import number_text

_MOST_NAMES = 4
_LONGEST_UNIT, _LONGEST_LABEL = 32, 96
_FULL, _LOWER = "float32", {"tf32": "TF32", "bfloat16": "bfloat16"}
_FACTORS = "factor"
# Earlier versions drew planes along the factors of a second-order optimizer.
_MATRICES = {"hessian": "Hessian", "ggn": "Gauss-Newton", "factors": _FACTORS}
# Of a plane, and of a line.
_KINDS = {
    "points": ("plane through networks", "line between networks"),
    "path": ("curve between networks", "curve between networks"),
    "custom": ("given directions", "given direction"),
    **{kind: (f"{matrix} eigenvectors", f"{matrix} eigenvector") for kind, matrix in _MATRICES.items()},
}
_OF_OPTIMIZER = "optimizer's curvature"
_PLACES = {**dict(zip(FROM_THE_TOP, ("1st", "2nd", "3rd", "4th", "5th"), strict=True)), BOTTOM: "lowest"}
WHOLE_WORDS: Any = {"break_on_hyphens": False, "break_long_words": False}
"""Arguments of ``textwrap.wrap``."""
_NORMALIZED = {"filter": "filter-normalized", "layer": "layer-normalized", "weight": "weight-normalized"}


def plain(text: object, limit: int = 48) -> str:
    """Returns text that matplotlib draws as it is: no formulas, no control characters, not too long."""
    return printable(text, limit).replace("$", r"\$")


def unescaped(text: str) -> str:
    """Returns text that matplotlib draws as other programs write it."""
    return text.replace(r"\$", "$")


def printable(text: object, limit: int) -> str:
    """Returns text without control characters, cut to at most ``limit`` letters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def in_even_lines(text: str, letters: int) -> list[str]:
    """Returns as few lines as whole words allow, of about the same length, so that no word is left alone at the end."""
    lines = textwrap.wrap(text, letters, **WHOLE_WORDS)
    for width in range(max(1, len(text) // max(len(lines), 1)), letters):
        if len(even := textwrap.wrap(text, width, **WHOLE_WORDS)) == len(lines):
            return even
    return lines


def in_phrases(text: str, letters: int) -> list[str]:
    """Returns lines that end between phrases: after a comma or a colon, or before a bracket; see ``in_even_lines``."""
    lines: list[str] = []
    for phrase in re.split(r"(?<=[,:]) | (?=\()", text):
        if lines and len(lines[-1]) + 1 + len(phrase) <= letters:
            lines[-1] += f" {phrase}"
        else:
            lines += in_even_lines(phrase, letters)
    return lines


def metric_text(landscape: LandscapeData, metric: str, write: Callable[[object], str] = plain) -> str:
    """Returns a metric in words, with the data set where the landscape has several, such as "loss on test"."""
    return write(MetricName.read(metric, landscape.metrics).text(main_dataset(landscape)))


def quantity_text(landscape: LandscapeData, metric: str) -> str:
    """Returns what a metric measures, without the data set, such as "loss"."""
    return plain(MetricName.read(metric, landscape.metrics).quantity)


def metric_label(landscape: LandscapeData, metric: str) -> str:
    """Returns what a colour bar or an axis calls a metric: an error in words, "standard error of the loss on test"."""
    name = MetricName.read(metric, landscape.metrics)
    return plain(replace(name, quantity=_in_words(name.quantity)).text(main_dataset(landscape)), _LONGEST_LABEL)


def quantity_label(landscape: LandscapeData, metric: str, *, short: bool = False) -> str:
    """Returns the label of metrics of one quantity, without the data set; ``short`` leaves out what an error is of."""
    name = MetricName.read(metric, landscape.metrics)
    words = _in_words(name.quantity)
    return plain(words.split(" of the ")[0] if short and name.is_error else words, _LONGEST_LABEL)


def _in_words(quantity: str) -> str:
    if quantity == LOSS_ERROR:
        return "interpolation error of the loss"
    measured = quantity.removesuffix("_stderr")
    return f"standard error of the {measured}" if measured != quantity else quantity


def main_dataset(landscape: LandscapeData) -> str:
    """Returns the name of the main data set where the landscape has several and the file says it, else ""."""
    found = landscape.attributes.get("datasets")
    if not other_datasets(landscape.metrics) or not isinstance(found, list | tuple) or not found:
        return ""
    first = found[0].get("name") if isinstance(found[0], Mapping) else found[0]
    return first if isinstance(first, str) else ""


def axis_label(landscape: LandscapeData, axis: int, geometry: PlaneGeometry | None = None) -> str:
    """Returns the label of axis 0 (x) or 1 (y) of a plane drawn by ``geometry``, or of one drawn by its coordinates."""
    kind = _decomposition(landscape)
    if geometry is not None:
        if axis == 1 and geometry.oblique:
            return f"distance at a right angle to it (cosine of the directions {geometry.cosine_text})"
        name = axis_label(landscape, axis)
        article = "the " if name.startswith(("first", "second")) or kind in _MATRICES else ""
        return _distance(f"{article}{name}")
    if kind == "pca":
        share = _explained(landscape, axis, "explained variance {}")
        return f"{('first', 'second')[axis]} principal direction{share}"
    if kind == "random":
        how = [_NORMALIZED.get(str(landscape.attributes.get("normalization")))]
        if landscape.attributes.get("perturb_one_dimensional"):
            how.append("biases move too")
        if landscape.attributes.get("directions_seed") is not None:
            how.append(f"seed {landscape.attributes['directions_seed']}")
        manner = ", ".join(filter(None, how))
        return f"random direction{_number(landscape, axis)}" + (f" ({manner})" if manner else "")
    if kind == "points":
        return between(landscape, axis)
    if kind == "path":
        return f"along the curve {between(landscape, axis)}"
    if kind in _MATRICES:
        return _eigenvector_label(landscape, axis)
    return f"direction{_number(landscape, axis)}"


def short_axis_label(landscape: LandscapeData, axis: int, geometry: PlaneGeometry | None = None) -> str:
    if geometry is not None and axis == 1 and geometry.oblique:
        return f"distance across (cosine {geometry.cosine_text})"
    kind, label = _decomposition(landscape), axis_label(landscape, axis)
    name = label.split(" (")[0]
    if kind == "pca":
        name = f"PC {axis + 1}" + _explained(landscape, axis, "{} of variance")
    if kind in _MATRICES:
        # Such as "1st eigenvector (λ = 36.09)".
        name = label.replace(f"{_MATRICES[kind]} ", "")
        name = name.split(" ±")[0] + (")" if " ±" in name else "")
    return name if geometry is None else _distance(name.removeprefix("random "))


def _distance(direction: str) -> str:
    says_where = direction.startswith(("towards ", "from ", "along "))
    return f"distance {direction}" if says_where else f"distance along {direction}"


def _decomposition(landscape: LandscapeData) -> str:
    return str(landscape.attributes.get("decomposition", "")).lower()


def _explained(landscape: LandscapeData, axis: int, words: str) -> str:
    ratio = landscape.explained_variance_ratio
    if ratio is None:
        return ""
    warned = ", almost nothing" if axis and is_almost_nothing(ratio) else ""
    return f" ({words.format(percentages(ratio)[axis])}{warned})"


def _number(landscape: LandscapeData, axis: int) -> str:
    return "" if landscape.y is None else f" {axis + 1}"


def between(landscape: LandscapeData, axis: int) -> str:
    """Returns between which points an axis lies, by their names where they have some."""
    found = landscape.checkpoints
    names = [] if found is None else [plain(found.name[row], 24) for row in found.networks]
    if len(names) <= axis + 1:
        return "from the first point to the second" if landscape.y is None else f"towards point {axis + 1}"
    return f"from {names[0]} to {names[axis + 1]}"


def _eigenvector_label(landscape: LandscapeData, axis: int) -> str:
    """Returns the label of axis 0 (x) or 1 (y), such as "1st Hessian eigenvector (λ = 36.09 ± 0.02)"."""
    which = _curvature_facts(landscape).get("which")
    name = which[axis] if isinstance(which, list | tuple) and len(which) > axis else None
    place = f"{_PLACES[name]} " if isinstance(name, str) and name in _PLACES else ""
    matrix = _MATRICES[_decomposition(landscape)]
    values, residuals = landscape.directions.eigenvalues, landscape.directions.residuals
    if values is None or not math.isfinite(values[axis]):
        return f"{place}{matrix} eigenvector"
    exact = "" if matrix == _FACTORS or residuals is None else residual_text(residuals[axis])
    return f"{place}{matrix} eigenvector ({_OF_OPTIMIZER if matrix == _FACTORS else 'λ ='} {values[axis]:.4g}{exact})"


def residual_text(residual: float) -> str:
    return f" ± {residual:.0e}".replace("e-0", "e-").replace("e+0", "e+") if math.isfinite(residual) else ""


def matrix_text(landscape: LandscapeData) -> str:
    """Returns of which matrix and over how many samples the directions are eigenvectors; empty for others."""
    matrix = _MATRICES.get(_decomposition(landscape), "")
    if matrix in ("", _FACTORS):
        return _OF_OPTIMIZER if matrix else ""
    count = _curvature_facts(landscape).get("num_samples")
    name = "Gauss-Newton matrix" if matrix == "Gauss-Newton" else matrix
    return f"{name} of {count:,} samples" if isinstance(count, int) else name


def eigenvectors_text(landscape: LandscapeData) -> str | None:
    """Returns the eigenvectors with their eigenvalues for a list of facts; None where the directions are none."""
    matrix = _MATRICES.get(_decomposition(landscape))
    if matrix is None:
        return None
    labels = [_eigenvector_label(landscape, axis) for axis in range(1 if landscape.y is None else 2)]
    found = [label.replace(f"{matrix} eigenvector ", "").replace(f"{_OF_OPTIMIZER} ", "") for label in labels]
    return f"{matrix_text(landscape)}: {', '.join(found)}"


def _curvature_facts(landscape: LandscapeData) -> Mapping[str, Any]:
    found = landscape.attributes.get("curvature")
    return found if isinstance(found, Mapping) else {}


def title(landscape: LandscapeData) -> str:
    return full_title(landscape, plain) or "loss landscape"


def full_title(landscape: LandscapeData, write: Callable[[object, int], str]) -> str:
    """Returns the file's own title, or else the network's name and the checkpoints; empty if it has neither."""
    attributes = landscape.attributes
    if attributes.get("title"):
        return write(attributes["title"], 72)
    network, names, found = network_name(attributes), member_names(landscape), landscape.checkpoints
    numbers = _integers(attributes.get("intervals"))
    if found is not None:
        numbers = found.number[found.paths[0]].tolist() if len(found.paths) == 1 else []
    parts = [write(network, 40)] if network else []
    parts += [write(name, 20) for name in names[:_MOST_NAMES]]
    if len(names) > _MOST_NAMES:
        parts.append(f"{len(names) - _MOST_NAMES} more")
    unit = write(attributes.get("unit") or CHECKPOINT, _LONGEST_UNIT)
    if len(numbers) == 1:
        parts.append(f"{unit} {numbers[0]}")
    elif numbers:
        parts.append(f"{unit}s {numbers[0]} to {numbers[-1]}")
    parts += [matrix] if (matrix := matrix_text(landscape)) else []
    return ", ".join(parts)


def kind_text(landscape: LandscapeData) -> str:
    """Returns what kind of plane or line it is, in the file's word where that says it."""
    words = _KINDS.get(_decomposition(landscape))
    return str(landscape.attributes.get("decomposition", "unknown")) if words is None else words[landscape.y is None]


def member_names(landscape: LandscapeData) -> list[str]:
    """Returns the names of the runs and networks that the landscape shows, the origin's among them."""
    found, origin = landscape.checkpoints, landscape.origin
    names = [] if found is None else [name for name in found.runs if name]
    names += [] if found is None else [found.name[row] for row in found.networks]
    return list(dict.fromkeys([*([origin.name] if origin.name else []), *names]))


def network_name(attributes: Mapping[str, Any]) -> object:
    network = attributes.get("network")
    return network.get("name") if isinstance(network, Mapping) else network


def unit_of(landscape: LandscapeData) -> str:
    """Returns what the checkpoints' numbers count, such as "epoch"; "checkpoint" where the file does not say."""
    return printable(landscape.attributes.get("unit") or CHECKPOINT, _LONGEST_UNIT)


def status_note(landscape: LandscapeData, status: UInt8[np.ndarray, "*grid"]) -> str | None:
    """Returns how much of the grid is measured, or None where all of it is."""
    pending, interpolated, measured = (
        int((status == kind).sum()) for kind in (PointStatus.PENDING, PointStatus.INTERPOLATED, PointStatus.MEASURED)
    )
    of = f"of {status.size:,} points"
    if interpolated:
        unfinished = "" if landscape.complete else " so far"
        return f"{measured:,} {of} measured{unfinished}, {interpolated:,} interpolated"
    return f"{measured_share(status)} measured ({measured:,} {of})" if pending else None


def measured_share(status: UInt8[np.ndarray, "*grid"]) -> str:
    """Returns which share of a grid is measured, such as "2 %"; rounded down, so that only the whole is 100 %."""
    percent = 100 * float((status == PointStatus.MEASURED).mean())
    return f"{math.floor(10 * percent) / 10 if percent < 1 else math.floor(percent):g} %"


def sampling_notes(landscape: LandscapeData, metric: str = "loss") -> list[str]:
    """Returns what adaptive sampling estimates of the points that it did not measure, and what it cannot know."""
    report = landscape.attributes.get("sampling") or {}
    if not report.get("interpolated"):
        return []
    notes = []
    if metric != "loss":
        notes.append("interpolated linearly, error not estimated")
    elif report["estimated_error"] is not None:
        of = "of the loss at each point" if report["relative"] else "of the range of losses"
        notes.append(f"largest estimated error {100 * report['estimated_error']:.2g} % {of}")
    if metric == "loss" and not report["reached"] and report.get("mode") != "full":
        notes.append(f"the tolerance of {100 * report['tolerance']:.2g} % is not reached")
    return [*notes, *missed_notes(landscape)]


def barrier_text(rise: Rise) -> str:
    if math.isnan(rise.height):
        return "no barrier: an end has no finite value"
    if rise.height:
        error = f" ± {rise.stderr:.2g}" if math.isfinite(rise.stderr) else ""
        return f"barrier {number_text(rise.height)}{error}"
    return "no barrier" + (f" (at most {rise.limit:.2g}, 95 %)" if math.isfinite(rise.limit) else "")


def placed_barrier_text(line: LandscapeData, metric: str = "loss") -> str:
    rise = highest_rise(line, metric)
    return barrier_text(rise) + (f" at {rise.at:.3g} of the way" if rise.height > 0 else "")


def own_values_note(landscape: LandscapeData, metric: str, *, short: bool = False) -> str | None:
    """Returns where a checkpoint's own value is not the one at its foot, and why; None where it is everywhere."""
    unit, main = unit_of(landscape), main_dataset(landscape)
    return own_values_text(landscape.checkpoints, metric, unit, main, short=short)


def value_notes(landscape: LandscapeData, metric: str = "loss") -> list[str]:
    return [*precision_notes(landscape), *sampling_notes(landscape, metric)]


def precision_notes(*landscapes: LandscapeData) -> list[str]:
    """Returns in which precision landscapes were measured; empty where that is the full one of all."""
    plans = [landscape.attributes.get("measurement_plan") for landscape in landscapes]
    found = list(dict.fromkeys(map(precision_name, plans)))
    return [] if found == [_FULL] else [f"measured in {' and '.join(found)}"]


def precision_name(plan: object) -> str:
    name = plan.get("precision") if isinstance(plan, Mapping) else None
    return _LOWER.get(str(name), _FULL)


def missed_notes(*landscapes: LandscapeData) -> list[str]:
    """Returns which features no measured point may have met; empty where nothing is interpolated."""
    reports = [landscape.attributes.get("sampling") or {} for landscape in landscapes]
    gaps = [report["largest_gap"] for report in reports if report.get("interpolated")]
    return [f"features narrower than {max(gaps)} points may be missed"] if gaps else []


def flat_note(metric: str, low: float, values: NDArray[Any]) -> str:
    count = int(np.isfinite(values).sum())
    if np.isnan(low):
        return f"no finite value of {metric}"
    where = "the only finite point" if count == 1 else f"all {count} finite points"
    return f"flat: {metric} is {number_text(low)} at {where}"


def _integers(value: Any) -> list[int]:
    if isinstance(value, list | tuple):
        return [number for item in value for number in _integers(item)]
    return [value] if isinstance(value, int) else []
