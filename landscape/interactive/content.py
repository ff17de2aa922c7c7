"""A landscape as the page reads it: JSON whose numbers are the file's own, bit for bit."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..facts import page_facts
from ..figures.path import network_marks, with_path
from ..figures.scales import choose_scale
from ..figures.texts import axis_label, full_title, sampling_notes, unit_of
from ..file.checks import PointStatus
from ..roles import NETWORK

if TYPE_CHECKING:
    from ..file.data import LandscapeData


def landscape_content(landscape: LandscapeData, name: str) -> dict[str, Any]:
    """Returns JSON values from which the page draws a landscape.

    Arrays are base64 of little-endian float64 in C order, so NaN, infinities and the last bit arrive unchanged.

    Args:
        landscape: what to show.
        name: a distinct name among the landscapes of the page.
    """
    point = landscape.origin
    return {
        "name": name,
        "title": title(landscape),
        "note": note(landscape),
        "largest_gap": (landscape.attributes.get("sampling") or {}).get("largest_gap"),
        "unit": str(landscape.attributes.get("unit") or "checkpoint"),
        "axis_labels": [axis_label(landscape, axis) for axis in range(1 if landscape.y is None else 2)],
        "complete": landscape.complete,
        "x": _encoded(landscape.x),
        "y": None if landscape.y is None else _encoded(landscape.y),
        "metrics": _all_encoded(landscape.metrics),
        "status": _encoded(landscape.status, "u1"),
        "scales": {metric: _scales(landscape, metric) for metric in landscape.metrics},
        "checkpoints": None if landscape.checkpoints is None else _checkpoints(landscape),
        "facts": page_facts(landscape),
        "origin": {
            "label": point.label(unit_of(landscape)),
            "named": point.role == NETWORK,
            "x": point.x,
            "y": point.y,
            "metrics": _all_encoded({metric: np.array([value]) for metric, value in point.metrics.items()}),
            "status": int(point.status),
        },
    }


def title(landscape: LandscapeData) -> str:
    """Returns the network's name and the checkpoints that the landscape belongs to."""
    return full_title(landscape, lambda text, _: str(text)) or "Loss landscape"


def note(landscape: LandscapeData) -> str:
    """Returns what kind of plane or line it is, its size, what is not measured, and how well that is known."""
    kind = {"pca": "principal directions of the checkpoints", "random": "random directions"}
    decomposition = str(landscape.attributes.get("decomposition", ""))
    size = f"line of {len(landscape.x)} points"
    if landscape.y is not None:
        size = f"{len(landscape.x)} × {len(landscape.y)} points"
    counts = landscape.status_counts
    unfinished = ", ".join(
        f"{counts[status]} {status.name.lower()}"
        for status in (PointStatus.INTERPOLATED, PointStatus.FAILED, PointStatus.PENDING)
        if counts[status]
    )
    parts = [kind.get(decomposition.lower(), decomposition), size, unfinished, *sampling_notes(landscape)]
    return "; ".join(part for part in parts if part)


def _scales(landscape: LandscapeData, metric: str) -> dict[str, Any]:
    """Returns the scale that the figures would choose for each setting; None where there is none."""
    values = with_path(landscape, metric, landscape[metric])
    found: dict[str, Any] = dict.fromkeys(("auto", "log", "linear"))
    for kind in found:
        if kind != "log" or (np.isfinite(values) & (values > 0)).any():
            scale = choose_scale(values, kind, metric=metric)
            if not scale.empty:
                found[kind] = {name: getattr(scale, name) for name in ("kind", "low", "high", "threshold")}
    return found


def _checkpoints(landscape: LandscapeData) -> dict[str, Any]:
    path = landscape.checkpoints
    assert path is not None
    return {
        "runs": [path.run_name(rows[0]) for rows in path.paths],
        "paths": [rows.tolist() for rows in path.paths],
        "networks": [row for row, _ in network_marks(landscape)],
        "labels": [path.label(row, unit_of(landscape)) for row in range(len(path.number))],
        "roles": [path.role(row) for row in range(len(path.number))],
        "number": path.number.tolist(),
        "x": _encoded(path.x),
        "y": None if path.y is None else _encoded(path.y),
        "residual": _encoded(path.residual),
        "metrics": _all_encoded(path.metrics),
        "projected": _all_encoded(path.projected),
        "status": _encoded(path.status, "u1"),
        "projected_status": _encoded(path.projected_status, "u1"),
    }


def _all_encoded(arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    return {name: _encoded(values) for name, values in arrays.items()}


def _encoded(values: NDArray[Any] | Sequence[float], dtype: str = "<f8") -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode("ascii")
