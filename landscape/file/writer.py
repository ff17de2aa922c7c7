"""Keeps the landscape file on disk at most a few seconds behind what is measured."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType

from collectors.run_files import AnyPath, RemotePath

from .landscape_data import LandscapeData
from .landscape_encoding import landscape_bytes
from .landscape_file import write_image
from .remote_store import RemoteStore

FLUSH_SECONDS = 5.0


class LandscapeWriter:
    """Writes a landscape when it is entered, left, and every few seconds while it changes.

    Args:
        path: the file, on this machine or behind a URL; None keeps the landscape in memory only.
        data: what is written; change it only through ``update``.
        flush_seconds: how far the file may be behind.

    Raises:
        LandscapeWriteError: from ``update`` and on leaving, when the file could not be written.
    """

    def __init__(self, path: AnyPath | None, data: LandscapeData, flush_seconds: float = FLUSH_SECONDS) -> None:
        self._place = RemoteStore(path) if isinstance(path, RemotePath) else path
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
            self._write(last=True)

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

    def _write(self, *, last: bool = False) -> None:
        if self._place is None:
            return
        with self._lock:
            image = landscape_bytes(self._data)
        # Whoever measures must not wait for a slow disk or server.
        if not isinstance(self._place, RemoteStore):
            write_image(self._place, image)
        elif last:
            self._place.write_last(image)
        else:
            self._place.write(image)
