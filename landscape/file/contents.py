"""The SHA-256 over a file's arrays and the attributes it was written with; attributes added later are not refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .hdf5_reading import member_names, read_attribute
from .hdf5_writing import CONTENTS, put_text


def write_digest(file: Any) -> None:
    """Adds the digest of all that an open file holds."""
    names = sorted(file.attrs)
    put_text(file, CONTENTS, json.dumps({"sha256": _digest(file, names), "attributes": names}))


def check_digest(file: Any) -> None:
    """Raises a ValueError where an open file's contents differ from those whose digest was written."""
    written = json.loads(read_attribute(file, CONTENTS))
    if _digest(file, written["attributes"]) != written["sha256"]:
        raise ValueError("its contents are not those that were written, for their SHA-256 differs")


def chunk_digest(chunk: bytes) -> bytes:
    """Returns the digest of a chunk, as a text."""
    return hashlib.sha256(chunk).hexdigest().encode()


def _digest(file: Any, attributes: Sequence[str]) -> str:
    found = hashlib.sha256()
    for name in attributes:
        found.update(repr((name, read_attribute(file, name))).encode())
    for part in _parts(file):
        found.update(part)
    return found.hexdigest()


def _parts(group: Any) -> Iterator[bytes]:
    import h5py

    for name in sorted(member_names(group)):
        member = group[name]
        if isinstance(member, h5py.Group):
            yield repr((name, len(member))).encode()
            yield from _parts(member)
        else:
            yield repr((name, member.dtype.str, member.shape)).encode()
            if member.chunks is None:
                yield np.asarray(member[()]).tobytes()
