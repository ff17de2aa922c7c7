"""What a format of another program is: how a landscape becomes its files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collectors.network_state import Array

from ..errors import LandscapeExportError
from ..landscape_data import PointStatus

if TYPE_CHECKING:
    from ..surface import Landscape

Writers = dict[Path, Callable[[Path], None]]
"""What writes each file of an export, given the path to write to."""


@dataclass(frozen=True)
class ExportFormat:
    """A format.

    Attributes:
        program: whose it is, as a text says it.
        suffix: of its files' names; empty where names follow other rules.
        one_metric: whether a file holds the values of one metric only.
        writers: returns what writes the files, once the landscape is known to fit the format:
            ``writers(landscape, path, metric)``, where ``path`` names the main file. It touches no file.
    """

    program: str
    suffix: str
    one_metric: bool
    writers: Callable[[Landscape, Path, str], Writers]


def plane_axes(landscape: Landscape, program: str) -> tuple[Array, Array]:
    """Returns x and y.

    Raises:
        LandscapeExportError: the landscape is a line.
    """
    if landscape.y is None:
        raise LandscapeExportError(
            f"{program} holds surfaces, but the landscape is a line of {len(landscape.x)} points. Export it as csv, "
            "npz, netcdf or li."
        )
    return landscape.x, landscape.y


def check_square(landscape: Landscape, program: str) -> None:
    """Checks that a plane has as many rows as columns.

    Raises:
        LandscapeExportError: it has not.
    """
    if landscape.y is not None and len(landscape.x) != len(landscape.y):
        raise LandscapeExportError(
            f"{program} holds square grids only, but the landscape has {len(landscape.x)} x {len(landscape.y)} points. "
            "Measure it with as many points along x as along y, or export it as csv, npz, netcdf or vtk."
        )


def warn_of_interpolated(landscape: Landscape, program: str) -> None:
    """Warns where a format that knows no status gets values that were predicted rather than measured."""
    count = landscape.status_counts[PointStatus.INTERPOLATED]
    if count:
        warnings.warn(
            f"{count} of {landscape.status.size} points are interpolated, not measured; {program} has no place to say "
            "so.",
            stacklevel=2,
        )


def warn_of_gaps(values: Array, metric: str, program: str, consequence: str) -> None:
    """Warns of cells without a finite value, which are written as they are."""
    count = int((~np.isfinite(values)).sum())
    if count:
        warnings.warn(
            f"{count} of {values.size} points have no finite {metric}; they are written to {program} as they are. "
            f"{consequence}",
            stacklevel=2,
        )


def plain_text(value: object) -> str:
    """Returns an attribute as text; empty where it is absent."""
    return "" if value is None else str(value)
