"""Samples that lie once in the memory of a machine, in files that processes map and that end with the last of them."""

from __future__ import annotations

import contextlib
import copy
import itertools
import mmap
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.files import system
from collectors.networks.batches import mapping_like, tuple_like

from ..errors import SampleMemoryError
from .batches import Batch, SampleDigest, is_array, is_tensor, leaf_bytes, map_batch, same_leaves
from .samples import Samples

_ALIGNMENT = 64


@dataclass(frozen=True)
class FileHandle:
    """Where another process of this machine finds a file."""

    machine: str  # this boot of this machine and its process ids' namespace, as far as the system tells them
    path: str  # of the file; on Linux that of a process that has it open
    inode: tuple[int, int]  # of the file, because ids and numbers are given again
    size: int  # in bytes


class SampleFile:
    """A file that grows until it is sealed and is then mapped: in memory on Linux, a temporary one elsewhere."""

    def __init__(self, folder: str | None = None) -> None:
        # ``memfd_create`` has no limit as ``/dev/shm`` has, and nothing is left of it however its processes end.
        # Elsewhere a file goes into the folder, if other processes need it; who made the folder removes it.
        self._descriptor, self._path = system.shared_file("landscape", folder)
        self._owner = os.getpid()
        self.size = 0

    def append(self, values: memoryview, alignment: int) -> int:
        """Writes values at the end, from a multiple of the alignment on; returns where they begin."""
        gap = -self.size % min(alignment, _ALIGNMENT)
        self._write(memoryview(bytes(gap)))
        start = self.size
        self._write(values)
        return start

    def _write(self, values: memoryview) -> None:
        end = self.size + len(values)
        while self.size < end:
            try:
                self.size += os.write(self._descriptor, values[self.size - end :])
            except (OSError, MemoryError) as error:
                raise _no_room(end, error) from error

    def seal(self) -> None:
        system.seal(self._descriptor)

    def map(self, *, writable: bool = True) -> NDArray[np.uint8]:
        """Returns all bytes; pages that are written to become copies, which nobody else sees."""
        if not self.size:
            return np.empty(0, np.uint8)
        try:
            access = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
            mapped = mmap.mmap(self._descriptor, self.size, access=access)
        except (OSError, MemoryError) as error:
            raise _no_room(self.size, error) from error
        return np.frombuffer(mapped, np.uint8)

    def handle(self) -> FileHandle | None:
        """Returns where another process finds the file; None where it cannot."""
        path = self._path or system.path_of_open(self._descriptor)
        if not path:
            return None
        found = os.fstat(self._descriptor)
        return FileHandle(system.machine_identity(), path, (found.st_dev, found.st_ino), self.size)

    def __reduce__(self) -> tuple[Any, ...]:
        return SampleFile.open, (self.handle(),)

    @classmethod
    def open(cls, handle: FileHandle | None) -> SampleFile | None:
        """Returns the file of another process, or None where it is on another machine, gone, or not ours to read."""
        if handle is None or handle.machine != system.machine_identity():
            return None
        try:
            descriptor = os.open(handle.path, os.O_RDONLY | system.OPEN_FLAGS)
        except OSError:
            return None
        found = os.fstat(descriptor)
        file = cls.__new__(cls)
        file._descriptor, file.size, file._owner = descriptor, found.st_size, 0
        file._path = "" if system.path_of_open(descriptor) else handle.path
        # Closed with the object, also where it is another file by now.
        return file if ((found.st_dev, found.st_ino), found.st_size) == (handle.inode, handle.size) else None

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._descriptor)
            if self._path and self._owner == os.getpid():
                os.unlink(self._path)  # noqa: PTH108 (Windows refuses it while others map it: it goes with its folder)


def _no_room(size: int, error: Exception) -> SampleMemoryError:
    return SampleMemoryError(
        f"there is no room for the samples, of which {size / 1e9:.2g} GB were to be kept ({error}); use fewer samples "
        "(num_samples), or a machine with more memory."
    )


@dataclass(frozen=True)
class _Slot:
    """An array of a batch: which file has its values, and where."""

    file: int
    start: int
    shape: tuple[int, ...]
    dtype: Any
    is_tensor: bool

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def array(self, files: Sequence[NDArray[np.uint8]]) -> Any:
        """Returns the array, which shares its memory with the file."""
        itemsize = self.dtype.itemsize
        values = files[self.file][self.start : self.start + self.size * itemsize]
        if not self.is_tensor:
            return values.view(self.dtype).reshape(self.shape)
        return sys.modules["torch"].from_numpy(values).view(self.dtype).reshape(self.shape)


class SampleWriter:
    """Puts batches into files as they come, one for each array of a batch, so that samples lie in memory only once."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._files: list[SampleFile] = []
        self._batches: list[Batch] = []
        self._digest = SampleDigest()
        self.count = 0

    @property
    def size(self) -> int:
        return sum(file.size for file in self._files)

    def add(self, batch: Batch) -> None:
        self._digest.add(batch)
        # A file for each array, so that batches can be joined; what cannot be takes one, as files may be few.
        positions = itertools.count() if batch.can_be_cut else itertools.repeat(0)
        self._batches.append(map_batch(lambda leaf: self._written(next(positions), leaf), batch))
        self.count += batch.size

    def finish(self, *, without_batches: bool) -> Samples:
        for file in self._files:
            file.seal()
        whole = _joined(self._batches)
        return _Store(self._files, (self._batches, whole, without_batches, self._digest.hexdigest())).samples()

    def _written(self, position: int, leaf: Any) -> Any:
        if not _can_be_written(leaf):
            return copy.copy(leaf)
        while position >= len(self._files):
            self._files.append(SampleFile(self._folder))
        file = self._files[position]
        found = leaf_bytes(leaf)
        assert found is not None
        start = file.append(memoryview(found[1]), leaf.dtype.itemsize)
        return _Slot(position, start, tuple(leaf.shape), leaf.dtype, is_tensor(leaf))


def open_held(held: tuple[Sequence[Any], bytes]) -> Samples | None:
    """Returns samples of another process, which are mapped and not copied; None where they are out of reach."""
    files, content = held
    return None if None in files else _Store(files, pickle.loads(content)).samples()


def hold(samples: Samples) -> bytes | None:
    """Returns what other processes need to use samples of a writer or of passes; None where they cannot."""
    if samples.passes is not None:
        return pickle.dumps(samples.passes.facts)
    store = samples.store
    if not isinstance(store, _Store) or any(file.handle() is None for file in store.files):
        return None
    try:
        return pickle.dumps((store.files, pickle.dumps(store.content)))
    except Exception:  # a batch may hold any object
        return None


@dataclass(frozen=True)
class _Store:
    """What samples are made of; it keeps the files open for others."""

    files: Sequence[SampleFile]
    content: tuple[list[Batch], Batch | None, bool, str]  # as ``Samples`` takes it, with places instead of arrays

    def samples(self) -> Samples:
        batches, whole, without_batches, digest = self.content
        mapped = [file.map() for file in self.files]

        def array(leaf: Any) -> Any:
            return leaf.array(mapped) if isinstance(leaf, _Slot) else leaf

        if whole is None:
            batches = [map_batch(array, batch) for batch in batches]
        else:
            whole = map_batch(array, whole)
        return Samples(batches, whole, without_batches=without_batches, digest=digest, store=self)


def _can_be_written(leaf: Any) -> bool:
    if is_tensor(leaf):
        torch = sys.modules["torch"]
        return leaf.layout is torch.strided and not leaf.is_quantized and not leaf.is_meta and not leaf.is_nested
    return isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject and not isinstance(leaf, np.ma.MaskedArray)


class _RaggedError(Exception):
    """Batches that cannot be joined."""


def _joined(batches: Sequence[Batch]) -> Batch | None:
    """Returns all batches as one, or None where they do not fit together (padded to their own lengths)."""
    if not all(batch.can_be_cut for batch in batches):
        return None
    if len(batches) == 1:
        return batches[0]
    sizes = [batch.size for batch in batches]
    try:
        inputs, targets = _joined_parts([(batch.inputs, batch.targets) for batch in batches], sizes)
    except _RaggedError:
        return None
    return Batch(inputs, targets, sum(sizes))


def _joined_parts(parts: list[Any], sizes: list[int]) -> Any:
    first = parts[0]
    if any(type(part) is not type(first) for part in parts):
        raise _RaggedError
    if isinstance(first, _Slot):
        return _joined_slots(parts, sizes)
    if isinstance(first, Mapping):
        if any(part.keys() != first.keys() for part in parts):
            raise _RaggedError
        return mapping_like(first, {key: _joined_parts([part[key] for part in parts], sizes) for key in first})
    if isinstance(first, tuple | list):
        if any(len(part) != len(first) for part in parts):
            raise _RaggedError
        return tuple_like(first, [_joined_parts(list(items), sizes) for items in zip(*parts, strict=True)])
    # Texts of samples are arrays of objects; two batches of the same texts are two batches all the same.
    is_of_samples = is_array(first) and first.ndim > 0 and len(first) == sizes[0]
    if not is_of_samples and all(same_leaves(part, first) for part in parts[1:]):
        return first
    raise _RaggedError


def _joined_slots(slots: Sequence[_Slot], sizes: Sequence[int]) -> _Slot:
    first, end = slots[0], slots[0].start
    for slot, size in zip(slots, sizes, strict=True):
        same = (slot.file, slot.dtype, slot.shape[1:], slot.is_tensor) == (
            first.file, first.dtype, first.shape[1:], first.is_tensor,
        )  # fmt: skip
        if not same or not slot.shape or slot.shape[0] != size or slot.start != end:
            raise _RaggedError
        end += slot.size * slot.dtype.itemsize
    return _Slot(first.file, first.start, (sum(sizes), *first.shape[1:]), first.dtype, first.is_tensor)
