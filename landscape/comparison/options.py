"""The options of ``compare``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..record.options import OPTIONS, LossOptions, Option, WorkerOptions, at_least


class CompareOptions(WorkerOptions, LossOptions, total=False):
    """How recipes are compared; ``COMPARISON_OPTIONS`` explains each."""

    rise: float
    trace_lines: int
    buffers: str
    recalibration_batch_size: int
    precision: str
    compile: bool | str
    dry_run: bool


COMPARISON_OPTIONS: Mapping[str, Option] = {
    "rise": Option(0.1, None, 'the rise to which "radius_of_rise" says how far it is, in units of the loss.'),
    "trace_lines": Option(0, at_least(0), "random lines for the trace of each network's Hessian, from losses alone in "
        "any framework; 0 measures none."),
    **{name: option for name, option in OPTIONS.items() if name != "rise"},
    "seed": replace(OPTIONS["seed"], text="of the directions, of a random choice of samples, and of the bootstrap."),
    "buffers": Option("fixed", ("fixed", "recalibrate"), '"fixed" (each network\'s own) or "recalibrate" '
        "(normalization statistics are computed at each point)."),
    "budget": replace(OPTIONS["budget"], text='how long the call may take: seconds, or text such as "30min". Lines '
        "that are not measured by then are pending; the same call continues."),
    "overwrite": replace(OPTIONS["overwrite"], text="whether a comparison file of another identity is replaced.",
        flags=("--overwrite",)),
}  # fmt: skip
