"""Passes over all checkpoints of a plane, shard by shard: here, or each node of a cluster a part of the shards."""

from __future__ import annotations

import collections
import contextlib
import functools
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from collectors.errors import CheckpointError, reporting
from collectors.networks.weight_space import WeightSpace
from collectors.weights.safetensors_file import file_sha256
from workers.errors import closing_on_failure
from workers.pools.actors import ActorError
from workers.pools.placement import PLACEMENT_SECONDS, alive_nodes, wait_for_environment
from workers.pools.ray_pool import RayActors, code_of
from workers.pools.ray_session import RaySession
from workers.users_code import warn_user

_MOST_SHARDS = 64
# Fewer would take less time than sending them.
_FEWEST_ELEMENTS = 2**20
# Python may come from a slow shared folder.
_START_SECONDS = 2 * PLACEMENT_SECONDS
# Reading a shared folder is soon the limit, and the nodes have other work.
_MOST_ON_A_NODE = 4


class Piece(NamedTuple):
    """Elements of a tensor, in C order."""

    name: str
    start: int
    stop: int  # one after the last


def shards_of(space: WeightSpace) -> list[list[Piece]]:
    """Returns the trainable elements in parts of about equal size, which depend on the network alone.

    So sums over them, added part by part, are the same bits whoever computes the parts.
    """
    count = min(_MOST_SHARDS, math.ceil(space.dimension / _FEWEST_ELEMENTS))
    size = math.ceil(space.dimension / max(1, count))
    shards: list[list[Piece]] = [[]]
    room = size
    for tensor in space.trainable:
        start = 0
        while start < tensor.size:
            if not room:
                shards.append([])
                room = size
            stop = min(tensor.size, start + room)
            shards[-1].append(Piece(tensor.name, start, stop))
            room, start = room - (stop - start), stop
    return shards


def compute(function: Callable[..., Any], shared: Any, part: Sequence[Any]) -> Any:
    """Returns ``function(shared, *part)``, computed by one thread."""
    # A few rows are too little work for several threads: their waiting for each other costs up to thirty times as much.
    with threadpool_limits(1, "blas"):
        return function(shared, *part)


class Passes:
    """Computes all parts in this process, one after another."""

    def each(self, function: Callable[..., Any], shared: Any, parts: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yields ``function(shared, *part)`` for each part, in order."""
        return (compute(function, shared, part) for part in parts)


HERE = Passes()


def added(results: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Returns the sum of what the parts returned, entry by entry; a result is no longer needed once it is added."""
    return functools.reduce(lambda total, more: tuple(map(operator.add, total, more)), results)


def sha256_of(_: None, path: Path) -> str:
    """Returns the SHA-256 of a checkpoint file, as a pass computes it."""
    with reporting(f"checkpoint {path} cannot be read", kind=CheckpointError):
        return file_sha256(path)


class NodeProcesses(contextlib.ExitStack, Passes):
    """Some processes on each node of a cluster that has a CPU and the same files; none where no node has both."""

    def __init__(self, address: str | None, callback_fn: Callable[[], Any], files: Sequence[Path]) -> None:
        super().__init__()
        code = functools.partial(code_of, callback_fn)
        with closing_on_failure(self):
            ray = self.enter_context(RaySession(address, slots=0, runtime_env=code)).ray
            self._actors = RayActors(ray)
            affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            # One of each node in turn, so that few parts are on many nodes; this process is busy, its node comes last.
            here = ray.get_runtime_context().get_node_id()
            places = sorted(
                (place, node == here, node)
                for node, facts in alive_nodes(ray).items()
                for place in range(min(_MOST_ON_A_NODE, int(facts["Resources"].get("CPU", 0))))
            )
            with contextlib.suppress(ActorError):  # which the workers' start will explain
                wait_for_environment(self._actors, None)
            started = []
            for *_, node in places:
                needs = {"num_cpus": 0, "scheduling_strategy": affinity(node, soft=False)}
                started.append(self._actors.start(NodeProcess, (), needs))
                self.callback(self._actors.kill, started[-1])
            self._processes = self._with_files(started, [path.absolute() for path in files])

    def __len__(self) -> int:
        return len(self._processes)

    def each(self, function: Callable[..., Any], shared: Any, parts: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yields ``function(shared, *part)`` for each part, in order; what a process fails at is computed here."""
        stored, waiting = self._actors.put(shared), collections.deque(parts)
        calls: collections.deque[tuple[Any, Any, Sequence[Any]]] = collections.deque()

        def give(process: Any) -> None:
            if waiting:
                part = waiting.popleft()
                calls.append((process, self._actors.call(process, "compute", function, stored, part), part))

        for process in self._processes:
            give(process)
        while calls:
            process, call, part = calls.popleft()
            try:
                (found,) = self._actors.get([call])
                give(process)
            except ActorError as error:
                self._processes.remove(process)
                found = compute(function, shared, part)
                warn_user(f"a process on a node of the cluster failed, and its part was computed here: {error}")
            yield found
            # Not held while the next one is waited for: a part may be as large as a 64th of a model.
            del found, call
        yield from HERE.each(function, shared, waiting)

    def _with_files(self, started: Sequence[Any], files: Sequence[Path]) -> list[Any]:
        """Returns the processes that have found the files as they are here; the others end."""
        here = facts_of(files)
        asked = {self._actors.call(process, "compute", facts_of, files, ()): process for process in started}
        came, _ = self._actors.wait(list(asked), count=len(asked), seconds=_START_SECONDS) if asked else ([], [])
        able = []
        for call, process in asked.items():
            with contextlib.suppress(ActorError):
                if call in came and self._actors.get([call]) == [here]:
                    able.append(process)
                    continue
            self._actors.kill(process)
        return able


class NodeProcess:
    def compute(self, function: Callable[..., Any], shared: Any, part: Sequence[Any]) -> Any:
        return compute(function, shared, part)


def facts_of(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Returns the size in bytes and the time of the last change, in nanoseconds, of each file."""
    return [(facts.st_size, facts.st_mtime_ns) for facts in map(os.stat, files)]
