"""Measures a few checkpoints of a run with callback_fn, as a landscape of it would be measured."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectors.shapes import Float64
from collectors.weights.aligned import AlignedState
from workers.errors import CallbackFunctionError
from workers.evaluator import EvaluatorDescription
from workers.measuring.checks import check_determinism
from workers.metric_names import MetricName
from workers.pool import StateTask
from workers.pools.devices import WorkerLayout
from workers.pools.open_pool import where_it_runs

from ..curvature.experiment import find_out_how_losses_add_up, openers
from ..errors import error_message
from ..record.workers import open_workers
from .logged import MeasuredLoss


@dataclass(frozen=True)
class MeasuredRun:
    """A few checkpoints of a run, measured."""

    description: EvaluatorDescription
    # By the name of the data set, the main one first, and the checkpoint's number; of a sum, of one sample.
    losses: Mapping[str, Mapping[int, MeasuredLoss]]
    # How much each sample of the main data set counts in its mean; None where it is a sum, or not known.
    weights: Float64[np.ndarray, " samples"] | None
    is_sum: bool  # whether the loss is known to be a sum over samples


def measure_run(
    callback_fn: Callable[[], Any], states: Mapping[int, AlignedState], chosen: Mapping[str, Any]
) -> MeasuredRun:
    """Measures with a pool of its own; raises a NondeterministicLossError or CallbackFunctionError where it cannot."""
    with open_workers(callback_fn, {**chosen, "compile": False}, points=len(states)) as pool:
        find_out_how_losses_add_up(pool, states)
        check_determinism(pool.measure_origin(), pool.description.options.precision)
        own = chosen["buffers"] != "recalibrate"
        tasks = [StateTask(number, *openers(state, own_buffers=own)) for number, state in states.items()]
        found: dict[Any, dict[str, float]] = {}
        for result in pool.run(tasks):
            if result.values is None:
                reason = error_message(result.error or "")
                raise CallbackFunctionError(f"checkpoint {result.key} cannot be measured: {reason}")
            found[result.key] = result.values
        sums = pool.sample_losses([(0.0,)])
        description = pool.description
    is_sum = sums is not None and sums.denominators is None
    losses = {
        name: {number: _loss(found[number], name if place else "", count if is_sum else 1) for number in states}
        for place, (name, count) in enumerate(sample_counts(description))
    }
    return MeasuredRun(description, losses, None if sums is None else sums.denominators, is_sum)


def one_device(device_ids: tuple[int, ...] | None) -> list[int] | None:
    """Returns the first of the devices; None where that is what is meant by None, as a Mac's GPU or a cluster."""
    where, devices, _ = where_it_runs(device_ids, WorkerLayout(), None)
    if where in ("in process", "cluster"):
        return None if device_ids is None else list(device_ids)
    return list(devices[:1])


@contextmanager
def warnings_as_texts() -> Iterator[list[str]]:
    """Gives the texts of what workers warn of meanwhile, each once, when it ends."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += dict.fromkeys(str(item.message) for item in caught if item.category is UserWarning)


def sample_counts(description: EvaluatorDescription) -> list[tuple[str, int]]:
    """Returns the name of each data set, "" where there is one alone, and how many samples are read of it."""
    return [(item.name, item.num_samples) for item in description.datasets] or [("", description.num_samples)]


def _loss(values: Mapping[str, float], data_set: str, parts: int) -> MeasuredLoss:
    names = [str(MetricName(quantity, dataset=data_set)) for quantity in ("loss", "loss_stderr")]
    return MeasuredLoss(*(values.get(name, math.nan) / parts for name in names))
