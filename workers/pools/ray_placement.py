"""Finds places for the workers of a Ray pool: on this machine's devices, or on a cluster's free ones."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from ..errors import PoolError
from .devices import CORES_PER_SLOT, available_cores, choose_devices, gpu_ids
from .ray_session import ray_address, ray_is_running
from .ray_waiting import get_while_alive, wait_while_alive
from .ray_worker import ActorRecipe, RayWorker, SharedDevice

PLACEMENT_SECONDS = 30.0


def private_devices(asked: tuple[int, ...] | None, address: str | None) -> tuple[tuple[int, ...], bool]:
    """Returns the device ids of a private Ray (none where Ray runs already), and whether they are GPUs."""
    if ray_is_running() or ray_address(address) is not None:
        return (), False
    return choose_devices(asked), bool(gpu_ids())


def local_workers(recipe: ActorRecipe, ids: tuple[int, ...]) -> list[RayWorker]:
    """Returns the workers of a private Ray, each with cores of its own, not placed yet."""
    places = recipe.layout.places(ids, cores=available_cores())
    return _with_shared_devices(recipe, [RayWorker(recipe, place) for place in places])


def cluster_workers(recipe: ActorRecipe, asked: tuple[int, ...] | None) -> list[RayWorker]:
    """Returns the workers of a cluster, not placed yet.

    Args:
        recipe: how actors are made.
        asked: device ids; None means all that are free.

    Raises:
        PoolError: too few devices are free for one worker.
    """
    # Which GPU an actor gets is Ray's choice, so all free ones are taken and the others are released.
    numbers = free_devices(recipe.ray, recipe.kind, None if recipe.gpus else asked)
    workers = new_workers(recipe, numbers)
    if not workers:
        wanted = recipe.layout.devices_per_worker
        what = (
            f"every {recipe.kind or 'CPU'} of the cluster is busy" if wanted == 1 else f"no {wanted} devices are free"
        )
        raise PoolError(f"{what}. {_resources(recipe.ray)}")
    return workers


def new_workers(recipe: ActorRecipe, ids: tuple[int, ...]) -> list[RayWorker]:
    """Returns workers for that many devices of a cluster, not placed yet."""
    return _with_shared_devices(recipe, [RayWorker(recipe, place) for place in recipe.layout.places(ids, cores=None)])


def free_devices(ray: Any, kind: str | None, asked: tuple[int, ...] | None) -> tuple[int, ...]:
    """Returns a number for every device of a cluster that a run may take.

    Args:
        ray: the module, connected.
        kind: "GPU", "NPU", or None for slots of CPU cores.
        asked: which ones; None means all that are free.
    """
    if asked is not None:
        return asked
    free = int(ray.available_resources().get(kind or "CPU", 0))
    return tuple(range(max(1, free // CORES_PER_SLOT) if kind is None else free))


def place_workers(workers: list[RayWorker], asked: tuple[int, ...] | None = None) -> None:
    """Makes the actors and waits until they have a place; those that find none are left out.

    Args:
        workers: all of one pool; those that are left out are removed.
        asked: ids of the GPUs that are wanted of a cluster; None means all of them.

    Raises:
        PoolError: no worker found a place, or a GPU that was asked for is busy or absent.
    """
    recipe = workers[0].recipe
    ray = recipe.ray
    waiting = {worker.create(): worker for worker in workers}
    is_private = workers[0].place.cores is not None
    first = 1 if is_private else len(waiting)
    came, late = wait_while_alive(ray, list(waiting), count=first, seconds=PLACEMENT_SECONDS)
    while is_private and came and late:
        # There is a place for each, but many processes take long to start: we wait as long as more of them come.
        came, late = wait_while_alive(ray, late, seconds=PLACEMENT_SECONDS)
    _drop_late(workers, [waiting[reference] for reference in late])
    try:
        answers = get_while_alive(ray, [reference for reference in waiting if reference not in late])
    except ray.exceptions.RayError as error:
        raise PoolError(f"a worker could not start. Ray says: {error}") from error
    placed = [worker for reference, worker in waiting.items() if reference not in late]
    gpus = {id(worker): devices for worker, (_, devices, _) in zip(placed, answers, strict=True)}
    if recipe.gpus and not is_private:
        _keep_asked(workers, gpus, asked)


def _keep_asked(workers: list[RayWorker], gpus: dict[int, tuple[int, ...]], asked: tuple[int, ...] | None) -> None:
    for worker in list(workers):
        worker.place = replace(worker.place, devices=gpus[id(worker)] or worker.place.devices)
        if asked is not None and not set(worker.place.devices) <= set(asked):
            _leave_out(workers, worker)
    missing = sorted(set(asked or ()) - {device for worker in workers for device in worker.place.devices})
    if missing:
        free = sorted({device for devices in gpus.values() for device in devices})
        raise PoolError(
            f"device_ids {missing} are busy or absent on the cluster; free are {free}. Ask for those, or wait until "
            "others end."
        )


def _drop_late(workers: list[RayWorker], late: list[RayWorker]) -> None:
    if not late:
        return
    recipe = workers[0].recipe
    if len(late) == len(workers):
        together, alone = recipe.layout.devices_per_worker, recipe.layout.workers_per_device == 1
        needed = f"{together} CPU" if recipe.kind is None else f"1 CPU and {together if alone else 'a share of a'} "
        raise PoolError(
            f"no worker found a place within {PLACEMENT_SECONDS:.0f} s. {_resources(recipe.ray)} Each worker needs "
            f"{needed}{recipe.kind or ''}; ask for fewer device_ids or free some resources."
        )
    warnings.warn(
        f"{len(late)} of {len(workers)} workers found no place within {PLACEMENT_SECONDS:.0f} s; going on without.",
        stacklevel=4,
    )
    for worker in late:
        _leave_out(workers, worker)


def _leave_out(workers: list[RayWorker], worker: RayWorker) -> None:
    worker.leave()
    workers.remove(worker)


def _with_shared_devices(recipe: ActorRecipe, workers: list[RayWorker]) -> list[RayWorker]:
    """Sets whole devices apart where several workers share one."""
    together = recipe.layout.workers_per_device
    if recipe.kind is not None and together > 1:
        for start in range(0, len(workers), together):
            device = SharedDevice(recipe.ray, recipe.kind, together)
            for worker in workers[start : start + together]:
                worker.shared = device
    return workers


def _resources(ray: Any) -> str:
    return f"The cluster has {_named(ray.cluster_resources())}, free are {_named(ray.available_resources())}."


def _named(resources: dict[str, float]) -> dict[str, float]:
    # Placement groups add names of their own, which say nothing to a user.
    return {name: amount for name, amount in resources.items() if "_group_" not in name}
