"""Writes a landscape as another program's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.atomic_files import replacing
from collectors.validation import check_bool, check_choice, check_path, wrong_value

from ..errors import LandscapeWriteError
from ..landscape_saving import already_there
from ..output_folders import check_folder_of
from .csv_table import CSV
from .export_format import Writers
from .landscaper import LANDSCAPER
from .li import LI
from .mindinsight import MINDINSIGHT
from .netcdf import NETCDF
from .npz import NPZ
from .vtk import VTK

if TYPE_CHECKING:
    from ..surface import Landscape

FORMATS = {
    "csv": CSV,
    "landscaper": LANDSCAPER,
    "li": LI,
    "mindinsight": MINDINSIGHT,
    "netcdf": NETCDF,
    "npz": NPZ,
    "vtk": VTK,
}
"""The formats by name."""

# .h5 is both ours and Li et al.'s, so it says nothing.
_BY_SUFFIX = {".csv": "csv", ".nc": "netcdf", ".npz": "npz", ".vts": "vtk"}


def export_landscape(
    landscape: Landscape,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    metric: str | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Writes a landscape as another program's file; each file appears whole or not at all.

    Args:
        landscape: what to write.
        path: the file, or for mindinsight the run's directory.
        format: a name among ``FORMATS``; by default the one that the file's name says (.csv, .nc, .npz, .vts).
        metric: which of the measured values, for the formats that hold one only; by default the loss.
        overwrite: whether files that are there may be replaced.

    Returns:
        The files, the main one first.

    Raises:
        LandscapeExportError: the landscape does not fit the format.
        LandscapeWriteError: a file is there already, or cannot be written.
        ImportError: the format needs a package that is not installed.
    """
    target = check_path("path", path)
    name = _format_name(target, format)
    chosen = FORMATS[name]
    if metric is not None and not chosen.one_metric:
        raise ValueError(f"metric must be left out for the format {name!r}, which holds them all, but got {metric!r}.")
    metric = check_choice("metric", "loss" if metric is None else metric, tuple(landscape.metrics))
    overwrite = check_bool("overwrite", overwrite)
    if chosen.suffix and target.suffix.lower() != chosen.suffix:
        raise wrong_value("path", f"the name of a {chosen.suffix} file, which the format {name!r} is", os.fspath(path))
    writers = chosen.writers(landscape, target, metric)
    _check_targets(writers, landscape, overwrite)
    for file, write in writers.items():
        try:
            with replacing(file) as temporary:
                write(temporary)
        except OSError as error:
            raise LandscapeWriteError(
                f"{file} cannot be written: {error.strerror or error}. Free some space or choose another directory."
            ) from error
    return list(writers)


def _format_name(path: Path, name: str | None) -> str:
    if name is not None:
        return check_choice("format", name, tuple(FORMATS))
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is None:
        raise ValueError(
            f"format must be given, because the name {path.name!r} does not say it (only "
            f"{', '.join(_BY_SUFFIX)} do). The formats are {', '.join(FORMATS)}."
        )
    return found


def _check_targets(writers: Writers, landscape: Landscape, overwrite: bool) -> None:
    for file in writers:
        check_folder_of(file)
        if not file.exists():
            continue
        if file.is_dir():
            raise LandscapeWriteError(f"{file} cannot be written: it is a directory. Give the name of a file in it.")
        source = landscape.path
        if isinstance(source, Path) and source.exists() and file.samefile(source):
            raise LandscapeWriteError(f"{file} is the landscape itself and was left as it is. Give another name.")
        if not overwrite:
            raise already_there(file)
