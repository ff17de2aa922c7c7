"""Writes a landscape as another program's file, and reads landscapes from other programs' files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from collectors.errors import FileWriteError, LandscapeError
from collectors.files import system
from collectors.files.file_kinds import ENOUGH_BYTES, other_kind
from collectors.files.local_files import naming, write_files
from collectors.files.places import check_can_be_file
from collectors.validation import check_bool, check_choice, check_path, wrong_value

from ..errors import LandscapeFormatError, LandscapeNotFoundError, LandscapeWriteError
from ..grid.data import LandscapeData
from ..record.whole_file import holds_ours
from ..replacing import already_there, check_no_input
from .arrays import csv_images, netcdf_images, npz_images
from .formats import Images
from .gltf import gltf_images
from .landscaper import landscaper_images, read_landscaper_archive
from .li import li_images, read_li_surface
from .mindinsight import mindinsight_images
from .vtk import vtk_images


@dataclass(frozen=True)
class ExportFormat:
    suffix: str  # of its files' names; empty where names follow other rules
    one_metric: bool  # whether a metric is chosen: the only one that a file holds, or the one that is its heights
    images: Callable[[LandscapeData, Path, str], Images]  # of landscape, main path, metric; touches no file


FORMATS = {
    "csv": ExportFormat(".csv", False, csv_images),
    "glb": ExportFormat(".glb", True, gltf_images),
    "gltf": ExportFormat(".gltf", True, gltf_images),
    "landscaper": ExportFormat(".npz", True, landscaper_images),
    "li": ExportFormat(".h5", False, li_images),
    "mindinsight": ExportFormat("", True, mindinsight_images),
    "netcdf": ExportFormat(".nc", False, netcdf_images),
    "npz": ExportFormat(".npz", False, npz_images),
    "vtk": ExportFormat(".vts", True, vtk_images),
}
"""The formats by name."""

FOREIGN_FORMATS = ("landscaper", "li")
"""Those that can be read."""

# Not .h5, which both our files and Li et al.'s have.
_BY_SUFFIX = {FORMATS[name].suffix: name for name in ("csv", "glb", "gltf", "netcdf", "npz", "vtk")}
# How their files begin.
_SIGNATURES = {b"\x89HDF\r\n\x1a\n": "li", b"PK\x03\x04": "landscaper"}


def export_landscape(
    landscape: LandscapeData,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    metric: str | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Writes a landscape as another program's file; each file is made in memory and appears whole or not at all.

    Args:
        landscape: what to write.
        path: the file, or for mindinsight the run's directory.
        format: a name among ``FORMATS``; by default the one that the file's name says (.csv, .glb, .gltf, .nc, .npz,
            .vts).
        metric: which of the measured values, for the formats that hold one only; by default the loss.
        overwrite: whether files that are there may be replaced.

    Returns:
        The files, the main one first.

    Raises:
        LandscapeExportError: the landscape does not fit the format.
        LandscapeWriteError: a file is there already, or cannot be written.
        NotADirectoryError: the file's directory does not exist.
        IsADirectoryError: a directory of the file's name is there.
        ImportError: the format needs a package that is not installed.
    """
    target = check_path("path", path)
    name = _BY_SUFFIX.get(target.suffix.lower()) if format is None else check_choice("format", format, tuple(FORMATS))
    if name is None:
        raise ValueError(
            f"format must be given, because the name {target.name!r} does not say it (only "
            f"{', '.join(_BY_SUFFIX)} do). The formats are {', '.join(FORMATS)}."
        )
    chosen = FORMATS[name]
    if metric is not None and not chosen.one_metric:
        raise ValueError(f"metric must be left out for the format {name!r}, which holds them all, but got {metric!r}.")
    metric = check_choice("metric", "loss" if metric is None else metric, tuple(landscape.metrics))
    overwrite = check_bool("overwrite", overwrite)
    if chosen.suffix and target.suffix.lower() != chosen.suffix:
        raise wrong_value("path", f"the name of a {chosen.suffix} file, which the format {name!r} is", os.fspath(path))
    try:
        if chosen.suffix:  # before a large landscape is made into text
            _check_targets((target,), landscape, overwrite)
        images = chosen.images(landscape, target, metric)
        _check_targets(images, landscape, overwrite)
        write_files(images)
    except FileWriteError as error:
        raise LandscapeWriteError(str(error)) from error
    return list(images)


def import_landscape(
    path: str | os.PathLike[str], format: str | None = None, *, loss: str | None = None, axis_order: str | None = None
) -> LandscapeData:
    """Reads another program's landscape; the file stays as it is, and what it lacks is absent.

    Args:
        path: the file.
        format: "li" (Li et al.'s surface) or "landscaper" (Landscaper's archive); by default what it begins with.
        loss: of Li et al.'s surface, which data set is the loss; by default ``train_loss``.
        axis_order: of Landscaper's archive, "xy" or "yx"; see ``read_landscaper_archive``.

    Raises:
        LandscapeNotFoundError: there is no such file.
        LandscapeFormatError: it is another kind of file.
        LandscapeDamagedError: it is truncated, or its contents do not fit together.
        LandscapeError: the operating system refuses to read it.
        ValueError: an argument belongs to the other format.
    """
    file = check_path("path", path)
    begins = _first_bytes(file)
    found = next((name for signature, name in _SIGNATURES.items() if begins.startswith(signature)), None)
    name = found if format is None else check_choice("format", format, FOREIGN_FORMATS)
    if (other := other_kind(begins, "HDF5", "NumPy", "ZIP")) is not None:
        raise LandscapeFormatError(f"{path} is no file of {' or '.join(FOREIGN_FORMATS)}, but {other}.")
    if name is None:
        raise LandscapeFormatError(
            f"{path} is of no known format ({', '.join(FOREIGN_FORMATS)}): it begins as neither an HDF5 file nor a "
            "NumPy archive does. Give a surface file of Li et al.'s scripts or an archive of Landscaper."
        )
    for option, value, owner in (("loss", loss, "li"), ("axis_order", axis_order, "landscaper")):
        if value is not None and name != owner:
            raise ValueError(f"{option} belongs to the format {owner!r}, but {path} is {name!r}. Leave it out.")
    return read_li_surface(file, loss) if name == "li" else read_landscaper_archive(file, axis_order)


def _check_targets(files: Iterable[Path], landscape: LandscapeData, overwrite: bool) -> None:
    for file in files:
        check_can_be_file("path", file)
        check_no_input("path", file, [landscape.path])
        with naming(file):
            is_there = file.exists()
            is_ours = is_there and overwrite and holds_ours(file)
        if is_there and not overwrite:
            raise already_there(file)
        if is_ours:
            raise LandscapeWriteError(
                f"{file} is a file of this program, not of another one, and was left as it is. Remove it, or give "
                "another name."
            )


def _first_bytes(path: Path) -> bytes:
    try:
        with system.open_for_reading(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LandscapeFormatError(f"{path} is no regular file; give the path of a file.")
            return file.read(ENOUGH_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LandscapeNotFoundError(f"there is no file {path} to import. Correct the path.") from error
    except IsADirectoryError as error:
        raise LandscapeFormatError(f"{path} is a directory; give the path of a file in it.") from error
    except OSError as error:
        raise LandscapeError(f"{path} cannot be read: {error.strerror}. Correct its permissions or copy it.") from error
