"""NumPy's archive of arrays: everything but the tracebacks, by name."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collectors.network_state import Array

from ..landscape_encoding import trajectory_columns
from .export_format import ExportFormat, Writers

if TYPE_CHECKING:
    from ..surface import Landscape


def npz_writers(landscape: Landscape, path: Path, _metric: str) -> Writers:
    """Returns what writes the archive, which ``numpy.load`` opens with ``allow_pickle=False``.

    Its names: x, y (not for a line), each metric, status; trajectory/number, trajectory/x, ...; convergence/x, ...;
    and attributes/json, a text.
    """
    arrays: dict[str, Array] = {"x": landscape.x, **landscape.metrics, "status": landscape.status}
    if landscape.y is not None:
        arrays["y"] = landscape.y
    if landscape.trajectory is not None:
        columns = trajectory_columns(landscape.trajectory)
        arrays |= {f"trajectory/{name}": values for name, values in columns.items()}
    arrays |= {f"convergence/{name}": np.array(value) for name, value in convergence_values(landscape).items()}
    # A metric's name has no slash.
    arrays["attributes/json"] = np.array(json.dumps(dict(landscape.attributes), sort_keys=True))

    def write(file: Path) -> None:
        # numpy.savez takes the names as keywords, among which "file" is its own, and dates the members.
        with zipfile.ZipFile(file, "w") as archive:
            for name, values in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, values, allow_pickle=False)

    return {path: write}


def convergence_values(landscape: Landscape) -> dict[str, float]:
    """Returns the origin's coordinates, metrics and status."""
    point = landscape.convergence
    place = {"x": point.x} if point.y is None else {"x": point.x, "y": point.y}
    return {**place, **point.metrics, "status": int(point.status)}


NPZ = ExportFormat("NumPy", ".npz", False, npz_writers)
