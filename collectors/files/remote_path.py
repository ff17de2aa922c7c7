"""One file behind a URL, of which each read is one request; and the errors of all its file systems as one kind."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from typing import Any

# More than the longest header of a checkpoint, so that a header comes in one request.
_PIECE = 128 * 2**20


class RemoteFile(io.RawIOBase):
    """A remote file, opened for reading here and there.

    Args:
        file_system: of fsspec.
        path: in its own notation.
        size: in bytes.
    """

    def __init__(self, file_system: Any, path: str, size: int) -> None:
        self._file_system = file_system
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Returns True."""
        return True

    def seekable(self) -> bool:
        """Returns True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to a position; returns it."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer in one request; returns the number of bytes, which is 0 at the end."""
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._size, self._position + _PIECE)
        if stop <= self._position:
            return 0
        with os_errors(self._path):
            content = self._file_system.cat_file(self._path, start=self._position, end=stop)
        view[: len(content)] = content
        self._position += len(content)
        return len(content)


@contextlib.contextmanager
def os_errors(place: object) -> Iterator[None]:
    """Each file system raises its own kinds of errors; they become OSErrors that say what is wrong, and where.

    Args:
        place: what is read or written; its str is shown.

    Raises:
        OSError: whatever went wrong in the block.
    """
    try:
        yield
    except Exception as error:
        kinds = ((FileNotFoundError, errno.ENOENT), (PermissionError, errno.EACCES))
        number = next((number for kind, number in kinds if isinstance(error, kind)), errno.EIO)
        raise OSError(number, f"{type(error).__name__}: {error}", str(place)) from error
