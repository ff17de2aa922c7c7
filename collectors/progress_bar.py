"""Progress where the user looks: a line that moves in a terminal, a widget in a notebook, ten lines in a file."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

_SHARES = 10
# Where nobody knows how much there is, or ten per cent take long.
_MOST_SECONDS = 600.0
_FEWEST_SECONDS = 60.0


def progress_bar(total: int | None, unit: str, *, shown: bool = True, done: int = 0, name: str | None = None) -> Any:
    """Returns a progress bar with tqdm's methods, a context manager; ``total`` may be unknown, ``done`` came before."""
    in_notebook = "ipykernel.zmqshell" in sys.modules
    # A pipe, a file or the log of a batch system gets whole lines, and never a carriage return.
    if shown and not in_notebook and not sys.stderr.isatty():
        return ProgressLines(total, unit, done=done, name=name)
    from tqdm import tqdm

    kind = tqdm
    if shown:
        with warnings.catch_warnings():
            # Without ipywidgets the bar is a line of text, which is enough.
            warnings.filterwarnings("ignore", message="IProgress not found")
            from tqdm.auto import tqdm as kind
    return kind(
        total=total,
        initial=done,
        desc=name,
        unit=unit,
        disable=not shown,
        smoothing=0.1,
        # A notebook shows stderr as if it were an error.
        file=sys.stdout if in_notebook else sys.stderr,
        dynamic_ncols=True,
    )


class ProgressLines(AbstractContextManager[Any]):
    """Writes a line for each ten per cent, or ten minutes, for files and pipes; has what callers use of tqdm."""

    def __init__(
        self,
        total: int | None,
        unit: str,
        *,
        done: int = 0,
        name: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.n, self.total, self.unit, self.desc = done, total, unit, name or ""
        self.fp, self._seconds = sys.stderr, clock
        self._before, self._last, self._began = done, done, clock()
        self._written, self._written_at = self._share(), self._began

    def __exit__(self, *_error: object) -> None:
        self.close()

    def update(self, count: int = 1) -> None:
        """Counts units; writes a line where ten per cent more are done, or the last line was long ago."""
        self.n += count
        now = self._seconds()
        waits = _MOST_SECONDS if self.total else _FEWEST_SECONDS
        if self._share() > self._written or now - self._written_at > waits:
            self._write(now)

    def set_description(self, text: str, refresh: bool = True) -> None:
        self.desc = text

    def write(self, text: str, file: Any = None) -> None:
        print(text, file=file or self.fp, flush=True)

    def close(self) -> None:
        """Writes where it ended, unless the last line says so."""
        if (self._last, self._written) != (self.n, self._share()):
            self._write(self._seconds())

    def _share(self) -> int:
        return _SHARES * self.n // self.total if self.total else 0

    def _write(self, now: float) -> None:
        self._written, self._last, self._written_at = self._share(), self.n, now
        of = f"/{self.total}" if self.total else ""
        percent = f" ({100 * self.n // self.total} %)" if self.total else ""
        plural = "s" if not self.total or self.total != 1 else ""
        spent = now - self._began
        text = f"{self.desc}: " if self.desc else ""
        text += f"{self.n}{of} {self.unit}{plural}{percent}, {_clock(spent)} gone"
        fresh = self.n - self._before
        if self.total and fresh > 0 and self.n < self.total:
            text += f", about {_clock(spent / fresh * (self.total - self.n))} left"
        self.write(text)


def _clock(seconds: float) -> str:
    """Returns a duration as hours, minutes and seconds, "1:02:03" or "02:03"."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes:02}:{left:02}"
