"""Finds places for the workers of a pool: on this machine's devices, or on a cluster's free ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import PoolError
from ..users_code import warn_user
from .actors import ActorError, Actors
from .crew_worker import ActorRecipe, CrewWorker, SharedDevice
from .devices import WorkerLayout

PLACEMENT_SECONDS = 30.0
# Others of a cluster find their place about as fast as the first one did.
_LEAST_QUIET_SECONDS = 5.0
_QUIET_OF_FIRST = 3.0
# A run that follows another one on the same cluster would find its devices still taken.
_ENDING_SECONDS = 1.0
# Nodes that have to install the run's environment first, such as packages of pip, may take this long.
_ENVIRONMENT_SECONDS = 1800.0


def workers_on(recipe: ActorRecipe, ids: tuple[int, ...], cores: tuple[int, ...] | None) -> list[CrewWorker]:
    """Returns workers on devices, not placed yet; those of a cluster, which decides, have no cores of their own."""
    workers = [CrewWorker(recipe, place) for place in recipe.layout.places(ids, cores=cores)]
    together = recipe.layout.workers_per_device
    if recipe.kind is not None and together > 1:
        for start in range(0, len(workers), together):
            device = SharedDevice(recipe.kind, together)
            for worker in workers[start : start + together]:
                worker.shared = device
    return workers


def cluster_workers(recipe: ActorRecipe, asked: tuple[int, ...] | None) -> list[CrewWorker]:
    """Returns the workers of a cluster, not placed yet; without ids, those of all devices that are free."""
    # Which GPU an actor gets is Ray's choice, so all free ones are taken and the others are released.
    numbers = free_devices(recipe.actors.ray, recipe.kind, None if recipe.kind == "GPU" else asked, recipe.layout)
    workers = workers_on(recipe, numbers, None)
    if not workers:
        wanted = recipe.layout.devices_per_worker
        what = (
            f"every {recipe.kind or 'CPU'} of the cluster is busy" if wanted == 1 else f"no {wanted} devices are free"
        )
        raise PoolError(f"{what}. {_resources(recipe.actors.ray)}")
    return workers


def free_devices(ray: Any, kind: str | None, asked: tuple[int, ...] | None, layout: WorkerLayout) -> tuple[int, ...]:
    """Returns a number for every device of a cluster that a run may take; slots have a CPU for each worker on them."""
    if asked is not None:
        return asked
    free = _free(ray, kind or "CPU")
    if kind is not None:
        return tuple(range(free))
    nodes = free_on_nodes(ray)
    counts = [free] if nodes is None else [int(node.get("CPU", 0)) for node in nodes.values()]
    return tuple(range(max(1, sum(cpu_slots(count, layout) for count in counts))))


def _free(ray: Any, kind: str) -> int:
    """Returns how many devices are free; those of actors that ended a moment ago are waited for."""
    end = time.monotonic() + _ENDING_SECONDS
    while True:
        free, whole = (int(look().get(kind, 0)) for look in (ray.available_resources, ray.cluster_resources))
        if free >= whole or time.monotonic() > end:
            return free
        time.sleep(0.1)


def cpu_slots(cpus: int, layout: WorkerLayout) -> int:
    """Returns how many slots the free CPUs of one node give, none of which is left over."""
    together = layout.devices_per_worker
    return cpus // layout.workers_per_device // together * together


def free_on_nodes(ray: Any) -> Mapping[str, Mapping[str, float]] | None:
    """Returns by node what is free there; None where Ray does not say, as to its clients."""
    # Ray has no public way to ask this.
    look = getattr(getattr(ray._private, "state", None), "available_resources_per_node", None)
    if look is None or getattr(ray._private.worker, "_global_node", None) is None:
        return None
    found: Mapping[str, Mapping[str, float]] = look()
    return found


def alive_nodes(ray: Any) -> dict[str, Mapping[str, Any]]:
    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}


def environment_probe(ray: Any, node: str) -> Any:
    """Returns a call that is done when a node has installed the run's environment; it needs no free device."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)
    return ray.remote(lambda: None).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy).remote()


def wait_for_environment(actors: Actors, kind: str | None) -> None:
    """Waits until the nodes have installed the run's environment, which is no waiting for a place."""
    ray = actors.ray
    nodes = alive_nodes(ray).items()
    late = [environment_probe(ray, name) for name, node in nodes if node["Resources"].get(kind or "CPU", 0)]
    start, pause = time.monotonic(), _ENVIRONMENT_SECONDS
    while late:
        came, late = actors.wait(late, seconds=pause)
        if not came:
            return  # it is not known what holds these nodes up; the others may do
        actors.get(came)
        pause = max(PLACEMENT_SECONDS, 2 * (time.monotonic() - start))


def place_workers(workers: list[CrewWorker], asked: tuple[int, ...] | None = None) -> list[CrewWorker]:
    """Makes the actors; workers much later than the others leave the list, and are returned if they may still join."""
    recipe = workers[0].recipe
    actors = recipe.actors
    is_private = workers[0].place.cores is not None
    try:
        if not is_private:
            wait_for_environment(actors, recipe.kind)
    except ActorError as error:
        raise PoolError(f"the run's environment could not be installed. Ray says: {error}") from error
    start = time.monotonic()
    waiting = {worker.create(): worker for worker in workers}
    # A process of this machine starts at some time, or dies.
    came, late = actors.wait(list(waiting), seconds=None if actors.ray is None else PLACEMENT_SECONDS)
    # On this machine there is a place for each, but many processes take long to start. On a cluster a device that
    # somebody else has taken must not hold up the others. We wait as long as more of them come.
    quiet = max(_LEAST_QUIET_SECONDS, _QUIET_OF_FIRST * (time.monotonic() - start))
    quiet = PLACEMENT_SECONDS if is_private else min(quiet, PLACEMENT_SECONDS)
    while came and late:
        came, late = actors.wait(late, seconds=quiet)
    behind = {call: waiting.pop(call) for call in late}
    if not waiting:
        together, alone = recipe.layout.devices_per_worker, recipe.layout.workers_per_device == 1
        needed = f"{together} CPU" if recipe.kind is None else f"1 CPU and {together if alone else 'a share of a'} "
        raise PoolError(
            f"no worker found a place within {PLACEMENT_SECONDS:.0f} s. {_resources(actors.ray)} Each worker needs "
            f"{needed}{recipe.kind or ''}; ask for fewer device_ids or free some resources."
        )
    try:
        answers = actors.get(list(waiting))
    except ActorError as error:
        raise PoolError(f"a worker could not start. The error was: {error}") from error
    of_cluster = recipe.kind == "GPU" and not is_private
    # Ray might give late ones other GPUs of a cluster than those that were asked for.
    can_join = not (of_cluster and asked is not None)
    if behind:
        then = "the run begins, and each joins when it finds one" if can_join else "going on without"
        warn_user(f"{len(behind)} of {len(workers)} workers found no place soon after the others; {then}.")
    for call, worker in behind.items():
        workers.remove(worker)
        if can_join:
            worker.starting = [call]
        else:
            worker.leave()
    if of_cluster:
        gpus = {id(worker): devices for worker, (_, devices, _) in zip(waiting.values(), answers, strict=True)}
        _keep_asked(workers, gpus, asked)
    return list(behind.values()) if can_join else []


def _keep_asked(workers: list[CrewWorker], gpus: dict[int, tuple[int, ...]], asked: tuple[int, ...] | None) -> None:
    for worker in list(workers):
        worker.place = replace(worker.place, devices=gpus[id(worker)] or worker.place.devices)
        if asked is not None and not set(worker.place.devices) <= set(asked):
            worker.leave()
            workers.remove(worker)
    missing = sorted(set(asked or ()) - {device for worker in workers for device in worker.place.devices})
    if missing:
        free = sorted({device for devices in gpus.values() for device in devices})
        raise PoolError(
            f"device_ids {missing} are busy or absent on the cluster; free are {free}. Ask for those, or wait until "
            "others end."
        )


def _resources(ray: Any) -> str:
    # Placement groups add names of their own, which say nothing to a user.
    whole, free = (
        {name: amount for name, amount in found.items() if "_group_" not in name}
        for found in (ray.cluster_resources(), ray.available_resources())
    )
    return f"The cluster has {whole}, free are {free}."
