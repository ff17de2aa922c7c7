"""The file of a record (HDF5): whole at every moment, and nothing in it depends on when or by whom it was written."""

from __future__ import annotations

import functools
import io
import os
from typing import Any, TypeVar

import numpy as np

from collectors.files.remote_path import RemotePath

from .driver import FileFormat
from .hdf5 import (
    BoundedReader,
    as_text,
    as_texts,
    file_in,
    put,
    put_group,
    read_attributes,
    read_errors,
    write_attributes,
    write_digest,
    write_errors,
)
from .record import Record
from .whole_file import path_of, read_whole

R = TypeVar("R", bound=Record)

# A row may have cost minutes.
_FLUSH_SECONDS = 0.5


def record_format(kind: type[R]) -> FileFormat[R]:
    """Returns how records of a kind are read and written."""
    return FileFormat(kind.schema.kind, functools.partial(read_record, kind), record_bytes, _FLUSH_SECONDS)


def record_bytes(record: Record) -> bytes:
    """Returns a record as the bytes of its file; equal records give equal bytes."""
    record.validate()
    schema, buffer = record.schema, io.BytesIO()
    with file_in(buffer) as file:
        write_attributes(file, schema.kind, record.attributes, complete=record.complete)
        groups = {"": file}
        for name, column in schema.columns.items():
            values = getattr(record, name)
            # HDF5 keeps no data of an array without elements, and would not say what its shape was.
            if not np.size(values) or (column.optional and np.isnan(values).all()):
                continue
            folder, _, leaf = column.place.rpartition("/")
            if folder not in groups:
                groups[folder] = put_group(file, folder)
            dataset = put(groups[folder], leaf, as_texts(list(map(as_text, values))) if column.dtype is str else values)
            if name in schema.coordinates:
                dataset.make_scale(name)
            for index, axis in enumerate(column.axes):
                if axis in schema.coordinates and axis != name:
                    dataset.dims[index].attach_scale(file[axis])
        write_errors(file, record.errors)
        write_digest(file)
    return buffer.getvalue()


def read_record(kind: type[R], path: str | os.PathLike[str] | RemotePath) -> R:
    """Reads the file of a record into memory and closes it; nothing on the disk changes."""
    place = path_of(path)
    record = read_whole(place, kind.schema.kind, functools.partial(_read, kind))
    record.path = place
    return record


def _read(kind: type[R], file: Any, size: int) -> R:
    columns = kind.schema.columns
    texts = {column.place.rpartition("/")[2] for column in columns.values() if column.dtype is str}
    reader = BoundedReader(size, axes=3)
    stored, groups = reader.members(file, tuple(texts))
    for folder in {column.place.rpartition("/")[0] for column in columns.values()} & set(groups):
        members, _ = reader.members(groups[folder], tuple(texts))
        stored |= {f"{folder}/{name}": values for name, values in members.items()}
    sizes: dict[str, int] = {}
    for column in (item for item in columns.values() if item.place in stored):
        # What is missing takes as much memory as arrays that are there: those must agree first.
        for axis, length in zip(column.axes, stored[column.place].shape, strict=False):
            if sizes.setdefault(axis, length) != length:
                raise ValueError(f"{column.place} has the length {length} along {axis}, others have {sizes[axis]}")
    arrays: dict[str, Any] = {}
    for name, column in columns.items():
        shape = tuple(sizes.get(axis, 0) for axis in column.axes)
        if column.place not in stored:
            if all(shape) and not column.optional:
                raise ValueError(f"the file lacks {column.place!r}")
            arrays[name] = column.empty(shape)
        elif column.dtype is str:
            arrays[name] = tuple(text.decode("utf-8") for text in stored[column.place])
        else:
            arrays[name] = stored[column.place]
    record = kind(arrays, read_errors(reader, groups["errors"]), read_attributes(file))
    record.validate()
    return record
