"""A plane's vectors, kept beside its landscape for whoever wants to go on from them."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from collectors.checkpoint_file import write_checkpoint
from collectors.run_files import AnyPath, RemotePath

from .errors import LandscapeWriteError
from .plane import Plane


def directions_path(landscape_path: str | os.PathLike[str] | RemotePath) -> AnyPath:
    """Returns where the vectors of a landscape lie: ``<stem>_directions.safetensors``."""
    path = landscape_path if isinstance(landscape_path, RemotePath) else Path(landscape_path)
    return path.parent / f"{path.stem}_directions.safetensors"


def write_directions(landscape_path: str | os.PathLike[str] | RemotePath, plane: Plane) -> AnyPath:
    """Writes the directions as ``direction_<axis>/<parameter>``, once; the origin is the checkpoint of the identity.

    Raises:
        LandscapeWriteError: they cannot be written.
    """
    path = directions_path(landscape_path)
    tensors = {
        f"direction_{axis}/{name}": array
        for axis, direction in enumerate(plane.directions)
        for name, array in direction.items()
    }
    metadata = {
        "decomposition": plane.decomposition,
        "normalization": plane.normalization,
        # All of them in the network's order, which the file's tensors do not have.
        "parameters": json.dumps([[tensor.name, list(tensor.shape)] for tensor in plane.space.parameters]),
    }
    try:
        if isinstance(path, RemotePath):
            with tempfile.TemporaryDirectory() as folder:
                write_checkpoint(Path(folder) / path.name, tensors, metadata)
                path.upload(Path(folder) / path.name)
        else:
            write_checkpoint(path, tensors, metadata)
    except OSError as error:
        raise LandscapeWriteError(
            f"the directions cannot be written to {path}: {error}. Free some space, then run again with "
            "save_directions=True."
        ) from error
    return path
