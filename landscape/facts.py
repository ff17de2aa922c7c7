"""A landscape in words, and several of them in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .surface import Landscape

_FAILURES = 10
_MESSAGE_CHARACTERS = 300


def summary_text(landscape: Landscape) -> str:
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
        *((name, _range(values)) for name, values in landscape.metrics.items()),
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


def points_text(landscape: Landscape) -> str:
    """Returns how many points have each status that occurs."""
    return ", ".join(f"{count} {status.name.lower()}" for status, count in landscape.status_counts.items() if count)


def failures(landscape: Landscape, at_most: int) -> list[str]:
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


def _complete(landscape: Landscape) -> str:
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


def landscape_table(landscapes: Sequence[Landscape]) -> str:
    """Returns a table of landscapes that were just measured: what they show, and what they cost."""
    rows = [
        ("landscape", "loss range", "explained variance", "largest distance from plane", "points/s", "seconds"),
        *(
            (
                str(landscape.attributes.get("decomposition")),
                _range(landscape.loss),
                explained_variance_text(landscape),
                distance_text(landscape),
                f"{landscape.report.points_per_second:.0f}" if landscape.report else "-",
                f"{landscape.report.seconds:.1f}" if landscape.report else "-",
            )
            for landscape in landscapes
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def sampling_text(landscape: Landscape) -> str | None:
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


def explained_variance_text(landscape: Landscape) -> str:
    """Returns the share of the path's variance along each direction."""
    ratio = landscape.explained_variance_ratio
    if ratio is None:
        return "-"
    return " + ".join(f"{100 * value:.1f} %" for value in ratio) + f" = {100 * float(np.sum(ratio)):.1f} %"


def distance_text(landscape: Landscape) -> str:
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


def _range(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "no finite value"
    rest = values.size - finite.size
    return f"{finite.min():.4g} to {finite.max():.4g}" + (f", {rest} not finite" if rest else "")


def _intervals(intervals: object) -> str:
    if not isinstance(intervals, list) or not intervals:
        return "-"
    return ", ".join(str(item[0]) if len(item) == 1 else f"{item[0]} to {item[-1]} ({len(item)})" for item in intervals)
