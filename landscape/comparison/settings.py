"""Along which lines networks are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collectors.validation import check_choice, check_float, check_int, wrong_value

from ..planes.directions import NORMALIZATIONS

if TYPE_CHECKING:
    from jaxtyping import Float64


@dataclass(frozen=True)
class ComparisonSettings:
    """What is measured of each network; ``compare`` explains it."""

    directions: int = 12
    points: int = 9
    radius: float = 0.5
    normalization: str = "filter"
    seed: int = 0
    confidence: float = 0.95
    rise: float = 0.1
    trace_lines: int = 0

    def __post_init__(self) -> None:
        if check_int("directions", self.directions, minimum=1) in (2, 3):
            raise wrong_value(
                "directions",
                "1, of which the interval leaves directions out, or at least 4, because intervals from 2 or 3 hold the "
                "truth less often than they say",
                self.directions,
            )
        if check_int("points", self.points, minimum=3) % 2 == 0:
            raise wrong_value("points", "an odd number, so that the network itself is in the middle", self.points)
        for name in ("radius", "rise"):
            if check_float(name, getattr(self, name)) <= 0:
                raise wrong_value(name, "a number above 0", getattr(self, name))
        check_choice("normalization", self.normalization, NORMALIZATIONS)
        check_int("seed", self.seed, minimum=0)
        if not 0 < check_float("confidence", self.confidence) < 1:
            raise wrong_value("confidence", "a number between 0 and 1, such as 0.95", self.confidence)
        check_int("trace_lines", self.trace_lines, minimum=0)

    @property
    def t(self) -> Float64[np.ndarray, " points"]:
        """Places on a line, in lengths of its direction; 0 is exactly in the middle."""
        half = np.linspace(0, float(self.radius), self.points // 2 + 1)
        return np.concatenate([-half[:0:-1], half])
