"""Comma-separated values: one line for each grid point, every digit kept."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..landscape_data import PointStatus
from .export_format import ExportFormat, Writers

if TYPE_CHECKING:
    from ..surface import Landscape


def csv_writers(landscape: Landscape, path: Path, _metric: str) -> Writers:
    """Returns what writes the table: x, y (not for a line), each metric, and the status in words.

    Rows come as the grid has them, x fastest. A number is the shortest text that reads back as the same float64;
    "nan", "inf" and "-inf" stand for those values.
    """

    def write(file: Path) -> None:
        axes = (landscape.x,) if landscape.y is None else tuple(np.meshgrid(landscape.x, landscape.y))
        columns = [values.ravel().tolist() for values in (*axes, *landscape.metrics.values())]
        statuses = [PointStatus(number).name.lower() for number in landscape.status.ravel()]
        header = [*("x", "y")[: len(axes)], *landscape.metrics, "status"]
        with file.open("w", encoding="utf-8", newline="") as stream:
            table = csv.writer(stream, lineterminator="\n")
            table.writerow(header)
            table.writerows(zip(*columns, statuses, strict=True))

    return {path: write}


CSV = ExportFormat("comma-separated values", ".csv", False, csv_writers)
