"""A worker of one machine that takes long to start."""

import os
from pathlib import Path

from waiting import Gate

from workers.pools.local_pool import LocalActor

GATE_VARIABLE = "GATE_OF_LATE_WORKERS"


class LateActor(LocalActor):
    """The first one that comes to the gate waits there before it says where it is; others pass."""

    def place(self):
        folder = os.environ[GATE_VARIABLE]
        try:
            Path(folder, "is late").mkdir(parents=True)
        except FileExistsError:
            return super().place()
        Gate(folder).pass_through()
        return super().place()
