"""Puts a landscape file behind a URL; while that fails, onto this machine, so that nothing measured is lost."""

from __future__ import annotations

import contextlib
import time
import warnings
from pathlib import Path

from collectors.run_files import RemotePath
from collectors.temporary_folder import unsent_folder

from .errors import LandscapeWriteError
from .landscape_file import write_image

_LAST_PAUSES_SECONDS = (1.0, 5.0, 20.0)


class RemoteStore:
    """Where a landscape's bytes go.

    The first write fails at once, because it shows whether the place can be written at all. From then on a failure is
    a warning, the newest bytes are kept on this machine, and the next write tries again.

    Args:
        path: of the file.
    """

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._has_worked = False
        self._kept: Path | None = None

    def write(self, image: bytes) -> None:
        """Writes while the survey goes on.

        Raises:
            LandscapeWriteError: nothing could be written there yet.
        """
        try:
            self._path.write_bytes(image)
        except OSError as error:
            if not self._has_worked:
                raise LandscapeWriteError(
                    f"landscape file {self._path} cannot be written: {error.strerror}. What was there is untouched. "
                    "Check the address and your right to write there, then run again."
                ) from error
            was_kept = self._kept is not None
            kept = self._keep(image)
            if not was_kept:
                warnings.warn(
                    f"landscape file {self._path} cannot be written at the moment: {error.strerror}. What is measured "
                    f"is kept in {kept}, and the next write in a few seconds tries again.",
                    stacklevel=2,
                )
        else:
            self._has_worked = True
            self._forget()

    def write_last(self, image: bytes) -> None:
        """Writes what will not change any more; tries several times.

        Raises:
            LandscapeWriteError: it is on this machine only; the text says where.
        """
        for pause in (*_LAST_PAUSES_SECONDS, 0.0):
            try:
                self._path.write_bytes(image)
            except OSError as error:
                failure = error
                # Before the pause, in which a process that does not end may be killed.
                kept = self._keep(image)
                time.sleep(pause)
            else:
                self._forget()
                return
        raise LandscapeWriteError(
            f"landscape file {self._path} cannot be written: {failure.strerror}. What was measured is in {kept}: copy "
            "it there once that is possible, else the next run measures it again."
        ) from failure

    def _keep(self, image: bytes) -> Path:
        if self._kept is None:
            self._kept = unsent_folder() / self._path.name
        write_image(self._kept, image)
        return self._kept

    def _forget(self) -> None:
        if self._kept is not None:
            with contextlib.suppress(OSError):
                self._kept.unlink()
                self._kept.parent.rmdir()
            self._kept = None
