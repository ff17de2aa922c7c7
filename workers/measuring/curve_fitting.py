"""Fits the bends of a curve between two networks by the gradient of the loss (Garipov et al. 2018)."""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.buffers_between import BuffersBetween
from collectors.networks.weight_space import State, WeightSpace

from ..curvature.products import Layout
from ..curves.curve import CurveTask, Fitting, FittingSettings
from ..errors import CurveError
from ..samples.batches import Batch
from ..samples.samples import Samples
from .measured_set import MeasuredSet
from .products import ArrayGradients

BETAS = (0.9, 0.999)
EPSILON = 1e-8
BARRIER_INSTEAD = "Or measure the barrier on the straight line, which needs no gradients (Measure.barrier)."


class CurveSamples:
    """Gives a step's batch: samples in the epoch's order, or a whole batch of the data set's where they are kept."""

    def __init__(self, samples: Samples, keeps_batches: bool, settings: FittingSettings) -> None:
        self._samples, self._settings, self._keeps_batches = samples, settings, keeps_batches
        self._size = min(settings.batch_size, samples.count)
        # What is left over at the end of an epoch is left out, so that all batches have one size.
        self._in_epoch = len(samples.own_batches) if keeps_batches else samples.count // self._size
        self._epoch, self._order = -1, np.zeros(0, np.int64)

    @property
    def smallest(self) -> int:
        """How many samples the smallest batch has."""
        return min(batch.size for batch in self._samples.own_batches) if self._keeps_batches else self._size

    def batch(self, step: int) -> tuple[Batch, int]:
        """Returns the batch of a step, and its number; each epoch has its own order."""
        epoch, number = divmod(step, self._in_epoch)
        if epoch != self._epoch:
            count = self._in_epoch if self._keeps_batches else self._samples.count
            self._epoch, self._order = epoch, self._settings.order(epoch, count)
        if self._keeps_batches:
            chosen = int(self._order[number])
            return self._samples.own_batches[chosen], chosen
        return self._samples.chosen(self._order[number * self._size : (number + 1) * self._size]), number


class CurveFitter(ABC):
    """A curve whose bends follow the gradient of the loss, in NumPy's arrays where a subclass has no others."""

    def __init__(self, layout: Layout, samples: CurveSamples, task: CurveTask, *, normalizes: bool) -> None:
        # ``normalizes``: whether the network computes with statistics of the batch.
        if normalizes and samples.smallest < 2:
            raise CurveError(
                "BatchNorm needs batches of at least two samples for its statistics; raise batch_size, or let the "
                "data set give larger batches."
            )
        self._layout, self._samples, self._task = layout, samples, task
        self._ends = [self._on_device(self._flat(state)) for state in (task.first, task.last)]

    def fit(self, begun: Fitting | None, seconds: float) -> Fitting:
        """Makes steps until all are done or the seconds are over, one at least; None begins on the straight line."""
        settings = self._task.settings
        fitting = self._straight() if begun is None else begun
        bends, first, second = map(self._on_device, (fitting.bends, fitting.first, fitting.second))
        losses, step, stop = fitting.losses.tolist(), fitting.step, time.perf_counter() + seconds
        with self._computing():
            while step < settings.steps:
                t = settings.place(step)
                loss, slopes = self._gradient(bends, t, *self._samples.batch(step))
                self._check(loss, slopes, t, step)
                losses.append(loss)
                rate = settings.learning_rate * (1 - step / settings.steps)
                self._follow(slopes, bends, first, second, rate, step + 1)
                step += 1
                if time.perf_counter() > stop:
                    break
        bends, first, second = map(self._on_host, (bends, first, second))
        return Fitting(step, bends, first, second, np.array(losses, np.float64))

    def gradient(self, bends: NDArray[Any], t: float, batch: Batch) -> tuple[float, NDArray[Any]]:
        """Returns a batch's loss at t (0 to 1) of the curve, and its gradient by the bends, shape (bends, weights)."""
        with self._computing():
            loss, slopes = self._gradient(self._on_device(bends), t, batch, 0)
            return loss, self._on_host(slopes)

    @abstractmethod
    def _slope(self, point: Any, share: float, batch: Batch, number: int) -> tuple[float, Any]:
        """Returns the loss of a batch with this number, and its gradient, at weights of shape (weights,).

        The buffers are those of the place with this share of the last network. A batch that weighs nothing has a
        gradient of zeros.
        """

    @abstractmethod
    def _computing(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context of all gradients."""

    def _follow(self, slopes: Any, bends: Any, first: Any, second: Any, rate: float, step: int) -> None:
        """Changes bends, first and second as Adam does (Kingma and Ba 2015), in a step counted from one."""
        first += (1 - BETAS[0]) * (slopes - first)
        second += (1 - BETAS[1]) * (slopes * slopes - second)
        corrected = (second / (1 - BETAS[1] ** step)) ** 0.5 + EPSILON
        bends -= rate / (1 - BETAS[0] ** step) * first / corrected

    def _on_device(self, array: NDArray[Any]) -> Any:
        """Returns a copy where the network is."""
        return np.array(array)

    def _on_host(self, array: Any) -> NDArray[Any]:
        return np.asarray(array)

    def _straight(self) -> Fitting:
        count = self._task.settings.shape.bends
        shares = np.arange(1, count + 1, dtype=self._layout.dtype)[:, None] / (count + 1)
        first, last = map(self._on_host, self._ends)
        bends = (first + shares * (last - first)).astype(self._layout.dtype)
        return Fitting(0, bends, np.zeros_like(bends), np.zeros_like(bends), np.zeros(0))

    def _flat(self, state: State) -> NDArray[Any]:
        parts = [np.ravel(state[name]) for name in self._layout.names]
        return np.concatenate([part.astype(self._layout.dtype) for part in parts])

    def _gradient(self, bends: Any, t: float, batch: Batch, number: int) -> tuple[float, Any]:
        shares = self._on_device(self._task.settings.shape.weights(t)[0].astype(self._layout.dtype))
        point = shares[0] * self._ends[0] + shares[-1] * self._ends[1] + shares[1:-1] @ bends
        loss, slope = self._slope(point, float(shares[-1]), batch, number)
        # The gradient by a bend is that by the point's weights, times the bend's share of the point.
        return loss, shares[1:-1, None] * slope

    def _check(self, loss: float, slopes: Any, t: float, step: int) -> None:
        if not (math.isfinite(loss) and math.isfinite(float(abs(slopes).max()))):
            raise CurveError(
                f"the loss or its gradient is not finite at t = {t:.3f} of the curve, in step {step + 1} of "
                f"{self._task.settings.steps} (loss {loss:g}). Use a lower learning_rate (it is "
                f"{self._task.settings.learning_rate:g}); if it is step 1, look at the loss on the straight line first "
                "(Measure.barrier)."
            )


def buffers_along(space: WeightSpace, task: CurveTask) -> BuffersBetween:
    """Returns the buffers that change along a curve; those of the bends are the first network's."""
    return BuffersBetween(space, task.buffers, [task.end_buffers] if task.end_buffers else [])


class ArrayCurveFitter(CurveFitter):
    """A curve whose gradients are those of ``ArrayGradients``, which stay where they were moved to last."""

    def __init__(self, products: ArrayGradients, space: WeightSpace, measured: MeasuredSet, task: CurveTask) -> None:
        samples = CurveSamples(measured.samples, measured.keeps_batches, task.settings)
        super().__init__(products.layout, samples, task, normalizes=products.normalizes_by_batch)
        self._products, self._between = products, buffers_along(space, task)

    def _slope(self, point: Any, share: float, batch: Batch, number: int) -> tuple[float, Any]:
        buffers = {**self._task.buffers, **self._between.at([share])}
        self._products.move({**self._task.first, **self._layout.as_state(point)}, buffers)
        loss, weight, slope = self._products.loss_and_gradient(batch)
        if weight == 0:
            return 0.0, np.zeros_like(point)  # padding alone teaches nothing
        return loss / (weight or 1.0), (slope / (weight or 1.0)).astype(point.dtype)

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        with (
            np.errstate(over="ignore", invalid="ignore"),
            self._products.differentiating("once", BARRIER_INSTEAD, CurveError),
        ):
            yield
