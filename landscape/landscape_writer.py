"""Keeps the landscape file on disk at most a few seconds behind what is measured."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from types import TracebackType

from .landscape_data import LandscapeData
from .landscape_file import write_landscape

FLUSH_SECONDS = 5.0


class LandscapeWriter:
    """Writes a landscape when it is entered, left, and every few seconds while it changes.

    Args:
        path: the file, or None to keep the landscape in memory only.
        data: what is written; change it only through ``update``.
        flush_seconds: how far the file may be behind.

    Raises:
        LandscapeWriteError: from ``update`` and on leaving, when the file could not be written.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, data: LandscapeData, flush_seconds: float = FLUSH_SECONDS
    ) -> None:
        self._path = path
        self._data = data
        self._flush_seconds = flush_seconds
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="landscape-writer", daemon=True)

    def update(self, change: Callable[[], None]) -> None:
        """Changes the data while no write is under way."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            change()
        self._changed.set()

    def __enter__(self) -> LandscapeWriter:
        # The first write shows at once whether the place can be written to, before hours of measuring.
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._changed.set()
        self._thread.join()
        if error is not None and error is self._failure:
            # Once more, because room may have come back meanwhile; that it had gone has been said already.
            with contextlib.suppress(Exception):
                self._write()
        else:
            self._write()

    def _work(self) -> None:
        while True:
            self._changed.wait()
            if self._closing.wait(self._flush_seconds):
                return
            self._changed.clear()
            if self._closing.is_set():
                return  # closed between the two lines before: nobody would wake this thread again
            try:
                self._write()
            except Exception as error:
                self._failure = error
                return

    def _write(self) -> None:
        if self._path is not None:
            with self._lock:
                write_landscape(self._path, self._data)
