"""Writes summaries on a thread while training goes on."""

from __future__ import annotations

import contextlib
import functools

from ..errors import LandscapeError, reason_of
from ..files.background import WriterClosedError, WritingThread
from .event_files import EventFiles
from .values import SummaryStep

LONGEST_QUEUE = 1024
LARGEST_QUEUE_BYTES = 64 * 2**20


class SummaryWriteError(LandscapeError, OSError):
    """A summary could not be written, for example because the disk is full."""


class SummaryWriter(WritingThread):
    """Writes steps on a thread of its own, which begins with the first step and sleeps while there is nothing to do."""

    def __init__(self, files: EventFiles, label: str) -> None:
        self._files = files
        self._label = label
        self._is_synced = True
        explain = self._write_error
        super().__init__(
            "summary-writer", LONGEST_QUEUE, most_bytes=LARGEST_QUEUE_BYTES, last=files.close, explain=explain
        )

    def write(self, step: SummaryStep) -> None:
        """Takes a step over; waits while the queue is full."""
        try:
            self.submit(functools.partial(self._files.write, step), step.size)
        except WriterClosedError as error:
            raise SummaryWriteError(
                f"the SummaryRecord of {self._label} was closed meanwhile; open a new one."
            ) from error
        self._is_synced = False

    def flush(self) -> None:
        # Closing makes everything durable as well.
        with contextlib.suppress(WriterClosedError):
            if not self._is_synced:
                self._is_synced = True
                self.submit(self._files.sync)
        self.wait()

    def abandon(self) -> None:
        """Closes a writer that nobody closed, at exit or when its record is forgotten."""
        # An error that was not raised yet shows as an ignored exception; one that was need not show again.
        with contextlib.suppress(SummaryWriteError) if self.error_was_raised else contextlib.nullcontext():
            self.close()

    def _write_error(self, error: BaseException) -> SummaryWriteError:
        return SummaryWriteError(
            f"summaries cannot be written to {self._label}: {reason_of(error)}. Nothing more is recorded there; make "
            "room or choose another log_dir, then open a new SummaryRecord."
        )
