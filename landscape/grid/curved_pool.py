"""A pool that measures a curve: places from 0 to 1 become shares of the directions to the control points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from collectors.networks.weight_space import State
from workers.curves.curve import CurveShape, CurveTask, Fitting
from workers.evaluator import EvaluatorDescription
from workers.pool import CurvatureResult, CurvatureTask, OriginValues, PointTask, Pool, Result, Task
from workers.sample_losses import SampleLosses


class CurvedPool(Pool):
    """Measures points of a curve with another pool, which whoever opened it closes."""

    def __init__(self, pool: Pool, shape: CurveShape) -> None:
        self._pool, self._shape = pool, shape

    @property
    def description(self) -> EvaluatorDescription:
        """What the workers measure."""
        return self._pool.description

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return self._pool.workers

    def load(
        self,
        origin: State,
        directions: Sequence[State],
        buffers: State,
        end_buffers: Sequence[State] = (),
        far_points: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Puts a curve on every worker."""
        far = [self._shares(place) for place in far_points or [(1.0,)]]
        # The control points between the ends have the buffers of the first network.
        first = [{name: buffers[name] for name in end} for end in end_buffers] * (len(directions) - 1)
        self._pool.load(origin, directions, buffers, [*first, *end_buffers], far)

    def measure_origin(self) -> list[OriginValues]:
        """Measures the curve's beginning on every worker."""
        return self._pool.measure_origin()

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Measures tasks, each exactly once."""
        return self._pool.run(
            replace(task, coordinates=self._shares(task.coordinates)) if isinstance(task, PointTask) else task
            for task in tasks
        )

    def sample_losses(self, points: Sequence[Sequence[float]]) -> SampleLosses | None:
        """Measures the loss of each sample at a few places."""
        return self._pool.sample_losses([self._shares(place) for place in points])

    def run_curvature(self, tasks: Iterable[CurvatureTask]) -> Iterator[CurvatureResult]:
        """Measures the curvature at sets of weights."""
        return self._pool.run_curvature(tasks)

    def fit_curve(self, task: CurveTask, begun: Fitting | None = None, seconds: float = 5.0) -> Iterator[Fitting]:
        """Fits a curve."""
        return self._pool.fit_curve(task, begun, seconds)

    def close(self) -> None:
        """Leaves the other pool open."""

    def _shares(self, place: Sequence[float]) -> tuple[float, ...]:
        (t,) = place
        return tuple(self._shape.weights(t)[0, 1:].tolist())
