"""What a file may take the place of: nothing, or a regular file of its own kind that may be written to."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from ..errors import NotReplacedError
from . import system
from .file_kinds import ENOUGH_BYTES

_HDF5 = rb"\x89|CDF"
_PAGE = rb'<!doctype html>\s*<html lang="en">.{0,400}"Content-Security-Policy".{0,2000}<link rel="icon" href="data:,">'
_XML = rb"\s*<(\?xml|svg|VTKFile)"
_EVENTS = rb".{12}\t"
# How files begin that have these endings; of others nobody knows.
_BEGINNINGS = {
    ".csv": rb"[^\n]*\bloss\b", ".gif": rb"GIF8", ".glb": rb"glTF", ".gltf": rb"\s*\{", ".h5": _HDF5,
    ".htm": _PAGE, ".html": _PAGE, ".js": rb"/\*+\s*\* plotly\.js", ".mp4": rb".{4}ftyp", ".nc": _HDF5,
    ".npz": rb"PK", ".pdf": rb"%PDF-", ".png": rb"\x89PNG",
    ".safetensors": rb".{0,8}\Z|.{8}\{", ".svg": _XML, ".txt": rb"Caption: ", ".vtp": _XML, ".vts": _XML,
}  # fmt: skip


def check_replaceable(path: Path) -> None:
    """Checks that a file of this machine may take the place of what has its name."""
    found = first_bytes(path, ENOUGH_BYTES if _beginning(path.name) else 0)
    if not begins_as_ours(path.name, found):
        raise NotReplacedError(path, f"is no {path.suffix} file that this program writes")


def begins_as_ours(name: str, found: bytes) -> bool:
    """Returns whether a file of that name that begins so may be one that this program wrote, perhaps not to its end."""
    beginning = _beginning(name)
    return beginning is None or not found or re.match(beginning, found, re.DOTALL | re.IGNORECASE) is not None


def _beginning(name: str) -> bytes | None:
    return _EVENTS if "summary." in name else _BEGINNINGS.get(Path(name).suffix.lower())


def first_bytes(path: Path, count: int) -> bytes:
    """Returns how the file begins that is to be replaced; nothing where there is none, or a folder."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return b""
        # Opening a named pipe would wait for a writer.
        if not stat.S_ISREG(mode):
            raise NotReplacedError(path, "is no regular file")
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise NotReplacedError(path, "is read-only")
        if not count:
            return b""
        with system.open_for_reading(path) as file:
            return file.read(count)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except NotReplacedError:
        raise
    except OSError as error:
        raise NotReplacedError(path, f"is there, but cannot be read ({error.strerror}),") from error
