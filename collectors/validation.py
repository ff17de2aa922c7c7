"""Checks of arguments: each returns its value (converted where that is harmless), or raises TypeError or ValueError."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

_LONGEST_PATH, _LONGEST_NAME = 4095, 255
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")


def wrong_type(name: str, expected: str, value: object) -> TypeError:
    return TypeError(f"{name} must be {expected}, but got {type(value).__name__}: {_short(value)}.")


def wrong_value(name: str, expected: str, value: object) -> ValueError:
    return ValueError(f"{name} must be {expected}, but got {_short(value)}.")


def check_instance(name: str, value: T, types: type | UnionType | tuple[type, ...], expected: str) -> T:
    if not isinstance(value, types):
        raise wrong_type(name, expected, value)
    return value


def check_int(name: str, value: Any, minimum: int | None = None, maximum: int | None = None) -> int:
    """Returns the value as an ``int``; a ``bool`` is not an integer here."""
    expected = "an int" + _range_text(minimum, maximum)
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise wrong_type(name, expected, value)
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise wrong_value(name, expected, value)
    return int(value)


def check_float(name: str, value: Any, minimum: float | None = None, maximum: float | None = None) -> float:
    """Returns the value as a finite ``float``."""
    expected = "a finite number" + _range_text(minimum, maximum)
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise wrong_type(name, expected, value)
    outside = (minimum is not None and value < minimum) or (maximum is not None and value > maximum)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if outside or not math.isfinite(number):
        raise wrong_value(name, expected, value)
    return number


def check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise wrong_type(name, "a bool", value)
    return bool(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    expected = "one of " + ", ".join(repr(choice) for choice in choices)
    text: str = check_instance(name, value, str, expected)
    if text not in choices:
        raise wrong_value(name, expected, value)
    return text


def check_path(name: str, value: Any) -> Path:
    """Returns the value as an absolute path; nothing on disk is touched."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise wrong_type(name, "a path (str or os.PathLike)", value)
    if not text.strip():
        raise wrong_value(name, "a path that is not blank", text)
    if "\0" in text:
        raise wrong_value(name, "a path without a null character", text)
    if _URL.match(text):
        raise wrong_value(name, "a path on this machine, and no URL", text)
    try:
        path = Path(text).expanduser().absolute()
        encoded = os.fsencode(path)
    except (RuntimeError, UnicodeEncodeError) as error:
        raise wrong_value(name, f"a path that can be used ({error})", text) from error
    if len(encoded) > _LONGEST_PATH or any(len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts):
        raise wrong_value(
            name, f"a path of at most {_LONGEST_PATH} bytes whose parts have at most {_LONGEST_NAME} each", text
        )
    return path


def check_keys(name: str, value: Any, allowed: Iterable[str], required: Iterable[str] = ()) -> dict[str, Any]:
    allowed = tuple(allowed)
    for key in check_instance(name, value, Mapping, "a dict"):
        check_instance(f"a key of {name}", key, str, "a str")
    unknown = sorted(set(value) - set(allowed))
    if unknown:
        raise ValueError(
            f"{name} has unknown keys {_short(unknown)}; the keys it may have are {sorted(allowed)}. "
            "Remove or rename the unknown ones."
        )
    missing = sorted(set(required) - set(value))
    if missing:
        raise ValueError(f"{name} lacks the keys {missing}; it has {_short(sorted(value))}. Add the missing ones.")
    return dict(value)


def check_device_ids(name: str, value: Any) -> tuple[int, ...] | None:
    """Returns unique, non-negative device ids, or None for "all devices"."""
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray | range):
        raise wrong_type(name, "a list of ints or None", value)
    ids = tuple(check_int(f"{name}[{index}]", item, minimum=0) for index, item in enumerate(value))
    if not ids:
        raise wrong_value(name, "a list with at least one device id, or None for all devices", list(ids))
    if len(set(ids)) != len(ids):
        raise wrong_value(name, "a list in which no device id is repeated", list(ids))
    return ids


def _range_text(minimum: float | None, maximum: float | None) -> str:
    if minimum is None:
        return "" if maximum is None else f" of at most {maximum}"
    return f" of at least {minimum}" if maximum is None else f" from {minimum} to {maximum}"


def _short(value: object, limit: int = 120) -> str:
    try:
        text = repr(value)
    except Exception:
        # A repr that fails (an int with too many digits, for example) must not hide the error that quotes it.
        text = object.__repr__(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
