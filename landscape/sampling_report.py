"""What adaptive sampling says about itself, in the file and to the user."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class SamplingReport:
    """What adaptive sampling measured and found; errors are shares of the range of the losses, or of the loss itself.

    Attributes:
        tolerance: the largest error asked for.
        relative: whether errors are shares of the loss itself.
        measured: points that were measured or failed, the held-out ones among them.
        interpolated: points that were not.
        rounds: how often measured values decided what to measure next.
        estimated_error: the largest estimate of an interpolated point.
        checks: how often points were held out; each time after the first because the time before failed.
        held_out: how many points the last check held out.
        held_out_error: the largest error at those, NaN without any, infinite where NaN and numbers were mixed up.
        held_out_rms: the root mean square of the errors at those, NaN without any.
        reached: whether estimates and check are within the tolerance. A feature that lies between all measured
            points, such as a single outlying point, is not seen by this.
    """

    tolerance: float
    relative: bool
    measured: int
    interpolated: int
    rounds: int
    estimated_error: float
    checks: int
    held_out: int
    held_out_error: float
    held_out_rms: float
    reached: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON values; what is not finite becomes None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }
