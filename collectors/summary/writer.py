"""The thread that writes summaries: a bounded queue in front of it, its errors handed back to the training thread."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import urllib.parse
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import LandscapeError
from ..files.local_files import replacing
from .encoding import LINEAGE_KINDS, SummaryEncoder, lineage_summary
from .event_files import EventFiles, write_event_file
from .values import SummaryStep

LONGEST_QUEUE = 1024
LARGEST_QUEUE_BYTES = 64 * 2**20


class SummaryWriteError(LandscapeError, OSError):
    """A summary could not be written, for example because the disk is full."""


class Files(Protocol):
    """What the thread writes to."""

    def write(self, step: SummaryStep) -> None:
        """Writes one step."""

    def sync(self) -> None:
        """Makes everything written durable."""

    def close(self) -> None:
        """Makes everything durable and lets go."""


class SummaryWriter:
    """Writes steps on a thread of its own, which begins with the first step and sleeps while there is nothing to do.

    Args:
        files: where the steps go; only the thread touches them.
        label: what to call the place in an error's text.
    """

    def __init__(self, files: Files, label: str) -> None:
        self.process = os.getpid()
        self._files = files
        self._label = label
        # Reentrant, because the garbage collector may call abandon() in any thread at any moment.
        self._changed = threading.Condition(threading.RLock())
        self._queue: deque[SummaryStep] = deque()
        self._queued_bytes = 0
        self._submitted = self._written = self._durable = self._flush_until = 0
        self._closing = False
        self._finished = False
        self._failure: BaseException | None = None
        self._failure_told = False
        self._thread: threading.Thread | None = None

    @property
    def failure(self) -> SummaryWriteError | None:
        """What the thread ran into, as the error to raise, or None."""
        if self._failure is None:
            return None
        error = SummaryWriteError(
            f"summaries cannot be written to {self._label}: {self._failure}. Nothing more is recorded there; make room "
            "or choose another log_dir, then open a new SummaryRecord."
        )
        error.__cause__ = self._failure
        return error

    def raise_failure(self) -> None:
        """Raises what the thread ran into, if anything.

        Raises:
            SummaryWriteError: the thread has failed.
        """
        failure = self.failure
        if failure is not None:
            self._failure_told = True
            raise failure

    def submit(self, step: SummaryStep) -> None:
        """Takes a step over; waits while the queue is full.

        Raises:
            SummaryWriteError: the thread has failed, before or while waiting, or the writer is closed.
        """
        with self._changed:
            while self._is_full(step.size) and self._failure is None:
                self._changed.wait()
            self.raise_failure()
            if self._closing:
                raise SummaryWriteError(f"the SummaryRecord of {self._label} was closed meanwhile; open a new one.")
            self._queue.append(step)
            self._queued_bytes += step.size
            self._submitted += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="summary-writer", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Returns when every step that was taken over is on the disk.

        Raises:
            SummaryWriteError: one of them could not be written.
        """
        with self._changed:
            target = self._submitted
            self._flush_until = max(self._flush_until, target)
            self._changed.notify_all()
            while self._durable < target and self._failure is None:
                self._changed.wait()
            self.raise_failure()

    def close(self) -> None:
        """Returns when everything is on the disk and the files are closed; a second call does nothing.

        Raises:
            SummaryWriteError: something could not be written.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            while self._thread is not None and not self._finished:
                self._changed.wait()
            self.raise_failure()

    def abandon(self) -> None:
        """Closes a writer that nobody closed, at exit or when its record is forgotten."""
        # A forked process has a copy of this object, without its thread.
        if self.process != os.getpid():
            return
        if threading.current_thread() is self._thread:
            self._closing = True
            return
        # What nobody was told yet shows as an exception that is ignored; the rest need not show again.
        with contextlib.nullcontext() if not self._failure_told else contextlib.suppress(SummaryWriteError):
            self.close()

    def _is_full(self, size: int) -> bool:
        # A step that alone is larger than the limit goes through an empty queue.
        return bool(self._queue) and (
            len(self._queue) >= LONGEST_QUEUE or self._queued_bytes + size > LARGEST_QUEUE_BYTES
        )

    def _work(self) -> None:
        try:
            self._write_until_closed()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._queue.clear()
                self._queued_bytes = 0
            self._close_after_failure()
        finally:
            with self._changed:
                self._finished = True
                self._changed.notify_all()

    def _write_until_closed(self) -> None:
        while True:
            with self._changed:
                flush = self._written >= self._flush_until > self._durable
                while not (flush or self._queue or self._closing):
                    self._changed.wait()
                    flush = self._written >= self._flush_until > self._durable
                step = None if flush or not self._queue else self._queue[0]
            if flush:
                written = self._written
                self._files.sync()
                self._note(durable=written)
            elif step is not None:
                self._files.write(step)
                self._note(written=step)
            else:
                self._files.close()
                self._note(durable=self._written)
                return

    def _note(self, written: SummaryStep | None = None, durable: int | None = None) -> None:
        with self._changed:
            if written is not None:
                # It stays in the queue while it is written, so that the limits hold for what is in memory.
                self._queue.popleft()
                self._queued_bytes -= written.size
                self._written += 1
            if durable is not None:
                self._durable = durable
            self._changed.notify_all()

    def _close_after_failure(self) -> None:
        try:
            self._files.close()
        except Exception:
            # The first error is the one to tell.
            return


_LONGEST_TAG = 180


class SummaryFiles:
    """Writes steps into files; not for use by several threads.

    Args:
        events: the event files.
        export_tensors: whether tensors are written as ``.npy`` files as well; ``max_file_size`` does not limit them.
    """

    def __init__(self, events: EventFiles, export_tensors: bool) -> None:
        self._events = events
        self._export_tensors = export_tensors
        self._encoder = SummaryEncoder()
        self._lineage: dict[str, Mapping[str, Any]] = {}

    def write(self, step: SummaryStep) -> None:
        """Writes one step.

        Raises:
            OSError: it cannot be written.
        """
        for event in self._encoder.encode(step):
            self._events.write(event)
        for value in step.values:
            if value.kind == "tensor" and self._export_tensors:
                assert isinstance(value.content, np.ndarray)
                self._export(value.name, step.step, value.content)
        found = {value.kind: value.content for value in step.values if value.kind in LINEAGE_KINDS}
        if found:
            self._lineage.update(found)  # type: ignore[arg-type]
            self._write_lineage(step)

    def sync(self) -> None:
        """Returns when everything written is on the disk."""
        self._events.sync()

    def close(self) -> None:
        """Makes everything durable and read-only."""
        self._events.close()
        if self._lineage:
            self._events.lineage_path.chmod(0o400)

    def _write_lineage(self, step: SummaryStep) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        # TensorBoard takes a run's hyperparameters from one event only, the first. The facts come in several calls,
        # so this file is replaced by one that holds them all.
        summary = lineage_summary(self._lineage, self._events.created)
        event = Event(step=step.step, wall_time=step.wall_time, summary=summary)
        write_event_file(self._events.lineage_path, [event.SerializeToString()], self._events.token)

    def _export(self, name: str, step: int, content: NDArray[Any]) -> None:
        tag = urllib.parse.quote(name, safe="")
        if len(tag) > _LONGEST_TAG:
            tag = f"{tag[:_LONGEST_TAG]}.{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        folder = self._events.directory / f"export_{self._events.created}_{self._events.token}" / "tensor"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{tag}_{step}.npy"
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, content, allow_pickle=False)
