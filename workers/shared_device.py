"""A whole device of a Ray cluster that several workers of one pool share, and nobody else."""

from __future__ import annotations

import contextlib
from typing import Any


class SharedDevice:
    """One device and the CPUs of its workers, set apart by a Ray placement group.

    Ray would give the free half of a GPU to anybody's actor; a group keeps it whole.

    Args:
        ray: the module.
        kind: "GPU" or "NPU".
        workers: how many share it.
    """

    def __init__(self, ray: Any, kind: str, workers: int) -> None:
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._group = placement_group([{kind: 1, "CPU": workers}])
        self._remove = remove_placement_group
        self._users = workers
        self.strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)

    def release(self) -> None:
        """Gives up one worker's part; the last one frees the device."""
        self._users -= 1
        if not self._users:
            with contextlib.suppress(Exception):
                self._remove(self._group)
