"""What a user holds of a file: arrays, mappings and attributes that nobody changes by accident."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Self

from numpy.typing import NDArray

from collectors.files.remote_path import RemotePath

from .record import Record, read_record, record_bytes
from .run import MeasurementReport
from .whole_file import path_of
from .writer import save_whole


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
        return save_whole(path, lambda: record_bytes(self), self.schema.kind, overwrite=overwrite)
