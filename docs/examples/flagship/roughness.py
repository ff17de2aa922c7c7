"""How rough the loss around a network is, in numbers that are defined on the measured points alone."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from landscape import Landscape

GUESSING = math.log(10)
"""The loss of a network that gives all ten classes the same probability."""


@dataclass(frozen=True)
class Surroundings:
    """What was measured of one network.

    Attributes:
        plane: the loss on a plane through it.
        lines: the loss along random lines through it.
        origin: loss and accuracy of the network itself over all samples, "loss@test" and "accuracy@test" among them.
    """

    plane: Landscape
    lines: Sequence[Landscape]
    origin: dict[str, float]

    @classmethod
    def load(cls, folder: Path, lines: int) -> Surroundings:
        """Reads what ``run_one`` left in a network's folder."""
        each = [Landscape.load(folder / f"line_{line}.h5") for line in range(1, lines + 1)]
        return cls(Landscape.load(folder / "plane.h5"), each, json.loads((folder / "origin.json").read_text()))


def share_falling_outwards(x: NDArray[np.float64], loss: NDArray[np.float64]) -> float:
    """Returns on how many steps away from the network, of those on one line, the loss falls.

    0 where the loss rises all the way on both sides, as around the minimum of a convex function. Any rising function
    of the loss, such as its logarithm, has the same share.

    Args:
        x: coordinates, shape (n,), with the network at 0.
        loss: shape (n,); a step from or to a value that is not finite is left out.
    """
    falls = np.concatenate([np.diff(loss[x >= 0]) < 0, np.diff(loss[x <= 0][::-1]) < 0])
    known = np.concatenate([np.isfinite(np.diff(loss[x >= 0])), np.isfinite(np.diff(loss[x <= 0][::-1]))])
    return float(falls[known].mean()) if known.any() else math.nan


def share_bending_down(loss: NDArray[np.float64]) -> float:
    """Returns at how many inner points of one line of equal steps the second difference of the loss is negative.

    0 for a convex function.

    Args:
        loss: shape (n,); points beside a value that is not finite are left out.
    """
    second = np.diff(loss, 2)
    second = second[np.isfinite(second)]
    return float((second < 0).mean()) if second.size else math.nan


@dataclass(frozen=True)
class Roughness:
    """The numbers of one network.

    Attributes:
        loss: of the network itself, over all training samples.
        test_accuracy: of the network itself.
        falling_outwards: mean of ``share_falling_outwards`` over its lines.
        bending_down: mean of ``share_bending_down`` over its lines.
        minima: minima of its plane's grid that are deeper than twice the standard error, as ``topology`` counts them.
        shallow_minima: those that are not.
        worse_than_guessing: share of its plane's points with a loss above that of guessing.
        largest: the largest finite loss of its plane.
        not_finite: share of its plane's points whose loss is not finite.
    """

    loss: float
    test_accuracy: float
    falling_outwards: float
    bending_down: float
    minima: int
    shallow_minima: int
    worse_than_guessing: float
    largest: float
    not_finite: float

    @classmethod
    def of(cls, found: Surroundings) -> Roughness:
        """Returns the numbers of one network."""
        plane = found.plane.loss
        finite = np.isfinite(plane)
        topology = found.plane.topology()
        return cls(
            loss=found.origin["loss"],
            test_accuracy=found.origin["accuracy@test"],
            falling_outwards=float(np.mean([share_falling_outwards(line.x, line.loss) for line in found.lines])),
            bending_down=float(np.mean([share_bending_down(line.loss) for line in found.lines])),
            minima=len(topology.minima),
            shallow_minima=topology.shallow,
            worse_than_guessing=float((plane[finite] > GUESSING).mean()),
            largest=float(plane[finite].max()),
            not_finite=float((~finite).mean()),
        )
