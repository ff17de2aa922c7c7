"""What the arrays and names of a landscape must look like, and what is known about a point."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import metric_name_problem

T = TypeVar("T")
MAXIMUM_AXIS_LENGTH = 16384


class PointStatus(IntEnum):
    """What is known about one point of a landscape."""

    PENDING = 0
    MEASURED = 1
    INTERPOLATED = 2
    FAILED = 3


def ordered(metrics: Mapping[str, T]) -> dict[str, T]:
    """Returns metrics with "loss" first and the others by name, the order in which files have them."""
    return {name: metrics[name] for name in sorted(metrics, key=lambda name: (name != "loss", name))}


def check_axis(name: str, axis: NDArray[Any]) -> None:
    length = len(axis) if axis.ndim == 1 else -1
    if not 1 <= length <= MAXIMUM_AXIS_LENGTH:
        raise ValueError(
            f"{name} must be an array of 1 to {MAXIMUM_AXIS_LENGTH} coordinates, but got the shape {axis.shape}."
        )
    check_array(name, axis, (length,), np.float64)
    if not np.isfinite(axis).all() or not (axis[1:] > axis[:-1]).all():
        shown = np.array2string(axis, threshold=8, edgeitems=3)
        raise ValueError(f"{name} must be finite and increasing, but got {shown}.")


def check_metrics(label: str, metrics: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> None:
    check_metric_names(label, metrics)
    for name, values in metrics.items():
        check_array(f"{label}[{name!r}]", values, shape, np.float64)


def check_metric_names(label: str, metrics: Mapping[str, Any]) -> None:
    for problem in map(metric_name_problem, metrics):
        if problem is not None:
            raise ValueError(problem)
    if "loss" not in metrics:
        raise ValueError(f"{label} must have 'loss', but got {sorted(metrics)}.")


def check_status(label: str, status: NDArray[Any], shape: tuple[int, ...]) -> None:
    check_array(label, status, shape, np.uint8)
    if status.size and status.max() > max(PointStatus):
        raise ValueError(f"{label} must hold the numbers 0 to {int(max(PointStatus))}, but got {status.max()}.")


def check_array(label: str, array: NDArray[Any], shape: tuple[int, ...], dtype: type) -> None:
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(
            f"{label} must be {np.dtype(dtype).name} of the shape {shape}, "
            f"but got {array.dtype} of the shape {array.shape}."
        )
