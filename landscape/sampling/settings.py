"""Which points of a grid are measured: all of them, or as many as adaptive sampling needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..record.options import OPTIONS


@dataclass(frozen=True)
class SamplingSettings:
    """The checked options of sampling; ``SamplingOptions`` explains them."""

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
        settings = cls(**{item.name: OPTIONS[item.name].checked(item.name, options[item.name]) for item in fields(cls)})
        if options["extremes"] and settings.sampling == "adaptive":
            raise ValueError(
                'sampling must be "full" with extremes=True: adaptive sampling knows the error of the loss alone, not '
                "that of the eigenvalues between its points. Measure a grid of fewer points instead."
            )
        return settings
