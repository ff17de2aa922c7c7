"""Measures a few checkpoints of a run as a landscape of it would be, and compares them with what training logged."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectors.errors import CheckpointError
from collectors.networks.batches import leaves, length_of
from collectors.networks.weight_space import some_names
from collectors.shapes import Float64
from collectors.weights.aligned import AlignedState
from workers.errors import CallbackFunctionError
from workers.evaluator import EvaluatorDescription
from workers.measuring.checks import check_determinism
from workers.metric_names import MetricName
from workers.pool import StateTask
from workers.pools.devices import WorkerLayout
from workers.pools.open_pool import where_it_runs

from ..curvature.experiment import find_out_how_losses_add_up
from ..errors import error_message
from ..grid.tasks import openers
from ..record.workers import open_workers
from .diagnosis import ComparedLoss

# Around a checkpoint, a sixth of the logged losses: further away the weights are others.
_FEWEST, _MOST, _SHARE = 3, 16, 6
# Of one comparison; several must agree. Few batches know little of their own spread, which Student's t allows for.
_CONFIDENCE = 0.998
# Of the loss, and of how far it fell in the whole training: running statistics of BatchNorm alone make so much.
_OF_LOSS, _OF_FALL = 0.25, 0.02
_LEFT = 0.3


@dataclass(frozen=True)
class MeasuredLoss:
    mean: float  # of a sum, that of one sample
    stderr: float  # NaN where samples have no losses of their own


@dataclass(frozen=True)
class MeasuredRun:
    description: EvaluatorDescription
    # By the name of the data set, the main one first, and the checkpoint's number; of a sum, of one sample.
    losses: Mapping[str, Mapping[int, MeasuredLoss]]
    # How much each sample of the main data set counts in its mean; None where it is a sum, or not known.
    weights: Float64[np.ndarray, " samples"] | None
    is_sum: bool  # whether the loss is known to be a sum over samples
    last: int  # number of the last checkpoint with finite weights

    @property
    def main(self) -> Mapping[int, MeasuredLoss]:
        return next(iter(self.losses.values()))

    @property
    def belongs_to_batches(self) -> bool:
        """Whether the loss has no value for each sample, and is another one in other batches."""
        return self.description.partition_dependent and all(math.isnan(loss.stderr) for loss in self.main.values())


def measure_run(
    callback_fn: Callable[[], Any], states: Mapping[int, AlignedState], chosen: Mapping[str, Any]
) -> MeasuredRun:
    """Measures with a pool of its own; raises a NondeterministicLossError or CallbackFunctionError where it cannot."""
    with open_workers(callback_fn, {**chosen, "compile": False}, points=len(states)) as pool:
        last = find_out_how_losses_add_up(pool, states)
        if last is None:
            raise CheckpointError(f"none of the checkpoints {some_names(states)} has finite weights; training diverged")
        check_determinism(pool.measure_origin(), pool.description.options.precision)
        own = chosen["buffers"] != "recalibrate"
        tasks = [StateTask(number, *openers(state, state.space, own)) for number, state in states.items()]
        found: dict[Any, dict[str, float]] = {}
        for result in pool.run(tasks):
            if result.values is None:
                reason = error_message(result.error or "")
                raise CallbackFunctionError(f"checkpoint {result.key} cannot be measured: {reason}")
            found[result.key] = result.values
        sums = pool.sample_losses([(0.0,)])
        description = pool.description
    is_sum = description.is_sum or (sums is not None and sums.denominators is None)
    losses = {
        name: {number: _loss(found[number], name if place else "", count if is_sum else 1) for number in states}
        for place, (name, count) in enumerate(sample_counts(description))
    }
    return MeasuredRun(description, losses, None if sums is None else sums.denominators, is_sum, last)


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


def loss_of(result: Any) -> Any:
    return getattr(result[0], "loss_fn", result[0]) if isinstance(result, tuple | list) and len(result) == 4 else None


def samples_in(result: Any, name: str) -> int | None:
    """Returns how many samples a data set of callback_fn has; None where it does not say, or has batches."""
    data: Any = result[2] if isinstance(result, tuple | list) and len(result) == 4 else None
    if name and isinstance(data, Mapping):
        data = data.get(name)
    if isinstance(data, tuple | list):
        # A list of batches has pairs.
        is_pair = len(data) == 2 and hasattr(data[1], "shape")
        return next((len(leaf) for leaf in leaves(data) if getattr(leaf, "shape", ())), None) if is_pair else None
    if hasattr(data, "batch_sampler"):  # of a DataLoader; where it has none, its data set has batches
        return None if data.batch_sampler is None else length_of(data.dataset)
    of_torch = sys.modules.get("torch.utils.data")
    return length_of(data) if of_torch is not None and isinstance(data, of_torch.Dataset) else None


def _loss(values: Mapping[str, float], data_set: str, parts: int) -> MeasuredLoss:
    names = [str(MetricName(quantity, dataset=data_set)) for quantity in ("loss", "loss_stderr")]
    return MeasuredLoss(*(values.get(name, math.nan) / parts for name in names))


@dataclass(frozen=True)
class Comparison:
    rows: tuple[ComparedLoss, ...]
    first: int  # number of the network before training, which tells least; -1 where none is
    data_set: str = ""  # whose losses these are, where they are not the main one's

    @property
    def trained(self) -> tuple[ComparedLoss, ...]:
        return tuple(row for row in self.rows if row.number != self.first)

    @property
    def decides(self) -> bool:
        """Whether there are enough rows to tell one loss from another."""
        return len(self.trained) >= 2

    @property
    def is_higher(self) -> bool:
        """Whether the last loss and at least half of all are higher than what was logged."""
        return self._most([row.is_higher for row in self.trained]) and self.rows[-1].is_higher

    @property
    def least_factor(self) -> float:
        """Returns how many times the logged losses measured ones must be, all alike, to count as higher."""
        factors = sorted(row.least_factor for row in self.trained)
        return max(self.rows[-1].least_factor, factors[math.ceil(max(2, len(factors) / 2)) - 1])

    @property
    def is_lower(self) -> bool:
        """Whether at least half of the losses are lower than what was logged; near zero, none is lower for sure."""
        return self._most([row.is_lower for row in self.trained])

    @property
    def fits(self) -> bool:
        return self.decides and not (self.is_higher or self.is_lower)

    @property
    def misfit(self) -> float:
        return float(np.mean([abs(row.measured - row.logged) for row in self.trained]))

    def mends(self, before: Comparison) -> bool:
        """Whether the losses fit, and by more than an inch; a small constant fits within what is allowed near zero."""
        return self.fits and not self.does_not_fall and self.misfit <= _LEFT * before.misfit

    @property
    def does_not_fall(self) -> bool:
        """Whether the measured loss stays about where it was, while what was logged fell by half of its size."""
        first, last = self.rows[0], self.rows[-1]
        stays = first.measured - last.measured < 0.1 * abs(first.measured)
        return stays and first.logged - last.logged > 0.5 * abs(first.logged)

    def _most(self, verdicts: list[bool]) -> bool:
        return sum(verdicts) >= max(2, len(verdicts) / 2)


def compare(
    losses: Mapping[int, MeasuredLoss], steps: Mapping[int, int], logged: Mapping[int, float], factor: float = 1.0
) -> Comparison:
    """Compares losses with those that training logged; ``factor`` times the loss of a sample is that of a batch."""
    from scipy.special import ndtri, stdtrit

    first = min((number for number in losses if steps[number] == 0), default=-1)
    known = {step: loss for step, loss in logged.items() if math.isfinite(loss)}
    if len(known) < _FEWEST:
        return Comparison((), first)
    # The loss of a step is computed with the weights that the step before left.
    places, values = np.array(list(known), np.float64) - 1, np.array(list(known.values()), np.float64)
    count = min(max(len(known) // _SHARE, _FEWEST), _MOST)
    fall = float(np.ptp(values))
    of_batches, of_samples = stdtrit(count - 1, _CONFIDENCE), ndtri(_CONFIDENCE)
    rows = []
    for number, loss in losses.items():
        if not math.isfinite(loss.mean):
            continue
        around = values[np.argsort(np.abs(places - steps[number]), kind="stable")[:count]]
        mean, spread = float(around.mean()), float(around.std(ddof=1))
        # Where samples have no losses of their own, the batches' spread stands for the error of the measured one.
        error = spread if math.isnan(loss.stderr) else factor * loss.stderr
        noise = math.hypot(of_batches * spread / math.sqrt(count), of_samples * error)
        # Between two logged steps the weights may go to where a batch has another loss by chance.
        allowed = max(noise, spread, _OF_LOSS * abs(mean)) + _OF_FALL * fall
        ends = float(around.min()), float(around.max())
        rows.append(ComparedLoss(number, factor * loss.mean, factor * loss.stderr, mean, allowed, *ends, count))
    return Comparison(tuple(rows), first)
