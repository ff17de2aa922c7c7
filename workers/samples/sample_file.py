"""Bytes that several processes of a machine map; on Linux the kernel frees them with the last one that has them."""

from __future__ import annotations

import contextlib
import mmap
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collectors.files import system

from ..errors import SampleMemoryError

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

    @classmethod
    def open(cls, handle: FileHandle) -> SampleFile | None:
        """Returns the file of another process, or None where it is on another machine, gone, or not ours to read."""
        if handle.machine != system.machine_identity():
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
