"""Whether the loss of the samples splits into losses of each, found out where no landscape is measured."""

from __future__ import annotations

import contextlib
import functools
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
    """Lets workers find out whether the loss splits into samples, on a random line from the last finite weights."""
    for number in sorted(weights, reverse=True):
        try:
            with np.errstate(over="raise"):
                line = _random_line(weights[number], pool.description.space)
        except (CheckpointError, FloatingPointError):
            continue  # a training that diverged; each such set gets an error of its own
        pool.load(line.origin, line.directions, line.buffers, (), [(1.0,)])
        return


def _random_line(state: AlignedState, space: WeightSpace) -> Plane:
    # Weights that are all zero have no scale: only the last normalization moves them.
    *scaled, unscaled = NORMALIZATIONS
    line = functools.partial(random_plane_of, state, space, seed=0, perturb_one_dimensional=True, dimension=1)
    for normalization in scaled:
        with contextlib.suppress(PlaneError):
            return line(normalization=normalization)
    return line(normalization=unscaled)
