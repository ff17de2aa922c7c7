"""One option of calls and commands, and the checks that belong to no other room."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from collectors.files import system
from collectors.files.places import check_directory
from collectors.validation import check_choice, check_float, check_instance, check_int, wrong_type, wrong_value
from workers.measurement_options import memory_limit
from workers.measurement_plan import MeasurementPlan

from .whole_file import read_file_attributes

Check = Callable[[str, Any], Any]
"""Of what an error calls a value, and the value, which it returns."""
_OF_POINTS = ("groups", "extremes", "keep_samples", "buffers", "recalibration_batch_size", "precision")
_OF_FILE = ("num_samples", "samples", "seed", "seed_each_point", "overwrite")
_PRODUCTS = "products are made with the loss alone, in float32, and not compiled"
_CURVE = "a curve is fitted with the loss alone, in float32, and not compiled"
# Which options some measurements have no use for, and why.
_LEFT_OUT: Mapping[str, tuple[Sequence[str], str]] = {
    "points": (("keep_samples",), "points lie in no file"),
    "regrid": ((*_OF_FILE, *_OF_POINTS[1:]), "the file says how it was measured"),
    "curvature": ((*_OF_POINTS, "compile"), _PRODUCTS),
    "hessian_plane": ((*_OF_POINTS, "compile", "budget"), _PRODUCTS),
    "trace": ((*_OF_POINTS, "seed_each_point", "budget", "dry_run"), "it is a few losses, in float32"),
    "compare": (_OF_POINTS[:3], "networks are compared by the loss alone"),
    "connect": ((*_OF_POINTS, "compile", "seed_each_point"), _CURVE),
}


@dataclass(frozen=True)
class Option:
    """One option of calls and commands; its type is in the kinds of options in ``options.py``."""

    default: Any  # where it is left out
    check: Check | tuple[str, ...] | None = None  # or the words that it may be; None where what it reaches checks it
    text: str = ""  # explains it; the first sentence is the command line's help
    help: str = ""  # the command line's, where that is not the first sentence
    flags: Sequence[str] = ()  # what is typed, where that is not the name
    metavar: str | None = None  # what its help shows in place of a type
    typed: Any = None  # the type of what is typed, where it is not the default's, or, without one, a text
    words: tuple[str, ...] = ()  # those that help and shell show, where it may be something else too
    panel: str = ""  # the heading under which a help shows it; that of all options where it is empty

    @property
    def choices(self) -> tuple[str, ...]:
        return self.check if isinstance(self.check, tuple) else self.words

    def checked(self, name: str, value: Any) -> Any:
        if isinstance(self.check, tuple):
            return check_choice(name, value, self.check)
        return value if self.check is None else self.check(name, value)

    def or_none(self, typed: Any, help: str = "", **changes: Any) -> Option:
        check = optional(self.checked)
        return replace(self, default=None, check=check, help=help, typed=typed, words=self.choices, **changes)


def check_useful(method: str, given: Mapping[str, Any], table: Mapping[str, Option]) -> None:
    """Raises a ValueError for an option of ``Measure`` that one of its methods has no use for."""
    names, reason = _LEFT_OUT.get(method, ((), ""))
    for name in names:
        if given[name] != table[name].default:
            raise ValueError(f"{name} must be left out for Measure.{method}: {reason}.")


def optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def at_least(minimum: int) -> Check:
    return functools.partial(check_int, minimum=minimum)


def limited(check: Check, fits: Callable[[Any], bool], expected: str) -> Check:
    """Returns the check of a number that is within limits beyond those of ``check``."""

    def checked(name: str, value: Any) -> Any:
        if not fits(number := check(name, value)):
            raise wrong_value(name, expected, value)
        return number

    return checked


check_address = optional(
    functools.partial(check_instance, types=str, expected="the address of a Ray cluster (str) or None")
)
check_above_zero = limited(check_float, lambda number: number > 0, "a number above 0")
check_between_0_and_1 = limited(check_float, lambda number: 0 < number < 1, "a number between 0 and 1")


@dataclass(frozen=True)
class Share:
    """Which points of a grid one of several jobs measures: every ``count``-th, from the one of its ``number`` on."""

    number: int  # 1 to count
    count: int

    def has(self, index: int) -> bool:
        return index % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}of{self.count}"

    @classmethod
    def read(cls, text: str) -> Share | None:
        """Returns the share that ``str`` wrote so; None for any other text."""
        found = re.fullmatch(r"([1-9]\d*)of([1-9]\d*)", text)
        return None if found is None else cls(int(found[1]), int(found[2]))


def check_share_of_grid(name: str, value: Any) -> Share | None:
    """Returns the share that a text such as "2/4" means, or, with "array", this job of a SLURM array."""
    if value is None or isinstance(value, Share):
        return value
    expected = 'text such as "2/4", whose first number is from 1 to the second, or "array"'
    if check_instance(name, value, str, expected) == "array":
        return _share_of_array(name)
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", value)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise wrong_value(name, expected, value)
    share = Share(int(found[1]), int(found[2]))
    return None if share.count == 1 else share


def _share_of_array(name: str) -> Share:
    values = [os.environ.get(f"SLURM_ARRAY_TASK_{part}", "") for part in ("ID", "MIN", "STEP", "COUNT")]
    numbers = [int(text) for text in values if text.isdecimal()]
    share = Share((numbers[0] - numbers[1]) // max(numbers[2], 1) + 1, numbers[3]) if len(numbers) == 4 else None
    if share is None or not 1 <= share.number <= share.count or share.count == 1:
        raise ValueError(
            f'{name} "array" must be given in a job of a SLURM array of several, whose indices have one distance '
            f"(--array=1-4), but SLURM_ARRAY_TASK_ID, _MIN, _STEP and _COUNT are {values}. Give {name} as text such as "
            "2/4, also to repeat one job of an array."
        )
    return share


def check_share(name: str, value: Any) -> float:
    expected = "a number above 0 and below 1, such as 0.01 for one per cent"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, expected, value)
    if not 0 < value < 1:
        raise wrong_value(name, expected, value)
    return float(value)


def check_sample_memory(name: str, value: Any) -> int | str:
    """Returns how much memory samples may take, which workers make bytes of."""
    memory_limit(value, name)
    return value  # type: ignore[no-any-return]


def check_stem(name: str, value: Any) -> str:
    check_instance(name, value, str, "the beginning of a file name (str) or None")
    refused = ", and none that Windows refuses" if system.refuses_name(value) else ""
    if not value.strip() or "/" in value or "\0" in value or value.startswith(".") or refused:
        raise wrong_value(name, f"the beginning of a file name, without '/' and no leading '.'{refused}", value)
    return str(value)


def check_plan(name: str, value: Any) -> MeasurementPlan | None:
    """Returns the plan that a user gives, as such or as a file's; None where none is given."""
    if value is None or isinstance(value, MeasurementPlan):
        return value
    check_instance(name, value, str | os.PathLike, "a MeasurementPlan, the path of a landscape file, or None")
    path = check_directory(name, value)
    stored = read_file_attributes(path).get("measurement_plan")
    if stored is None:
        raise wrong_value(name, "a landscape file that says how it was measured (an imported one does not)", value)
    try:
        return MeasurementPlan.from_json(stored)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a landscape file whose measurement plan can be used here, but that of {path} cannot "
            f"({error}). Give another file, or leave {name} out."
        ) from error
