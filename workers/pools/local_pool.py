"""A pool of processes of this machine, one on each slot of CPU cores, without Ray."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import selectors
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, BinaryIO

import cloudpickle

from collectors.files import system
from collectors.files.local_files import TemporaryFolder

from ..errors import RUN_AGAIN, PoolError, closing_on_failure
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..measurement_plan import MeasurementPlan, Workload
from .actor_pool import ActorPool
from .actors import ActorDeathError, Actors, ActorTaskError
from .crew import Crew
from .crew_worker import ActorRecipe, MeasurementActor, mentioned_frameworks, pickled_function, sent_options
from .devices import WorkerLayout, available_cores
from .local_processes import Forked, Inbox, Spawned, StoredValue, Template, framed, how_it_ended
from .placement import workers_on

_STATUS_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_LAST_LINES = 5
_LAST_BYTES = 4096
# Importing the others starts threads, which do not survive in a forked process.
_OF_TORCH = ("torch", "workers.torch.evaluator")
_WITH_TORCH = {"torch", "lightning", "transformers", "composer"}


class Line:
    """An actor of this machine as its driver sees it: the connection with its process."""

    def __init__(self, process: Spawned | Forked, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.process, self.connection = process, connection
        self._inbox = Inbox(connection.recv)
        self.unsent: deque[memoryview] = deque()
        # The calls and, until their answers come, the arguments: they keep stored values alive.
        self.waiting: dict[int, tuple[Future[Any], Sequence[Any]]] = {}
        # Why nothing comes any more; None while it lives.
        self.death: ActorDeathError | None = None

    def receive(self) -> bool:
        """Takes the answers that have come; returns False where the process is gone."""
        alive = True
        with contextlib.suppress(BlockingIOError):
            while alive:
                alive = self._inbox.receive()
        for body in self._inbox.messages():
            number, succeeded, content = pickle.loads(body)
            call, _ = self.waiting.pop(number)
            if succeeded:
                call.set_result(content)
            else:
                call.set_exception(ActorTaskError(content))
        return alive


class LocalActors(Actors):
    """Starts actors on this machine; to be forked, the ``modules`` they need must start no threads on import."""

    def __init__(
        self, modules: Sequence[str], *, forked: bool | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._ended = contextlib.ExitStack()
        self._stderr: BinaryIO = self._ended.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        if not system.path_of_open(self._stderr.fileno()):  # unnamed files are not shared
            folder = TemporaryFolder("landscape-workers-")
            self._ended.callback(folder.remove)
            self.folder = str(folder.path)
        self._selector = self._ended.enter_context(selectors.DefaultSelector())
        self._lines: set[Line] = set()
        self._numbers = itertools.count()
        # Only spawned processes have an environment of their own.
        self._environment = environment or {}
        self._template: Template | None = None
        if system.forks_workers() if forked is None else forked:
            self._template = self._ended.enter_context(contextlib.closing(Template(modules, self._stderr)))
            self._selector.register(self._template.control, selectors.EVENT_READ, self._template)

    def start(self, kind: type, arguments: Sequence[Any], needs: Mapping[str, Any]) -> Line:
        self._check_alive()
        ours, theirs = socket.socketpair()
        with theirs:
            if self._template is None:
                process: Spawned | Forked = Spawned("work_alone", theirs, self._stderr, **self._environment)
            else:
                process = self._template.fork(theirs)
            line = Line(process, ours)
        self._lines.add(line)
        self._selector.register(ours, selectors.EVENT_READ, line)
        self.call(line, None, kind, *arguments)
        return line

    def call(self, actor: Line, method: str | None, *arguments: Any) -> Future[Any]:
        """Asks for a method's call; None makes the object, of a class and its arguments."""
        call: Future[Any] = Future()
        if actor.death is not None:
            call.set_exception(actor.death)
            return call
        number = next(self._numbers)
        actor.unsent.append(memoryview(framed((number, method, arguments))))
        actor.waiting[number] = call, arguments
        self._send(actor)
        return call

    def wait(
        self, calls: Sequence[Future[Any]], *, count: int = 1, seconds: float | None = None
    ) -> tuple[list[Future[Any]], list[Future[Any]]]:
        end = None if seconds is None else time.monotonic() + seconds
        self._take(0.0)
        while sum(call.done() for call in calls) < count:
            left = _LOOK_SECONDS if end is None else end - time.monotonic()
            if left <= 0:
                break
            if not self._take(min(left, _LOOK_SECONDS)):
                self._check_alive()
                self._bury_ended()
        ready = [call for call in calls if call.done()][:count]
        chosen = set(ready)
        return ready, [call for call in calls if call not in chosen]

    def kill(self, actor: Line) -> None:
        if actor.death is None:
            self._bury(actor, ActorDeathError("its process was ended by its pool"))
            actor.process.kill()

    def put(self, value: Any) -> StoredValue:
        """Copies a value into a file that all actors map."""
        return StoredValue(value, self.folder)

    def answers(self, calls: Sequence[Future[Any]]) -> list[Any]:
        try:
            return [call.result() for call in calls]
        except ActorDeathError:
            self._check_alive()  # workers die with what they were forked from, which is the cause to report
            raise

    def close(self) -> None:
        for line in list(self._lines):
            self._bury(line, ActorDeathError("its pool was closed"))
            line.process.kill()
        self._ended.close()

    def _template_death(self) -> str:
        """Returns why no process can be started any more; "" where it can."""
        return "" if self._template is None else self._template.death()

    def _check_alive(self) -> None:
        if death := self._template_death():
            raise PoolError(f"{death}{self._last_words()}. {RUN_AGAIN}")

    def _send(self, line: Line) -> None:
        """Sends what the connection takes now; for the rest, waits until it takes more."""
        with contextlib.suppress(BlockingIOError, ConnectionError):  # that it is gone is found out when reading
            while line.unsent:
                sent = line.connection.send(line.unsent[0])
                line.unsent[0] = line.unsent[0][sent:]
                if not line.unsent[0]:
                    line.unsent.popleft()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if line.unsent else 0)
        if self._selector.get_key(line.connection).events != events:
            self._selector.modify(line.connection, events, line)

    def _take(self, seconds: float) -> bool:
        """Waits for something to come, or to become possible; returns whether anything has."""
        found = self._selector.select(seconds)
        for key, events in found:
            line = key.data
            if isinstance(line, Template):
                line.take_news()
                self._bury_ended()
            elif line.death is None:
                if events & selectors.EVENT_WRITE:
                    self._send(line)
                if events & selectors.EVENT_READ and not line.receive():
                    self._bury(line, self._death_of(line))
        return bool(found)

    def _bury_ended(self) -> None:
        """Notices processes that have ended while another one, such as a loader of theirs, has their connection."""
        gone = self._template_death()
        for line in list(self._lines):
            if gone or line.process.ended() is not None:
                line.receive()
                self._bury(line, ActorDeathError(gone) if gone else self._death_of(line))
        if gone and self._template is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._template.control)

    def _death_of(self, line: Line) -> ActorDeathError:
        return ActorDeathError(f"its process {how_it_ended(line.process.ended(_STATUS_SECONDS))}{self._last_words()}")

    def _bury(self, line: Line, error: ActorDeathError) -> None:
        """Notes that a process is gone; what it was asked for has no answer."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(line.connection)
        line.death = error
        line.unsent.clear()
        for call, _ in line.waiting.values():
            call.set_exception(error)
        line.waiting.clear()
        line.connection.close()
        self._lines.discard(line)

    def _last_words(self) -> str:
        """Returns the last lines that workers wrote to their standard error."""
        text = system.end_of_file(self._stderr, _LAST_BYTES).decode(errors="replace").strip()
        lines = text.splitlines()[-_LAST_LINES:]
        return "; the workers' last lines:\n  " + "\n  ".join(lines) if lines else ""


class LocalActor(MeasurementActor):
    def place(self) -> tuple[str, tuple[int, ...], int]:
        return "this machine", (), os.getpid()

    def _fetched(self, references: Sequence[StoredValue]) -> Any:
        return [reference.load() for reference in references]


class LocalPool(ActorPool):
    """Measures in several processes of this machine, which need no Ray."""

    def __init__(
        self,
        callback_fn: Callable[[], Any],
        options: MeasurementOptions,
        *,
        device_ids: tuple[int, ...],
        plan: MeasurementPlan | None = None,
        workload: Workload | None = None,
        layout: WorkerLayout = WorkerLayout(),  # noqa: B008
        memory: SampleMemory = SampleMemory(),  # noqa: B008
        forked: bool | None = None,
    ) -> None:
        pickled, sent = pickled_function(cloudpickle.dumps, callback_fn), sent_options(cloudpickle.dumps, options)
        frameworks = mentioned_frameworks(callback_fn, pickled)
        modules = _OF_TORCH if _WITH_TORCH.intersection(frameworks) else ()
        actors = LocalActors((__name__, *modules), forked=forked)
        super().__init__(contextlib.closing(actors), Crew(actors, memory))
        with closing_on_failure(self):
            recipe = ActorRecipe(actors, actors.put(pickled), frameworks, sent, layout=layout, actor=LocalActor)
            self._crew.start(workers_on(recipe, device_ids, available_cores()), plan, workload)

    @property
    def copies_of_planes(self) -> int:
        return self.workers + 1  # the one from which all take theirs
