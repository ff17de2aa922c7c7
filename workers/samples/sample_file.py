"""Bytes that several processes map and no folder lists: the kernel frees them with the last process that has them."""

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
    """Where another process of this machine finds a file that has no name.

    Attributes:
        machine: this boot of this machine and its process ids' namespace.
        process: id of a process that has the file open.
        descriptor: its number there.
        inode: of the file, because ids and numbers are given again.
        size: in bytes.
    """

    machine: str
    process: int
    descriptor: int
    inode: tuple[int, int]
    size: int


class SampleFile:
    """A file without a name, which grows until it is sealed and is then mapped.

    On Linux it lies in memory (``memfd_create``), which no size of ``/dev/shm`` limits; elsewhere it is a temporary
    file on the disk, deleted as soon as it is made. Nothing is left of it however its processes end.

    Raises:
        SampleMemoryError: there is no room for it.
    """

    def __init__(self) -> None:
        self._descriptor = system.unnamed_file("landscape-samples")
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
        """Sees to it that no process can change the file any more."""
        system.seal(self._descriptor)

    def map(self) -> NDArray[np.uint8]:
        """Returns all bytes. They may be written to, which nobody else sees: the pages written become copies."""
        if not self.size:
            return np.empty(0, np.uint8)
        try:
            mapped = mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_COPY)
        except (OSError, MemoryError) as error:
            raise _no_room(self.size, error) from error
        return np.frombuffer(mapped, np.uint8)

    def handle(self) -> FileHandle | None:
        """Returns where another process finds the file; None where it cannot."""
        machine = system.machine_identity()
        if not machine:
            return None
        found = os.fstat(self._descriptor)
        return FileHandle(machine, os.getpid(), self._descriptor, (found.st_dev, found.st_ino), self.size)

    @classmethod
    def open(cls, handle: FileHandle) -> SampleFile | None:
        """Returns the file of another process, or None where it is on another machine, gone, or not ours to read."""
        if handle.machine != system.machine_identity():
            return None
        descriptor = system.open_of_process(handle.process, handle.descriptor)
        if descriptor is None:
            return None
        found = os.fstat(descriptor)
        file = cls.__new__(cls)
        file._descriptor, file.size = descriptor, found.st_size
        # Closed with the object, also where it is another file by now.
        return file if ((found.st_dev, found.st_ino), found.st_size) == (handle.inode, handle.size) else None

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.close(self._descriptor)


def _no_room(size: int, error: Exception) -> SampleMemoryError:
    return SampleMemoryError(
        f"there is no room for the samples, of which {size / 1e9:.2g} GB were to be kept ({error}); use fewer samples "
        "(num_samples), or a machine with more memory."
    )
