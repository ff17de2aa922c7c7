"""Which checkpoint files of a run are kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


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
