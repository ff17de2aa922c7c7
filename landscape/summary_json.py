"""A landscape's facts for programs: names and meanings stay, whatever the text of ``landscape info`` becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.network_state import Array

from .landscape_data import TrajectoryData

if TYPE_CHECKING:
    from .surface import Landscape

SUMMARY_VERSION = 1
"""Grows when a name goes or changes its meaning; a new name alone leaves it."""


def summary_json(landscape: Landscape) -> dict[str, Any]:
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


def _axis(axis: Array) -> dict[str, Any]:
    return {"size": len(axis), "minimum": axis[0], "maximum": axis[-1]}


def _metric(values: Array, landscape: Landscape) -> dict[str, Any]:
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
