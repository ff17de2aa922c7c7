"""Whether the loss of the samples splits into losses of each, found out where no landscape is measured."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np

from collectors.errors import CheckpointError
from collectors.networks.weight_space import WeightSpace
from collectors.weights.aligned import AlignedState
from workers.pool import Pool

from ..errors import PlaneError
from ..planes.directions import NORMALIZATIONS
from ..planes.from_checkpoints import random_plane_of
from ..planes.plane import Plane


def find_out_how_losses_add_up(pool: Pool, weights: Mapping[int, AlignedState]) -> None:
    """Lets the workers find out whether the loss splits into samples, at weights where samples differ.

    It is found out on a line: from the last set of weights that is finite, into a random direction.
    """
    for number in sorted(weights, reverse=True):
        try:
            with np.errstate(over="raise"):
                line = _random_line(weights[number], pool.description.space)
        except (CheckpointError, FloatingPointError):
            continue  # a training that diverged; each such set gets an error of its own
        pool.load(line.origin, line.directions, line.buffers, (), [(1.0,)])
        return


def _random_line(state: AlignedState, space: WeightSpace) -> Plane:
    for normalization in NORMALIZATIONS[:-1]:
        with contextlib.suppress(PlaneError):
            return random_plane_of(
                state, space, seed=0, normalization=normalization, perturb_one_dimensional=True, dimension=1
            )
    # Weights that are all zero have no scale.
    return random_plane_of(state, space, seed=0, normalization=NORMALIZATIONS[-1], dimension=1)
