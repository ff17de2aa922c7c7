"""The sentences of captions: where a landscape lies, how it was measured, what its values are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import MetricName

from .drawing.texts import eigenvectors_text, flat_note, metric_text, own_values_note, unit_of
from .facts import explained_variance_text, samples_of, sampling_text, value_range
from .grid.data import LandscapeData
from .record.checks import PointStatus
from .roles import ORIGIN
from .scales.choosing import is_flat
from .scales.landscape_scale import known
from .scales.scale import Scale

_NORMALIZED = {
    "filter": "normalized by filter (Li et al. 2018)",
    "layer": "normalized by layer",
    "weight": "normalized by weight",
    "none": "not normalized",
}
_CURVES = {"bezier": "Bezier curve", "polygon": "polygon"}
called = partial(metric_text, write=str)  # a metric in words, with the data set where the landscape has several


def joined(sentences: list[str]) -> str:
    return " ".join(f"{text.rstrip('.')}." for text in sentences if text)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def of_each(texts: Mapping[str, str]) -> list[str]:
    """Returns a text that holds for all names, or one for each of those that have one."""
    if len(set(texts.values())) == 1:
        return [next(iter(texts.values()))]
    return [f"{name}: {text[:1].lower()}{text[1:]}" for name, text in texts.items() if text]


def where_text(landscape: LandscapeData) -> str:
    known = landscape.attributes
    cut, kind = ("line" if landscape.y is None else "plane"), known.get("decomposition")
    unit = unit_of(landscape)
    origin = "the origin" if landscape.origin.role == ORIGIN else landscape.origin.label(unit)
    if kind == "pca":
        number = "principal component" if landscape.y is None else "two principal components"
        plane = (known.get("identity") or {}).get("plane") or {}
        runs = len(plane.get("runs") or [1])
        path, its = (f"paths of {runs} runs", "their") if runs > 1 else ("path of the weights", "its")
        text = f"on the {cut} of the first {number} of the {path}"
        shares = explained_variance_text(landscape)
        return text + (f" (shares of {its} variance: {shares})" if shares else "") + f", through {origin}"
    if kind == "random":
        count = "one random direction" if landscape.y is None else "two random directions"
        how = _NORMALIZED.get(str(known.get("normalization")), "")
        moves = known.get("perturb_one_dimensional")
        still = "biases and normalization layers stay" if moves is False else ""
        seed = "" if known.get("directions_seed") is None else f"seed {known['directions_seed']}"
        details = "; ".join(text for text in (how, still, seed) if text)
        return f"around {origin}, along {count}" + (f" ({details})" if details else "")
    if kind == "path":
        return f"on {_curve_text(landscape)}"
    eigenvectors = eigenvectors_text(landscape)
    if eigenvectors:
        return f"around {origin}, along eigenvectors ({eigenvectors})"
    found = landscape.checkpoints
    names = [] if found is None else [name for name in found.name if name]
    if kind == "points" and names:
        everyone = [origin, *(name for name in names if name != origin)]
        return f"on the {cut} through {', '.join(everyone[:-1])} and {everyone[-1]}"
    return f"on a {cut} through {origin}"


def ends_of(landscape: LandscapeData) -> tuple[str, str]:
    found = landscape.checkpoints
    names = [] if found is None else [found.name[row] for row in found.networks]
    first, last = names[:2] if len(names) > 1 and all(names[:2]) else ("the first network", "the second")
    return first, last


def _curve_text(landscape: LandscapeData) -> str:
    facts = landscape.attributes.get("path")
    facts = facts if isinstance(facts, Mapping) else {}
    text = f"a {_CURVES.get(str(facts.get('kind')), 'curve')} from {' to '.join(ends_of(landscape))}"
    if (bends := facts.get("bends")) is not None:
        text += f" with {bends} bend{'' if bends == 1 else 's'}"
    fitting = facts.get("fitting")
    if isinstance(fitting, Mapping) and fitting.get("steps") is not None:
        text += f", fitted in {fitting['steps']:,} steps (seed {fitting.get('seed')})"
    return text


def path_text(landscape: LandscapeData) -> str:
    """Returns how far the drawn path is from the one that was walked."""
    found = landscape.checkpoints
    if found is None or not found.paths or landscape.y is None:
        return ""
    unit, spans = unit_of(landscape), []
    for rows in found.paths:
        first, last = found.number[rows].min(), found.number[rows].max()
        several = f"{len(rows)} checkpoints, {unit}s {first} to {last}"
        span = f"1 checkpoint, {unit} {first}" if len(rows) == 1 else several
        spans.append(f"{found.run_name(rows[0])}: {span}" if len(found.paths) > 1 else span)
    largest = float(np.max(found.residual[np.concatenate(found.paths)]))
    what, they_are = f"path ({spans[0]}) is", "it is"
    if len(spans) > 1:
        what, they_are = f"paths of {len(spans)} runs ({'; '.join(spans)}) are", "they are"
    return f"The {what} projected onto the plane, from which {they_are} at most {largest:.3g} away"


def off_plane_text(landscape: LandscapeData, metric: str) -> str:
    return capital(own_values_note(landscape, metric) or "")


def points_text(landscape: LandscapeData, metric: str) -> str:
    shape = " × ".join(str(size) for size in reversed(landscape.shape))
    adaptive = sampling_text(landscape, metric)
    if adaptive is not None:
        report: Mapping[str, Any] = landscape.attributes.get("sampling") or {}
        if report.get("mode") == "full":  # what was stopped before all was measured has a report too
            return f"{shape} points: {adaptive}"
        within = "" if report.get("tolerance") is None else f" within a tolerance of {100 * report['tolerance']:.2g} %"
        if within and not report["reached"]:
            within = f", but not{within}"
        if within and metric != "loss":
            within += f" of the {called(landscape, 'loss')}"
        return f"{shape} points, sampled adaptively{within}: {adaptive}"
    left = landscape.status_counts[PointStatus.PENDING]
    return f"{shape} points" + (f", of which {left} are not measured yet" if left else "")


def samples_sentence(landscape: LandscapeData, metric: str) -> str:
    """Returns how many samples of the metric's own data set its values are averaged over, and which."""
    known, name = landscape.attributes, MetricName.read(metric, landscape.metrics)
    count = samples_of(known, name.dataset)
    if count is None:
        return ""
    buffers = {"recalibrate": "BatchNorm statistics computed anew at each point", "interpolate": "buffers interpolated"}
    also = buffers.get(str(known.get("buffers")), "")
    group = f"those of group {name.group} among " if name.group else ""
    # A point that was interpolated was not measured.
    some = "measurement is" if landscape.status_counts[PointStatus.INTERPOLATED] else "point is measured"
    sentence = f"Each {some} on {group}{count_text(known, count)}"
    return sentence + (f", {also}" if also else "")


def count_text(attributes: Mapping[str, Any], count: int | None) -> str:
    """Returns over how many samples, None for all, something was measured, and which these are."""
    chosen = {"first": "the first ones of the data set", "random": f"drawn with seed {attributes.get('seed')}"}
    which = chosen.get(str(attributes.get("samples")), attributes.get("samples"))
    return "all samples" if count is None else f"{count:,} samples" + (f" ({which})" if which else "")


def scale_text(scale: Scale, what: str) -> str:
    """Returns how values become ``what``, such as colours; empty where that is linear and whole."""
    label = scale.label("x")
    return f"{what}: {label[3:-1]}" if label.endswith(")") else ""


def range_text(name: str, values: NDArray[Any], status: NDArray[Any]) -> str:
    ends, shown = _ends(values, status), known(values, status)
    if ends is None:
        return f"The {name} has no finite value"
    if not is_flat(*ends):
        return f"The {name} ranges from {value_range(values, status)}"
    left = values.size - int(np.isfinite(shown).sum())
    note = flat_note(name, ends[0], shown)
    return capital(note) + (f"; {left:,} others have no value" if left else "")


def lowest_text(landscape: LandscapeData, values: NDArray[Any], word: str = "lowest") -> str:
    """Returns where values are lowest or highest; empty where they are flat, which have no such place."""
    shown = known(values, landscape.status)
    ends = _ends(values, landscape.status)
    if ends is None or is_flat(*ends):
        return ""
    places = np.argwhere(shown == ends[0 if word == "lowest" else 1])
    if len(places) > 1:
        return f"It is {word} at {len(places):,} points alike"
    return f"It is {word} at {_place_text(landscape, tuple(places[0].tolist()))}"


def _place_text(landscape: LandscapeData, place: tuple[int, ...]) -> str:
    x = f"{landscape.x[place[-1]]:.3g}"
    if landscape.y is not None:
        text = f"x = {x}, y = {landscape.y[place[0]]:.3g}, in lengths of the directions from the origin"
        if landscape.geometry is None:
            return text
        along, across = landscape.geometry.distances(landscape.x[place[-1]], landscape.y[place[0]])
        distances = f"{float(along):.3g} and {float(across):.3g}"
        return text if distances == f"{x} and {landscape.y[place[0]]:.3g}" else f"{text} ({distances} as distances)"
    if landscape.attributes.get("decomposition") in ("path", "points"):
        first, last = ends_of(landscape)
        if landscape.x[place[-1]] in (0, 1):
            return (first, last)[int(landscape.x[place[-1]])]
        return f"{x} of the way from {first} (0) to {last} (1)"
    return f"x = {x}, in lengths of the direction from the origin"


def _ends(values: NDArray[Any], status: NDArray[Any]) -> tuple[float, float] | None:
    shown = known(values, status)
    finite = shown[np.isfinite(shown)]
    return (float(finite.min()), float(finite.max())) if len(finite) else None


def walk_text(landscape: LandscapeData, metric: str, *, projected: bool) -> str:
    """Returns from which value to which one a path goes: its own, or those at which pictures with heights draw it."""
    found = landscape.checkpoints
    values = {} if found is None else found.projected if projected else found.metrics
    if found is None or metric not in values:
        return ""
    unit, losses, path = unit_of(landscape), values[metric], "projected path" if projected else "path"
    sentences = []
    for rows in found.paths:
        ends = [f"{losses[row]:.3g} at {unit} {found.number[row]}" for row in rows[[0, -1]] if np.isfinite(losses[row])]
        if len(rows) > 1 and len(ends) == 2:
            of_run = f" of {found.run_name(rows[0])}" if len(found.paths) > 1 else ""
            sentences.append(f"The {path}{of_run} goes from {' to '.join(ends)}")
    return ". ".join(sentences)
