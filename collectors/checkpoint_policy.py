"""When a checkpoint is due, and which of a run's files are kept; times are seconds of any one clock."""

from __future__ import annotations

from pathlib import Path


class SavePolicy:
    """Says when a checkpoint is due.

    Args:
        steps: save after every so many steps, or None.
        seconds: save when more than so many seconds have passed, or None.
        step: how many steps are done already.
        now: the time.
    """

    def __init__(self, steps: int | None, seconds: int | None, step: int, now: float) -> None:
        self._steps, self._seconds = steps, seconds
        self.saved(step, now)

    def due(self, step: int, now: float) -> bool:
        """Returns whether a checkpoint is due after that step."""
        if self._steps is not None:
            return step >= self.last_step + self._steps
        return self._seconds is not None and now - self._last_time > self._seconds

    def saved(self, step: int, now: float) -> None:
        """Notes that a checkpoint was saved."""
        self.last_step, self._last_time = step, now


class Retention:
    """Says which files of a run are no longer kept.

    Args:
        maximum: keep so many, the newest, or None.
        minutes: keep one of every so many minutes, the newest of them, or None; the first minutes begin with the
            first file.
        files: what the run wrote before it was resumed, oldest first.
    """

    def __init__(self, maximum: int | None, minutes: int | None, files: list[Path] | None = None) -> None:
        self._maximum, self._minutes = maximum, minutes
        self._windows: dict[Path, int | None] = dict.fromkeys(files or ())
        self._start: float | None = None

    @property
    def files(self) -> list[Path]:
        """The files that are kept, oldest first."""
        return list(self._windows)

    def add(self, path: Path, now: float) -> list[Path]:
        """Takes in a file that is safely on disk.

        Returns:
            The files to delete.
        """
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
