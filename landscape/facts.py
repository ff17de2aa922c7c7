"""A landscape in words, and several of them in a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import dropwhile, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .figures.texts import network_name
from .file.data import LandscapeData, TrajectoryData

_FAILURES = 10
_MESSAGE_CHARACTERS = 300


def summary_text(landscape: LandscapeData) -> str:
    """Returns what a landscape file holds, one fact to a line."""
    attributes = landscape.attributes
    shape = f"{len(landscape.x)}" + ("" if landscape.y is None else f" x {len(landscape.y)}")
    known = {name: value for name, value in attributes.items() if value is not None}
    plan, intervals = known.get("measurement_plan"), known.get("intervals")
    versions = versions_text(known.get("versions"))
    facts: list[tuple[str, str | None]] = [
        ("file", str(landscape.path)),
        ("imported from", _imported(known["imported"]) if isinstance(known.get("imported"), Mapping) else None),
        ("network", known.get("network")),
        ("landscape", f"{known.get('decomposition', 'unknown')}, {shape} points"),
        ("points", points_text(landscape)),
        ("sampling", sampling_text(landscape)),
        ("complete", _complete(landscape)),
        ("intervals", f"{known.get('unit', '-')}s {_intervals(intervals)}" if intervals else None),
        ("samples", samples_text(known)),
        ("buffers", known.get("buffers")),
        ("measurement plan", plan_text(plan) if plan else None),
        *((name, value_range(values)) for name, values in landscape.metrics.items()),
        ("explained variance", explained_variance_text(landscape)),
        ("largest distance of the path from the plane", distance_text(landscape)),
        ("made", f"{known['created']}{f' with {versions}' if versions else ''}" if "created" in known else None),
        *(("note", str(note)) for note in known.get("notes", ())),
        *(("failed", text) for text in failures(landscape, _FAILURES)),
    ]
    lines = [(name, str(text)) for name, text in facts if text is not None]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {_printable(text)}" for name, text in lines)


def _imported(facts: Mapping[str, Any]) -> str:
    others = ", ".join(f"{name} {value}" for name, value in facts.items() if name not in ("format", "file"))
    return f"{facts.get('file')} ({facts.get('format')}{f', {others}' if others else ''})"


def points_text(landscape: LandscapeData) -> str:
    """Returns how many points have each status that occurs."""
    return ", ".join(f"{count} {status.name.lower()}" for status, count in landscape.status_counts.items() if count)


def failures(landscape: LandscapeData, at_most: int) -> list[str]:
    """Returns where points failed and what was raised there, without the traceback; then how many more there are."""
    texts = [f"{place}: {_message(text)}" for place, text in islice(landscape.errors.items(), at_most)]
    left = len(landscape.errors) - at_most
    return [*texts, f"... and {left} more"] if left > 0 else texts


def _message(text: str) -> str:
    innermost = text.rpartition("Traceback (most recent call last):\n")[-1]
    lines = list(dropwhile(lambda line: line.startswith(" "), innermost.splitlines()))
    message = " ".join(" ".join(lines).split())
    if len(message) > _MESSAGE_CHARACTERS:
        return f"{message[:_MESSAGE_CHARACTERS].rstrip()} ..."
    return message or "no text"


def samples_text(attributes: Mapping[str, Any]) -> str | None:
    """Returns how many samples a value is averaged over, and which; None where the file does not say."""
    count = attributes.get("num_samples")
    return None if count is None else f"{count} ({attributes.get('samples', 'first')})"


def versions_text(versions: object) -> str | None:
    """Returns programs with their versions; None where there are none."""
    if not isinstance(versions, Mapping) or not versions:
        return None
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _complete(landscape: LandscapeData) -> str:
    if landscape.complete:
        return "yes"
    return "no" if "imported" in landscape.attributes else "no; the call that made it goes on from here"


def plan_text(plan: Mapping[str, Any]) -> str:
    """Returns how a landscape was computed, and why so."""
    size, threads = plan.get("batch_size"), plan.get("threads")
    parts = [
        "the data set's own batches" if size is None else f"batches of {size}",
        f"{threads} CPU thread" + ("s" if threads != 1 else ""),
        *(["channels-last"] if plan.get("channels_last") else []),
        "compiled" if plan.get("compile") else "eager",
    ]
    return ", ".join(parts) + (f" ({plan['reason']})" if plan.get("reason") else "")


def sampling_text(landscape: LandscapeData) -> str | None:
    """Returns how well the interpolated points are known; None where there are none."""
    report = landscape.attributes.get("sampling") or {}
    if not report.get("interpolated"):
        return None
    of = "of the loss at each point" if report["relative"] else "of the range of losses"
    estimated = report["estimated_error"]
    parts = [f"{report['measured']} of {landscape.status.size} points measured, the others interpolated"]
    if estimated is not None:
        parts.append(f"estimated error at most {100 * estimated:.2g} % {of}")
    if report["held_out"] and report["held_out_error"] is not None:
        parts.append(
            f"largest error at {report['held_out']} held-out points {100 * report['held_out_error']:.2g} %, root mean "
            f"square {100 * report['held_out_rms']:.2g} %"
        )
    if not report["reached"]:
        parts.append(f"the tolerance of {100 * report['tolerance']:.2g} % is not reached")
    return "; ".join(parts)


def explained_variance_text(landscape: LandscapeData) -> str:
    """Returns the share of the path's variance along each direction."""
    ratio = landscape.explained_variance_ratio
    if ratio is None:
        return "-"
    return " + ".join(f"{100 * value:.1f} %" for value in ratio) + f" = {100 * float(np.sum(ratio)):.1f} %"


def distance_text(landscape: LandscapeData) -> str:
    """Returns how far the path leaves the plane, absolutely and against its own length."""
    path = landscape.trajectory
    if path is None:
        return "-"
    largest = float(np.max(path.residual))
    length = float(np.max(path.norm))
    return f"{largest:.3g}" + (f" ({100 * largest / length:.0f} % of the path's extent)" if length else "")


def _printable(text: str) -> str:
    # A file from elsewhere may hold what a terminal takes for commands, or lines that look like ours.
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def value_range(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    """Returns the smallest and the largest finite value as text, and how many are not finite."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "no finite value"
    rest = values.size - finite.size
    return f"{finite.min():.4g} to {finite.max():.4g}" + (f", {rest} not finite" if rest else "")


def _intervals(intervals: object) -> str:
    if not isinstance(intervals, list) or not intervals:
        return "-"
    return ", ".join(str(item[0]) if len(item) == 1 else f"{item[0]} to {item[-1]} ({len(item)})" for item in intervals)


SUMMARY_VERSION = 1
"""Grows when a name goes or changes its meaning; a new name alone leaves it."""


def summary_json(landscape: LandscapeData) -> dict[str, Any]:
    """Returns the facts as JSON values; null stands for NaN, for infinities, and for what is absent.

    Its names: ``summary_version``, ``file``, ``complete``, ``grid`` (``shape`` as rows and columns; ``x`` and ``y``
    with ``size``, ``minimum``, ``maximum``), ``points`` (how many have each status), ``metrics`` (per name
    ``minimum``, ``maximum`` and their places ``minimum_at``, ``maximum_at`` as coordinates, over finite values, and
    ``not_finite``), ``convergence``, ``directions``, ``trajectory`` (columns of one value per checkpoint),
    ``errors`` (places), and ``attributes`` as the file has them.
    """
    data = landscape
    facts: dict[str, Any] = {
        "summary_version": SUMMARY_VERSION,
        "file": None if data.path is None else str(data.path),
        "complete": data.complete,
        "grid": {
            "shape": list(data.loss.shape),
            "x": _axis(data.x),
            "y": None if data.y is None else _axis(data.y),
        },
        "points": {status.name.lower(): count for status, count in data.status_counts.items()},
        "metrics": {name: _metric(values, data) for name, values in data.metrics.items()},
        "convergence": {
            "x": data.convergence.x,
            "y": data.convergence.y,
            "status": data.convergence.status.name.lower(),
            "metrics": data.convergence.metrics,
        },
        "directions": {"explained_variance_ratio": data.explained_variance_ratio, "cosine": data.cosine},
        "trajectory": None if data.trajectory is None else _trajectory(data.trajectory),
        "errors": sorted(data.errors),
        "attributes": data.attributes,
    }
    plain: dict[str, Any] = _plain(facts)
    return plain


def _axis(axis: NDArray[Any]) -> dict[str, Any]:
    return {"size": len(axis), "minimum": axis[0], "maximum": axis[-1]}


def _metric(values: NDArray[Any], landscape: LandscapeData) -> dict[str, Any]:
    finite = np.isfinite(values)
    found: dict[str, Any] = dict.fromkeys(("minimum", "maximum", "minimum_at", "maximum_at"))
    if finite.any():
        for name, place in (
            ("minimum", np.where(finite, values, np.inf).argmin()),
            ("maximum", np.where(finite, values, -np.inf).argmax()),
        ):
            index = np.unravel_index(int(place), values.shape)
            axes = (landscape.x,) if landscape.y is None else (landscape.x, landscape.y)
            found[name] = values[index]
            found[f"{name}_at"] = [axis[number] for axis, number in zip(axes, reversed(index), strict=True)]
    return {**found, "not_finite": int((~finite).sum())}


def _trajectory(path: TrajectoryData) -> dict[str, Any]:
    return {
        "number": path.number,
        "x": path.x,
        "y": path.y,
        "residual": path.residual,
        "norm": path.norm,
        "loss": path.metrics["loss"],
        "projected_loss": path.projected["loss"],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_FAILURES_OF_PAGE = 5
_TEXTS = ("decomposition", "normalization", "centering", "seed", "buffers", "step_per_epoch")


def facts(landscape: LandscapeData) -> list[list[str]]:
    """Returns rows of name and text; what the file does not say is left out."""
    attributes = landscape.attributes
    low, high = landscape.loss_range
    rows: list[tuple[str, object]] = [
        ("file", landscape.path),
        ("network", network_name(landscape)),
        *((name.replace("_", " "), attributes.get(name)) for name in _TEXTS),
        ("samples", samples_text(attributes)),
        ("points", points_text(landscape)),
        ("complete", "yes" if landscape.complete else "no"),
        ("sampling", sampling_text(landscape)),
        ("loss", f"{low:.6g} to {high:.6g}" if math.isfinite(low) else "no finite value"),
        ("explained variance", _unless_dash(explained_variance_text(landscape))),
        ("cosine of the directions", None if landscape.cosine is None else f"{landscape.cosine:.3g}"),
        ("largest distance of the path from the plane", _distance(landscape)),
        ("measurement plan", plan_text(plan) if isinstance(plan := attributes.get("measurement_plan"), dict) else None),
        ("made", attributes.get("created")),
        ("versions", versions_text(found) if isinstance(found := attributes.get("versions"), Mapping) else found),
        *(("note", note) for note in attributes.get("notes", ())),
        *(("failed", text) for text in failures(landscape, _FAILURES_OF_PAGE)),
    ]
    return [[name, str(text)] for name, text in rows if text is not None and str(text)]


def _distance(landscape: LandscapeData) -> str | None:
    path = landscape.trajectory
    return None if path is None or not len(path.number) else distance_text(landscape)


def _unless_dash(text: str) -> str | None:
    return None if text == "-" else text
