"""What a landscape holds, in words: as text (``landscape info``), in one line, as rows for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import some_names
from workers.measurement_plan import plan_text
from workers.metric_names import MetricName, other_datasets

from .drawing import texts as words
from .errors import error_message
from .grid.data import LandscapeData
from .grid.samples import kept_text
from .planes.pca import percentages
from .record.checks import PointStatus
from .roles import CHECKPOINT, ORIGIN
from .sampling.sampling import first_grid_counts, share_of
from .topology.topology import minima_text

_FAILURES_IN_TEXT = 10
_ROUNDING = {
    "TF32": "matrix products and convolutions keep about three digits of what they multiply",
    "bfloat16": "the network computes with two to three digits, and loss and metrics in float32 from its outputs",
}
_FAILURES_ON_PAGE = 5


def summary_text(landscape: LandscapeData) -> str:
    return as_lines(_facts(landscape, _FAILURES_IN_TEXT, landscape.path))


def one_line(landscape: LandscapeData) -> str:
    """Returns what a landscape is and how far it is measured, for the line in which Python shows it."""
    shape = " x ".join(str(len(axis)) for axis in (landscape.x, landscape.y) if axis is not None)
    losses = {"loss": "loss"}
    losses |= {f"on {words.printable(name, 24)}": f"loss@{name}" for name in other_datasets(landscape.metrics)}
    parts = [f"{words.printable(words.kind_text(landscape), 48)}, {shape} points"]
    for called, name in losses.items():
        between = _between(landscape.metrics[name], landscape.status)
        parts.append(f"{called} {between}" if between else f"{called} without a finite value")
    if landscape.explained_variance_ratio is not None:
        share = percentages([landscape.explained_variance_ratio.sum()])[0]
        parts.append(f"{share} of the variance explained")
    counts = landscape.status_counts
    if counts[PointStatus.INTERPOLATED]:
        parts.append(f"{counts[PointStatus.INTERPOLATED]} of {landscape.status.size} points interpolated")
    if not landscape.complete:
        parts.append(f"{counts[PointStatus.MEASURED]} of {landscape.status.size} points measured")
    return "; ".join([*parts, *words.precision_notes(landscape)])


def as_lines(facts: Sequence[tuple[str, str]]) -> str:
    """Returns names and texts as a table, one to a line, in which nothing can move a terminal's cursor."""
    width = max(len(name) for name, _ in facts)
    return "\n".join(f"{name:<{width}}  {_printable(text)}" for name, text in facts)


def page_facts(landscape: LandscapeData) -> list[list[str]]:
    """Returns rows of name and text for the page: the facts of ``landscape info``, with fewer failures."""
    # Pages are given to others, so of the file's path only the name is in them.
    path = landscape.path
    return [[name, text] for name, text in _facts(landscape, _FAILURES_ON_PAGE, None if path is None else path.name)]


def _facts(landscape: LandscapeData, failures_at_most: int, file: object) -> list[tuple[str, str]]:
    """Returns names and texts, that of the file among them; what the file does not say is left out."""
    known = {name: value for name, value in landscape.attributes.items() if value is not None}
    intervals, imported, counts = known.get("intervals"), known.get("imported"), landscape.status_counts.items()
    shape = f"{len(landscape.x)}" + ("" if landscape.y is None else f" x {len(landscape.y)}")
    versions, nameless = known.get("versions"), "weights without a name, of no known run"
    unit = words.unit_of(landscape)
    moves = known.get("perturb_one_dimensional") if known.get("decomposition") == "random" else None
    still = "move too" if moves else "stay where they are"
    precision = words.precision_name(known.get("measurement_plan"))
    rounding = _ROUNDING.get(precision)
    drawn = [words.own_values_note(landscape, name) for name in loss_names(landscape)]
    rows: list[tuple[str, object]] = [
        ("file", file),
        ("imported from", _imported(imported) if isinstance(imported, Mapping) else None),
        ("network", words.network_name(landscape.attributes)),
        ("landscape", f"{words.kind_text(landscape)}, {shape} points"),
        ("normalization", known.get("normalization")),
        ("centering", known.get("centering")),
        ("random directions", None if moves is None else f"biases and the parameters of normalization layers {still}"),
        ("eigenvectors", words.eigenvectors_text(landscape)),
        ("points", ", ".join(f"{count} {status.name.lower()}" for status, count in counts if count)),
        ("sampling", _sampling_of_all(landscape)),
        ("complete", _complete(landscape)),
        ("intervals", f"{known.get('unit', '-')}s {_intervals(intervals)}" if intervals else None),
        ("steps per epoch", known.get("step_per_epoch")),
        ("data sets", datasets_text(landscape)),
        ("samples", samples_text(known)),
        ("losses of samples", kept_text(landscape.kept_samples)),
        ("seeds", seeds_text(landscape)),
        ("buffers", known.get("buffers")),
        ("precision", rounding and f"{precision}: {rounding}, so small differences between points are rounding"),
        ("measured in", plan_text(known.get("measurement_plan"))),
        *((name, value_range(values, landscape.status)) for name, values in landscape.metrics.items()),
        ("between the networks", words.placed_barrier_text(landscape) if _is_whole_way(landscape) else None),
        ("minima", minima_text(landscape)),
        ("origin", nameless if landscape.origin.role == ORIGIN else landscape.origin.label(unit)),
        *who_is_there(landscape),
        ("drawn losses", "; ".join(filter(None, drawn))),
        ("explained variance", explained_variance_text(landscape)),
        ("cosine of the directions", None if landscape.cosine is None else f"{landscape.cosine:.3g}"),
        (f"largest distance of the path from the {_cut(landscape)}", distance_text(landscape)),
        ("made", known.get("created")),
        ("versions", versions_text(versions) if isinstance(versions, Mapping) else versions),
        *(("note", note) for note in landscape.attributes.get("notes") or ()),
        *(("failed", text) for text in failures(landscape, failures_at_most)),
    ]
    return [(name, str(value)) for name, value in rows if value is not None and str(value)]


def _is_whole_way(landscape: LandscapeData) -> bool:
    """Returns whether it is a line or a curve from one network to another, measured from end to end."""
    is_way = landscape.y is None and landscape.attributes.get("decomposition") in ("points", "path")
    return is_way and landscape.complete and {0.0, 1.0} <= set(landscape.x.tolist())


def failures(landscape: LandscapeData, at_most: int) -> list[str]:
    """Returns where points failed and what was raised there, without the traceback; then how many more there are."""
    texts = [f"{place}: {error_message(text)}" for place, text in islice(landscape.errors.items(), at_most)]
    left = len(landscape.errors) - at_most
    return [*texts, f"... and {left} more"] if left > 0 else texts


def sampling_text(landscape: LandscapeData, metric: str = "loss") -> str | None:
    """Returns how well a metric is known at the interpolated points; None where there are none."""
    report = landscape.attributes.get("sampling") or {}
    if not report.get("interpolated"):
        return None
    done, left = (landscape.status_counts[status] for status in (PointStatus.MEASURED, PointStatus.PENDING))
    counts = [f"{done} of {landscape.status.size} points measured, {report['interpolated']} interpolated"]
    parts = [", ".join(counts + [f"{left} without a value"] * bool(left))]
    estimates_this = metric == "loss"
    if estimates_this and report["held_out"] and report["held_out_error"] is not None:
        parts.append(
            f"largest error at {report['held_out']} held-out points {100 * report['held_out_error']:.2g} %, root mean "
            f"square {100 * report['held_out_rms']:.2g} %"
        )
    if estimates_this and report["share_beyond_95"] is not None:
        parts.append(
            f"with 95 % confidence at most {100 * report['share_beyond_95']:.2g} % of the interpolated points are "
            f"beyond the tolerance of {100 * report['tolerance']:.2g} %"
        )
    *estimates, missed = words.sampling_notes(landscape, metric)
    return "; ".join([parts[0], *estimates, *parts[1:], missed])


def _sampling_of_all(landscape: LandscapeData) -> str | None:
    text = sampling_text(landscape)
    others = [
        name for name in landscape.metrics if name != "loss" and not MetricName.read(name, landscape.metrics).is_error
    ]
    return f"{text}; of {some_names(others, str)} no error is estimated" if text and others else text


def explained_variance_text(landscape: LandscapeData) -> str | None:
    ratio = landscape.explained_variance_ratio
    if ratio is None:
        return None
    *shares, total = percentages([*ratio, np.sum(ratio)])
    # Each number is rounded on its own, so the last need not be the sum of the others as they are written.
    return f"{' + '.join(shares)}, {total} in all" if len(shares) > 1 else shares[0]


def seeds_text(landscape: LandscapeData) -> str | None:
    """Returns what was drawn by which seed: directions by the plane's, samples and the sampling by the survey's."""
    known = landscape.attributes
    texts = []
    if known.get("directions_seed") is not None:
        texts.append(f"directions' seed {known['directions_seed']}")
    if known.get("seed") is not None:
        adaptive = (known.get("sampling") or {}).get("mode") == "adaptive"
        seeded = known.get("seed_each_point") is True
        used = known.get("samples") == "random" or adaptive or seeded
        texts.append(f"samples' seed {known['seed']}" + ("" if used else " (nothing was drawn by it)"))
        if seeded:
            texts.append("which also seeds the loss's random numbers at each point")
    return ", ".join(texts) or None


def distance_text(landscape: LandscapeData) -> str | None:
    """Returns how far the paths leave the plane, absolutely and against their own length; None without a path."""
    found = landscape.checkpoints
    if found is None or not found.paths:
        return None
    rows = np.concatenate(found.paths)
    largest = float(np.max(found.residual[rows]))
    length = float(np.max(found.norm[rows]))
    return f"{largest:.3g}" + (f" ({percentages([largest / length], 0)[0]} of the path's extent)" if length else "")


def who_is_there(landscape: LandscapeData) -> list[tuple[str, str]]:
    """Returns a row of name and text for each run with checkpoints, and one for each network that belongs to no run."""
    found, unit = landscape.checkpoints, words.unit_of(landscape)
    if found is None:
        return []
    rows = []
    for path in found.paths:
        numbers = found.number[path]
        count = f"{len(path)} checkpoint" + ("s" if len(path) > 1 else "")
        counted = "number" if unit == CHECKPOINT else unit
        span = f"{counted} {numbers[0]}" if len(path) == 1 else f"{counted}s {numbers[0]} to {numbers[-1]}"
        pending = int((found.status[path] == PointStatus.PENDING).sum())
        span += f"; the own loss of {pending} is not measured" if pending else ""
        rows.append(("run", ": ".join(text for text in (found.run_name(path[0]), f"{count}, {span}") if text)))
    for row in found.networks:
        texts = []
        for loss in loss_names(landscape):
            columns = ((found.metrics, found.status), (found.projected, found.projected_status))
            both = [(values[loss][row], PointStatus(status[row])) for values, status in columns]
            own, projected = (
                f"{value:.4g}" if status == PointStatus.MEASURED else status.name.lower() for value, status in both
            )
            texts.append(f"own {words.metric_text(landscape, loss, str)} {own}, on the {_cut(landscape)} {projected}")
        rows.append(("network", f"{found.name[row]}: {'; '.join(texts)}"))
    return rows


def datasets_text(landscape: LandscapeData) -> str | None:
    others = other_datasets(landscape.metrics)
    if not others:
        return None
    main = words.main_dataset(landscape)
    first = f"{main} (the main one: loss)" if main else "the main one (loss)"
    return ", ".join([first, *(f"{name} (loss@{name})" for name in others)])


def loss_names(landscape: LandscapeData) -> list[str]:
    """Returns the names of the losses of all data sets that checkpoints have too, the main one first."""
    found = landscape.checkpoints
    names = ["loss", *(f"loss@{name}" for name in other_datasets(landscape.metrics))]
    return [name for name in names if found is None or (name in found.metrics and name in found.projected)]


def _cut(landscape: LandscapeData) -> str:
    return "line" if landscape.y is None else "plane"


def value_range(values: NDArray[Any], status: NDArray[Any] | None = None) -> str:
    """Returns the smallest and the largest finite value as text, and how many are not finite or not there."""
    text, pending = _between(values, status), _pending(values, status)
    return (text + (f", {pending} without a value yet" if pending else "")) if text else "no finite value"


def _between(values: NDArray[Any], status: NDArray[Any] | None) -> str:
    """Returns the ends of the finite values, and how many others are not finite or failed; "" if none is finite."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    failed = 0 if status is None else int((~np.isfinite(values) & (status == PointStatus.FAILED)).sum())
    rest = values.size - finite.size - _pending(values, status) - failed
    counts = ((rest, "not finite"), (failed, "failed"))
    others = "".join(f", {count:,} {word}" for count, word in counts if count)
    return _two_ends(float(finite.min()), float(finite.max())) + others


def _pending(values: NDArray[Any], status: NDArray[Any] | None) -> int:
    return 0 if status is None else int((np.isnan(values) & (status == PointStatus.PENDING)).sum())


def _two_ends(low: float, high: float) -> str:
    """Returns two values with as many digits as tell them apart, at least four."""
    for digits in (4, 6, 9, 17):
        texts = [f"{end:.{digits}g}" for end in (low, high)]
        if texts[0] != texts[1] or low == high:
            break
    return " to ".join(texts)


def _imported(source: Mapping[str, Any]) -> str:
    others = ", ".join(f"{name} {value}" for name, value in source.items() if name not in ("format", "file"))
    return f"{source.get('file')} ({source.get('format')}{f', {others}' if others else ''})"


def _complete(landscape: LandscapeData) -> str:
    if landscape.complete:
        return "yes"
    if "imported" in landscape.attributes:
        return "no"
    if share := share_of(landscape.attributes):
        return f"no: it is the share {share} of a landscape; `landscape merge` joins it with the others"
    known, size = first_grid_counts(landscape.status)
    coarse = f", and coarse so far: {known} of the {size} points of its first grid are measured"
    return f"no{'' if known == size else coarse}; the call that made it continues from here"


def _intervals(intervals: object) -> str:
    if not isinstance(intervals, list) or not intervals:
        return "-"
    return ", ".join(str(item[0]) if len(item) == 1 else f"{item[0]} to {item[-1]} ({len(item)})" for item in intervals)


def sample_counts(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Returns how many samples of each data set values average over, main set first, "" if single; empty if unknown."""
    sets = attributes.get("datasets")
    if isinstance(sets, list | tuple) and sets:
        named = [item for item in sets if isinstance(item, Mapping)]
        return {str(item["name"]): item["num_samples"] for item in named if "num_samples" in item}
    count = attributes.get("num_samples")
    return {} if count is None else {"": count}


def samples_of(attributes: Mapping[str, Any], dataset: str) -> int | None:
    """Returns how many samples of a data set, "" for the main one, values average over; None if the file lacks it."""
    counts = sample_counts(attributes)
    return counts.get(dataset) if dataset else next(iter(counts.values()), None)


def samples_text(attributes: Mapping[str, Any]) -> str | None:
    """Returns how many samples a value is averaged over, and which; None where the file does not say."""
    texts = [f"{name} {count}" if name else str(count) for name, count in sample_counts(attributes).items()]
    return f"{', '.join(texts)} ({attributes.get('samples', 'first')})" if texts else None


def versions_text(versions: object) -> str | None:
    if not isinstance(versions, Mapping) or not versions:
        return None
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _printable(text: str) -> str:
    # A file from elsewhere may hold what a terminal takes for commands, or lines that look like ours.
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)
