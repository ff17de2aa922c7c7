"""Waiting for what must happen: however long it takes, the test does not depend on it."""

import os
import time
from pathlib import Path

# Seconds that a test waits for another process or thread. Less than the limit of a whole test (pyproject.toml), so
# that the error says what it waited for.
PATIENCE = 60.0


def wait_until(condition, *, what=None, patience=PATIENCE, progress=None):
    """Waits until a condition has a true result, and returns it; fails after some seconds with what it waited for.

    Patience begins anew with each change of what ``progress`` returns; nothing that works takes so long.
    """
    limit = time.monotonic() + patience  # time: the limit after which a test that hangs ends
    before = progress and progress()
    while True:
        asked = time.monotonic()  # time: how often is asked
        if result := condition():
            return result
        answered = time.monotonic()  # time: the limit, and how often is asked
        if progress is not None and (now := progress()) != before:
            before, limit = now, answered + patience
        if answered > limit:
            state = what() if callable(what) else what or "the condition"
            raise AssertionError(f"after {patience:.0f} s still waiting for: {state}")
        # Asking takes a fifth of a core at most, which who is waited for may need.
        time.sleep(max(0.01, 4 * (answered - asked)))  # time: asks again


class Gate:
    """A gate at which other processes or threads wait until the test opens it; all who name its folder share it."""

    def __init__(self, folder):
        self._folder = Path(folder)

    def pass_through(self):
        """Says that this process is here, and returns once the gate is open."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"arrived-{os.getpid()}").touch()
        wait_until((self._folder / "open").exists, what=f"the gate {self._folder} to open")

    def arrivals(self):
        """Returns the process numbers of those who came to the gate."""
        return sorted(int(mark.name.removeprefix("arrived-")) for mark in self._folder.glob("arrived-*"))

    def wait_for_arrivals(self, count=1):
        """Returns once this many processes have come to the gate."""
        wait_until(lambda: len(self.arrivals()) >= count, what=lambda: f"{count} at the gate; there: {self.arrivals()}")

    def open(self):
        """Lets everybody through, now and later."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "open").touch()
