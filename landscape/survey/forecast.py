"""What a survey will cost, estimated before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collectors.networks.weight_space import direction_dtype, numpy_dtype
from workers.evaluator import PassCost
from workers.pool import Pool, StateTask

from ..file.checks import PointStatus
from ..file.data import LandscapeData
from ..planes.plane import Plane
from .settings import SurveySettings, duration_text
from .tasks import checkpoint_tasks

_FILE_BASE = 15_000  # bytes of a landscape file without its grid: attributes, checkpoints, HDF5's own
# What adaptive sampling measures of a smooth surface: its first grid, and a fiftieth to check itself.
_FIRST_GRID = 170
_CHECKED_SHARE = 1 / 50


@dataclass(frozen=True)
class Forecast:
    """What a survey will cost.

    Attributes:
        points: how many are still to be measured, the checkpoints' included.
        sampling: "full" or "adaptive", which measures fewer.
        seconds_per_point: measured, on one worker.
        workers: how many measure at once.
        memory: bytes that the plane takes on every worker, beside the network and the samples.
        disk: bytes of the landscape file.
        budget: seconds after which no new point is begun, or None.
        details: why the network is compiled or not, with the seconds that were measured; empty where nobody chose.
        passes: how often the samples are read, where they do not fit into memory and are read anew in each pass.
        seconds_per_pass: of reading them once.
    """

    points: int
    sampling: str
    seconds_per_point: float
    workers: int
    memory: int
    disk: int
    budget: float | None = None
    details: str = ""
    passes: int = 0
    seconds_per_pass: float = 0.0

    @property
    def seconds(self) -> float:
        """Wall time of measuring every point."""
        return self._seconds(self.points)

    def __str__(self) -> str:
        workers = f"{self.workers} worker" + ("s" if self.workers > 1 else "")
        time = f"about {duration_text(self.seconds)}"
        if self.sampling == "adaptive":
            fewest = self._seconds(fewest_points(self.points, self.sampling))
            time = f"at most {duration_text(self.seconds)} (adaptive sampling: from {duration_text(fewest)} upwards)"
        limited = self.budget is not None and self.budget < self.seconds
        text = (
            f"{self.points:,} points x {duration_text(self.seconds_per_point)} on {workers}: {time}; "
            f"{_bytes(self.memory)} of memory for the plane on each worker; {_bytes(self.disk)} on disk"
        )
        if self.passes:
            times = "once" if self.passes == 1 else f"{self.passes:,} times"
            each = f", {duration_text(self.seconds_per_pass)} each" if self.passes > 1 else ""
            text += f"; the samples exceed sample_memory and are read {times} more{each}"
        if limited:
            text += f"; the budget ends it after {duration_text(self.budget or 0)}"
        return f"{text}; {self.details}" if self.details else text

    def _seconds(self, points: int) -> float:
        passes = math.ceil(self.passes * points / self.points) if self.points else 0
        return (points * self.seconds_per_point + passes * self.seconds_per_pass) / self.workers


def make_forecast(
    pool: Pool,
    plane: Plane,
    data: LandscapeData,
    seconds_per_point: float,
    settings: SurveySettings,
    pass_cost: PassCost | None = None,
) -> Forecast:
    """Returns what a survey will cost.

    Args:
        pool: where points are measured.
        plane: what is measured.
        data: the landscape; what is pending in it is still to be measured.
        seconds_per_point: on one worker.
        settings: how the plane is surveyed.
        pass_cost: of one worker, where samples are read anew in each pass.
    """
    everything = sum(tensor.size * numpy_dtype(tensor.dtype).itemsize for tensor in plane.space.tensors)
    moving = sum(tensor.size * direction_dtype(tensor.dtype).itemsize for tensor in plane.space.trainable)
    grids = len(data.metrics) + (settings.sampling == "adaptive")
    plan = pool.description.plan
    tasks = checkpoint_tasks(plane, data)
    points = data.status_counts[PointStatus.PENDING] + len(tasks)
    passes = 0
    if pass_cost is not None:
        # Each set of weights that is off the plane takes a pass of its own.
        states = sum(isinstance(task, StateTask) for task in tasks)
        passes = states + math.ceil((points - states) / pass_cost.points)
        seconds_per_point = pass_cost.point
    return Forecast(
        points=points,
        sampling=settings.sampling,
        seconds_per_point=seconds_per_point,
        workers=pool.workers,
        memory=everything + (1 + plane.dimension) * moving,
        disk=_FILE_BASE + data.status.size * (8 * grids + 1),
        budget=settings.seconds,
        details=plan.details and f"{plan.reason}, {plan.details}",
        passes=passes,
        seconds_per_pass=0.0 if pass_cost is None else pass_cost.reading,
    )


def fewest_points(points: int, sampling: str) -> int:
    """Returns the smallest number of a grid's points that are measured."""
    return min(points, _FIRST_GRID + int(points * _CHECKED_SHARE)) if sampling == "adaptive" else points


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
