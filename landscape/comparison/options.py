"""The options of ``compare``, with their defaults and explanations."""

from __future__ import annotations

import os
from typing import TypedDict

from workers.measurement_plan import MeasurementPlan

from ..record.options import EXPLANATIONS as OF_SURVEYS
from ..record.options import explanations_of


class CompareOptions(TypedDict, total=False):
    """How recipes are compared; all of it may be left out.

    Attributes:
        rise: the rise to which "radius_of_rise" says how far it is, in units of the loss.
        trace_lines: random lines for the trace of each network's Hessian, from losses alone in any framework; 0
            measures none.
        budget: how long the call may take: seconds, or text such as "30min". Lines that are not measured by then are
            pending; the same call continues.
        overwrite: whether a comparison file of another identity is replaced.
        dry_run: whether only the forecast is printed: how many points, and how long they would take.
    """

    rise: float
    trace_lines: int
    samples: str
    buffers: str
    recalibration_batch_size: int
    precision: str
    seed_each_point: bool
    budget: float | str | None
    overwrite: bool
    progress: bool
    plan: MeasurementPlan | str | os.PathLike[str] | None
    sample_memory: int | str
    compile: bool | str
    devices_per_worker: int
    workers_per_device: int
    address: str | None
    dry_run: bool


DEFAULTS: CompareOptions = {
    "rise": 0.1, "trace_lines": 0, "samples": "first", "buffers": "fixed", "recalibration_batch_size": 256,
    "precision": "float32", "seed_each_point": False, "budget": None, "overwrite": False, "progress": True,
    "plan": None, "sample_memory": "auto", "compile": "auto", "devices_per_worker": 1, "workers_per_device": 1,
    "address": None, "dry_run": False,
}  # fmt: skip
BUFFERS = ("fixed", "recalibrate")

EXPLANATIONS = {
    **{name: OF_SURVEYS[name] for name in DEFAULTS if name in OF_SURVEYS},
    **explanations_of(CompareOptions),
    "buffers": '"fixed" (each network\'s own) or "recalibrate" (normalization statistics are computed at each point).',
    "seed": "of the directions, of a random choice of samples, and of the bootstrap.",
}
