"""Which points of a grid to measure, all or as many as adaptive sampling needs, and in which order."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from collectors.shapes import Bool, Float64, Int64, UInt8

from ..record.checks import PointStatus
from ..record.option import Share
from ..record.options import OPTIONS
from .grids import GridLevels


@dataclass(frozen=True)
class SamplingSettings:
    """The checked options of sampling; ``SamplingOptions`` explains them."""

    sampling: str = "full"
    tolerance: float = 0.01
    relative_tolerance: bool = False
    seed: int = 0
    share: Share | None = None

    def begun(self) -> dict[str, Any]:
        """Returns the attribute of a file whose sampling is not finished, so that it can go on as it began."""
        begun: dict[str, Any] = {"mode": self.sampling, "finished": False}
        if self.sampling == "adaptive":
            begun |= {"tolerance": self.tolerance, "relative": self.relative_tolerance}
        if self.share is not None:
            begun["share"] = str(self.share)
        return begun

    @classmethod
    def checked(cls, options: Mapping[str, Any]) -> SamplingSettings:
        """Returns the settings after checking what a user gave; ``options`` has a value for each of them."""
        known = {item.name: options.get(item.name) for item in fields(cls)}
        settings = cls(**{name: OPTIONS[name].checked(name, value) for name, value in known.items()})
        if settings.share is not None and settings.sampling == "adaptive":
            raise ValueError(
                'sampling must be "full" with share=: adaptive sampling decides by all that is measured, which no job '
                "knows. Leave out one of the two."
            )
        if options["extremes"] and settings.sampling == "adaptive":
            raise ValueError(
                'sampling must be "full" with extremes=True: adaptive sampling knows the error of the loss alone, not '
                "that of the eigenvalues between its points. Measure a grid of fewer points instead."
            )
        return settings


def share_of(attributes: Mapping[str, Any]) -> str:
    """Returns which share of a landscape a file's attributes name, such as "2of4"; "" where it is a whole one."""
    sampling = attributes.get("sampling")
    share = sampling.get("share") if isinstance(sampling, Mapping) else None
    return share if isinstance(share, str) else ""


def pending_points(_loss: Float64[np.ndarray, "*grid"], status: UInt8[np.ndarray, "*grid"]) -> list[int]:
    """Returns, for full sampling, what ``AdaptiveSampling.next_points`` does: all pending points, coarse to fine."""
    pending = (status == PointStatus.PENDING).reshape(-1)
    return coarse_to_fine(pending, status.shape)


def coarse_to_fine(chosen: Bool[np.ndarray, " points"], shape: tuple[int, ...]) -> list[int]:
    """Returns the flat indices of the chosen points of a grid in the order of ``full_grid``."""
    order = full_grid(shape)
    found: list[int] = order[chosen[order]].tolist()
    return found


@functools.lru_cache(maxsize=4)
def full_grid(shape: tuple[int, ...]) -> Int64[np.ndarray, " points"]:
    """Returns the flat index, in C order, of every point of a grid once, coarse to fine as in adaptive sampling."""
    # So an unfinished landscape shows its whole extent, and adaptive sampling can fill its gaps.
    levels = GridLevels.of(shape)
    done = np.zeros(levels.shape, bool)
    indices = np.arange(done.size, dtype=np.int64).reshape(done.shape)
    parts = []
    for grid in levels.grids:
        points = np.ix_(*grid)
        parts.append(indices[points][~done[points]])
        done[points] = True
    order = np.concatenate(parts)
    order.setflags(write=False)  # all callers get the same one
    return order


def coarse_and_fine(shape: tuple[int, ...], points: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns those of the flat points, in their order, on adaptive sampling's first grid, and the others."""
    # From the first grid on, an unfinished landscape is a picture: what lies between its points can be interpolated.
    is_first = GridLevels.of(shape).is_first.reshape(-1)
    return [flat for flat in points if is_first[flat]], [flat for flat in points if not is_first[flat]]


def first_grid_counts(status: UInt8[np.ndarray, "*grid"]) -> tuple[int, int]:
    """Returns how many points of the first grid have a result, and how many it has; only if all do, gaps are filled."""
    first = status.reshape(-1)[GridLevels.of(status.shape).is_first.reshape(-1)]
    return int(np.isin(first, (PointStatus.MEASURED, PointStatus.FAILED)).sum()), first.size
