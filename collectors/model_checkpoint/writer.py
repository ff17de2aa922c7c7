"""Writes checkpoints, on the training thread or beside it, and deletes what is no longer kept."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from pathlib import Path

from ..errors import CheckpointWriteError, reason_of
from ..files.background import WritingThread
from .archive import Archive, write_archive
from .config import CheckpointConfig


class CheckpointWriter:
    """Writes one checkpoint after the other; calls ``_note_written`` on the training thread when a file is on disk."""

    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._keep([])
        self._jobs = WritingThread("checkpoint-writer")
        self._pending: tuple[Path, int] | None = None
        self._failure: Exception | None = None

    def _note_written(self, path: Path, step: int) -> None:
        raise NotImplementedError

    def _keep(self, files: Iterable[Path]) -> None:
        """Begins with files that exist; the surplus of these and later ones is deleted."""
        self._retention = Retention(self._config.keep_checkpoint_max, self._config.keep_checkpoint_per_n_minutes, files)

    def _write(self, path: Path, archive: Archive, step: int, *, kept: bool) -> None:
        """Writes an archive; beside training, it is on disk when ``wait`` returns. A ``kept`` file is never deleted."""
        job = functools.partial(self._replace, path, archive, kept)
        if self._config.async_save:
            self._jobs.submit(job)
        else:
            job()
        self._pending = path, step
        self.check()

    def check(self) -> None:
        """Takes note of a file that has been written; raises CheckpointWriteError if it could not be."""
        if self._jobs.is_idle:
            self.wait()

    def wait(self) -> None:
        if self._pending is None:
            return
        self._jobs.wait()
        (path, step), self._pending = self._pending, None
        error, self._failure = self._failure, None
        if error is not None:
            raise CheckpointWriteError(
                f"the checkpoint {path} could not be written: {reason_of(error)}. Training stops, because it could "
                "not be resumed from here; free some space or choose another directory, then continue from the latest "
                "checkpoint."
            ) from error
        self._note_written(path, step)

    def close(self) -> None:
        try:
            self.wait()
        finally:
            self._jobs.close()

    def _replace(self, path: Path, archive: Archive, kept: bool) -> None:
        try:
            write_archive(path, archive, self._config.enc_key, self._config.enc_mode)
            if not kept:
                for file in self._retention.add(path, time.monotonic()):
                    file.unlink(missing_ok=True)
        except Exception as error:
            # Kept rather than raised: the state that the error leaves may still be saved, which needs the thread.
            self._failure = error


class Retention:
    """Keeps the ``maximum`` newest files of a run, or the newest of every ``minutes``, counted from the first file."""

    def __init__(self, maximum: int | None, minutes: int | None, files: Iterable[Path] = ()) -> None:
        self._maximum, self._minutes = maximum, minutes
        self._windows: dict[Path, int | None] = dict.fromkeys(files)
        self._start: float | None = None

    @property
    def files(self) -> list[Path]:
        return list(self._windows)

    def add(self, path: Path, now: float) -> list[Path]:
        """Takes in a file that is safely on disk; returns the files to delete."""
        self._windows.pop(path, None)
        if self._start is None:
            self._start = now
        window = None if self._minutes is None else int((now - self._start) // (60 * self._minutes))
        surplus = [file for file, other in self._windows.items() if window is not None and other == window]
        self._windows[path] = window
        if self._maximum is not None:
            surplus = self.files[: -self._maximum]
        for file in surplus:
            del self._windows[file]
        return surplus
