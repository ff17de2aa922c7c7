"""A pool of Ray actors, one on each device."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from collectors.networks.weight_space import State

from ..curves.curve import CurveTask, Fitting
from ..errors import CallbackFunctionError
from ..evaluator import EvaluatorDescription, MeasurementOptions, SampleMemory
from ..measurement_plan import MeasurementPlan, Workload
from ..pool import CurvatureResult, CurvatureTask, OriginValues, Pool, Result, Task
from ..sample_losses import SampleLosses
from .curvature import measure_on
from .devices import WorkerLayout
from .in_process import fit_in_parts, ones
from .ray_code import code_of
from .ray_crew import LateNodes, RayCrew
from .ray_curvature import CurvatureRun, RayShares
from .ray_placement import cluster_workers, local_workers, place_workers, private_devices
from .ray_run import RayRun
from .ray_session import RaySession
from .ray_worker import ActorRecipe, mentioned_frameworks, raise_failures


class RayPool(Pool):
    """Measures on several devices at once.

    Args:
        callback_fn: takes no argument; returns (model, network, dataset, metrics), or an Evaluator. It may be a lambda,
            a closure or a notebook's function.
        options: what is measured.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        address: of a Ray cluster to join; None uses a Ray that runs already, or starts a private one.
        plan: how to compute; None lets the first worker tune one for all.
        workload: for how much work it is tuned.
        layout: how many devices a worker has, or how many workers share one.
        memory: where samples are kept.

    Raises:
        ValueError: the number of devices is not a multiple of ``layout.devices_per_worker``.
        PoolError: no worker could be started.
        CallbackFunctionError: callback_fn cannot be sent to the workers, or failed there.
        NondeterministicLossError: the workers were given different networks or samples by callback_fn.
    """

    def __init__(
        self,
        callback_fn: Callable[[], Any],
        options: MeasurementOptions,
        *,
        device_ids: tuple[int, ...] | None = None,
        address: str | None = None,
        plan: MeasurementPlan | None = None,
        workload: Workload | None = None,
        layout: WorkerLayout = WorkerLayout(),  # noqa: B008
        memory: SampleMemory = SampleMemory(),  # noqa: B008
    ) -> None:
        ids, gpus = private_devices(device_ids, address)
        layout.check_devices(device_ids or ids)
        self._session = RaySession(
            address,
            slots=layout.workers(len(ids)),
            gpus=ids if gpus else (),
            runtime_env=functools.partial(code_of, callback_fn),
        )
        self._ray = self._session.ray
        self._crew = RayCrew(self._ray, memory)
        self._late_nodes: LateNodes | None = None
        try:
            if not self._session.private:
                gpus = self._ray.cluster_resources().get("GPU", 0) > 0
            pickled = self._pickled(callback_fn)
            frameworks = mentioned_frameworks(callback_fn, pickled)
            # Ray finds Ascend devices by itself; only MindSpore computes on them.
            npus = int(self._ray.cluster_resources().get("NPU", 0)) if "mindspore" in frameworks and not gpus else 0
            recipe = ActorRecipe(self._ray, self._ray.put(pickled), frameworks, options, gpus, npus > 0, layout)
            if self._session.private:
                ids = tuple(range(npus)) if npus and device_ids is None else ids
                self._crew.workers += local_workers(recipe, ids)
            else:
                self._crew.workers += cluster_workers(recipe, device_ids)
            place_workers(self._crew.workers, device_ids)
            self._crew.start(plan, workload)
            if not self._session.private and not (gpus and device_ids is not None):
                wanted = None if device_ids is None else layout.workers(len(device_ids))
                self._late_nodes = LateNodes(self._crew, recipe, wanted)
        except BaseException:
            self.close()
            raise
        for note in self.description.notes:
            warnings.warn(note, stacklevel=3)

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
        put = self._ray.put
        several = [[dict(item) for item in states] for states in (directions, end_buffers)]
        vectors = [put(dict(origin)), put(several[0]), put(dict(buffers)), put(several[1])]
        before = self.description.notes
        self._crew.load(vectors, far_points or ones(len(directions)))
        for note in self.description.notes:
            if note not in before:
                warnings.warn(note, stacklevel=3)

    def measure_origin(self) -> list[OriginValues]:
        """Measures the loaded plane's origin on every worker."""
        answers = raise_failures(self._crew.ask_all("measure_origin"))
        self._crew.pass_cost = answers[0][-1]
        return [
            OriginValues(worker.label, device, measured, cost)
            for worker, (device, measured, cost) in zip(self._crew.workers, answers, strict=True)
        ]

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks, each exactly once; what a dead or slow worker has is measured elsewhere."""
        yield from RayRun(self._crew, tasks, self._late_nodes)

    def sample_losses(self, points: Sequence[Sequence[float]]) -> SampleLosses | None:
        """Measures the loss of each sample at a few points of the loaded plane, on the first worker."""
        found: SampleLosses | None = raise_failures([self._crew.ask_one("sample_losses", points)])[0]
        return found

    def run_curvature(self, tasks: Iterable[CurvatureTask]) -> Iterator[CurvatureResult]:
        """Measures the curvature at sets of weights, one worker for each; that of a dead one is measured again."""
        yield from CurvatureRun(self._crew, tasks, self._late_nodes)

    def measure_curvature(self, task: CurvatureTask) -> CurvatureResult:
        """Measures the curvature at one set of weights, of whose samples each worker has a part."""
        with RayShares(self._crew, task.settings.products) as shares:
            values, error = measure_on(shares, task.read, task.settings, check=True)
        if values is not None:
            values = replace(values, notes=tuple(dict.fromkeys((*shares.notes, *values.notes))))
        return CurvatureResult(task.key, values, error)

    def fit_curve(self, task: CurveTask, begun: Fitting | None = None, seconds: float = 5.0) -> Iterator[Fitting]:
        """Fits a curve on the first worker; where that one dies, another goes on from what was yielded last."""
        held = self._ray.put(task)

        def fit(so_far: Fitting | None) -> Fitting:
            found: Fitting = raise_failures([self._crew.ask_one("fit_curve", held, so_far, seconds)])[0]
            return found

        return fit_in_parts(task, begun, fit)

    def close(self) -> None:
        """Ends the actors, and Ray where it was started for this pool."""
        self._crew.end()
        self._session.close()

    def _pickled(self, callback_fn: Callable[[], Any]) -> bytes:
        try:
            return bytes(self._ray.cloudpickle.dumps(callback_fn))
        except Exception as error:
            raise CallbackFunctionError(
                f"callback_fn cannot be sent to the workers ({type(error).__name__}: {error}); build the network "
                "and the data set inside the function instead of closing over open files, locks or other live objects."
            ) from error
