"""Writes a safetensors file beside a training: without a copy of the weights, and hashed as it is written.

The library's own writer first copies every tensor while it holds Python's lock, for which the training thread waits,
and its file would have to be read once more for its SHA-256. Ours is the same file byte for byte.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .network_state import Array

# Each is hashed while it is still in the processor's cache from being written.
_BLOCK_BYTES = 1 << 20
_ALIGNMENT = 8


def write_safetensors(
    path: Path, tensors: Mapping[str, Array], type_names: Mapping[str, str], metadata: Mapping[str, str]
) -> str:
    """Writes tensors in the library's order, the widest element types first and then by name.

    Args:
        path: the file.
        tensors: name to array.
        type_names: NumPy's name of each element type to the format's.
        metadata: further text in the header.

    Returns:
        The file's SHA-256.

    Raises:
        TypeError: the format has no name for an element type.
        OSError: the file cannot be written.
    """
    for name, array in tensors.items():
        if array.dtype.name not in type_names:
            raise TypeError(
                f"{name!r} is {array.dtype.name}, which checkpoints cannot hold; convert it to one of "
                f"{sorted(type_names)}."
            )
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name in order:
        array = tensors[name]
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": type_names[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        head = memoryview(len(text).to_bytes(8, "little") + text)
        for piece in itertools.chain([head], (_bytes(tensors[name]) for name in order)):
            written = 0
            while written < len(piece):
                count = file.write(piece[written : written + _BLOCK_BYTES])
                digest.update(piece[written : written + count])
                written += count
    return digest.hexdigest()


def _bytes(array: Array) -> memoryview:
    """Returns the values in C order, little-endian."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
