"""What the arrays, names and attributes of a file must look like, and what is known about a point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_bool, check_float, check_instance, check_int, wrong_value
from workers.measurement_plan import PLAN_CHECKS
from workers.metric_names import metric_name_problem

_Check = Callable[[str, Any], object]
T = TypeVar("T")
MAXIMUM_AXIS_LENGTH = 16384


class PointStatus(IntEnum):
    """What is known about one point of a landscape."""

    PENDING = 0
    MEASURED = 1
    INTERPOLATED = 2
    FAILED = 3


@dataclass(frozen=True)
class SamplingReport:
    """What adaptive sampling measured and found; errors are shares of the range of the losses, or of the loss itself.

    Attributes:
        tolerance: the largest error asked for.
        relative: whether errors are shares of the loss itself.
        measured: points that were measured or failed, the held-out ones among them.
        interpolated: all other points.
        rounds: how often measured values decided what to measure next.
        estimated_error: the largest estimate of an interpolated point.
        checks: how often points were held out; each check after the first follows one that failed.
        held_out: how many points the last check held out.
        held_out_error: the largest error at those, NaN without any, infinite where NaN and numbers were mixed up.
        held_out_rms: the root mean square of the errors at those, NaN without any.
        share_beyond_95: the largest share of interpolated points beyond the tolerance that the last check does not
            contradict with 95 % confidence (exact binomial bound), NaN without any held-out points.
        largest_gap: in cells, one more than the side of the largest square of points of which none is measured:
            features narrower than so many points may be missed.
        reached: whether estimates and check are within the tolerance: an estimate, not a proof. A feature that lies
            between all measured points, such as a single outlying point, is not seen by this.
    """

    tolerance: float
    relative: bool
    measured: int
    interpolated: int
    rounds: int
    estimated_error: float
    checks: int
    held_out: int
    held_out_error: float
    held_out_rms: float
    share_beyond_95: float
    largest_gap: int
    reached: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON values; what is not finite becomes None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


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


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Checks those attributes that are computed with; all others may hold any JSON value and are only shown."""
    for name, check in _CHECKS.items():
        if attributes.get(name) is not None:
            check(name, attributes[name])


def _check_sampling(name: str, value: object) -> None:
    report = _check_entries(name, value, _SAMPLING_CHECKS | _REPORT_CHECKS)
    if report.get("interpolated"):
        _check_entries(name, value, _REPORT_CHECKS, "a report with {}, because points are interpolated")


def _check_interval(name: str, value: Any) -> None:
    if not check_instance(name, value, list | tuple, "a list"):
        raise wrong_value(name, "a list of numbers that is not empty", value)
    for number in value:
        check_int(f"a number of {name}", number)


def _check_each(name: str, value: Any, check: _Check) -> None:
    for index, item in enumerate(check_instance(name, value, list | tuple, "a list")):
        check(f"{name}[{index}]", item)


def _check_entries(name: str, value: Any, checks: Mapping[str, _Check], needed: str = "") -> Mapping[str, Any]:
    """Checks the entries that are there; with ``needed``, the text of what is expected, all must be."""
    check_instance(name, value, Mapping, "a dict")
    for key, check in checks.items():
        if key in value:
            check(f"{name}[{key!r}]", value[key])
    missing = [key for key in checks if key not in value]
    if needed and missing:
        raise wrong_value(name, needed.format(missing), dict(value))
    return dict(value)


_check_text: _Check = partial(check_instance, types=str, expected="a str")
_DATA_SET_CHECKS: dict[str, _Check] = {
    "name": _check_text,
    "num_samples": partial(check_int, minimum=1),
    "sha256": _check_text,
}
_SAMPLING_CHECKS: dict[str, _Check] = {"mode": _check_text, "finished": check_bool}
_CHECK_OF_TYPE: dict[str, _Check] = {
    "int": partial(check_int, minimum=0),
    "bool": check_bool,
    "float": lambda name, value: value is None or check_float(name, value),
}
_REPORT_CHECKS = {item.name: _CHECK_OF_TYPE[str(item.type)] for item in fields(SamplingReport)} | {
    "tolerance": check_float
}
_CHECKS: dict[str, _Check] = {
    "sampling": _check_sampling,
    # Another version's plan may have other entries too: the file can be read, but not continued.
    "measurement_plan": partial(_check_entries, checks=PLAN_CHECKS),
    "notes": partial(_check_each, check=_check_text),
    "datasets": partial(
        _check_each, check=partial(_check_entries, checks=_DATA_SET_CHECKS, needed="a data set with {}")
    ),
    "groups": _check_text,
    "intervals": partial(_check_each, check=_check_interval),
    "perturb_one_dimensional": check_bool,
    "directions_seed": partial(check_int, minimum=0),
}
