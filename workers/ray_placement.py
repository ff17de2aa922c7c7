"""Finds places for the workers of a Ray pool: on this machine's devices, or on a cluster's free ones."""

from __future__ import annotations

import warnings
from typing import Any

from .devices import CORES_PER_SLOT, choose_devices, gpu_ids
from .errors import PoolError
from .ray_session import ray_address, ray_is_running
from .ray_worker import ActorRecipe, RayWorker

PLACEMENT_SECONDS = 30.0


def private_devices(asked: tuple[int, ...] | None, address: str | None) -> tuple[tuple[int, ...], bool]:
    """Returns the device ids that a private Ray is sized for and whether they are GPUs; none where Ray is there."""
    if ray_is_running() or ray_address(address) is not None:
        return (), False
    return choose_devices(asked), bool(gpu_ids())


def place_workers(
    workers: list[RayWorker], recipe: ActorRecipe | None = None, asked: tuple[int, ...] | None = None
) -> None:
    """Makes the actors and waits until they have a place; those that find none are left out.

    Args:
        workers: of a private Ray; on a cluster the list is empty and is filled here.
        recipe: how a cluster's actors are made; None for a private Ray.
        asked: device ids on a cluster; None means all that are free.

    Raises:
        PoolError: no worker found a place, or a GPU that was asked for is busy or absent.
    """
    if recipe is not None:
        # Which GPU an actor gets is Ray's choice, so all free ones are taken and the others are released.
        numbers = range(_free(recipe.ray, "GPU")) if recipe.gpus else asked or _free_slots(recipe)
        workers.extend(RayWorker(recipe, number, None) for number in numbers)
    if not workers:
        raise PoolError(f"every GPU of the cluster is busy. {_resources(recipe.ray)}" if recipe else "no device.")
    ray = workers[0].recipe.ray
    places = {worker.create(): worker for worker in workers}
    done, late = ray.wait(list(places), num_returns=len(places), timeout=PLACEMENT_SECONDS)
    _drop_late(workers, [places[reference] for reference in late])
    try:
        found = {places[reference].device_id: ray.get(reference) for reference in done}
    except ray.exceptions.RayError as error:
        raise PoolError(f"a worker could not start. Ray says: {error}") from error
    if recipe is not None and recipe.gpus:
        _keep_asked(workers, found, asked)


def _keep_asked(workers: list[RayWorker], found: dict[int, Any], asked: tuple[int, ...] | None) -> None:
    for worker in list(workers):
        _, gpus, _ = found[worker.device_id]
        worker.device_id = gpus[0] if gpus else worker.device_id
        if asked is not None and worker.device_id not in asked:
            worker.end()
            workers.remove(worker)
    missing = sorted(set(asked or ()) - {worker.device_id for worker in workers})
    if missing:
        raise PoolError(
            f"device_ids {missing} are busy or absent on the cluster; free are "
            f"{sorted({gpus[0] for _, gpus, _ in found.values() if gpus})}. Ask for those, or wait until others end."
        )


def _drop_late(workers: list[RayWorker], late: list[RayWorker]) -> None:
    if not late:
        return
    recipe = workers[0].recipe
    if len(late) == len(workers):
        raise PoolError(
            f"no worker found a place within {PLACEMENT_SECONDS:.0f} s. {_resources(recipe.ray)} Each worker needs one "
            f"CPU{' and one GPU' if recipe.gpus else ''}; ask for fewer device_ids or free some resources."
        )
    warnings.warn(
        f"{len(late)} of {len(workers)} workers found no place within {PLACEMENT_SECONDS:.0f} s; going on without.",
        stacklevel=4,
    )
    for worker in late:
        worker.end()
        workers.remove(worker)


def _free(ray: Any, kind: str) -> int:
    return int(ray.available_resources().get(kind, 0))


def _free_slots(recipe: ActorRecipe) -> range:
    if recipe.npus:
        return range(_free(recipe.ray, "NPU"))
    return range(max(1, _free(recipe.ray, "CPU") // CORES_PER_SLOT))


def _resources(ray: Any) -> str:
    return f"The cluster has {ray.cluster_resources()}, free are {ray.available_resources()}."
