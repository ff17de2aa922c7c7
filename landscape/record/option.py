"""One option of calls and commands, and the checks that belong to no other room."""

from __future__ import annotations

import functools
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from collectors.files import system
from collectors.files.places import check_directory
from collectors.validation import check_choice, check_float, check_instance, check_int, wrong_type, wrong_value
from workers.measurement_options import memory_limit
from workers.measurement_plan import MeasurementPlan

from .run import duration_seconds
from .whole_file import read_file_attributes

Door = TypeVar("Door", bound=Callable[..., Any])
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
    """One option of calls and commands; its type is in the kinds of options in ``options.py``.

    Attributes:
        default: where it is left out.
        check: the words that it may be, or a function of what an error calls it and the value, which returns the value;
            None where whatever it reaches checks it.
        text: explains it; the first sentence is the command line's help.
        help: the command line's, where that is not the first sentence.
        flags: what is typed, where that is not the name.
        metavar: what its help shows in place of a type.
        typed: the type of what is typed, where it is not the default's.
        words: those that help and shell show, where it may be something else too.
        panel: the heading under which a help shows it; that of all options where it is empty.
    """

    default: Any
    check: Callable[[str, Any], Any] | tuple[str, ...] | None = None
    text: str = ""
    help: str = ""
    flags: Sequence[str] = ()
    metavar: str | None = None
    typed: Any = None
    words: tuple[str, ...] = ()
    panel: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that help and shell show."""
        return self.check if isinstance(self.check, tuple) else self.words

    def checked(self, name: str, value: Any) -> Any:
        """Returns the checked value; errors call it ``name``."""
        if isinstance(self.check, tuple):
            return check_choice(name, value, self.check)
        return value if self.check is None else self.check(name, value)

    def or_none(self, typed: Any, help: str = "", **changes: Any) -> Option:
        """Returns the option where it may be left out, which is None."""

        def check(label: str, value: Any) -> Any:
            return None if value is None else self.checked(label, value)

        return replace(self, default=None, check=check, help=help, typed=typed, words=self.choices, **changes)


def show_options(function: Door, options: Mapping[str, Option], types: Mapping[str, Any]) -> Door:
    """Puts options into the signature and the text of a function or a class that takes them as ``**options``."""

    def explain(line: re.Match[str]) -> str:
        texts = (f"{name}: {option.text}" for name, option in options.items())
        deeper = f"{line[1]}    "
        return "\n".join(textwrap.fill(text, 120, initial_indent=line[1], subsequent_indent=deeper) for text in texts)

    signature = inspect.signature(function)
    first = [item for item in signature.parameters.values() if item.kind is not inspect.Parameter.VAR_KEYWORD]
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=types[name])
        for name, option in options.items()
    ]
    function.__signature__ = signature.replace(parameters=[*first, *shown])  # type: ignore[attr-defined]
    function.__doc__ = re.sub(r"^( *)\*\*options: .*$", explain, function.__doc__ or "", flags=re.MULTILINE)
    return function


def check_useful(method: str, given: Mapping[str, Any], table: Mapping[str, Option]) -> None:
    """Raises a ValueError for an option of ``Measure`` that one of its methods has no use for."""
    names, reason = _LEFT_OUT.get(method, ((), ""))
    for name in names:
        if given[name] != table[name].default:
            raise ValueError(f"{name} must be left out for Measure.{method}: {reason}.")


def at_least(minimum: int) -> Callable[[str, Any], int]:
    """Returns the check of a whole number."""
    return functools.partial(check_int, minimum=minimum)


def check_share(name: str, value: Any) -> float:
    """Returns a tolerance of adaptive sampling."""
    expected = "a number above 0 and below 1, such as 0.01 for one per cent"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, expected, value)
    if not 0 < value < 1:
        raise wrong_value(name, expected, value)
    return float(value)


def check_budget(name: str, value: Any) -> float | None:
    """Returns seconds, or None."""
    return None if value is None else duration_seconds(name, value)


def check_address(name: str, value: Any) -> str | None:
    """Returns the address of a Ray cluster, or None."""
    return None if value is None else check_instance(name, value, str, "the address of a Ray cluster (str) or None")


def check_sample_memory(name: str, value: Any) -> int | str:
    """Returns how much memory samples may take, which workers make bytes of."""
    memory_limit(value, name)
    return value  # type: ignore[no-any-return]


def check_stem(name: str, value: Any) -> str | None:
    """Returns the beginning of a file name, or None."""
    if value is None:
        return None
    check_instance(name, value, str, "the beginning of a file name (str) or None")
    refused = ", and none that Windows refuses" if system.refuses_name(value) else ""
    if not value.strip() or "/" in value or "\0" in value or value.startswith(".") or refused:
        raise wrong_value(name, f"the beginning of a file name, without '/' and no leading '.'{refused}", value)
    return str(value)


def check_plan(name: str, value: Any) -> MeasurementPlan | None:
    """Returns the plan that a user gives, as such or as a file's; None where none is given."""
    if value is None or isinstance(value, MeasurementPlan):
        return value
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(name, "a MeasurementPlan, the path of a landscape file, or None", value)
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


def check_above_zero(name: str, value: Any) -> float:
    """Returns a number above 0."""
    if (number := check_float(name, value)) <= 0:
        raise wrong_value(name, "a number above 0", value)
    return number


def check_between_0_and_1(name: str, value: Any) -> float:
    """Returns a confidence, or a tolerance as a share."""
    if not 0 < (number := check_float(name, value)) < 1:
        raise wrong_value(name, "a number between 0 and 1", value)
    return number


def check_odd(name: str, value: Any) -> int:
    """Returns how many points a line has, of which one is in the middle."""
    if (number := check_int(name, value, minimum=3)) % 2 == 0:
        raise wrong_value(name, "an odd number, so that the network itself is in the middle", value)
    return number


def check_directions(name: str, value: Any) -> int:
    """Returns through how many directions networks are compared."""
    if (number := check_int(name, value, minimum=1)) in (2, 3):
        raise wrong_value(
            name,
            "1, of which the interval leaves directions out, or at least 4, because intervals from 2 or 3 hold the "
            "truth less often than they say",
            value,
        )
    return number
