"""Planes of a loss that is the same in all directions, and how round what is drawn of it is."""

import numpy as np

from landscape.grid.checkpoints import CheckpointsData
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.record.checks import PointStatus


def isotropic_plane(cosine, norms, columns=81, rows=61):
    """A plane of ``|step from the origin|^2 + 0.1``, computed from the inner products of its directions."""
    x, y = np.linspace(-1, 1, columns), np.linspace(-1, 1, rows)
    steps = np.linspace(1, 0, 8)
    path = CheckpointsData.empty(range(8), 0.7 * steps, 0.5 * steps**2, np.zeros(8), steps)
    data = LandscapeData.empty(
        x, y, DirectionsData(np.array(norms), None, cosine), ("loss",), path,
        {"decomposition": "random", "normalization": "filter", "network": "LeNet"},
    )  # fmt: skip

    def loss(x, y):
        mixed = cosine * norms[0] * norms[1]
        return 0.1 + (norms[0] * x) ** 2 + 2 * mixed * x * y + (norms[1] * y) ** 2

    data.metrics["loss"][:] = loss(x[None, :], y[:, None])
    data.status[:] = PointStatus.MEASURED
    path.projected["loss"][:] = loss(path.x, path.y)
    path.metrics["loss"][:] = path.projected["loss"] + 0.1
    path.status[:] = path.projected_status[:] = PointStatus.MEASURED
    data.origin.metrics["loss"] = 0.1
    data.origin.status = PointStatus.MEASURED
    return data


def axis_ratio(points):
    """The ratio of the axes, at least 1, of the ellipse that fits points best, shape (n, 2)."""
    x, y = (np.asarray(points, np.float64) - np.mean(points, axis=0)).T
    scale = np.sqrt(np.mean(x**2 + y**2))
    x, y = x / scale, y / scale
    a, b, c, *_ = np.linalg.lstsq(np.column_stack([x**2, x * y, y**2, x, y]), np.ones(len(x)), rcond=None)[0]
    low, high = np.linalg.eigvalsh([[a, b / 2], [b / 2, c]])
    return float(np.sqrt(high / low))
