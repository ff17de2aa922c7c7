"""What a survey will cost, estimated before it begins."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collectors.files.places import AnyPath
from collectors.networks.weight_space import direction_dtype, numpy_dtype
from workers.hardware import free_memory, size_text
from workers.pool import Pool
from workers.users_code import warn_user

from ..planes.axis_curvature import BOTTOM
from ..planes.plane import Plane
from ..record.driver import cost_text
from ..record.option import Share
from ..record.run import Cost, MeasurementReport, duration_text
from ..sampling.adaptive_sampling import AdaptiveSampling
from ..sampling.tolerance import HELD_OUT_SHARE

# How long a product takes, in forward passes over all samples.
_PASSES_FOR_A_PRODUCT = (4, 7)


@dataclass(frozen=True)
class Forecast:
    """What a survey will cost.

    Attributes:
        points: how many are still to be measured, the checkpoints' included.
        sampling: "full" or "adaptive", which measures fewer.
        seconds_per_point: measured, on one worker.
        workers: how many measure at once.
        memory: bytes that the plane takes on every worker, beside the network and the samples.
        disk: bytes of the landscape file, the losses of samples that it keeps uncompressed.
        process_memory: bytes that a worker's process takes in all, libraries included; 0 where the system does not say.
        budget: seconds after which nothing new is begun, or None.
        spent: seconds of the budget that were spent before the forecast was made.
        coarse: how many of the points are the coarse grid's, which come first, and without which nothing is
            interpolated.
        path: how many are the checkpoints', which come next.
        fewest: how many adaptive sampling measures of the points, the checkpoints' included, on a smooth surface.
        plan: how the points are measured, in words, and why so.
        passes: how often the samples are read, where they do not fit into memory and are read anew in each pass.
        seconds_per_pass: of reading them once.
        seconds_of_extremes: of a point's seconds, those of the ends of the Hessian's spectrum.
        products: with the Hessian, that these took at the origin.
    """

    points: int
    sampling: str
    seconds_per_point: float
    workers: int
    memory: int
    disk: int
    process_memory: int = 0
    budget: float | None = None
    spent: float = 0.0
    coarse: int = 0
    path: int = 0
    fewest: int = 0
    plan: str = ""
    passes: int = 0
    seconds_per_pass: float = 0.0
    seconds_of_extremes: float = 0.0
    products: int = 0

    @property
    def seconds(self) -> float:
        """Wall time of measuring every point."""
        return self._seconds(self.points)

    @property
    def cost(self) -> Cost:
        """In words, with the least and the most seconds."""
        return Cost.of(
            str(self), self._seconds(self.fewest if self.sampling == "adaptive" else self.points), self.seconds
        )

    def __str__(self) -> str:
        time = f"about {duration_text(self.seconds)}"
        if self.sampling == "adaptive":
            fewest = self._seconds(self.fewest)
            time = f"at most {duration_text(self.seconds)} (adaptive sampling: from {duration_text(fewest)} upwards)"
        parts = f" ({self.points - self.path:,} of the grid, {self.path:,} losses of checkpoints)" if self.path else ""
        process = f", whose process takes {size_text(self.process_memory)}" if self.process_memory else ""
        text = (
            f"{cost_text(self.points, 'point', self.seconds_per_point, self.workers, time)}{parts}; "
            f"{size_text(self.memory)} of memory for the plane on each worker{process}; {size_text(self.disk)} on disk"
        )
        if self.passes:
            times = "once" if self.passes == 1 else f"{self.passes:,} times"
            each = f", {duration_text(self.seconds_per_pass)} each" if self.passes > 1 else ""
            text += f"; the samples exceed sample_memory and are read {times} more{each}"
        if self.products:
            loss = max(self.seconds_per_point - self.seconds_of_extremes, 1e-9)
            text += (
                f"; of each point {duration_text(self.seconds_of_extremes)} are the ends of the Hessian's spectrum "
                f"({self.products} products at the origin): {self.seconds_per_point / loss:.0f} times its loss alone"
            )
        if self.budget is not None and self.points and self.budget - self.spent < self.seconds:
            text += f"; {self._limited(self.budget)}"
        return f"{text}; in {self.plan}" if self.plan else text

    def _limited(self, budget: float) -> str:
        """Returns what a budget that is too short for everything suffices for."""
        count = int(self.points * max(0.0, budget - self.spent) / self.seconds)
        latest = " at the latest" if self.sampling == "adaptive" and count >= self.coarse + self.path else ""
        points = f"{count:,} point{'' if count == 1 else 's'}"
        text = f"the budget ends it after {duration_text(budget)}{latest}, about {points}: "
        if count < self.coarse:
            return f"{text}too few for the coarse grid of {self.coarse}, without which nothing is interpolated"
        if count < self.coarse + self.path:
            return f"{text}the coarse grid and {count - self.coarse} of {self.path} losses of checkpoints"
        done = [name for name, size in (("the coarse grid", self.coarse), ("the checkpoints", self.path)) if size]
        return f"{text}{', '.join([*done, f'{count - self.coarse - self.path:,} others'])}"

    def _seconds(self, points: int) -> float:
        passes = math.ceil(self.passes * points / self.points) if self.points else 0
        return (points * self.seconds_per_point + passes * self.seconds_per_pass) / self.workers


@dataclass(frozen=True)
class SurveyReport(MeasurementReport):
    """What one landscape cost; checkpoints count as points, and so does the origin.

    Attributes:
        forecast: what it was expected to cost.
    """

    forecast: Forecast

    @property
    def points_per_second(self) -> float:
        """Measurements per second of wall time."""
        return self.measured / self.seconds if self.seconds else 0.0


def eigenvectors_cost(which: Sequence[str], seconds_per_point: float) -> Cost:
    fewest, most = (20, 90) if BOTTOM in which else (8, 25)
    shortest, longest = _PASSES_FOR_A_PRODUCT
    least, longest_of_all = (seconds_per_point * count for count in (fewest * shortest, most * longest))
    text = (
        f"before that its directions, the eigenvectors {' and '.join(which)}: about {fewest} to {most} products, each "
        f"as long as {shortest} to {longest} points; {duration_text(least)} to {duration_text(longest_of_all)}"
    )
    return Cost.of(text, least, longest_of_all)


def plane_bytes(plane: Plane) -> int:
    everything = sum(tensor.size * numpy_dtype(tensor.dtype).itemsize for tensor in plane.space.tensors)
    moving = sum(tensor.size * direction_dtype(tensor.dtype).itemsize for tensor in plane.space.trainable)
    return everything + (1 + plane.dimension) * moving


def warn_of_shortage(plane: Plane, pool: Pool) -> None:
    """Warns where this machine's memory does not hold a plane as often as the workers need it."""
    size, free, copies = plane_bytes(plane), free_memory(), pool.copies_of_planes
    if size * copies <= free:
        return
    fitting = int(free / size) - 1
    remedies = [f"pass at most {fitting} of device_ids"] if 0 < fitting < pool.workers else []
    remedies += ["measure a line instead of a plane"] if plane.dimension > 1 else []
    of_all = f", once on each of {pool.workers} workers and once for all of them" if copies > 1 else ""
    warn_user(
        f"the plane takes {size_text(size * copies)} of this machine's memory{of_all}, but no more than "
        f"{size_text(free)} seem to be free, so the system may end workers or become slow; "
        f"{', '.join([*remedies, 'or use a machine with more memory' if remedies else 'use a machine with more'])}."
    )


def warn_of_full_disk(path: AnyPath | None, size: int) -> None:
    if not isinstance(path, Path):
        return
    try:
        free = shutil.disk_usage(path.parent).free + (path.stat().st_size if path.exists() else 0)
    except OSError:  # such a disk says what it lacks where it is written to
        return
    if size > free:
        warn_user(
            f"{path.name} will have up to {size_text(size)}, but its disk has {size_text(free)} for it; give output= a "
            "path on a larger one, keep no losses of samples (keep_samples), or measure fewer points (size)."
        )


def fewest_points(shape: tuple[int, ...], sampling: str, share: Share | None = None) -> int:
    """Returns the least number that "full" or "adaptive" sampling measures of a grid's points, or of their share."""
    points = math.prod(shape)
    if sampling != "adaptive":
        return math.ceil(points / (1 if share is None else share.count))
    begun = len(AdaptiveSampling(shape).next_points(np.full(shape, np.nan), np.zeros(shape, np.uint8)))
    return begun + math.ceil((points - begun) * HELD_OUT_SHARE)
