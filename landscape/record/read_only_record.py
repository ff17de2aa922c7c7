"""What a user holds of a record: its arrays, which nobody can change by accident, and its file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from collectors.files.remote_path import RemotePath

from ..file.read_only import ReadOnly
from ..file.saving import save_whole
from ..file.whole_file import path_of
from .record import Record
from .record_file import read_record, record_bytes
from .run import MeasurementReport

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
