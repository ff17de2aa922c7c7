"""The landscape file, written and read as a whole.

Nothing in the bytes depends on when, where or by whom they were written: equal data give equal files. Every
grid array carries the HDF5 dimension scales ``x`` and ``y``, so that
``xarray.open_dataset(path, engine="h5netcdf")`` opens the file as it is.
"""

from __future__ import annotations

import os

from collectors.files.remote_path import RemotePath

from .data import LandscapeData
from .encoding import landscape_bytes
from .kind import LANDSCAPE
from .reading import read_root
from .whole_file import path_of, read_whole, write_image


def write_landscape(path: str | os.PathLike[str], data: LandscapeData) -> None:
    """Writes a landscape, replacing the file of that name once the new one is whole and on the disk.

    Raises:
        LandscapeWriteError: the file cannot be written; what was on the disk is untouched.
        TypeError: an attribute is no JSON value.
        ValueError: names, shapes, types or status values do not fit together.
    """
    write_image(path, landscape_bytes(data))


def read_landscape(path: str | os.PathLike[str] | RemotePath) -> LandscapeData:
    """Reads a landscape into memory and closes the file; nothing on the disk changes.

    Args:
        path: of the file, or its fsspec URL such as ``s3://bucket/run/landscape.h5``.

    Raises:
        LandscapeNotFoundError: there is no such file.
        LandscapeLockedError: another program has the file open for writing.
        LandscapeDamagedError: it is truncated, no HDF5 file, or its contents do not fit together.
        LandscapeFormatError: it is another program's, or another version's with another format.
        LandscapeError: the operating system refuses to open it.
    """
    place = path_of(path)
    data = read_whole(place, LANDSCAPE, read_root)
    data.path = place
    return data
