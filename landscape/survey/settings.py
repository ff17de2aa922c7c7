"""How a plane is surveyed: which points, how exactly, for how long."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from collectors.validation import check_bool, check_choice, check_int, wrong_type, wrong_value

SAMPLINGS = ("full", "adaptive")
_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")
_DURATION_EXPECTED = 'a number of seconds above 0, or text such as "90s", "30min", "1.5h"'


@dataclass(frozen=True)
class SurveySettings:
    """How a plane is surveyed.

    Attributes:
        sampling: "full" (every grid point is measured) or "adaptive" (some are measured, the others interpolated,
            until the estimated error is within the tolerance).
        tolerance: of adaptive sampling, the largest error of the loss at an interpolated point, as a share.
        relative_tolerance: of what the tolerance is a share: of the loss at the point itself (for logarithmic
            pictures), or of the range of all losses.
        budget: seconds after which no new point is begun, or None.
        seed: of the points that adaptive sampling measures to check itself.
        overwrite: whether a file of another identity is replaced.
        progress: whether a progress bar and a forecast are shown.
    """

    sampling: str = "full"
    tolerance: float = 0.01
    relative_tolerance: bool = False
    budget: float | None = None
    seed: int = 0
    overwrite: bool = False
    progress: bool = True

    @classmethod
    def checked(
        cls,
        *,
        sampling: object = "full",
        tolerance: object = 0.01,
        relative_tolerance: object = False,
        budget: object = None,
        seed: object = 0,
        overwrite: object = False,
        progress: object = True,
    ) -> SurveySettings:
        """Returns the settings after checking what a user gave.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a wrong value.
        """
        return cls(
            sampling=check_choice("sampling", sampling, SAMPLINGS),
            tolerance=_check_tolerance(tolerance),
            relative_tolerance=check_bool("relative_tolerance", relative_tolerance),
            budget=None if budget is None else duration_seconds("budget", budget),
            seed=check_int("seed", seed, minimum=0),
            overwrite=check_bool("overwrite", overwrite),
            progress=check_bool("progress", progress),
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
    """Returns a duration in the unit in which people would say it."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h" if seconds < 48 * 3600 else f"{seconds / 86400:.3g} days"


def _check_tolerance(value: object) -> float:
    expected = "a number above 0 and at most 1, such as 0.01 for one per cent"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type("tolerance", expected, value)
    if not 0 < value <= 1:
        raise wrong_value("tolerance", expected, value)
    return float(value)
