"""How a plane is surveyed: which points, how exactly, for how long."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collectors.validation import check_bool, check_choice, check_int, wrong_type, wrong_value

from .options import SurveyOptions

SAMPLINGS = ("full", "adaptive")
_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")
_DURATION_EXPECTED = 'a number of seconds above 0, or text such as "90s", "30min", "1.5h"'


@dataclass(frozen=True)
class SurveySettings:
    """The checked options that a survey itself follows; ``SurveyOptions`` explains them.

    Attributes:
        budget: seconds that the whole call may take, or None.
        share: of the budget, the seconds that are left for this landscape; None means all of it.
    """

    sampling: str = "full"
    tolerance: float = 0.01
    relative_tolerance: bool = False
    budget: float | None = None
    seed: int = 0
    overwrite: bool = False
    progress: bool = True
    share: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long this landscape may take; None where there is no budget."""
        return self.budget if self.share is None else self.share

    def sampling_begun(self) -> dict[str, Any]:
        """Returns what a file says of a sampling that is not finished, so that it can go on as it began."""
        begun: dict[str, Any] = {"mode": self.sampling, "finished": False}
        if self.sampling == "adaptive":
            begun |= {"tolerance": self.tolerance, "relative": self.relative_tolerance}
        return begun

    @classmethod
    def checked(cls, options: SurveyOptions) -> SurveySettings:
        """Returns the settings after checking what a user gave; ``options`` has a value for each of them.

        Raises:
            TypeError: an option has the wrong type.
            ValueError: an option has a wrong value.
        """
        budget = options["budget"]
        sampling = check_choice("sampling", options["sampling"], SAMPLINGS)
        if check_bool("extremes", options["extremes"]) and sampling == "adaptive":
            raise ValueError(
                'sampling must be "full" with extremes=True: adaptive sampling knows the error of the loss alone, not '
                "that of the eigenvalues between its points. Measure a grid of fewer points instead."
            )
        return cls(
            sampling=sampling,
            tolerance=_check_tolerance(options["tolerance"]),
            relative_tolerance=check_bool("relative_tolerance", options["relative_tolerance"]),
            budget=None if budget is None else duration_seconds("budget", budget),
            seed=check_int("seed", options["seed"], minimum=0),
            overwrite=check_bool("overwrite", options["overwrite"]),
            progress=check_bool("progress", options["progress"]),
        )


@dataclass(frozen=True)
class Conduct:
    """How something is measured, beside what.

    Attributes:
        budget: seconds that the whole call may take, or None.
        began: when it began, as ``time.perf_counter`` says.
        overwrite: whether a file of another identity is replaced.
        progress: whether a bar is shown.
    """

    budget: float | None = None
    began: float = 0.0
    overwrite: bool = False
    progress: bool = True

    @property
    def is_late(self) -> bool:
        """Whether the budget is spent."""
        return self.budget is not None and time.perf_counter() - self.began > self.budget

    @classmethod
    def checked(cls, options: Mapping[str, Any]) -> Conduct:
        """Returns what was asked for, checked; the clock begins to run.

        Raises:
            TypeError: an option has the wrong type.
            ValueError: an option has a wrong value.
        """
        budget = options["budget"]
        return cls(
            None if budget is None else duration_seconds("budget", budget),
            time.perf_counter(),
            check_bool("overwrite", options["overwrite"]),
            check_bool("progress", options["progress"]),
        )


def duration_seconds(name: str, value: object) -> float:
    """Returns a duration in seconds.

    Args:
        name: of the argument, for an error's text.
        value: a number of seconds, or text with a unit: "90s", "30min", "1.5h", "2d".

    Raises:
        TypeError: it is neither a number nor text.
        ValueError: it is no positive duration.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong_type(name, _DURATION_EXPECTED, value)
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.lower())
        if match is None or (match[2] or "s") not in _UNITS:
            raise wrong_value(name, _DURATION_EXPECTED, value)
        value = float(match[1]) * _UNITS[match[2] or "s"]
    if not math.isfinite(value) or value <= 0:
        raise wrong_value(name, _DURATION_EXPECTED, value)
    return float(value)


def duration_text(seconds: float) -> str:
    """Returns a duration in the unit that people would use."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 100 * 60:
        minutes = seconds / 60
        return f"{minutes:.2g} min" if minutes < 10 else f"{minutes:.0f} min"
    return f"{seconds / 3600:.3g} h" if seconds < 48 * 3600 else f"{seconds / 86400:.3g} days"


def _check_tolerance(value: object) -> float:
    expected = "a number above 0 and below 1, such as 0.01 for one per cent"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type("tolerance", expected, value)
    if not 0 < value < 1:
        raise wrong_value("tolerance", expected, value)
    return float(value)
