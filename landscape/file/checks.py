"""What the attributes of a landscape must look like where the program itself goes on from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_bool, check_float, check_instance, check_int, wrong_type, wrong_value
from workers.metric_names import metric_name_problem

# A plan says how many threads start; a file must not say that a machine shall drown in them.
_MOST_THREADS = 4096

_Check = Callable[[str, Any], object]


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Checks those attributes that are computed with; all others may hold any JSON value and are only shown.

    Raises:
        TypeError: an attribute, or an entry of it, has the wrong type.
        ValueError: it has a value that is not allowed, or lacks an entry.
    """
    for name, check in _CHECKS.items():
        if attributes.get(name) is not None:
            check(name, attributes[name])


def _check_sampling(name: str, value: object) -> None:
    report = _check_entries(name, value, _SAMPLING)
    missing = [key for key in _REPORT if key not in report]
    if report.get("interpolated") and missing:
        raise wrong_value(name, f"a report with {missing}, because points are interpolated", dict(report))


def _check_plan(name: str, value: object) -> None:
    _check_entries(name, value, _PLAN)


def _check_notes(name: str, value: object) -> None:
    for index, note in enumerate(_checked_list(name, value)):
        _check_text(f"{name}[{index}]", note)


def _check_intervals(name: str, value: object) -> None:
    for index, interval in enumerate(_checked_list(name, value)):
        numbers = _checked_list(f"{name}[{index}]", interval)
        if not numbers:
            raise wrong_value(f"{name}[{index}]", "a list of numbers that is not empty", interval)
        for number in numbers:
            check_int(f"a number of {name}[{index}]", number)


def _check_entries(name: str, value: object, checks: Mapping[str, _Check]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong_type(name, "a dict", value)
    for key, check in checks.items():
        if key in value:
            check(f"{name}[{key!r}]", value[key])
    return value


def _checked_list(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise wrong_type(name, "a list", value)
    return value


def _check_text(name: str, value: object) -> None:
    check_instance(name, value, str, "a str")


def _check_count(name: str, value: object) -> None:
    check_int(name, value, 0)


def _check_number_or_none(name: str, value: object) -> None:
    if value is not None:
        check_float(name, value)


def _check_batch_size(name: str, value: object) -> None:
    if value is not None:
        check_int(name, value, 1)


def _check_threads(name: str, value: object) -> None:
    check_int(name, value, 1, _MOST_THREADS)


_REPORT: dict[str, _Check] = {
    "tolerance": check_float,
    "relative": check_bool,
    "measured": _check_count,
    "interpolated": _check_count,
    "estimated_error": _check_number_or_none,
    "held_out": _check_count,
    "held_out_error": _check_number_or_none,
    "held_out_rms": _check_number_or_none,
    "reached": check_bool,
}
_SAMPLING: dict[str, _Check] = {"mode": _check_text, "finished": check_bool, **_REPORT}
_PLAN: dict[str, _Check] = {
    "batch_size": _check_batch_size,
    "threads": _check_threads,
    "channels_last": check_bool,
    "compile": check_bool,
    "reason": _check_text,
}
_CHECKS: dict[str, _Check] = {
    "sampling": _check_sampling,
    "measurement_plan": _check_plan,
    "notes": _check_notes,
    "intervals": _check_intervals,
}


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
    """Checks the coordinates of one axis, float64[n]; a ``ValueError`` says what is wrong."""
    length = len(axis) if axis.ndim == 1 else -1
    if not 1 <= length <= MAXIMUM_AXIS_LENGTH:
        raise ValueError(
            f"{name} must be an array of 1 to {MAXIMUM_AXIS_LENGTH} coordinates, but got the shape {axis.shape}."
        )
    check_array(name, axis, (length,), np.float64)
    if not np.isfinite(axis).all() or not (axis[1:] > axis[:-1]).all():
        raise ValueError(f"{name} must be finite and increasing, but got {_short(axis)}.")


def check_metrics(label: str, metrics: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> None:
    """Checks that there are metrics, "loss" among them, all float64 of the shape."""
    check_metric_names(label, metrics)
    for name, values in metrics.items():
        check_array(f"{label}[{name!r}]", values, shape, np.float64)


def check_metric_names(label: str, metrics: Mapping[str, Any]) -> None:
    """Checks that "loss" is there and that every name can be stored."""
    for problem in map(metric_name_problem, metrics):
        if problem is not None:
            raise ValueError(problem)
    if "loss" not in metrics:
        raise ValueError(f"{label} must have 'loss', but got {sorted(metrics)}.")


def check_status(label: str, status: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Checks that an array holds the numbers of ``PointStatus``, uint8 of the shape."""
    check_array(label, status, shape, np.uint8)
    if status.size and status.max() > max(PointStatus):
        raise ValueError(f"{label} must hold the numbers 0 to {int(max(PointStatus))}, but got {status.max()}.")


def check_array(label: str, array: NDArray[Any], shape: tuple[int, ...], dtype: type) -> None:
    """Checks an array's type and shape."""
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(
            f"{label} must be {np.dtype(dtype).name} of the shape {shape}, "
            f"but got {array.dtype} of the shape {array.shape}."
        )


def _short(axis: NDArray[Any]) -> str:
    return np.array2string(axis, threshold=8, edgeitems=3)
