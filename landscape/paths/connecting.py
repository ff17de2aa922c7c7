"""Finds a curve between two networks along which the loss stays low."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collectors.files.places import AnyPath
from workers.curves.curve import FittingSettings

from ..planes.from_weights import line_between
from ..record.driver import carry_out, open_record
from ..record.run import Run
from ..record.workers import Workers
from .fitting import CURVE_FILE, CurveExperiment
from .path import Path


def fit_curve(
    ends: tuple[Any, Any],
    names: Sequence[str] | None,
    callback_fn: Callable[[], Any],
    settings: FittingSettings,
    path: AnyPath | None,
    chosen: Mapping[str, Any],
) -> Path | None:
    """Fits a curve between two networks; None after a dry run."""
    run = Run.checked(chosen)

    def experiments(workers: Workers) -> list[CurveExperiment]:
        return [CurveExperiment(line_between(*ends, network=workers.space, names=names), settings)]

    with open_record(CURVE_FILE, path, run) as stored:
        # Gradients are computed eagerly.
        fitted = carry_out(experiments, [stored], callback_fn, {**chosen, "compile": False}, run)
    return Path(*fitted[0]) if fitted else None
