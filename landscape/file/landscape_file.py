"""The landscape file, written and read whole: equal data give equal bytes, which xarray's h5netcdf engine opens."""

from __future__ import annotations

import os

from collectors.files.remote_path import RemotePath

from .data import LandscapeData
from .encoding import landscape_bytes
from .kind import LANDSCAPE
from .reading import read_root
from .whole_file import path_of, read_whole, write_image


def write_landscape(path: str | os.PathLike[str], data: LandscapeData) -> None:
    """Writes a landscape, replacing the file of that name once the new one is whole and on the disk."""
    write_image(path, landscape_bytes(data))


def read_landscape(path: str | os.PathLike[str] | RemotePath) -> LandscapeData:
    """Reads a landscape into memory and closes the file; nothing on the disk changes."""
    place = path_of(path)
    data = read_whole(place, LANDSCAPE, read_root)
    data.path = place
    return data
