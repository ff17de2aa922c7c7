"""Landscapes with several runs and with networks that belong to none."""

import numpy as np
from figure_cases import build, build_line, loss_at

from landscape.grid.checkpoints import CheckpointsData, OriginData
from landscape.record.checks import PointStatus

NETWORKS = ("SGD", "Adam $x_1$", "average")


def with_networks(**attributes):
    """A plane through three named networks, the first of which is the origin."""
    data = build(points=0, decomposition="points", **attributes)
    x, y = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
    _give(data, x, y, run=[-1, -1, -1], runs=(), name=NETWORKS)
    return data


def with_runs(count=5, **attributes):
    """A plane with two runs of unlike lengths that begin at one network, and an average that belongs to none."""
    data = build(points=0, **attributes)
    first, second = np.linspace(1, 0, count), np.linspace(1, 0, count + 3)
    x = np.concatenate([-1.5 * first, -1.5 + 3.2 * (1 - second), [0.8]])
    y = np.concatenate([0.9 * first**2, 0.9 * second, [-0.4]])
    run = [0] * count + [1] * (count + 3) + [-1]
    numbers = [*range(0, 5 * count, 5), *range(0, 5 * (count + 3), 5), 0]
    final = np.zeros(len(run), np.bool_)
    final[[count - 1, 2 * count + 2]] = True
    _give(data, x, y, number=numbers, run=run, runs=("SGD", "Adam"), name=[""] * (len(run) - 1) + ["EMA"], final=final)
    data.origin = OriginData(
        metrics=data.origin.metrics, status=data.origin.status, role="final weights", run="SGD",
        number=numbers[count - 1],
    )  # fmt: skip
    return data


def with_ends():
    """A line between two named networks."""
    data = build_line(np.linspace(1, 3, 9), decomposition="points")
    found = CheckpointsData.empty(
        [0, 1], np.array([0.0, 1.0]), None, np.zeros(2), np.ones(2), run=[-1, -1], runs=(), name=NETWORKS[:2]
    )
    found.projected["loss"][:] = found.metrics["loss"][:] = [2, 3]
    found.status[:] = found.projected_status[:] = PointStatus.MEASURED
    data.checkpoints = found
    data.origin = OriginData(
        y=None, metrics={"loss": 2.0}, status=PointStatus.MEASURED, role="named network", name=NETWORKS[0]
    )
    return data


def _give(data, x, y, number=(0, 1, 2), **who):
    found = CheckpointsData.empty(number, x, y, np.zeros(len(x)), np.hypot(x, y), **who)
    found.projected["loss"][:] = found.metrics["loss"][:] = loss_at(x, y)
    found.status[:] = found.projected_status[:] = PointStatus.MEASURED
    data.checkpoints = found
    data.origin.role, data.origin.name = ("named network", who["name"][0]) if not who["runs"] else ("origin", "")
    data.origin.metrics["loss"] = float(loss_at(0.0, 0.0))
