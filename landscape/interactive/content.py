"""A landscape as the page reads it: JSON whose numbers are the file's own, bit for bit."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import MetricName, other_datasets

from ..drawing import texts
from ..drawing.appearance import DIVERGING
from ..drawing.camera import NAMED, Camera, best_camera, plotly_box
from ..drawing.missing import edges, plateaus
from ..drawing.path import network_marks, path_times, run_color, strong_color
from ..facts import page_facts
from ..figures.difference import check_same_grid, difference, joint_status
from ..grid.checkpoints import CheckpointsData
from ..grid.data import LandscapeData
from ..grid.differences import own_values
from ..record.checks import PointStatus
from ..roles import NETWORK
from ..sampling.grids import coarse_values, covering_points
from ..scales.choosing import choose_scale, is_share, may_be_share
from ..scales.frame import ASPECTS, choose_frame
from ..scales.landscape_scale import known, landscape_scale, path_values
from ..scales.scale import Scale, without_place
from .timed_paths import map_place, times_content

# Plotly's names of matplotlib's marks.
SYMBOLS = {"D": "diamond", "^": "triangle-up", "v": "triangle-down", "P": "cross", "X": "x", "h": "hexagon"}
# Of a landscape with many groups of samples; each has a scale, about 2 kB.
_MOST_DIFFERENCES = 60


def landscape_content(
    landscape: LandscapeData, name: str, cameras: Mapping[str, Camera | None] = NAMED
) -> dict[str, Any]:
    """Returns a landscape as the page's JSON values; for arrays see ``_encoded``."""
    point, geometry = landscape.origin, landscape.geometry
    axes = landscape.x, np.zeros(1) if landscape.y is None else landscape.y
    # The borders of the cells around the points; those of a single one leave room for its mark.
    bounds = [edges(axis) if len(axis) > 1 else axis + np.array([-0.6, 0.6]) for axis in axes]
    return {
        "name": name,
        "title": title(landscape),
        "note": note(landscape),
        "estimates": {metric: "; ".join(texts.sampling_notes(landscape, metric)) for metric in landscape.metrics},
        "unit": str(landscape.attributes.get("unit") or "checkpoint"),
        "geometry": None if geometry is None else geometry.to_distances.tolist(),
        "frames": {} if landscape.y is None else {aspect: _frame(landscape, aspect, cameras) for aspect in ASPECTS},
        "axis_labels": [
            texts.unescaped(texts.axis_label(landscape, axis)) for axis in range(1 if landscape.y is None else 2)
        ],
        "isLine": landscape.y is None,
        # Of a line, all y are 0.
        **{name: _encoded(axis) for name, axis in zip("xy", axes, strict=True)},
        "bounds": [_encoded(each) for each in bounds],
        "metrics": _all_encoded(landscape.metrics),
        "names": {metric: _name(landscape, metric) for metric in landscape.metrics},
        "datasets": [texts.main_dataset(landscape) or "main data set", *other_datasets(landscape.metrics)],
        "metric_differences": metric_differences(landscape),
        "status": _encoded(landscape.status, "u1"),
        "cover": _cover(landscape.status),
        "plateaus": {metric: _plateaus(landscape[metric], landscape.status) for metric in landscape.metrics},
        "scales": {metric: _scales(landscape, metric) for metric in landscape.metrics},
        "checkpoints": None if landscape.checkpoints is None else _checkpoints(landscape, landscape.checkpoints),
        **_paths(landscape),
        "facts": page_facts(landscape),
        "origin": {
            "label": point.label(texts.unit_of(landscape)),
            "named": point.role == NETWORK,
            "x": point.x,
            "y": point.y,
            "metrics": _all_encoded({metric: np.array([value]) for metric, value in point.metrics.items()}),
            "status": int(point.status),
        },
    }


def title(landscape: LandscapeData) -> str:
    return texts.full_title(landscape, lambda text, _: str(text)) or "Loss landscape"


def note(landscape: LandscapeData) -> str:
    """Returns what kind of plane or line it is, its size, what is not measured, and a precision that is not full."""
    kind = "" if landscape.attributes.get("decomposition") is None else texts.kind_text(landscape)
    kind = {"pca": "principal directions of the checkpoints", "random": "random directions"}.get(kind.lower(), kind)
    size, counts = _size(landscape), landscape.status_counts
    unfinished = ", ".join(
        f"{counts[status]} {status.name.lower()}"
        for status in (PointStatus.INTERPOLATED, PointStatus.FAILED, PointStatus.PENDING)
        if counts[status]
    )
    if counts[PointStatus.PENDING]:
        size += f", {texts.measured_share(landscape.status)} measured"
    return "; ".join(part for part in (kind, size, unfinished, *texts.precision_notes(landscape)) if part)


def _size(landscape: LandscapeData) -> str:
    if landscape.y is None:
        return f"line of {len(landscape.x)} points"
    return f"{len(landscape.x)} × {len(landscape.y)} points"


def _frame(landscape: LandscapeData, aspect: str, cameras: Mapping[str, Camera | None]) -> dict[str, Any]:
    """Returns where a plane's points lie in the page's pictures, from where they are seen, and what stands beside."""
    frame = choose_frame(landscape, aspect)
    box = plotly_box(frame.box)
    seen = {
        name: camera or best_camera(landscape, "loss", landscape_scale(landscape), frame)
        for name, camera in cameras.items()
    }
    return {
        "matrix": None if frame.geometry is None else frame.matrix.tolist(),
        "box": box,
        "cameras": {name: camera.of_plotly(box) for name, camera in seen.items()},
        "notes": list(frame.notes),
        "labels": [texts.unescaped(texts.axis_label(landscape, axis, frame.geometry)) for axis in range(2)],
    }


def difference_content(first: LandscapeData, second: LandscapeData) -> dict[str, Any] | None:
    """Returns what the page's difference of two landscapes has beside values; None where the grids are not the same."""
    try:
        check_same_grid(first, second)
    except ValueError:
        return None
    shared = [metric for metric in first.metrics if metric in second.metrics]
    values = {metric: difference(first[metric], second[metric]) for metric in shared}
    status = joint_status(first.status, second.status)
    return {"cover": _cover(status), "status": _encoded(status, "u1"), **_difference(values, status, first, second)}


def _difference(
    values: Mapping[str, NDArray[Any]], status: NDArray[Any], first: LandscapeData, second: LandscapeData
) -> dict[str, Any]:
    """Returns by metric the scale that ``plot_difference`` chooses and the surface's flat pieces, and what it says."""
    shown = {metric: known(each, status) for metric, each in values.items()}
    scales = {metric: choose_scale(each, symmetric=True, metric=metric) for metric, each in shown.items()}
    return {
        "scales": {metric: {"auto": _as_json(scales[metric], each, metric)} for metric, each in shown.items()},
        "used": [{metric: _used(scale, sign * values[metric]) for metric, scale in scales.items()} for sign in (1, -1)],
        "plateaus": {metric: _plateaus(each, status) for metric, each in values.items()},
        "note": "; ".join([_size(first), *texts.precision_notes(first, second)]),
        "estimate": "; ".join(texts.missed_notes(first, second)),
    }


def _used(scale: Scale, values: NDArray[Any]) -> dict[str, Any]:
    """Returns the ends of the heights of a difference, zero among them, and the part of the colours for them."""
    ends = scale.forward(scale.ends_with_zero(values)).tolist()
    bottom, top = scale.height_range
    if scale.flat:
        bottom, top = ends = [-1.0, 1.0]
    return {"ends": ends, "colours": colours(DIVERGING, *((end - bottom) / (top - bottom) for end in ends))}


def colours(name: str, first: float = 0.0, last: float = 1.0) -> list[tuple[float, str]]:
    """Returns a part of one of matplotlib's maps as plotly takes it: places from 0 to 1, and their colours."""
    import matplotlib
    from matplotlib.colors import to_hex

    colors = matplotlib.colormaps[name]
    return [(place, to_hex(colors(first + (last - first) * place))) for place in np.linspace(0, 1, 17).tolist()]


def _cover(status: NDArray[Any]) -> dict[str, str] | None:
    """Returns the points from which coarse cells take their values; None where there are none."""
    points = covering_points(status)
    return _encoded(points, "i4") if (points >= 0).any() else None


def _plateaus(values: NDArray[Any], status: NDArray[Any]) -> list[list[int]]:
    """Returns the flat pieces of a surface, see ``plateaus``: coarse cells, and measured points that it leaves out."""
    if values.ndim < 2 or not (status == PointStatus.PENDING).any():
        return []
    from scipy.ndimage import binary_opening

    # The surface is of all cells whose four corners have values.
    used = binary_opening(np.isfinite(values), np.ones((2, 2)))
    found: list[list[int]] = plateaus(coarse_values(values, status), status, used).tolist()
    return found


def metric_differences(landscape: LandscapeData) -> list[dict[str, Any]]:
    """Returns pairs of metrics of one quantity and group, the later minus the earlier data set, and their scales."""
    found: list[dict[str, Any]] = []
    read = {metric: MetricName.read(metric, landscape.metrics) for metric in landscape.metrics}
    sets = ["", *other_datasets(landscape.metrics)]
    for name in read.values():
        later = [MetricName(name.quantity, name.group, dataset) for dataset in sets[sets.index(name.dataset) + 1 :]]
        for other in map(str, later):
            if other not in landscape.metrics or name.is_error or len(found) == _MOST_DIFFERENCES:
                continue
            values = {other: difference(landscape[other], landscape[str(name)])}
            found.append({"metrics": [other, str(name)], **_difference(values, landscape.status, landscape, landscape)})
    return found


def _name(landscape: LandscapeData, metric: str) -> dict[str, Any]:
    name = MetricName.read(metric, landscape.metrics)
    return {
        "quantity": name.quantity,
        "dataset": name.dataset or texts.main_dataset(landscape) or "main data set",
        "text": texts.metric_text(landscape, metric, str),
        "standard_error": name.standard_error,
        "is_error": name.is_error,
    }


def _scales(landscape: LandscapeData, metric: str) -> dict[str, Any]:
    """Returns the scale that the figures choose for each setting; None where there is none."""
    values = known(landscape[metric], landscape.status)
    found: dict[str, Any] = dict.fromkeys(("auto", "log", "linear"))
    for kind in found:
        if kind != "log" or (values > 0).any():
            found[kind] = _as_json(landscape_scale(landscape, metric, kind), values, metric)
    if found["log"] is not None:
        marks = path_values(landscape, metric)
        marks = marks[np.isfinite(marks)]
        found["log"]["marks_without_place"] = without_place(marks)
        found["log"]["lowest_mark"] = min(marks[marks > 0].tolist(), default=None)
    return found


def _as_json(scale: Scale, values: NDArray[Any], metric: str) -> dict[str, Any] | None:
    if scale.empty:
        return None
    ends = {name: getattr(scale, name) for name in ("kind", "low", "high", "threshold", "bottom", "top")}
    extremes = float(np.nanmin(values)), float(np.nanmax(values))
    return {
        **ends,
        "levels": scale.levels.tolist(),
        "texts": scale.texts(),
        # Small values alone are no shares, but they may be beside larger ones.
        "bounded": may_be_share(metric, *extremes),
        "share": is_share(metric, *extremes),
    }


def _paths(landscape: LandscapeData) -> dict[str, Any]:
    """Returns the rows of checkpoints of each run's path, and of networks that belong to none, without the origin."""
    paths, numbers = [], []
    if landscape.checkpoints is not None:
        paths = [rows.tolist() for rows in landscape.checkpoints.paths]
        numbers = [landscape.checkpoints.number[rows].tolist() for rows in paths]
    aspects = () if landscape.y is None else ASPECTS
    return {
        "paths": paths,
        "walked": max(paths, key=len, default=[]),
        "networks": [row for row, _ in network_marks(landscape)],
        # Of the player: the checkpoints of a single run, or the different numbers that those of several runs have.
        "steps": numbers[0] if len(numbers) == 1 else sorted({number for each in numbers for number in each}),
        "times": times_content(landscape, {aspect: _map_place(landscape, aspect) for aspect in aspects}),
    }


def _checkpoints(landscape: LandscapeData, path: CheckpointsData) -> dict[str, Any]:
    count, timed = len(path.paths), path_times([landscape]) is not None
    return {
        "runs": [path.run_name(rows[0]) for rows in path.paths],
        # The page chooses the colour of the first run, unless that is of the path's time.
        "hues": [strong_color(run) if timed else run_color(run, "") or None for run in range(count)],
        "symbols": [SYMBOLS[style["marker"]] for _, style in network_marks(landscape)],
        "labels": [path.label(row, texts.unit_of(landscape)) for row in range(len(path.number))],
        "roles": [path.role(row) for row in range(len(path.number))],
        "number": path.number.tolist(),
        "x": _encoded(path.x),
        "y": _encoded(np.zeros_like(path.x) if path.y is None else path.y),
        "residual": _encoded(path.residual),
        "metrics": _all_encoded(path.metrics),
        "projected": _all_encoded(path.projected),
        "status": _encoded(path.status, "u1"),
        "own": {
            metric: [{"row": value.row, "reason": value.reason} for value in own_values(path, metric)]
            for metric in path.metrics
        },
    }


def _map_place(landscape: LandscapeData, aspect: str) -> Callable[..., Any]:
    """Returns what takes the plane's coordinates to a map, on which those without lengths are as long up as across."""
    frame = choose_frame(landscape, aspect)
    assert landscape.y is not None
    if frame.geometry is not None:
        return map_place(landscape, frame.place)
    across, up = (float(np.ptp(axis)) or 1.0 for axis in (landscape.x, landscape.y))
    return map_place(landscape, lambda x, y: (x / across, y / up))


def _all_encoded(arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, str]]:
    return {name: _encoded(values) for name, values in arrays.items()}


def _encoded(values: NDArray[Any] | Sequence[float], dtype: str = "f8") -> dict[str, str]:
    """Returns an array as plotly writes them: its type, and base64 of little-endian numbers in C order."""
    data = np.ascontiguousarray(values, f"<{dtype}").tobytes()
    return {"dtype": dtype, "bdata": base64.b64encode(data).decode("ascii")}
