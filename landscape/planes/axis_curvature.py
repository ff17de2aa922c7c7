"""How the loss bends along a plane's directions, where these are eigenvectors of its curvature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collectors.validation import check_float, wrong_type, wrong_value

FROM_THE_TOP = ("top", "second", "third", "fourth", "fifth")
"""The largest eigenvalue, the next one, and so on."""
BOTTOM = "bottom"
"""The lowest eigenvalue, which is negative at a saddle."""
WHICH = (*FROM_THE_TOP, BOTTOM)
USUAL = ("top", "second")


@dataclass(frozen=True)
class AxisCurvature:
    """The eigenvalues that belong to the d directions of a plane or a line."""

    matrix: str  # "hessian" or "ggn" (generalised Gauss-Newton) of the mean loss; old files: "factors" (Kronecker)
    which: tuple[str, ...]  # of its eigenvectors, for each direction one of ``WHICH``
    eigenvalues: tuple[float, ...]  # d numbers: the second derivative of the loss along a direction of length one
    residuals: tuple[float, ...]  # d numbers: no true eigenvalue is further away than that; NaN for factors
    num_samples: int | None  # over which the loss is a mean; None for factors
    rise: float = 1.0  # of the loss along an axis to its end, as far as it is a parabola; sets how far axes reach

    @property
    def is_known(self) -> bool:
        """Whether the eigenvalues are known; a dry run finds none."""
        return not any(math.isnan(value) for value in self.eigenvalues)

    def half_widths(self, longest: float) -> list[float]:
        """Returns how far the axes reach on each side, in weight space; ``longest`` where the loss hardly bends."""
        return [
            min(math.sqrt(2 * self.rise / abs(value)), longest) if abs(value) > 0 else longest
            for value in self.eigenvalues
        ]

    def notes(self, longest: float) -> list[str]:
        """Returns which axes end before ``rise`` is reached."""
        return [
            f"along {'xy'[axis]} the loss hardly bends (lambda = {value:.3g}), so the axis ends at the length of the "
            f"weights, {longest:.3g}, where a parabola has changed by {abs(value) * longest**2 / 2:.3g}."
            for axis, (value, width) in enumerate(zip(self.eigenvalues, self.half_widths(longest), strict=True))
            if self.is_known and width == longest
        ]

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AxisCurvature:
        given: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
        return cls(**given)


def check_rise(name: str, rise: object) -> float:
    if (checked := check_float(name, rise)) <= 0:
        raise wrong_value(name, "a number above 0, in units of the loss", rise)
    return checked


def check_which(name: str, which: object) -> tuple[str, ...]:
    names = [which] if isinstance(which, str) else which
    expected = f"one or two of {', '.join(WHICH)}"
    if not isinstance(names, Sequence) or not all(isinstance(item, str) for item in names):
        raise wrong_type(name, expected, which)
    if not 1 <= len(names) <= 2 or len(set(names)) < len(names) or not set(names) <= set(WHICH):
        raise wrong_value(name, expected, which)
    return tuple(names)
