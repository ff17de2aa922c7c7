"""What a landscape file can store: names, shapes, types and status values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from collectors.network_state import Array

T = TypeVar("T")

PROJECTED_PREFIX = "projected_"
PLANE_BUFFERS_SUFFIX = "_with_plane_buffers"
MAXIMUM_AXIS_LENGTH = 16384
_RESERVED_NAMES = frozenset(
    ("x", "y", "status", "errors", "trajectory", "convergence", "directions", "number", "residual", "norm")
)


class PointStatus(IntEnum):
    """What is known about one point of a landscape."""

    PENDING = 0
    MEASURED = 1
    INTERPOLATED = 2
    FAILED = 3


def ordered(metrics: Mapping[str, T]) -> dict[str, T]:
    """Returns metrics with "loss" first and the others by name, the order in which files have them."""
    return {name: metrics[name] for name in sorted(metrics, key=lambda name: (name != "loss", name))}


def check_metric_name(name: str) -> str:
    """Returns the name of a metric when a landscape file can store it.

    Raises:
        ValueError: it is empty, contains a slash or a NUL, or is a name which the file uses itself.
    """
    if not name or "/" in name or "\0" in name or not name.isprintable() or name.strip(".") == "":
        raise ValueError(
            f"the name of a metric must be printable text without '/', but got {name!r}. Rename the metric."
        )
    if name in _RESERVED_NAMES or name.startswith(PROJECTED_PREFIX) or PLANE_BUFFERS_SUFFIX in f"_{name}":
        raise ValueError(
            f"the name of a metric must not be one the landscape file uses itself, but got {name!r} (used: "
            f"{sorted(_RESERVED_NAMES)}, {PROJECTED_PREFIX}..., ...{PLANE_BUFFERS_SUFFIX}). Rename the metric."
        )
    return name


def check_axis(name: str, axis: Array) -> None:
    """Checks the coordinates of one axis, float64[n]; a ``ValueError`` says what is wrong."""
    length = len(axis) if axis.ndim == 1 else -1
    if not 1 <= length <= MAXIMUM_AXIS_LENGTH:
        raise ValueError(
            f"{name} must be an array of 1 to {MAXIMUM_AXIS_LENGTH} coordinates, but got the shape {axis.shape}."
        )
    check_array(name, axis, (length,), np.float64)
    if not np.isfinite(axis).all() or not (axis[1:] > axis[:-1]).all():
        raise ValueError(f"{name} must be finite and increasing, but got {_short(axis)}.")


def check_metrics(label: str, metrics: Mapping[str, Array], shape: tuple[int, ...]) -> None:
    """Checks that there are metrics, "loss" among them, all float64 of the shape."""
    check_metric_names(label, metrics)
    for name, values in metrics.items():
        check_array(f"{label}[{name!r}]", values, shape, np.float64)


def check_metric_names(label: str, metrics: Mapping[str, Any]) -> None:
    """Checks that "loss" is there and that every name can be stored."""
    for name in metrics:
        check_metric_name(name)
    if "loss" not in metrics:
        raise ValueError(f"{label} must have 'loss', but got {sorted(metrics)}.")


def check_status(label: str, status: Array, shape: tuple[int, ...]) -> None:
    """Checks that an array holds the numbers of ``PointStatus``, uint8 of the shape."""
    check_array(label, status, shape, np.uint8)
    if status.size and status.max() > max(PointStatus):
        raise ValueError(f"{label} must hold the numbers 0 to {int(max(PointStatus))}, but got {status.max()}.")


def check_array(label: str, array: Array, shape: tuple[int, ...], dtype: type) -> None:
    """Checks an array's type and shape."""
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(
            f"{label} must be {np.dtype(dtype).name} of the shape {shape}, "
            f"but got {array.dtype} of the shape {array.shape}."
        )


def _short(axis: Array) -> str:
    return np.array2string(axis, threshold=8, edgeitems=3)
