"""Paths of many checkpoints on a known surface, as optimizers leave them."""

import numpy as np
from figure_cases import build, loss_at

from landscape.grid.checkpoints import CheckpointsData
from landscape.record.checks import PointStatus

SHAPES = ("spiral", "walk", "line", "back and forth")


def places(shape, count, seed=0):
    """Returns where the checkpoints of a path lie, shape (count, 2); all paths end at the plane's origin.

    "spiral" turns inwards, "walk" is noisy and converges, "line" is straight at constant speed, "back and forth" runs
    over the same straight line again and again. The seed is also a turn that tells runs apart.
    """
    share = np.linspace(0, 1, count)
    if shape == "spiral":
        angle = 14 * (1 - share)
        found = np.column_stack([0.12 * angle * np.cos(angle), 0.06 * angle * np.sin(angle)])
    elif shape == "walk":
        noise = np.random.default_rng(seed).normal(size=(count, 2)) * 0.3 / np.sqrt(count)
        left = np.exp(-4 * share)[:, None]
        found = left * np.array([1.9, 0.9]) + np.cumsum(noise, axis=0) * np.sqrt(left)
        found -= found[-1]
    elif shape == "line":
        found = (1 - share)[:, None] * np.array([1.7, -0.7])
    else:
        found = np.cos(5 * np.pi * share)[:, None] * np.array([1.5, 0.6])
        found -= found[-1]
        found *= 0.5
    turn = 2.1 * seed
    return found @ np.array([[np.cos(turn), 0.55 * np.sin(turn)], [-np.sin(turn), np.cos(turn)]])


def build_path(shape="spiral", count=200, *, runs=1, step=1, unit="epoch", **attributes):
    """Returns a plane with runs of that many checkpoints each, numbered from 0 in steps."""
    data = build(unit=unit, **attributes)
    names = tuple(f"run {index + 1}" for index in range(runs)) if runs > 1 else ("",)
    feet = np.vstack([places(shape, count, seed) for seed in range(runs)])
    final = np.tile(np.arange(count) == count - 1, runs)
    data.checkpoints = CheckpointsData.empty(
        np.tile(step * np.arange(count), runs), feet[:, 0], feet[:, 1], np.zeros(len(feet)), np.ones(len(feet)),
        run=np.repeat(np.arange(runs), count), runs=names, final=final,
    )  # fmt: skip
    height = loss_at(feet[:, 0], feet[:, 1])
    data.checkpoints.projected["loss"][:] = height
    data.checkpoints.metrics["loss"][:] = 1.05 * height
    data.checkpoints.status[:] = data.checkpoints.projected_status[:] = PointStatus.MEASURED
    data.origin.number, data.origin.run = step * (count - 1), names[0]
    return data
