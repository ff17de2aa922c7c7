"""What the tests of the collectors share: seeing that a thread sleeps."""

import sys
import threading

import pytest
from waiting import wait_until


def sleeps(thread):
    """Returns whether a thread waits for a condition without a limit of time, so that only another one can wake it."""
    frame, limits, callers = sys._current_frames().get(thread.ident), [], []
    while frame is not None:
        if frame.f_code is threading.Condition.wait.__code__:
            limits.append(frame.f_locals["timeout"])
        callers.append(frame.f_code)
        frame = frame.f_back
    # Who starts a thread waits for a moment until it runs.
    return limits == [None] and threading.Thread.start.__code__ not in callers


@pytest.fixture
def wait_until_blocked():
    """A function that returns once a thread sleeps until another one wakes it, or has ended."""
    return lambda thread: wait_until(
        lambda: sleeps(thread) or not thread.is_alive(), what=f"the thread {thread.name} to sleep without a limit"
    )
