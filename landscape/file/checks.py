"""What the attributes of a landscape must look like where the program itself goes on from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collectors.validation import (
    check_bool,
    check_float,
    check_instance,
    check_int,
    wrong_type,
    wrong_value,
)

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
