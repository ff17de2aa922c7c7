"""``connect``: finds a curve between two networks along which the loss stays low."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collectors.files.places import AnyPath
from collectors.progress_bar import progress_bar
from collectors.weights.aligned import Weights
from workers.curves.curve import CurveShape, CurveTask, Fitting, FittingSettings
from workers.measurement_plan import MeasurementPlan
from workers.pool import Pool
from workers.pools.first_call import FirstCall

from ..planes.from_checkpoints import with_effective_weights
from ..planes.from_weights import line_between
from ..planes.plane import Plane
from ..record.identity import check_identity, identity_of
from ..record.lock import lock_landscape
from ..record.run import Run, budget_text
from ..record.workers import continued_plan, open_workers
from ..record.writer import output_file
from ..replacing import check_replaceable_tensors
from .path import Path
from .path_file import PATH, FittedCurve, read_path, write_path

KEEP_SECONDS = 5.0
"""How much of a fitting a kill may cost."""


def connect(
    a: Weights,
    b: Weights,
    callback_fn: Callable[[], Any],
    kind: str = "bezier",
    bends: int = 1,
    steps: int = 500,
    learning_rate: float = 0.01,
    batch_size: int = 64,
    seed: int = 0,
    *,
    names: Sequence[str] | None = None,
    device_ids: list[int] | None = None,
    output: str | os.PathLike[str] | None = None,
    num_samples: int | Mapping[str, int | None] | None = None,
    overwrite: bool = False,
    progress: bool = True,
    budget: float | str | None = None,
    plan: MeasurementPlan | str | os.PathLike[str] | None = None,
    sample_memory: int | str = "auto",
    address: str | None = None,
) -> Path:
    """Fits a curve between two networks, so that the loss along it is low on average.

    Its bends begin on the straight line and follow the gradient of the loss at random places of the curve, by Adam with
    a rate that falls linearly to zero. The gradient of a bend is its share in the point times the gradient there, which
    any PyTorch network has. Layers compute as in evaluation, but BatchNorm with the statistics of each batch.

    Args:
        a: weights of the first network: a network, a state dict, or the path of a file of weights.
        b: those of the last one.
        callback_fn: takes no argument, returns (model, network, dataset, metrics) of PyTorch. Of several data sets the
            first one is used.
        kind: "bezier" (a smooth curve) or "polygon" (straight from bend to bend).
        bends: how many control points there are between the networks.
        steps: of Adam.
        learning_rate: of its first step.
        batch_size: samples of a step; a loss that belongs to its batches gets those of the data set.
        seed: of places and batches.
        names: what pictures call the two; by default the names of files, or "a" and "b".
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; one of them fits the curve.
        output: the path's file (.safetensors), or its fsspec URL; None keeps it in memory. The bends are written every
            few seconds, and the same call goes on from there, with the same bits.
        num_samples: samples that batches are taken from; None means all of the data set.
        overwrite: whether a file of another path is replaced.
        progress: whether a bar is shown.
        budget: how long the call may take: seconds, or text such as "30min". The path is then fitted as far as it came,
            and the same call continues.
        plan: a ``MeasurementPlan`` (a path's is ``path.measurement_plan``), or the landscape file whose plan is used;
            by default that of the path which is continued, or one that is chosen. The same plan gives the same bits.
        sample_memory: as of ``evaluate``.
        address: of a Ray cluster to join; "local" starts a private Ray.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        PlaneError: both networks are the same.
        CurveError: the loss is not finite on the curve, or there are no gradients.
        LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.

    Source: Garipov, Izmailov, Podoprikhin, Vetrov, Wilson 2018; Draxler, Veschgini, Salmhofer, Hamprecht 2018.
    """
    settings = FittingSettings(CurveShape(kind, bends), steps, learning_rate, batch_size, seed)
    run = Run.checked({"budget": budget, "overwrite": overwrite, "progress": progress})
    path = None if output is None else output_file(output, (a, b))
    if path is not None and run.overwrite:
        check_replaceable_tensors(path, PATH.word, PATH.format)
    call = FirstCall(callback_fn, {"device_ids": device_ids, "address": address})
    line = line_between(a, b, network=call.space, names=names)
    with contextlib.ExitStack() as stack:
        if path is not None:
            stack.enter_context(lock_landscape(path, PATH))
        stored = None if path is None or overwrite or not path.exists() else read_path(path)
        if plan is None and stored is not None and path is not None:
            plan = continued_plan(stored.plan, path)
        how = {
            "num_samples": num_samples, "seed": seed, "device_ids": device_ids, "address": address,
            # Other threads would give other last digits.
            "sample_memory": sample_memory, "compile": False, "plan": plan,
        }  # fmt: skip
        pool = stack.enter_context(open_workers(call, how))
        pool.load(line.origin, line.directions, line.buffers)
        curve = _new_curve(pool, line, settings)
        if stored is not None and path is not None:
            check_identity(stored.identity, curve.identity, path, kind=PATH)
            curve = replace(stored, plan=curve.plan)
        return Path(_fitted(pool, line, curve, path, run))


def _new_curve(pool: Pool, line: Plane, settings: FittingSettings) -> FittedCurve:
    readers = with_effective_weights(line.checkpoints, line.space)
    first, last = ({tensor.name: reader.read(tensor.name) for tensor in line.space.tensors} for reader in readers)
    samples = identity_of(pool.description, ("samples",))["samples"]
    nothing = np.zeros((settings.shape.bends, 0))
    before = Fitting(0, nothing, nothing, nothing, np.zeros(0))
    a, b = line.networks
    plan = pool.description.plan.to_json()
    return FittedCurve(line.space, first, last, (a.name, b.name), (a.sha256, b.sha256), settings, samples, before, plan)


def _fitted(pool: Pool, line: Plane, curve: FittedCurve, path: AnyPath | None, run: Run) -> FittedCurve:
    """Returns the curve after all its steps, or when the time is up, written to its file on the way."""
    settings, begun = curve.settings, curve.fitting if curve.fitting.step else None
    parameters = [tensor.name for tensor in line.space.parameters]
    first, last = ({name: state[name] for name in parameters} for state in (curve.first, curve.last))
    buffers = {tensor.name: curve.first[tensor.name] for tensor in line.space.buffers}
    bar = progress_bar(settings.steps, "step", shown=run.progress, done=curve.fitting.step, name="curve")
    with bar:
        task = CurveTask(settings, first, last, buffers, next(iter(line.end_buffers), {}))
        seconds = KEEP_SECONDS if run.budget is None else min(KEEP_SECONDS, run.budget)
        for fitting in pool.fit_curve(task, begun, seconds):
            bar.update(fitting.step - curve.fitting.step)
            curve = replace(curve, fitting=fitting)
            if path is not None:
                write_path(path, curve)
            if run.is_late and not curve.complete:
                ended = f"the fitting after {fitting.step} of {settings.steps} steps"
                warnings.warn(budget_text(run.budget, ended, kept=path is not None), stacklevel=3)
                break
    return curve
