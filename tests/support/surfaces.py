"""Landscapes of a known loss that no swap or flip of axes leaves alone."""

import numpy as np

from landscape.grid.checkpoints import CheckpointsData
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus
from landscape.roles import FINAL_WEIGHTS


def loss(x, y):
    """Its minimum, 0.25, is at (0.5, 3)."""
    return 0.25 + 4 * (x - 0.5) ** 2 + 0.5 * (y - 3) ** 2 + 0.1 * x


def surface(rows=7, columns=11, *, path=True, **changes):
    """Returns a measured landscape: unequal ranges, two metrics, a path of three checkpoints that ends at the origin.

    ``rows=None`` makes a line. ``changes`` overwrite attributes.
    """
    line = rows is None
    x = np.linspace(-1, 1, columns)
    y = None if line else np.linspace(0, 4, rows or 0)
    checkpoints = None
    if path:
        checkpoints = CheckpointsData.empty(
            [2, 5, 9],
            np.array([-0.8, -0.3, 0.0]),
            None if line else np.array([3.5, 1.5, 0.0]),
            np.array([0.5, 0.25, 0.0]),
            np.array([2.0, 1.0, 0.0]),
            ("loss", "accuracy"),
            final=[False, False, True],
        )
        height = loss(checkpoints.x, 3.0 if checkpoints.y is None else checkpoints.y)
        checkpoints.projected["loss"][:], checkpoints.projected["accuracy"][:] = height, np.exp(-height)
        checkpoints.metrics["loss"][:] = height / 2
        checkpoints.status[:] = checkpoints.projected_status[:] = PointStatus.MEASURED
    attributes = {
        "decomposition": "pca",
        "unit": "epoch",
        "step_per_epoch": 4,
        "intervals": [[2, 5, 9]],
        "network": "LeNet",
        "created": "2026-11-21T10:00:00+00:00",
    }
    directions = DirectionsData(
        np.ones(1 if line else 2), None if line else np.array([0.7, 0.2]), None if line else 0.0
    )
    data = LandscapeData.empty(x, y, directions, ("loss", "accuracy"), checkpoints, {**attributes, **changes})
    data.metrics["loss"][:] = loss(x, 3.0) if y is None else loss(*np.meshgrid(x, y))
    data.metrics["accuracy"][:] = np.exp(-data.metrics["loss"])
    data.status[:] = PointStatus.MEASURED
    data.origin.metrics["loss"] = float(loss(0.0, 3.0 if line else 0.0))
    data.origin.status = PointStatus.MEASURED
    if path:
        data.origin.role, data.origin.number = FINAL_WEIGHTS, 9
    return data


def landscape(*arguments, **options):
    """Returns the same as what a user holds."""
    return Landscape(surface(*arguments, **options))
