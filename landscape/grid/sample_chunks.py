"""Losses of samples, one chunk for each point as HDF5 stores it (shuffled, gzip), so that none is compressed twice.

While a grid is measured, its file is written every few seconds, and these would be most of it. So each chunk is added
once to a journal beside the file, ``.NAME.samples``; the file itself has them when the measuring ends.
"""

from __future__ import annotations

import contextlib
import copy
import os
import struct
import tempfile
import threading
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError, NotReplacedError
from collectors.files import system
from collectors.files.local_files import append_bytes, write_bytes
from collectors.shapes import Float32

from ..errors import LandscapeDamagedError
from ..record.hdf5 import chunk_digest
from ..replacing import first_bytes

ITEM = 4
"""Bytes of a loss."""
LEVEL = 4
"""Of gzip: the higher ones save another per cent of float32 at twice the time."""

# More than comes between two writes of a file, so that what waits is not written once more.
_IN_MEMORY = 1 << 25
_JOURNAL = b"summary-landscape samples 1\n"
_RECORD = struct.Struct("<IQI")  # which data set, which point, how many bytes follow


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

    def readable(self) -> Iterator[tuple[int, bytes]]:
        """Yields the points whose chunks can be read, and these."""
        return self.items()

    def add(self, flat: int, chunk: bytes) -> None:
        raise TypeError("losses of samples in a landscape file are read-only")

    def twin(self) -> Self:
        """Returns a copy that shares the bytes of the chunks; what is added to one of both is not in the other."""
        twin = copy.copy(self)
        twin._places = dict(self._places)
        return twin


class SpooledChunks(Chunks):
    """Chunks in memory, from 32 MiB on in a temporary file that vanishes with its process, or in a journal."""

    def __init__(self, chunks: Iterable[tuple[int, bytes]] = ()) -> None:
        self.nbytes, self._spool = 0, _spool()
        self._places: dict[int, _Place] = {}
        for flat, chunk in chunks:
            self.add(flat, chunk)

    def items(self, wanted: Iterable[int] | None = None) -> Iterator[tuple[int, bytes]]:
        for flat in self if wanted is None else wanted:
            yield flat, self._places[flat].read()

    def digest(self, flat: int) -> bytes:
        return self._places[flat].digest

    def add(self, flat: int, chunk: bytes) -> None:
        # The writer's thread may give the next ones another spool meanwhile.
        before, spool = self._places.get(flat), self._spool
        self._places[flat] = _Place(spool, spool.add(chunk), len(chunk), chunk_digest(chunk))
        self.nbytes += len(chunk) - (before.length if before else 0)

    def outside(self, store: _Store | None) -> list[tuple[int, _Place]]:
        """Returns points whose chunks are not in a store, and where these are."""
        return [(flat, place) for flat, place in self._places.items() if place.store is not store]

    def move(self, places: Iterable[tuple[int, _Place, _Place]]) -> None:
        """Has chunks where they are now, by points and places before; what was added since stays where it is."""
        self._spool = _spool()
        for flat, before, now in places:
            if self._places[flat] is before:
                self._places[flat] = now

    def leave(self, store: _Store) -> None:
        leaving = [(flat, place) for flat, place in self._places.items() if place.store is store]
        for flat, place in leaving:
            self._places[flat] = replace(place, store=self._spool, start=self._spool.add(place.read()))


class _Store:
    """Bytes that are only added to, in an open file that is closed when nobody uses them any more."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._lock = file, threading.Lock()
        self.close = weakref.finalize(self, file.close)

    def __reduce__(self) -> tuple[Callable[[bytes], _Store], tuple[bytes]]:
        with self._lock:
            self._file.seek(0)
            return _spool, (self._file.read(),)

    def add(self, content: bytes) -> int:
        with self._lock:
            start = self._file.seek(0, os.SEEK_END)
            self._file.write(content)
        return start

    def read(self, start: int, length: int) -> bytes:
        with self._lock:
            self._file.seek(start)
            return self._file.read(length)


def _spool(content: bytes = b"") -> _Store:
    store = _Store(tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115
    store.add(content)
    return store


@dataclass(frozen=True)
class _Place:
    store: _Store
    start: int
    length: int
    digest: bytes

    def read(self) -> bytes:
        return self.store.read(self.start, self.length)


class FiledChunks(Chunks):
    """Chunks of points, by their digests, in a landscape file on this machine; old files have the digest ""."""

    def __init__(
        self, path: Path, dataset: str, shape: tuple[int, ...], nbytes: int, digests: Mapping[int, bytes]
    ) -> None:
        self._path, self._dataset, self._shape, self.nbytes = path, dataset, shape, nbytes
        self._places, self._stamp = dict(digests), _stamp(path)

    def items(self, wanted: Iterable[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yields points and chunks, or raises a LandscapeError where the file was changed or removed meanwhile."""
        import h5py

        try:
            if _stamp(self._path) != self._stamp:
                raise OSError("it was changed since")
            file = h5py.File(self._path, "r", locking="best-effort")
        except OSError as error:
            raise _unreadable(self._path, error.strerror or error) from error
        with file:
            losses = file[self._dataset]
            for flat in self if wanted is None else wanted:
                place = place_on_grid(flat, self._shape)
                try:
                    chunk = bytes(losses.id.read_direct_chunk((*place, 0))[1])
                    if self._places[flat] not in (b"", chunk_digest(chunk)):
                        raise ValueError("its digest differs")
                except (RuntimeError, ValueError, OSError) as error:
                    raise _damaged(f"point {list(place)} of {self._path}") from error
                yield flat, chunk


class SampleJournal:
    """The file beside an unfinished landscape to which chunks are added, each once; they are read from it then."""

    def __init__(self, landscape: Path) -> None:
        self._path = _journal_of(landscape)
        self._sets: Sequence[SpooledChunks] = ()
        self._new: list[list[tuple[int, _Place]]] = []  # what is to be added, of each data set
        self._store: _Store | None = None
        self._is_whole = False  # whether it has all that is in the store

    def collect(self, sets: Sequence[SpooledChunks]) -> None:
        """Notes what the data sets have that it does not."""
        self._is_whole &= self._path.exists()
        self._sets = sets
        self._new = [chunks.outside(self._store if self._is_whole else None) for chunks in sets]

    def write(self) -> None:
        """Returns when what was noted is on the disk, or raises a FileWriteError."""
        # At first, and after a failure, which may have left half a record, it is written anew.
        begins, self._is_whole = not self._is_whole, False
        start = len(_JOURNAL) if begins else self._path.stat().st_size
        records = [_JOURNAL] if begins else []
        starts: list[int] = []
        for number, new in enumerate(self._new):
            for flat, place in new:
                records += [_RECORD.pack(number, flat, place.length), place.read()]
                starts.append(start + _RECORD.size)
                start = starts[-1] + place.length
        if begins:
            if not _JOURNAL.startswith(first_bytes(self._path, len(_JOURNAL))):
                raise NotReplacedError(self._path, "is no file of losses of samples that this program writes")
            write_bytes(self._path, b"".join(records))
            self._store = _Store(system.open_for_reading(self._path))
        else:
            append_bytes(self._path, b"".join(records))
        assert self._store is not None
        places = iter(starts)
        for chunks, new in zip(self._sets, self._new, strict=True):
            chunks.move([(flat, place, replace(place, store=self._store, start=next(places))) for flat, place in new])
        self._is_whole = True

    def remove(self) -> None:
        """Removes the file; what it holds can be read as long as somebody has its chunks."""
        if self._store is None:
            # Of an unfinished file that was there before, and is replaced.
            with contextlib.suppress(OSError):
                if first_bytes(self._path, len(_JOURNAL)) == _JOURNAL:
                    self._path.unlink()
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            # Windows keeps a file that is open.
            for chunks in self._sets:
                chunks.leave(self._store)
            self._store.close()
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._store, self._is_whole = None, False


class JournalChunks(Chunks):
    """Those of the data set ``number`` in the journal of a landscape file that have a point's digest."""

    def __init__(self, landscape: Path, number: int, digests: Mapping[int, bytes]) -> None:
        self._landscape, self._path, self._digests = landscape, _journal_of(landscape), digests
        self._places = {}
        with contextlib.suppress(FileNotFoundError), system.open_for_reading(self._path) as file:
            if file.read(len(_JOURNAL)) == _JOURNAL:
                self._places = {flat: place for flat, place in _records(file, number) if flat in digests}
        self.nbytes = sum(length for _, length in self._places.values())

    def items(self, wanted: Iterable[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yields points and chunks, or raises a LandscapeError where the journal was changed or removed meanwhile."""
        for flat, chunk in self._read(self if wanted is None else wanted):
            if chunk_digest(chunk) != self._digests[flat]:
                raise _unreadable(self._landscape, "they were changed since")
            yield flat, chunk

    def readable(self) -> Iterator[tuple[int, bytes]]:
        return (item for item in self._read(self) if chunk_digest(item[1]) == self._digests[item[0]])

    def _read(self, wanted: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        with contextlib.ExitStack() as stack:
            file: BinaryIO | None = None
            for flat in wanted:
                try:
                    file = file or stack.enter_context(system.open_for_reading(self._path))
                except OSError as error:
                    raise _unreadable(self._landscape, error.strerror) from error
                start, length = self._places[flat]
                file.seek(start)
                yield flat, file.read(length)


def _records(file: BinaryIO, number: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yields points of a data set and where their chunks are; a process may have been killed in the last one."""
    size = os.fstat(file.fileno()).st_size
    while len(head := file.read(_RECORD.size)) == _RECORD.size:
        found, flat, length = _RECORD.unpack(head)
        start = file.tell()
        if found == number and start + length <= size:
            yield flat, (start, length)
        file.seek(start + length)


def _journal_of(landscape: Path) -> Path:
    target = landscape.resolve()
    return target.with_name(f".{target.name}.samples")


def place_on_grid(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the row and the column, or on a line the index, of a point."""
    return tuple(int(index) for index in np.unravel_index(flat, shape))


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


def _unreadable(landscape: Path, why: object) -> LandscapeError:
    return LandscapeError(
        f"the losses of samples in {landscape} cannot be read: {why}. A landscape reads them only when they are asked "
        "for; load the landscape again (Landscape.load)."
    )


def _damaged(what: str) -> LandscapeDamagedError:
    return LandscapeDamagedError(
        f"the losses of samples at {what} are damaged. The rest of the landscape can be used; for these, copy the file "
        "again from where it came, or measure it again with overwrite=True."
    )
