"""How a plane is surveyed: which points, how exactly, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collectors.validation import check_bool, check_choice, check_int, wrong_type, wrong_value

from ..record.options import SurveyOptions
from ..record.run import duration_seconds

SAMPLINGS = ("full", "adaptive")


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
        """Returns the attribute of a file whose sampling is not finished, so that it can go on as it began."""
        begun: dict[str, Any] = {"mode": self.sampling, "finished": False}
        if self.sampling == "adaptive":
            begun |= {"tolerance": self.tolerance, "relative": self.relative_tolerance}
        return begun

    @classmethod
    def checked(cls, options: SurveyOptions) -> SurveySettings:
        """Returns the settings after checking what a user gave; ``options`` has a value for each of them."""
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


def _check_tolerance(value: object) -> float:
    expected = "a number above 0 and below 1, such as 0.01 for one per cent"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type("tolerance", expected, value)
    if not 0 < value < 1:
        raise wrong_value("tolerance", expected, value)
    return float(value)
