"""A landscape as another program measured it: what that program does not store is absent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collectors.network_state import Array

from ..errors import LandscapeDamagedError
from ..landscape_data import ConvergenceData, DirectionsData, LandscapeData, PointStatus


def foreign_landscape(
    x: Array,
    y: Array | None,
    metrics: Mapping[str, Array],
    status: Array,
    imported: Mapping[str, Any],
    notes: list[str],
) -> LandscapeData:
    """Returns the landscape.

    The directions' lengths and whatever is not in the file are NaN or absent. The origin counts as measured where a
    measured grid point lies exactly on it, else as pending.

    Args:
        x: coordinates, any number type, shape (nx,).
        y: coordinates, shape (ny,), or None for a line.
        metrics: by name, shape (ny, nx), "loss" among them.
        status: ``PointStatus``, shape (ny, nx).
        imported: what the file is, for the attribute of that name.
        notes: what a reader of the numbers must know.

    Raises:
        ValueError: shapes or coordinates do not fit together.
    """
    axes = [np.asarray(axis, np.float64) for axis in (x, y) if axis is not None]
    names = tuple(metrics)
    origin = ConvergenceData(y=None if y is None else 0.0, metrics=dict.fromkeys(names, float("nan")))
    data = LandscapeData(
        x=axes[0],
        y=None if y is None else axes[1],
        metrics={name: np.array(values, np.float64) for name, values in metrics.items()},
        status=status.astype(np.uint8),
        directions=DirectionsData(np.full(len(axes), np.nan)),
        convergence=origin,
        attributes={"imported": dict(imported), "notes": notes},
    )
    data.validate()
    zeros = [np.flatnonzero(axis == 0) for axis in reversed(axes)]
    if all(len(zero) for zero in zeros):
        place = tuple(int(zero[0]) for zero in zeros)
        if data.status[place] == PointStatus.MEASURED:
            origin.metrics = {name: float(values[place]) for name, values in data.metrics.items()}
            origin.status = PointStatus.MEASURED
    return data


def damaged(path: Path, program: str, why: object) -> LandscapeDamagedError:
    """Returns the error for a file that is not what its format asks for."""
    text = str(why).splitlines()
    return LandscapeDamagedError(
        f"{path} cannot be read as {program}: {text[0] if text else type(why).__name__}. Copy it again from where it "
        "came, or correct the format."
    )
