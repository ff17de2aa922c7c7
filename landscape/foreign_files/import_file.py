"""Reads another program's landscape file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from collectors.validation import check_choice, check_path

from ..errors import LandscapeFormatError, LandscapeNotFoundError
from ..landscape_data import LandscapeData
from .landscaper_archive import read_landscaper_archive
from .li_surface import read_li_surface

FOREIGN_FORMATS = ("landscaper", "li")
_SIGNATURES = {b"\x89HDF\r\n\x1a\n": "li", b"PK\x03\x04": "landscaper"}


def import_landscape(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    loss: str | None = None,
    axis_order: str | None = None,
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
        ValueError: an argument belongs to the other format.
    """
    file = check_path("path", path)
    begins = _first_bytes(file)
    found = next((name for signature, name in _SIGNATURES.items() if begins.startswith(signature)), None)
    name = found if format is None else check_choice("format", format, FOREIGN_FORMATS)
    if name is None:
        raise LandscapeFormatError(
            f"{path} is of no known format ({', '.join(FOREIGN_FORMATS)}): it begins as neither an HDF5 file nor a "
            "NumPy archive does. Give a surface file of Li et al.'s scripts or an archive of Landscaper."
        )
    if name == "li":
        if axis_order is not None:
            raise ValueError(f"axis_order belongs to the format 'landscaper', but {path} is 'li'. Leave it out.")
        return read_li_surface(file, loss)
    if loss is not None:
        raise ValueError(f"loss belongs to the format 'li', but {path} is 'landscaper'. Leave it out.")
    return read_landscaper_archive(file, axis_order)


def _first_bytes(path: Path) -> bytes:
    try:
        # Opening a named pipe would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LandscapeFormatError(f"{path} is no regular file; give the path of a file.")
            return file.read(8)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LandscapeNotFoundError(f"there is no file {path} to import. Correct the path.") from error
    except IsADirectoryError as error:
        raise LandscapeFormatError(f"{path} is a directory; give the path of a file in it.") from error
