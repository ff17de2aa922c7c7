"""A curve between two sets of weights: which part of each control point is in a point, and how far its fitting is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.weight_space import State
from collectors.shapes import Float64
from collectors.validation import check_choice, check_float, check_int, wrong_value

KINDS = ("bezier", "polygon")


@dataclass(frozen=True)
class CurveShape:
    """Which curve runs through, or near, a row of control points; the first and the last one are its ends."""

    kind: str = "bezier"  # "bezier" (smooth, touches the ends alone) or "polygon" (straight from one to the next)
    bends: int = 1  # how many control points there are between the ends

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_int("bends", self.bends, minimum=1, maximum=64)

    def weights(self, t: NDArray[Any] | float) -> Float64[np.ndarray, "places points"]:
        """Returns each control point's share of the points at t, 0 to 1, shape (places,) or a number; rows sum to 1."""
        places = np.atleast_1d(np.asarray(t, np.float64))
        degree = self.bends + 1
        steps = np.arange(degree + 1)
        if self.kind == "polygon":
            shares: Float64[np.ndarray, "places points"] = np.maximum(0.0, 1 - np.abs(places[:, None] * degree - steps))
            return shares
        choices = np.array([math.comb(degree, int(step)) for step in steps], np.float64)
        return choices * places[:, None] ** steps * (1 - places[:, None]) ** (degree - steps)


@dataclass(frozen=True)
class FittingSettings:
    shape: CurveShape = CurveShape()
    steps: int = 500  # of the optimizer, which is Adam with a rate that falls linearly to zero
    learning_rate: float = 0.01  # in the first step
    batch_size: int = 64  # samples of a step
    seed: int = 0  # of the places on the curve and of the batches

    def __post_init__(self) -> None:
        check_int("steps", self.steps, minimum=1)
        check_int("batch_size", self.batch_size, minimum=1)
        check_int("seed", self.seed, minimum=0)
        if not check_float("learning_rate", self.learning_rate) > 0:
            raise wrong_value("learning_rate", "a number above 0", self.learning_rate)

    def place(self, step: int) -> float:
        """Returns where on the curve a step computes its gradient."""
        return float(np.random.default_rng([self.seed, 0, step]).random())

    def order(self, epoch: int, count: int) -> NDArray[np.int64]:
        """Returns the order of samples, or of whole batches, in an epoch, shape (count,)."""
        return np.random.default_rng([self.seed, 1, epoch]).permutation(count)


@dataclass(frozen=True, eq=False)
class Fitting:
    """How far the fitting of a curve is; whoever goes on from here ends with the same bits."""

    step: int  # how many steps are done
    # Float32 (float64 for a network that has it), shape (bends, weights), in the network's order of its trainable ones.
    bends: NDArray[Any]
    first: NDArray[Any]  # Adam's running means of their gradients, shape (bends, weights)
    second: NDArray[Any]  # those of the squared gradients, shape (bends, weights)
    losses: Float64[np.ndarray, " step"]  # of the steps so far, each at its place and on its batch


@dataclass(frozen=True)
class CurveTask:
    settings: FittingSettings
    first: State  # every parameter of the first network, by name
    last: State  # those of the last one
    buffers: State  # every buffer of the first network, by name
    end_buffers: State = field(default_factory=dict)  # those of the last network that are not the same in both
