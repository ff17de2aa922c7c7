"""An evaluator that is held up where a test wants it."""

import contextlib
from pathlib import Path

from paraboloid import Paraboloid
from waiting import wait_until

HELD = 5.0


class HeldUp(Paraboloid):
    """Waits at x[0] = 5 until the file ``go`` is in the folder, in the first process that comes there; others pass."""

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)

    def _loss(self, x):
        if float(x[0]) == HELD:
            with contextlib.suppress(FileExistsError):
                (self.folder / f"first at {HELD}").mkdir()
                wait_until((self.folder / "go").exists, what=f"the file go in {self.folder}")
        return super()._loss(x)
