"""Which options each measurement takes, as type checkers see them; ``OPTIONS`` explains each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from workers.measurement_plan import MeasurementPlan


class LossOptions(TypedDict, total=False):
    """Where a loss is measured and for how long, over which samples, in place of which file."""

    devices_per_worker: int
    workers_per_device: int
    address: str | None
    budget: float | str | None
    progress: bool
    plan: MeasurementPlan | str | os.PathLike[str] | None
    sample_memory: int | str
    seed: int
    samples: str
    seed_each_point: bool
    overwrite: bool
    dry_run: bool


class _SurfaceOptions(LossOptions, total=False):
    """What is measured at a point, and in which arithmetic."""

    groups: str | Callable[[Any, Any], Any] | None
    extremes: bool
    keep_samples: bool
    buffers: str
    recalibration_batch_size: int
    precision: str
    compile: bool | str


class MeasureOptions(_SurfaceOptions, total=False):
    """What ``Measure`` holds for all that it measures; ``OPTIONS`` explains each."""

    num_samples: int | Mapping[str, int | None] | None
    device_ids: list[int] | None


class SamplingOptions(TypedDict, total=False):
    """Which points of a grid are measured, and whether its plane is kept."""

    sampling: str
    tolerance: float
    relative_tolerance: bool
    save_directions: bool


class GridOptions(SamplingOptions, total=False):
    """Where a grid ends and which share of it is measured, beside ``SamplingOptions``."""

    limits: Sequence[float] | None
    margin: float | None
    share: str | None


class ChangeOptions(TypedDict, total=False):
    """Which points are measured on another grid. All else, the file says."""

    sampling: str | None
    tolerance: float | None
    relative_tolerance: bool | None


class RunOptions(_SurfaceOptions, GridOptions, total=False):
    normalization: str
    perturb_one_dimensional: bool
    centering: str
    directions: str
    which: str | Sequence[str]
    rise: float
    name: str | None
    also: Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]] | None
    plane_of: str


class CurvatureOptions(TypedDict, total=False):
    top: int
    bottom: int
    matrix: str
    trace_probes: int
    density_probes: int
    density_steps: int
    tolerance: float
    max_products: int
    keep_vectors: bool


class ReportOptions(LossOptions, total=False):
    num_samples: int | Mapping[str, int | None] | None
    device_ids: list[int] | None
    name: str | None


class RunCurvatureOptions(CurvatureOptions, ReportOptions, total=False):
    """What is measured at the checkpoints of a run, beside what a report takes."""


class CheckOptions(TypedDict, total=False):
    """How the loss is measured: as in the measurement that the check is for."""

    num_samples: int | Mapping[str, int | None] | None
    device_ids: list[int] | None  # of which the first one measures
    seed: int
    samples: str
    buffers: str
    seed_each_point: bool
    sample_memory: int | str


class EigenvectorOptions(TypedDict, total=False):
    which: str | Sequence[str]
    matrix: str
    rise: float
    tolerance: float
    max_products: int


class CompareOptions(TypedDict, total=False):
    directions: int
    points: int
    radius: float
    normalization: str
    confidence: float
    rise: float
    trace_lines: int
