"""Landscaper's archive (1.3): a square surface and its coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .export_format import ExportFormat, Writers, check_square, plane_axes, warn_of_gaps, warn_of_interpolated

if TYPE_CHECKING:
    from ..surface import Landscape

PROGRAM = "Landscaper's file"
AXIS_ORDER = "axis_order"
"""A member that Landscaper does not read: which way round ``loss`` is, "yx" or "xy"."""


def landscaper_writers(landscape: Landscape, path: Path, metric: str) -> Writers:
    """Returns what writes the archive that ``LossLandscape.load_from_npz`` reads.

    ``loss`` has rows y and columns x, as Landscaper's figures and topology take it (its own ``compute`` stores the
    transpose, so that its pictures show x as y). ``axis_order`` says so to whoever reads the file back.

    Raises:
        LandscapeExportError: the landscape is a line, or not square.
    """
    x, y = plane_axes(landscape, PROGRAM)
    check_square(landscape, PROGRAM)
    values = landscape[metric]
    warn_of_interpolated(landscape, PROGRAM)
    warn_of_gaps(values, metric, PROGRAM, "Landscaper's figures and its topology take finite numbers only.")

    def write(file: Path) -> None:
        with file.open("wb") as stream:
            np.savez(
                stream,
                allow_pickle=False,
                loss=values,
                coordinates=np.stack((x, y)),
                **{AXIS_ORDER: np.array("yx")},
            )

    return {path: write}


LANDSCAPER = ExportFormat("Landscaper", ".npz", True, landscaper_writers)
