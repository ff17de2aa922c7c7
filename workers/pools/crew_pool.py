"""A pool of actors, one on each device, whatever it is that runs them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from collectors.networks.weight_space import State

from ..curves.curve import CurveTask, Fitting
from ..errors import CallbackFunctionError
from ..evaluator import EvaluatorDescription
from ..pool import CurvatureResult, CurvatureTask, OriginValues, Pool, Result, Task
from ..sample_losses import SampleLosses
from .crew import Crew, LateNodes
from .crew_curvature import CrewShares, CurvatureRun
from .crew_run import CrewRun
from .crew_worker import raise_failures
from .curvature import measure_on
from .in_process import fit_in_parts, ones


class CrewPool(Pool):
    """Measures with a crew of actors, which is not started yet; the session ends with the pool."""

    _late_nodes: LateNodes | None = None

    def __init__(self, session: AbstractContextManager[Any], crew: Crew) -> None:
        self._session, self._crew = session, crew

    @property
    def description(self) -> EvaluatorDescription:
        """What the workers measure; all of them agree on it."""
        return self._crew.description

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._crew.workers)

    @property
    def process_ids(self) -> list[int]:
        """The process id of every worker."""
        return [process for _, _, process in self._crew.ask_all("place")]

    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        far_points: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Puts a plane on every worker, where its vectors travel once to each node; the workers settle on it."""
        put = self._crew.actors.put
        several = [[dict(item) for item in states] for states in (directions, end_buffers)]
        vectors = [put(dict(origin)), put(several[0]), put(dict(buffers)), put(several[1])]
        before = self.description.notes
        self._crew.load(vectors, far_points or ones(len(directions)))
        for note in self.description.notes:
            if note not in before:
                warnings.warn(note, stacklevel=3)

    def measure_origin(self) -> list[OriginValues]:
        """Returns the loaded plane's origin as every worker measured it."""
        answers = raise_failures(self._crew.ask_all("measure_origin"))
        self._crew.pass_cost = answers[0][1].pass_cost
        return [
            OriginValues(worker.label, device, measured)
            for worker, (device, measured) in zip(self._crew.workers, answers, strict=True)
        ]

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks, each exactly once; what a dead or slow worker has is measured elsewhere."""
        yield from CrewRun(self._crew, tasks, self._late_nodes)

    def sample_losses(self, points: Sequence[Sequence[float]]) -> SampleLosses | None:
        """Measures the loss of each sample at a few points of the loaded plane, on the first worker."""
        found: SampleLosses | None = raise_failures([self._crew.ask_one("sample_losses", points)])[0]
        return found

    def run_curvature(self, tasks: Iterable[CurvatureTask]) -> Iterator[CurvatureResult]:
        """Measures the curvature at sets of weights, one worker for each; that of a dead one is measured again."""
        yield from CurvatureRun(self._crew, tasks, self._late_nodes)

    def measure_curvature(self, task: CurvatureTask) -> CurvatureResult:
        """Measures the curvature at one set of weights, of whose samples each worker has a part."""
        with CrewShares(self._crew, task.settings.products) as shares:
            values, error = measure_on(shares, task.read, task.settings, check=True)
        if values is not None:
            values = replace(values, notes=tuple(dict.fromkeys((*shares.notes, *values.notes))))
        return CurvatureResult(task.key, values, error)

    def fit_curve(self, task: CurveTask, begun: Fitting | None = None, seconds: float = 5.0) -> Iterator[Fitting]:
        """Fits a curve on the first worker; where that one dies, another goes on from what was yielded last."""
        held = self._crew.actors.put(task)

        def fit(so_far: Fitting | None) -> Fitting:
            found: Fitting = raise_failures([self._crew.ask_one("fit_curve", held, so_far, seconds)])[0]
            return found

        return fit_in_parts(task, begun, fit)

    def close(self) -> None:
        """Ends the actors, and what was started for this pool."""
        self._crew.end()
        self._session.__exit__(None, None, None)


def pickled_function(dumps: Callable[[Any], bytes], callback_fn: Callable[[], Any]) -> bytes:
    """Returns callback_fn as it is sent to workers, pickled by cloudpickle's ``dumps``."""
    try:
        return bytes(dumps(callback_fn))
    except Exception as error:
        raise CallbackFunctionError(
            f"callback_fn cannot be sent to the workers ({type(error).__name__}: {error}); build the network "
            "and the data set inside the function instead of using open files, locks or other live objects of a script "
            "or a notebook, or define it at the top level of a module, which workers import."
        ) from error
