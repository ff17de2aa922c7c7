"""Processes on the nodes of a cluster that compute on files there, before any of its devices is reserved."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from workers.errors import closing_on_failure
from workers.pools.actors import ActorDeathError, ActorTaskError
from workers.pools.placement import PLACEMENT_SECONDS, alive_nodes
from workers.pools.ray_pool import RayActors, code_of
from workers.pools.ray_session import RaySession
from workers.users_code import warn_user

# Reading a shared folder is soon the limit, and the nodes have other work.
_MOST_ON_A_NODE = 4


class NodeProcesses(contextlib.ExitStack):
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
            started = [
                self._actors.start(NodeProcess, (), {"num_cpus": 0, "scheduling_strategy": affinity(node, soft=False)})
                for *_, node in places
            ]
            for process in started:
                self.callback(self._actors.kill, process)
            self._processes = self._with_files(started, [path.absolute() for path in files])

    def __len__(self) -> int:
        return len(self._processes)

    def each(self, function: Callable[..., Any], shared: Any, parts: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yields ``function(shared, *part)`` for each part, in order; what a dead process had is computed here."""
        stored, parts = self._actors.put(shared), list(parts)
        while parts and self._processes:
            turn, parts = parts[: len(self._processes)], parts[len(self._processes) :]
            calls = [
                (process, self._actors.call(process, "compute", function, stored, part))
                for process, part in zip(self._processes, turn, strict=False)
            ]
            for (process, call), part in zip(calls, turn, strict=True):
                try:
                    (found,) = self._actors.get([call])
                except ActorTaskError as error:
                    raise error.cause from error
                except ActorDeathError as error:
                    self._processes.remove(process)
                    warn_user(f"a process on a node of the cluster died, and its part is computed here: {error}")
                    found = function(shared, *part)
                yield found
        yield from (function(shared, *part) for part in parts)

    def _with_files(self, started: Sequence[Any], files: Sequence[Path]) -> list[Any]:
        """Returns the processes that have found the files as they are here."""
        here = facts_of(files)
        asked = {self._actors.call(process, "compute", facts_of, files, ()): process for process in started}
        came, late = self._actors.wait(list(asked), count=1) if asked else ([], [])
        if late:
            # Others of a cluster find their place, and install the run's environment, about as fast as the first one.
            came += self._actors.wait(late, count=len(late), seconds=PLACEMENT_SECONDS)[0]
        able = []
        for call, process in asked.items():
            with contextlib.suppress(ActorDeathError, ActorTaskError):
                if call in came and self._actors.get([call]) == [here]:
                    able.append(process)
        return able


class NodeProcess:
    """Computes what it is sent."""

    def compute(self, function: Callable[..., Any], shared: Any, part: Sequence[Any]) -> Any:
        return function(shared, *part)


def facts_of(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Returns the size in bytes and the time of the last change, in nanoseconds, of each file."""
    found = map(os.stat, files)
    return [(facts.st_size, facts.st_mtime_ns) for facts in found]
