"""Losses of samples, one chunk for each point as HDF5 stores it (shuffled, gzip), so that none is compressed twice."""

from __future__ import annotations

import copy
import tempfile
import threading
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError

from ..errors import LandscapeDamagedError
from ..record.hdf5 import chunk_digest

if TYPE_CHECKING:
    from jaxtyping import Float32


ITEM = 4
"""Bytes of a loss."""
LEVEL = 4
"""Of gzip: the higher ones save another per cent of float32 at twice the time."""

_IN_MEMORY = 1 << 20


class Chunks(ABC):
    """Packed losses of points, by the points' indices in C order."""

    nbytes: int
    _places: dict[int, Any]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._places))

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, flat: object) -> bool:
        return flat in self._places

    @abstractmethod
    def items(self, wanted: Iterable[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yields points that are there, by default all of them in order, and their chunks."""

    def add(self, flat: int, chunk: bytes) -> None:
        raise TypeError("losses of samples in a landscape file are read-only")

    def twin(self) -> Self:
        """Returns a copy that shares the bytes of the chunks; what is added to one of both is not in the other."""
        twin = copy.copy(self)
        twin._places = dict(self._places)
        return twin


class SpooledChunks(Chunks):
    """Chunks in memory, and from 1 MiB on in a temporary file that vanishes with its process."""

    def __init__(self) -> None:
        self.nbytes, self._places, self._spool = 0, {}, _Spool()

    def items(self, wanted: Iterable[int] | None = None) -> Iterator[tuple[int, bytes]]:
        for flat in self if wanted is None else wanted:
            yield flat, self._spool.read(*self._places[flat])

    def add(self, flat: int, chunk: bytes) -> None:
        _, length = self._places.get(flat, (0, 0))
        self._places[flat] = (self._spool.add(chunk), len(chunk))
        self.nbytes += len(chunk) - length


class _Spool:
    """Bytes that are only added to."""

    def __init__(self, content: bytes = b"") -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._lock = threading.Lock()
        weakref.finalize(self, self._file.close)
        self._file.write(content)

    def __reduce__(self) -> tuple[type[_Spool], tuple[bytes]]:
        with self._lock:
            self._file.seek(0)
            return _Spool, (self._file.read(),)

    def add(self, content: bytes) -> int:
        with self._lock:
            start = self._file.seek(0, 2)
            self._file.write(content)
        return start

    def read(self, start: int, length: int) -> bytes:
        with self._lock:
            self._file.seek(start)
            return self._file.read(length)


class FiledChunks(Chunks):
    """Chunks of the points ``flats`` in a landscape file on this machine, opened to read; old files have no digests."""

    def __init__(
        self,
        path: Path,
        dataset: str,
        flats: NDArray[np.int64],
        shape: tuple[int, ...],
        nbytes: int,
        digests: Sequence[bytes] | None,
    ) -> None:
        self._path, self._dataset, self._shape, self.nbytes = path, dataset, shape, nbytes
        self._places = dict(zip(flats.tolist(), digests or [b""] * len(flats), strict=True))
        self._stamp = _stamp(path)

    def items(self, wanted: Iterable[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yields points and chunks, or raises a LandscapeError where the file was changed or removed meanwhile."""
        import h5py

        try:
            if _stamp(self._path) != self._stamp:
                raise OSError("it was changed since")
            file = h5py.File(self._path, "r", locking="best-effort")
        except OSError as error:
            raise LandscapeError(
                f"the losses of samples in {self._path} cannot be read: {error.strerror or error}. A landscape reads "
                "them only when they are asked for; load the landscape again (Landscape.load)."
            ) from error
        with file:
            losses = file[self._dataset]
            for flat in self if wanted is None else wanted:
                place = [int(index) for index in np.unravel_index(flat, self._shape)]
                try:
                    chunk = bytes(losses.id.read_direct_chunk((*place, 0))[1])
                except (RuntimeError, ValueError, OSError) as error:
                    raise _damaged(f"point {place} of {self._path}") from error
                if self._places[flat] not in (b"", chunk_digest(chunk)):
                    raise _damaged(f"point {place} of {self._path}")
                yield flat, chunk


def packed(losses: NDArray[Any]) -> bytes:
    """Returns losses of samples, shape (samples,), as HDF5 stores a chunk of them: float32, shuffled, gzip."""
    shuffled = np.ascontiguousarray(losses, "<f4").view(np.uint8).reshape(-1, ITEM).T
    return zlib.compress(shuffled.tobytes(), LEVEL)


def unpacked(chunk: bytes, count: int) -> Float32[np.ndarray, " samples"]:
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(chunk, count * ITEM + 1)
    except zlib.error as error:
        raise _damaged("a point") from error
    if len(content) != count * ITEM or not stream.eof:
        raise _damaged("a point")
    columns = np.frombuffer(content, np.uint8).reshape(ITEM, count)
    return np.ascontiguousarray(columns.T).view("<f4").reshape(count).astype(np.float32)


def _stamp(path: Path) -> tuple[int, int, int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _damaged(what: str) -> LandscapeDamagedError:
    return LandscapeDamagedError(
        f"the losses of samples at {what} are damaged. The rest of the landscape can be used; for these, copy the file "
        "again from where it came, or measure it again with overwrite=True."
    )
