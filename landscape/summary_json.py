"""What a landscape holds, as JSON for programs (``landscape info --json``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .facts import loss_names
from .grid.checkpoints import CheckpointsData
from .grid.data import LandscapeData
from .topology.topology import topology_json

_OF_ORIGIN = ("x", "y", "status", "metrics", "role", "name", "run", "number")
_OF_DIRECTIONS = ("explained_variance_ratio", "cosine", "eigenvalues", "residuals")
SUMMARY_VERSION = 2  # grows when a name of ``summary_json`` goes or changes its meaning; a new name alone leaves it


def summary_json(landscape: LandscapeData) -> dict[str, Any]:
    """Returns the facts as JSON values; null stands for NaN, for infinities, and for what is absent.

    Its names: ``summary_version``, ``file``, ``complete``, ``grid`` (``shape`` as rows and columns; ``x`` and ``y``
    with ``size``, ``minimum``, ``maximum``), ``points`` (how many have each status), ``metrics`` (per name
    ``minimum``, ``maximum`` and their places ``minimum_at``, ``maximum_at`` as coordinates, over finite values, and
    ``not_finite``), ``topology`` (of the loss; see ``topology_json``), ``origin`` (with its role), ``directions``,
    ``checkpoints`` (one value per row, and ``runs``), ``errors`` (places), and ``attributes`` as the file has them.
    """
    found: dict[str, Any] = {
        "summary_version": SUMMARY_VERSION,
        "file": None if landscape.path is None else str(landscape.path),
        "complete": landscape.complete,
        "grid": {
            "shape": list(landscape.loss.shape),
            "x": _axis(landscape.x),
            "y": None if landscape.y is None else _axis(landscape.y),
        },
        "points": {status.name.lower(): count for status, count in landscape.status_counts.items()},
        "metrics": {name: _metric(values, landscape) for name, values in landscape.metrics.items()},
        "topology": topology_json(landscape),
        "origin": {
            **{name: getattr(landscape.origin, name) for name in _OF_ORIGIN},
            "status": landscape.origin.status.name.lower(),
        },
        "directions": {name: getattr(landscape.directions, name) for name in _OF_DIRECTIONS},
        "checkpoints": None if landscape.checkpoints is None else _checkpoints(landscape, landscape.checkpoints),
        "errors": sorted(landscape.errors),
        "attributes": landscape.attributes,
    }
    return dict(as_json(found))


def _axis(axis: NDArray[Any]) -> dict[str, Any]:
    return {"size": len(axis), "minimum": axis[0], "maximum": axis[-1]}


def _metric(values: NDArray[Any], landscape: LandscapeData) -> dict[str, Any]:
    finite = np.isfinite(values)
    found: dict[str, Any] = dict.fromkeys(("minimum", "maximum", "minimum_at", "maximum_at"))
    if finite.any():
        axes = (landscape.x,) if landscape.y is None else (landscape.x, landscape.y)
        known = np.where(finite, values, np.nan)
        for name, place in (("minimum", np.nanargmin(known)), ("maximum", np.nanargmax(known))):
            index = np.unravel_index(int(place), values.shape)
            found[name] = values[index]
            found[f"{name}_at"] = [axis[number] for axis, number in zip(axes, reversed(index), strict=True)]
    return {**found, "not_finite": int((~finite).sum())}


def _checkpoints(landscape: LandscapeData, found: CheckpointsData) -> dict[str, Any]:
    columns = {name: getattr(found, name) for name in ("number", "x", "y", "residual", "norm", "run", "name")}
    roles = [found.role(row) for row in range(len(found.number))]
    losses: dict[str, Any] = {"sha256": found.sha256}
    for name in loss_names(landscape):
        losses |= {name: found.metrics[name], f"projected_{name}": found.projected[name]}
    return {"runs": found.runs, **columns, "role": roles, **losses}


def as_json(value: Any) -> Any:
    """Returns arrays, numbers and mappings as JSON values; None for what is not finite."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
