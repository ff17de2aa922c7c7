"""Writes HDF5 whose bytes depend on nothing but what is stored: no times and no names of machines."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .kind import FileKind

CONTENTS = "contents"
OWN_ATTRIBUTES = frozenset(("format", "format_version", "complete", "json_attributes", CONTENTS))
_NATIVE_ATTRIBUTES = frozenset(
    ("decomposition", "unit", "step_per_epoch", "num_samples", "seed", "normalization", "buffers", "network",
     "created", "title", "matrix", "top", "bottom", "weights")
)  # fmt: skip
_TRACEBACK_LIMIT = 32 * 1024


def write_attributes(file: Any, kind: FileKind, attributes: Mapping[str, Any], *, complete: bool) -> None:
    """Writes a file's attributes: those of every file of ours, and JSON values by name."""
    put_text(file, "format", kind.format)
    file.attrs["format_version"] = kind.version
    file.attrs["complete"] = complete
    as_json = []
    for name in sorted(set(attributes) - OWN_ATTRIBUTES):
        value = attributes[name]
        if name in _NATIVE_ATTRIBUTES and _is_native(value):
            if isinstance(value, str):
                put_text(file, name, value)
            else:
                file.attrs[name] = value
        else:
            put_text(file, name, _json(f"attribute {name!r}", value))
            as_json.append(name)
    put_text(file, "json_attributes", json.dumps(as_json))


def write_errors(file: Any, errors: Mapping[str, str]) -> None:
    """Adds tracebacks by place."""
    group = put_group(file, "errors")
    errors = dict(sorted(errors.items()))
    # Points tend to fail for one reason: each different traceback is stored once.
    tracebacks = [_shortened(as_text(traceback)) for traceback in errors.values()]
    unique = {text: index for index, text in enumerate(dict.fromkeys(tracebacks))}
    put(group, "place", as_texts([as_text(place) for place in errors]))
    put(group, "traceback_index", np.array([unique[text] for text in tracebacks], np.int64))
    put(group, "traceback", as_texts(list(unique)))


def file_in(buffer: io.BytesIO) -> Any:
    """Returns a new HDF5 file in a buffer, without any times in it."""
    import h5py

    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, buffer)
    # The oldest layout with checksums over the metadata; every HDF5 since 2008 reads it.
    access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_V18)
    return h5py.File(h5py.h5f.create(b"landscape", h5py.h5f.ACC_TRUNC, fcpl=creation, fapl=access))


def put_group(file: Any, name: str) -> Any:
    """Adds a group."""
    import h5py

    creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    creation.set_obj_track_times(False)
    return h5py.Group(h5py.h5g.create(file.id, name.encode(), gcpl=creation))


def put(group: Any, name: str, values: Any) -> Any:
    """Adds an array, and returns its data set."""
    return group.create_dataset(name, data=values, track_times=False)


def put_text(file: Any, name: str, text: str) -> None:
    """Adds an attribute of text."""
    import h5py

    # Text of a fixed length: HDF5 keeps the other kind in a heap without checksums, and one damaged byte
    # there can keep it reading for ever.
    encoded = text.encode("utf-8")
    file.attrs.create(name, encoded, dtype=h5py.string_dtype("utf-8", max(len(encoded), 1)))


def as_texts(texts: Sequence[bytes]) -> NDArray[Any]:
    """Returns encoded texts as an array that can be stored."""
    import h5py

    return np.array(texts, h5py.string_dtype("utf-8", max([1, *map(len, texts)])))


def as_text(text: str) -> bytes:
    """Returns a text encoded so that it can be stored."""
    # HDF5 strings end at a NUL and are UTF-8; a traceback may contain anything.
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")


def _shortened(traceback: bytes) -> bytes:
    # Every text of the array takes as much room as the longest.
    if len(traceback) <= _TRACEBACK_LIMIT:
        return traceback
    half = _TRACEBACK_LIMIT // 2
    text = traceback[:half].decode("utf-8", "ignore") + "\n[...]\n" + traceback[-half:].decode("utf-8", "ignore")
    return text.encode("utf-8")


def _is_native(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable()
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**63
    return isinstance(value, bool | float)


def _json(label: str, value: Any) -> str:
    def plain(item: Any) -> Any:
        if isinstance(item, np.ndarray | np.generic):
            return item.tolist()
        raise TypeError(f"{label} must be a JSON value, but has {type(item).__name__}: {item!r}.")

    return json.dumps(value, sort_keys=True, default=plain)
