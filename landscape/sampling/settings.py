"""Which points of a grid are measured: all of them, or as many as adaptive sampling needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collectors.validation import check_bool, check_choice, check_int, wrong_type, wrong_value

SAMPLINGS = ("full", "adaptive")


@dataclass(frozen=True)
class SamplingSettings:
    """The checked options of sampling; ``SurveyOptions`` explains them."""

    sampling: str = "full"
    tolerance: float = 0.01
    relative_tolerance: bool = False
    seed: int = 0

    def begun(self) -> dict[str, Any]:
        """Returns the attribute of a file whose sampling is not finished, so that it can go on as it began."""
        begun: dict[str, Any] = {"mode": self.sampling, "finished": False}
        if self.sampling == "adaptive":
            begun |= {"tolerance": self.tolerance, "relative": self.relative_tolerance}
        return begun

    @classmethod
    def checked(cls, options: Mapping[str, Any]) -> SamplingSettings:
        """Returns the settings after checking what a user gave; ``options`` has a value for each of them."""
        sampling = check_choice("sampling", options["sampling"], SAMPLINGS)
        if check_bool("extremes", options["extremes"]) and sampling == "adaptive":
            raise ValueError(
                'sampling must be "full" with extremes=True: adaptive sampling knows the error of the loss alone, not '
                "that of the eigenvalues between its points. Measure a grid of fewer points instead."
            )
        return cls(
            sampling,
            _check_tolerance(options["tolerance"]),
            check_bool("relative_tolerance", options["relative_tolerance"]),
            check_int("seed", options["seed"], minimum=0),
        )


def _check_tolerance(value: object) -> float:
    expected = "a number above 0 and below 1, such as 0.01 for one per cent"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type("tolerance", expected, value)
    if not 0 < value < 1:
        raise wrong_value("tolerance", expected, value)
    return float(value)
