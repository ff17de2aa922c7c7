"""Threads that write for callers who must not wait: jobs in order, and the newest state; and what is tried again."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

_Result = TypeVar("_Result")

LAST_PAUSES_SECONDS = (1.0, 5.0, 20.0)
"""The pauses between the attempts of a last write, which everything else waits for."""


class WriterClosedError(RuntimeError):
    """A job was submitted after ``close``."""


# The thread begins with the first thing to do. Its first error ends it and drops what waits; every later call raises
# that error. A forked process has a copy of the object without the thread; closing the copy does nothing.
class WritingThread:
    """Does jobs in order, and saves a state that they or ``touch`` change, at most once per ``interval`` seconds."""

    def __init__(
        self,
        name: str,
        most: int = 1,  # so many jobs wait or are under way at most
        *,
        most_bytes: float = math.inf,  # and so many bytes of them
        save: Callable[[], object] | None = None,  # the state as it is; what is unsaved at ``close`` is for ``last``
        interval: float = 0.0,  # the first one is waited for as well
        rest: float = 0.0,  # the thread rests at least this many times as long as a save took
        last: Callable[[], object] | None = None,  # on the thread, before it ends; errors after the first are dropped
        explain: Callable[[BaseException], BaseException] | None = None,  # the thread's error to the caller's
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._interval, self._rest = name, interval, rest
        self._save, self._has_state = save or (lambda: None), save is not None
        self._last, self._explain, self._clock = last or (lambda: None), explain, clock
        self._most, self._most_bytes = most, most_bytes
        self._bytes = self._submitted = self._done = 0
        # Reentrant, because the garbage collector may close a forgotten writer in any thread at any moment.
        self._changed = threading.Condition(threading.RLock())
        self._jobs: deque[tuple[Callable[[], object], int]] = deque()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._is_unsaved = self._closing = self._ended = False
        self.error: BaseException | None = None
        self.error_was_raised = False

    @property
    def is_open(self) -> bool:
        return not self._closing and os.getpid() == self._process

    @property
    def is_idle(self) -> bool:
        return not self._jobs

    def submit(self, job: Callable[[], object], size: int = 0) -> None:
        """Takes a job over; waits while there is no room for it, so that memory stays bounded."""
        with self._changed:
            while self._is_full(size) and self.error is None:
                self._changed.wait()
            self.check()
            if self._closing:
                raise WriterClosedError(f"{self._name} is closed.")
            self._jobs.append((job, size))
            self._bytes += size
            self._submitted += 1
            self._wake()

    def wait(self) -> None:
        """Waits until all that was submitted before is done; after ``close``, until the thread has ended."""
        with self._changed:
            target = self._submitted
            while self._thread is not None and self.error is None:
                if self._ended if self._closing else self._done >= target:
                    break
                self._changed.wait()
            self.check()

    def touch(self) -> None:
        with self._changed:
            self.check()
            if not self._is_unsaved:
                self._is_unsaved = True
                self._wake()

    def check(self) -> None:
        if self.error is not None:
            self.error_was_raised = True
            raise self.error

    def close(self) -> None:
        """Waits until everything is done and the thread has ended; a second call only checks."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
            if thread is threading.current_thread():
                return
            while thread is not None and not self._ended:
                self._changed.wait()
        if thread is not None:
            thread.join()
        self.check()

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            # Noted only once it runs: ``close`` would wait for ever for one that the system refused.
            thread.start()
            self._thread = thread
        self._changed.notify_all()

    def _work(self) -> None:
        try:
            self._write_until_closed()
            self._last()
        except BaseException as error:
            with self._changed:
                self.error = error
                if self._explain is not None:
                    self.error = self._explain(error)
                    self.error.__cause__ = error
                self._jobs.clear()
                self._changed.notify_all()
            with contextlib.suppress(Exception):
                self._last()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _write_until_closed(self) -> None:
        due = self._clock() + self._interval
        while True:
            with self._changed:
                while not (self._jobs or self._closing or (self._is_unsaved and self._clock() >= due)):
                    self._changed.wait(due - self._clock() if self._is_unsaved else None)
                saves = self._is_unsaved and not self._closing and self._clock() >= due
                if saves:
                    self._is_unsaved = False
                elif not self._jobs:
                    return
            if saves:
                began = self._clock()
                self._save()
                ended = self._clock()
                due = ended + max(self._interval, self._rest * (ended - began))
            elif self._do_first_job():
                due = self._clock() + self._interval

    def _is_full(self, size: int) -> bool:
        # A job that is larger than the limit has the thread to itself.
        return bool(self._jobs) and (len(self._jobs) >= self._most or self._bytes + size > self._most_bytes)

    def _do_first_job(self) -> bool:
        """Returns whether it saved the state."""
        # The job stays in the queue while it runs, so that the limits hold for everything in memory.
        job, size = self._jobs[0]
        if saves := job == self._save:
            self._is_unsaved = False
        job()
        with self._changed:
            self._jobs.popleft()
            self._bytes -= size
            self._done += 1
            self._is_unsaved |= self._has_state and not saves
            self._changed.notify_all()
        return saves


def retry(
    action: Callable[[], _Result],
    pauses: Sequence[float],
    when: Callable[[Exception], bool] = lambda error: isinstance(error, OSError),
) -> _Result:
    """Returns an action's result, tried again after each pause (seconds) if ``when`` says that its error may pass."""
    for pause in pauses:
        try:
            return action()
        except Exception as error:
            if not when(error):
                raise
        time.sleep(pause)
    return action()
