"""Processes on the nodes of a cluster that compute on files there, before any of its devices is reserved."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from workers.errors import closing_on_failure
from workers.pools.actors import ActorError
from workers.pools.placement import PLACEMENT_SECONDS, alive_nodes, wait_for_environment
from workers.pools.ray_pool import RayActors, code_of
from workers.pools.ray_session import RaySession
from workers.users_code import warn_user

from .passes import HERE, Passes, compute

# Python may come from a slow shared folder.
_START_SECONDS = 2 * PLACEMENT_SECONDS
# Reading a shared folder is soon the limit, and the nodes have other work.
_MOST_ON_A_NODE = 4


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
