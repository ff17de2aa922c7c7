"""The workers of a pool: started and asked together, replaced when they die."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import RUN_AGAIN, NondeterministicLossError, PoolError
from ..evaluator import EvaluatorDescription, PassCost, SampleMemory
from ..measurement_plan import MeasurementPlan, Workload
from ..users_code import warn_user
from .actors import ActorDeathError, ActorError, Actors
from .chunks import MeasuredSpeed
from .crew_worker import CrewWorker, LoadedPlane, raise_failures
from .placement import PLACEMENT_SECONDS, place_workers

DEATHS_BEFORE_DROP = 12
_FAILED_STARTS_BEFORE_DROP = 3
_WAIT_SECONDS = 1.0
# How long the chunk of an ended run may still keep a worker from what comes next.
_PATIENCE_SECONDS = 30.0
# For fewer points on each worker, compiling hardly ever pays off.
_POINTS_WORTH_COMPILING = 100
_CHANGED_BY_A_SHORTAGE = ("batch_size", "first_layer", "compile", "compiler", "reason")


class Crew:
    description: EvaluatorDescription  # what they measure, once they are started; all of them agree on it
    _started: EvaluatorDescription
    _others_notes: tuple[str, ...] = ()

    def __init__(self, actors: Actors, memory: SampleMemory = SampleMemory()) -> None:  # noqa: B008
        self.actors = actors
        self.workers: list[CrewWorker] = []  # that are placed, in the order of their devices
        self.late: list[CrewWorker] = []  # that have no place yet; each joins the others when it has one
        self.plane: LoadedPlane | None = None  # for workers that are started again
        self.pass_cost: PassCost | None = None
        # Starts workers on nodes that have joined a cluster meanwhile; does nothing elsewhere.
        self.look_for_nodes: Callable[[], None] = lambda: None
        self._memory = replace(memory, shared=True, folder=actors.folder)

    def start(
        self,
        workers: list[CrewWorker],
        plan: MeasurementPlan | None,
        workload: Workload | None,
        asked: tuple[int, ...] | None = None,
    ) -> None:
        """Places workers, and has them build their evaluators; without a plan the first one tunes it."""
        self.workers = workers
        self.late = place_workers(workers, asked)
        first, *others = workers
        prepared = [worker.prepare() for worker in workers]
        # The first worker's call comes before the others', so that a data set is downloaded once.
        self._get([*prepared, first.call("call")])
        if workload is not None:
            workload = replace(workload, points=workload.points / len(workers), workers=len(workers))
        # The first worker also fills the compile cache, which the others then find warm.
        tuning = first.start(plan, workload, self._memory)
        calls = [worker.call("call") for worker in others]
        # On CPUs, a package of the first worker's code is loaded without the compiler.
        if first.recipe.kind == "GPU" and _may_be_compiled(plan, workload):
            for worker in others:
                worker.call("load_compiler")
        (description,) = self._get([tuning])
        self._get(calls)
        self._hold([description])
        for group in self._groups():
            # On each machine one worker reads the samples; those that start after it map them.
            answers = self._get([worker.start(description.plan, None, self._memory) for worker in group])
            for worker, found in zip(group, answers, strict=True):
                _check_same_description(worker.label, description, found)
                own = (f"{worker.label}: {note}" for note in found.notes if note not in description.notes)
                self._others_notes += tuple(own)
            self._hold(answers)
        self._started = description
        self.description = replace(description, notes=description.notes + self._others_notes)
        self._warn_of_notes()

    def _groups(self) -> list[list[CrewWorker]]:
        """Returns all workers but the first: its neighbours and one of each other node, then the rest."""
        nodes = [node for node, *_ in self._get([worker.call("place") for worker in self.workers])]
        groups: tuple[list[CrewWorker], list[CrewWorker]] = ([], [])
        for index, worker in enumerate(self.workers[1:], start=1):
            later = nodes[index] != nodes[0] and nodes[index] in nodes[:index]
            groups[later].append(worker)
        return [group for group in groups if group]

    def _hold(self, descriptions: Sequence[EvaluatorDescription]) -> None:
        """Remembers what some workers hold, for those that start later; a dead one's is simply not found."""
        held = (item.held for item in descriptions if item.held)
        self._memory = replace(self._memory, held=(*self._memory.held, *held))

    def load(self, vectors: Sequence[Any], far_points: Sequence[Sequence[float]] | None) -> None:
        """Puts a plane (origin, directions, buffers) on all workers, which add the loss up as the first finds right."""
        self.plane, known = LoadedPlane(vectors, far_points), self.description.notes
        # All at once, which takes no longer than one alone; rounding may differ between kinds of devices.
        found = self.ask_all("ask", "load", *vectors, far_points)
        description = found[0]
        self.plane.partition = description.partition
        if any(other.partition != description.partition for other in found):
            self.ask_all("ask", "load", *vectors, far_points, description.partition)
        # Memory may have run out for some of them.
        plans = [other.plan for other in found]
        smallest, largest = (pick(plans, key=lambda plan: plan.batch_size or 0) for pick in (min, max))
        self.description = replace(description, notes=description.notes + self._others_notes, plan=largest)
        self.follow(smallest)
        self._warn_of_notes(known)

    def _warn_of_notes(self, known: Sequence[str] = ()) -> None:
        for note in self.description.notes:
            if note not in known:
                warn_user(note)

    def ask_all(self, method: str, *arguments: Any) -> Sequence[Any]:
        """Calls a method on every worker, again on one that died meanwhile; raises an exception among the answers."""
        return self._ask(self.workers, method, arguments)

    def ask_one(self, method: str, *arguments: Any) -> Any:
        """Calls a method on the first worker; on the next one, if that dies too often."""
        while not (answers := self._ask(self.workers[:1], method, arguments)):
            pass
        return answers[0]

    def _ask(self, workers: Sequence[CrewWorker], method: str, arguments: Sequence[Any]) -> Sequence[Any]:
        answers: dict[int, Any] = {}
        waiting = asked = list(workers)
        while waiting:
            calls = []
            for worker in waiting:
                self._finish_old_work(worker)
                while worker.starting and worker in self.workers:
                    self.actors.wait(worker.starting[-1:], seconds=_WAIT_SECONDS)
                    self.finish_start(worker)
                if worker in self.workers:
                    calls.append((worker, worker.call(method, *arguments)))
            waiting = []
            for worker, call in calls:
                try:
                    (answers[id(worker)],) = self.actors.get([call])
                except ActorDeathError as error:
                    self.replace(worker, error, _FAILED_STARTS_BEFORE_DROP)
                    waiting.append(worker)
                else:
                    worker.deaths = worker.failed_starts = 0
        return raise_failures([answers[id(worker)] for worker in asked if worker in self.workers])

    def follow(self, plan: MeasurementPlan) -> None:
        """Has every worker measure in batches no larger than one of them could hold, which gave up more for that."""
        size, before = plan.batch_size, self.description.plan.batch_size
        if size is None or before is None or size >= before:
            return
        changes = {name: getattr(plan, name) for name in _CHANGED_BY_A_SHORTAGE}
        self.description = replace(self.description, plan=replace(self.description.plan, **changes))
        self._started = replace(self._started, plan=replace(self._started.plan, **changes))
        for worker in self.workers:
            worker.call("use_batch_size", size)

    def replace(self, worker: CrewWorker, error: Exception, limit: int) -> None:
        """Starts another actor in the place of a dead one; gives the worker up when it died too often."""
        worker.deaths += 1
        if worker.deaths >= limit:
            self._drop(worker, error)
        else:
            self.start_again(worker)

    def finish_start(self, worker: CrewWorker) -> None:
        """Looks whether a worker that was started again is ready; starts it once more where that failed."""
        done, _ = self.actors.wait(worker.starting, count=len(worker.starting), seconds=0)
        if len(done) < len(worker.starting):
            if not done and time.monotonic() - worker.started_at > PLACEMENT_SECONDS:
                self._await_place(worker)
            return
        try:
            # One after another: the first failure is the cause of those that follow.
            answers = [answer for call in worker.starting for answer in raise_failures(self.actors.answers([call]))]
        except Exception as error:
            worker.failed_starts += 1
            if worker.failed_starts >= _FAILED_STARTS_BEFORE_DROP:
                self._drop(worker, error)
            else:
                self.start_again(worker)
            return
        worker.starting = []
        found = next(answer for answer in answers if isinstance(answer, EvaluatorDescription))
        _check_same_description(worker.label, self._started, found)

    def forget_speeds(self) -> None:
        for worker in self.workers:
            worker.speed = MeasuredSpeed()  # of points, or of sets of weights, which take a thousand times as long

    def start_again(self, worker: CrewWorker) -> None:
        worker.seek_place()
        worker.start_up(self._started.plan, self._memory, self.plane)

    def admit_late(self) -> None:
        """Has those that have found their place by now start, up to the loaded plane."""
        if not self.late:
            return
        waiting = {worker.starting[0]: worker for worker in self.late}
        placed, _ = self.actors.wait(list(waiting), count=len(waiting), seconds=0)
        for worker in (waiting[call] for call in placed):
            self.late.remove(worker)
            worker.start_up(self._started.plan, self._memory, self.plane)
            self.workers.append(worker)

    def most_on_one_node(self) -> int:
        """Returns how many workers share a machine's memory, where most do, or will when late ones join."""
        return max(Counter(node for node, *_ in self.ask_all("place")).values()) + len(self.late)

    def end(self) -> None:
        for worker in (*self.workers, *self.late):
            worker.leave()
        self.workers.clear()
        self.late.clear()
        self.plane = None

    def _get(self, calls: Sequence[Any]) -> Sequence[Any]:
        try:
            return raise_failures(self.actors.get(calls))
        except ActorError as error:
            raise PoolError(
                "a worker died while it started. Likely causes: memory ran out (use fewer device_ids), or callback_fn "
                f"ends its process. The error was: {error}"
            ) from error

    def _finish_old_work(self, worker: CrewWorker) -> None:
        """Waits for chunks of a run that has ended; a worker that does not come back from them is replaced."""
        if not worker.in_flight or not all(item.chunk.settled for item in worker.in_flight):
            return
        last = worker.in_flight[-1]
        done, _ = self.actors.wait([last.call], seconds=_PATIENCE_SECONDS)
        worker.in_flight.clear()
        if not done and worker.actor is last.actor:
            error = PoolError(f"{worker.label} is still busy {_PATIENCE_SECONDS:.0f} s after others did its work.")
            self.replace(worker, error, _FAILED_STARTS_BEFORE_DROP)

    def _await_place(self, worker: CrewWorker) -> None:
        """Lets the others go on without a worker until it has a place."""
        if len(self.workers) == 1:
            self._drop(worker, PoolError(f"it found no place within {PLACEMENT_SECONDS:.0f} s"))
        self.workers.remove(worker)
        # The next plane is not loaded on it meanwhile, so nothing may be asked of its actor yet.
        worker.seek_place()
        self.late.append(worker)
        warn_user(
            f"{worker.label}{_died(worker)} has no place yet; {self._others()}, and it joins when it finds one.",
        )

    def _drop(self, worker: CrewWorker, error: Exception) -> None:
        was_starting = bool(worker.starting)
        worker.leave()
        self.workers.remove(worker)
        if not self.workers:
            again = " again" if worker.deaths else ""
            end = f"{_died(worker)} could not be started{again}" if was_starting else f" died {_times(worker.deaths)}"
            raise PoolError(f"the last worker{end}. {RUN_AGAIN} The last error was: {error}") from error
        warn_user(f"{worker.label}{_died(worker)} is given up; {self._others()}. {error}")

    def _others(self) -> str:
        return "the other one goes on" if len(self.workers) == 1 else f"the other {len(self.workers)} go on"


def _died(worker: CrewWorker) -> str:
    return f", which died {_times(worker.deaths)}," if worker.deaths else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _may_be_compiled(plan: MeasurementPlan | None, workload: Workload | None) -> bool:
    if plan is not None:
        return plan.compile
    if workload is None:
        return False
    return workload.compile is True or (workload.compile == "auto" and workload.points >= _POINTS_WORTH_COMPILING)


def _check_same_description(label: str, expected: EvaluatorDescription, found: EvaluatorDescription) -> None:
    """Raises NondeterministicLossError when callback_fn gave two workers different things."""
    theirs = {item.name: item.samples_sha256 for item in found.datasets}
    samples = [("samples", expected.samples_sha256, found.samples_sha256)] + [
        (f"samples of data set {item.name!r}", item.samples_sha256, theirs[item.name])
        for item in expected.datasets[1:]
        if item.name in theirs
    ]
    others = [("data sets", [item.name for item in expected.datasets], list(theirs))] + [
        (name, getattr(expected, name), getattr(found, name))
        for name in ("metrics", "num_samples", "partition_dependent")
    ]
    differences = [
        *expected.space.differences(found.space),
        *(f"{what} {one[:12]} against {other[:12]}" for what, one, other in samples if one != other),
        *(f"{what} {one} against {other}" for what, one, other in others if one != other),
    ]
    if differences:
        raise NondeterministicLossError(
            f"callback_fn must build the same network and samples on every worker, but {label} has others:\n  "
            + "\n  ".join(differences[:20])
            + "\nSet the seeds of whatever is random in it, and switch random augmentation off."
        )
