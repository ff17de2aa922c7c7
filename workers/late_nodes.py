"""Gives work to nodes that join a Ray cluster while a run is under way."""

from __future__ import annotations

import time
from typing import Any

from .devices import CORES_PER_SLOT
from .ray_crew import RayCrew
from .ray_placement import new_workers
from .ray_worker import ActorRecipe

_LOOK_SECONDS = 2.0


class LateNodes:
    """Watches a cluster for nodes that were not there when the pool started.

    A node that takes the place of a lost one is such a node too.

    Args:
        crew: to which the workers of new nodes are added.
        recipe: how actors are made.
        wanted: how many workers there shall be at most; None takes all that new nodes have.
    """

    def __init__(self, crew: RayCrew, recipe: ActorRecipe, wanted: int | None) -> None:
        self._crew, self._recipe, self._wanted = crew, recipe, wanted
        self._known = set(_nodes(crew.ray))
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._next_device = 1 + max(device for worker in crew.workers for device in worker.place.devices)

    def look(self) -> None:
        """Starts workers on nodes that are new; looks at most every two seconds, because it asks the cluster's head."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        for node, resources in _nodes(self._crew.ray).items():
            if node not in self._known:
                self._known.add(node)
                self._employ(node, self._devices(resources))

    def _devices(self, resources: dict[str, float]) -> int:
        kind = self._recipe.kind
        if kind is not None:
            return int(resources.get(kind, 0))
        return max(1, int(resources.get("CPU", 0)) // CORES_PER_SLOT)

    def _employ(self, node: str, devices: int) -> None:
        if self._wanted is not None:
            missing = self._wanted - len(self._crew.workers)
            devices = min(devices, max(0, missing) * self._recipe.layout.devices_per_worker)
        if self._recipe.layout.workers(devices) < 1:
            return
        ids = tuple(range(self._next_device, self._next_device + devices))
        self._next_device += devices
        for worker in new_workers(self._recipe, ids):
            worker.node = node
            worker.start_again(self._crew.description.plan, self._crew.vectors)
            self._crew.workers.append(worker)


def _nodes(ray: Any) -> dict[str, dict[str, float]]:
    return {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
