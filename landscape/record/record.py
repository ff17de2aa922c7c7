"""A record of measurements: named arrays over named axes, statuses, errors by place; its file; what a user holds."""

from __future__ import annotations

import copy
import functools
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from collectors.files.places import AnyPath
from collectors.files.remote_path import RemotePath
from collectors.shapes import UInt8

from . import hdf5
from .checks import PointStatus, check_array, check_attributes, check_status
from .driver import Stored
from .hdf5 import FileKind
from .identity import plan_change
from .run import MeasurementReport
from .whole_file import GivenPath, path_of, read_whole
from .writer import FileFormat, save_whole

# A row may have cost minutes.
_FLUSH_SECONDS = 0.5


@dataclass(frozen=True)
class Column:
    axes: tuple[str, ...]  # their names; arrays that share an axis have the same length along it
    dtype: type  # of its values; ``str`` for a tuple of texts
    place: str  # where it lies in the file, such as "density/nodes"
    optional: bool = False  # whether the file lacks it where all its values are NaN

    def empty(self, shape: tuple[int, ...]) -> Any:
        """Returns what an array of this shape holds before anything is measured."""
        if self.dtype is str:
            return ("",) * shape[0]
        return np.full(shape, np.nan if self.dtype is np.float64 else 0, self.dtype)


def column(*axes: str, dtype: type = np.float64, place: str = "", optional: bool = False) -> Any:
    """Declares a column in the body of a ``Record``; its place in the file is by default its name."""
    return Column(axes, dtype, place, optional)


class Record:
    """Measurements over named axes; NaN where nothing is measured.

    A subclass names the kind of its file, its coordinates and its key, and declares its columns in the order of the
    file. One of them is ``status``, whose first axis is that of the rows.
    """

    kind: ClassVar[FileKind]  # of its file
    declared: ClassVar[Mapping[str, Column]]  # its columns by name, in the order of the file
    coordinates: ClassVar[tuple[str, ...]]  # the columns that are those of the axis of their name; the file's scales
    key: ClassVar[tuple[str, ...]]  # the columns that identify a row
    row_axis: ClassVar[str]  # the axis of the key, along which records are joined
    data_class: ClassVar[type[Record]]  # the subclass that declared the columns
    status: UInt8[np.ndarray, ...]

    def __init_subclass__(
        cls, kind: FileKind | None = None, coordinates: tuple[str, ...] = (), key: tuple[str, ...] = (), **more: Any
    ) -> None:
        super().__init_subclass__(**more)
        if kind is not None:
            declared = {name: item for name, item in vars(cls).items() if isinstance(item, Column)}
            cls.declared = {name: replace(item, place=item.place or name) for name, item in declared.items()}
            cls.kind, cls.coordinates, cls.key, cls.data_class = kind, coordinates, key, cls
            cls.row_axis = cls.declared[key[0]].axes[0]

    def __init__(
        self,
        columns: Mapping[str, Any],
        errors: Mapping[str, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        vars(self).update({name: columns[name] for name in self.declared})
        self.errors = dict(errors or {})  # tracebacks by place, such as "number/3"
        self.attributes = dict(attributes or {})
        self.path: AnyPath | None = None  # the file that it was read from

    @classmethod
    def empty(
        cls,
        known: Mapping[str, Any],
        sizes: Mapping[str, int] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Self:
        """Returns an unmeasured record of the ``known`` columns; ``sizes`` are of axes these lack, 0 by default."""
        columns = cls.declared
        lengths = dict(sizes or {})
        for name, values in known.items():
            lengths |= zip(columns[name].axes, np.shape(values), strict=True)
        arrays = {name: item.empty(tuple(lengths.get(axis, 0) for axis in item.axes)) for name, item in columns.items()}
        for name, values in known.items():
            dtype = columns[name].dtype
            arrays[name] = tuple(values) if dtype is str else np.array(values, dtype)
        return cls(arrays, attributes=attributes)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All arrays of numbers by name, in the order of the file."""
        return {name: getattr(self, name) for name, item in self.declared.items() if item.dtype is not str}

    @property
    def sizes(self) -> dict[str, int]:
        """The length of each axis."""
        pairs = ((self.declared[name].axes, values.shape) for name, values in self.columns.items())
        return {axis: size for axes, shape in pairs for axis, size in zip(axes, shape, strict=True)}

    @property
    def complete(self) -> bool:
        """Whether nothing is pending."""
        return not (self.status == PointStatus.PENDING).any()

    @property
    def statuses(self) -> list[UInt8[np.ndarray, ...]]:
        """``PointStatus`` of every task, in one array."""
        return [self.status]

    @property
    def status_counts(self) -> dict[PointStatus, int]:
        """How many tasks have each status."""
        return {status: int((self.status == status).sum()) for status in PointStatus}

    @property
    def places(self) -> dict[tuple[Any, ...], int]:
        """The row of each key."""
        columns = (np.asarray(getattr(self, name)).tolist() for name in self.key)
        return {key: row for row, key in enumerate(zip(*columns, strict=True))}

    def place_of(self, row: int) -> str:
        """Returns under which name a row has its error: its coordinate, or, where it has none, its index."""
        return f"{self.row_axis}/{getattr(self, self.row_axis)[row] if self.row_axis in self.coordinates else row}"

    def validate(self) -> None:
        """Raises an error that names what does not fit of shapes, types, status and attributes, and what would."""
        sizes: dict[str, int] = {}
        for name, item in self.declared.items():
            values = getattr(self, name)
            found = (len(values),) if item.dtype is str else values.shape
            for axis, size in zip(item.axes, found, strict=False):
                sizes.setdefault(axis, size)
            shape = tuple(sizes.get(axis, 0) for axis in item.axes)
            if item.dtype is not str:
                check_array(name, values, shape, item.dtype)
            elif found != shape:
                raise ValueError(f"{name} must be {shape[0]} texts, but got {len(values)}.")
        if not sizes[self.row_axis]:
            raise ValueError(f"{self.kind.word} must have at least one {self.row_axis}.")
        check_status("status", self.status, self.status.shape)
        check_attributes(self.attributes)

    def forget_failed(self, rows: Iterable[int]) -> None:
        """Makes what failed in these rows pending again, and removes its errors."""
        for row in rows:
            status = self.status[row : row + 1]
            status[status == PointStatus.FAILED] = PointStatus.PENDING
            for place in [place for place in self.errors if f"{place}/".startswith(f"{self.place_of(row)}/")]:
                del self.errors[place]

    def continuing(self, stored: Stored[Self]) -> Self:
        """Returns these rows with what a file has; a LandscapeIdentityError if that is of another experiment."""
        stored.check(self)
        return self if stored.record is None else self.joined(stored.record)

    def joined(self, stored: Self) -> Self:
        """Returns both records' rows, sorted if they are coordinates, with what ``stored``, of one identity, holds."""
        now, before = self.places, stored.places
        keys = [*now, *(key for key in before if key not in now)]
        if self.row_axis in self.coordinates:
            keys.sort()
        known: dict[str, Any] = {}
        for name, item in self.declared.items():
            if self.row_axis not in item.axes:
                known[name] = getattr(self, name)
            elif item.dtype is str or name in self.key:
                mine, theirs = getattr(self, name), getattr(stored, name)
                known[name] = [mine[now[key]] if key in now else theirs[before[key]] for key in keys]
        sizes = {axis: max(size, stored.sizes[axis]) for axis, size in self.sizes.items()}
        attributes = {**stored.attributes, **self.attributes}
        notes = [*(stored.attributes.get("notes") or ()), *self.attributes["notes"]]
        notes += plan_change(stored.attributes, self.attributes, self.kind)
        attributes["notes"] = list(dict.fromkeys(notes))
        attributes |= {name: stored.attributes[name] for name in ("created", "versions") if name in stored.attributes}
        joined = self.empty(known, sizes, attributes)
        places = joined.places
        for name in self.declared.keys() - known.keys():
            values, found = getattr(joined, name), getattr(stored, name)
            for key, row in before.items():
                values[(places[key], *map(slice, found.shape[1:]))] = found[row]
        moved = {stored.place_of(row): joined.place_of(places[key]) for key, row in before.items()}
        for place, text in stored.errors.items():
            row_place = "/".join(place.split("/")[:2])
            if row_place in moved:
                joined.errors[moved[row_place] + place[len(row_place) :]] = text
        return joined


R = TypeVar("R", bound=Record)


def record_format(data_class: type[R]) -> FileFormat[R]:
    return FileFormat(data_class.kind, functools.partial(read_record, data_class), record_bytes, _FLUSH_SECONDS)


def record_bytes(record: Record) -> bytes:
    """Returns a record as the bytes of its file; equal records give equal bytes."""
    record.validate()
    buffer = io.BytesIO()
    with hdf5.file_in(buffer) as file:
        hdf5.write_attributes(file, record.kind, record.attributes, complete=record.complete)
        groups = {"": file}
        for name, column in record.declared.items():
            values = getattr(record, name)
            # HDF5 keeps no data of an array without elements, and would not say what its shape was.
            if not np.size(values) or (column.optional and np.isnan(values).all()):
                continue
            folder, _, leaf = column.place.rpartition("/")
            if folder not in groups:
                groups[folder] = hdf5.put_group(file, folder)
            if column.dtype is str:
                values = hdf5.as_texts(values)
            dataset = hdf5.put(groups[folder], leaf, values)
            if name in record.coordinates:
                dataset.make_scale(name)
            for index, axis in enumerate(column.axes):
                if axis in record.coordinates and axis != name:
                    dataset.dims[index].attach_scale(file[axis])
        hdf5.write_errors(file, record.errors)
        hdf5.write_digest(file)
    return buffer.getvalue()


def read_record(data_class: type[R], path: GivenPath) -> R:
    place = path_of(path)
    record = read_whole(place, data_class.kind, functools.partial(_read, data_class))
    record.path = place
    return record


def _read(data_class: type[R], file: Any, size: int) -> R:
    columns = data_class.declared
    texts = {column.place.rpartition("/")[2] for column in columns.values() if column.dtype is str}
    reader = hdf5.BoundedReader(size, axes=3)
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
    record = data_class(arrays, hdf5.read_errors(reader, groups["errors"]), hdf5.read_attributes(file))
    record.validate()
    return record


class ReadOnly(ABC):
    """A copy of data whose attributes, mappings and arrays cannot be changed; it can be copied and pickled."""

    _mappings: ClassVar[tuple[str, ...]] = ("errors", "attributes")

    @abstractmethod
    def _numbers(self) -> Iterable[NDArray[Any]]:
        """Returns the arrays that nobody may change."""

    def _take(self, data: object, **others: object) -> None:
        """Takes a copy of all attributes of ``data``, and ``others`` as they are."""
        contents = {name: value for name, value in _contents(data, self._mappings).items() if name not in others}
        self.__setstate__({**copy.deepcopy(contents), **others})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is read-only, so its {name!r} cannot be set.")

    def __getstate__(self) -> dict[str, Any]:
        return _contents(self, self._mappings)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name in self._mappings:
            vars(self)[name] = MappingProxyType(state[name])
        for array in self._numbers():
            array.flags.writeable = False


def _contents(data: object, mappings: tuple[str, ...]) -> dict[str, Any]:
    """Returns attributes as they can be copied and pickled, which a ``MappingProxyType`` cannot be."""
    return {name: dict(value) if name in mappings else value for name, value in vars(data).items()}


class ReadOnlyRecord(ReadOnly, Record):
    """A record in a notebook; everything it hands out is read-only."""

    errors: Mapping[str, str]  # type: ignore[assignment]
    attributes: Mapping[str, Any]  # type: ignore[assignment]
    report: MeasurementReport | None

    def __init__(
        self,
        data: Record,
        path: str | os.PathLike[str] | RemotePath | None = None,
        report: MeasurementReport | None = None,
        **others: object,
    ) -> None:
        data.validate()
        self._take(data, path=data.path if path is None else path_of(path), report=report, **others)

    def _numbers(self) -> Iterable[NDArray[Any]]:
        return self.columns.values()

    @classmethod
    def load(cls, path: str | os.PathLike[str] | RemotePath) -> Self:
        """Reads its file into memory; the file is closed again and never changed.

        Args:
            path: of the file, or its fsspec URL such as ``s3://bucket/run/curvature_0-20.h5``.

        Raises:
            LandscapeNotFoundError: there is no such file.
            LandscapeLockedError: another program has it open for writing.
            LandscapeDamagedError: it is truncated or no HDF5 file.
            LandscapeFormatError: it is another program's, of another kind, or another version's with another format.
        """
        return cls(read_record(cls.data_class, path))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes its file, which ``load`` reads, and returns the path.

        Raises:
            LandscapeLockedError: somebody is writing that file.
            LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
            NotADirectoryError: the file's directory does not exist.
        """
        return save_whole(path, lambda: record_bytes(self), self.kind, overwrite=overwrite)
