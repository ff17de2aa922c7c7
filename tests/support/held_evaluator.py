"""An evaluator that is held up where a test wants it."""

import os
from pathlib import Path

from paraboloid import Paraboloid
from waiting import wait_until

HELD = 5.0
HELD_AND_DEADLY = 6.0


class HeldUp(Paraboloid):
    """Waits at x[0] = 5 until the file ``go`` is in the folder, in the first process that comes there; others pass.

    At x[0] = 6 the first process waits for the second one, which lets it go and dies.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)

    def _loss(self, x):
        place = float(x[0])
        if place in (HELD, HELD_AND_DEADLY):
            is_first = self._mark(f"first at {place}")
            if is_first:
                wait_until((self.folder / "go").exists, what=f"the file go in {self.folder}")
            elif place == HELD_AND_DEADLY and self._mark("second"):
                (self.folder / "go").touch()
                os._exit(13)
        return super()._loss(x)

    def _mark(self, name):
        try:
            (self.folder / name).mkdir()
        except FileExistsError:
            return False
        return True
