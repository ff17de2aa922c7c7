"""What a paper must say under a picture, and what it tells people who cannot see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.validation import check_choice
from workers.metric_names import MetricName

from .drawing.eigenvectors import eigenvectors_text
from .drawing.texts import main_dataset, network_name, precision_notes, unit_of
from .facts import explained_variance_text, sampling_text, value_range
from .file.checks import PointStatus
from .file.data import LandscapeData
from .roles import ORIGIN
from .scales.landscape_scale import joint_scale
from .scales.scale import Scale

if TYPE_CHECKING:
    from collections.abc import Mapping


_PICTURES = {
    "contour": "Filled contours", "lines": "Contour lines", "heatmap": "A heat map",
    "surface": "A surface seen at an angle",
    "hero": "A rendered surface seen at an angle", "profile": "A curve", "barriers": "Curves",
    "difference": "Filled contours of a difference", "multiples": "Pictures side by side",
    "uncertainty": "Heat maps of the errors", "animation": "A film", "orbit": "A film", "fly": "A film",
    "persistence": "A persistence diagram", "merge_tree": "A merge tree",
}  # fmt: skip
_NORMALIZED = {
    "filter": "normalized by filter (Li et al. 2018)",
    "layer": "normalized by layer",
    "weight": "normalized by weight",
    "none": "not normalized",
}


@dataclass(frozen=True)
class Caption:
    """What stands under a picture.

    Attributes:
        text: how the picture was made: method, seeds, explained variance, samples, metric, tolerance, scale.
        alt: what it shows, for people who cannot see it.
    """

    text: str
    alt: str

    def __str__(self) -> str:
        return f"Caption: {self.text}\n\nAlternative text: {self.alt}\n"


def write_caption(landscape: LandscapeData, kind: str = "contour", **look: Any) -> Caption:
    """Returns the caption and the alternative text of a picture of a landscape.

    Only what the file says is said: an imported file may know neither seeds nor samples.

    Args:
        landscape: a plane or a line.
        kind: of the picture, as in ``landscape plot --kind``.
        **look: the picture's metric, scale and clip; see ``figures.Look``.

    Raises:
        KeyError: the landscape has no such metric.
        ValueError: the kind is unknown.
    """
    check_choice("kind", kind, tuple(_PICTURES))
    metric = look.get("metric", "loss")
    values = landscape[metric]
    called = MetricName.read(metric, landscape.metrics).text(main_dataset(landscape))
    network = network_name(landscape)
    of = f" of {network}" if network else ""
    sentences = [
        f"{_capital(called)}{of} {_where(landscape)}",
        _path(landscape),
        _points(landscape),
        _samples(landscape),
        _scale(landscape, metric, look),
        *(_capital(note) for note in precision_notes(landscape)),
    ]
    alt = [
        f"{_PICTURES[kind]}{'' if kind in ('persistence', 'merge_tree') else ' of ' + called}{of}",
        f"The {called} ranges from {value_range(values, landscape.status)}",
        _lowest(landscape, values),
        _walk(landscape, metric),
    ]
    return Caption(_joined(sentences), _joined(alt))


def _joined(sentences: list[str]) -> str:
    return " ".join(f"{text.rstrip('.')}." for text in sentences if text)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _where(landscape: LandscapeData) -> str:
    """Returns on which plane or line the landscape lies, by which method and seed."""
    known = landscape.attributes
    cut, kind = ("line" if landscape.y is None else "plane"), known.get("decomposition")
    unit = unit_of(landscape)
    origin = "the origin" if landscape.origin.role == ORIGIN else landscape.origin.label(unit)
    if kind == "pca":
        number = "principal component" if landscape.y is None else "two principal components"
        text = f"on the {cut} of the first {number} of the path of the weights"
        shares = explained_variance_text(landscape)
        return text + (f", which hold {shares} of its variance" if shares else "") + f", through {origin}"
    if kind == "random":
        count = "one random direction" if landscape.y is None else "two random directions"
        how = _NORMALIZED.get(str(known.get("normalization")), "")
        moves = known.get("perturb_one_dimensional")
        still = "biases and normalization layers stay" if moves is False else ""
        seed = "" if known.get("directions_seed") is None else f"seed {known['directions_seed']}"
        said = "; ".join(text for text in (how, still, seed) if text)
        return f"around {origin}, along {count}" + (f" ({said})" if said else "")
    eigenvectors = eigenvectors_text(landscape)
    if eigenvectors:
        return f"around {origin}, along eigenvectors ({eigenvectors})"
    found = landscape.checkpoints
    names = [] if found is None else [name for name in found.name if name]
    if kind == "points" and names:
        everyone = [origin, *(name for name in names if name != origin)]
        return f"on the {cut} through {', '.join(everyone[:-1])} and {everyone[-1]}"
    return f"on a {cut} through {origin}"


def _path(landscape: LandscapeData) -> str:
    """Returns how far the drawn path is from the one that was walked."""
    found = landscape.checkpoints
    if found is None or not found.paths or landscape.y is None:
        return ""
    unit, rows = unit_of(landscape), np.concatenate(found.paths)
    numbers = found.number[rows]
    span = f"{len(rows)} checkpoints, {unit}s {numbers.min()} to {numbers.max()}"
    largest = float(np.max(found.residual[rows]))
    return f"The path ({span}) is projected onto the plane, from which it is at most {largest:.3g} away"


def _points(landscape: LandscapeData) -> str:
    shape = " × ".join(str(size) for size in reversed(landscape.shape))
    adaptive = sampling_text(landscape)
    if adaptive is not None:
        report: Mapping[str, Any] = landscape.attributes.get("sampling") or {}
        within = "" if report.get("tolerance") is None else f" within a tolerance of {100 * report['tolerance']:.2g} %"
        return f"{shape} points, sampled adaptively{within}: {adaptive}"
    left = landscape.status_counts[PointStatus.PENDING]
    return f"{shape} points" + (f", of which {left} are not measured yet" if left else "")


def _samples(landscape: LandscapeData) -> str:
    known = landscape.attributes
    if known.get("num_samples") is None:
        return ""
    chosen = {"first": "the first ones of the data set", "random": f"drawn with seed {known.get('seed')}"}
    which = chosen.get(str(known.get("samples")), str(known.get("samples")))
    buffers = {"recalibrate": "BatchNorm statistics computed anew at each point", "interpolate": "buffers interpolated"}
    also = buffers.get(str(known.get("buffers")), "")
    return f"Each point is measured on {known['num_samples']:,} samples ({which})" + (f", {also}" if also else "")


def _scale(landscape: LandscapeData, metric: str, look: Mapping[str, Any]) -> str:
    """Returns how values become colours or heights, where that is not linear and whole."""
    scale = look.get("scale", "auto")
    if not isinstance(scale, Scale):
        scale = joint_scale([landscape], metric, scale, None, look.get("clip"), count=8, path=False)
    label = scale.label("x")
    return f"Colours and heights: {label[3:-1]}" if label.endswith(")") else ""


def _lowest(landscape: LandscapeData, values: Any) -> str:
    finite = np.where(np.isfinite(values), values, np.inf)
    if not np.isfinite(finite).any():
        return ""
    place = np.unravel_index(int(np.argmin(finite)), values.shape)
    at = f"x = {landscape.x[place[-1]]:.3g}" + ("" if landscape.y is None else f", y = {landscape.y[place[0]]:.3g}")
    return f"It is lowest at {at}, in lengths of the directions from the origin"


def _walk(landscape: LandscapeData, metric: str) -> str:
    """Returns where the first run's path begins and ends."""
    found = landscape.checkpoints
    if found is None or not found.paths or metric not in found.metrics:
        return ""
    unit, own = unit_of(landscape), found.metrics[metric]
    first, last = (found.paths[0][index] for index in (0, -1))
    texts = [f"{own[row]:.3g} at {unit} {found.number[row]}" for row in (first, last) if np.isfinite(own[row])]
    return f"The path goes from {' to '.join(texts)}" if len(texts) == 2 else ""
