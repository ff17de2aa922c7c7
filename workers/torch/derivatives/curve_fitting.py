"""Fits the bends of a curve between two networks, on the user's own network."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.modules.batchnorm import _NormBase

from collectors.networks.batches import call_network
from collectors.networks.buffers_between import BuffersBetween
from collectors.networks.torch_network import named_tensors, to_tensor
from collectors.networks.weight_space import State, WeightSpace

from ...curves.curve import CurveTask, Fitting, FittingSettings
from ...errors import CurveError, closing_on_failure
from ...samples.batches import Batch
from ...samples.samples import Samples
from ..placement import Placement
from ..settings import normalization_layers
from ..snapshot import collapsed, values_kept
from .network import DifferentiatedNetwork, MovedNetwork
from .second_order import CHANGED_IN_PLACE, changes_in_place, twice_differentiable

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class CurveSamples:
    """Gives a step's batch: samples in the epoch's order, or a whole batch of the data set's where they are kept."""

    def __init__(self, samples: Samples, keeps_batches: bool, settings: FittingSettings) -> None:
        self._samples, self._settings, self._keeps_batches = samples, settings, keeps_batches
        self._size = min(settings.batch_size, samples.count)
        # What is left over at the end of an epoch is left out, so that all batches have one size.
        self._in_epoch = len(samples.own_batches) if keeps_batches else samples.count // self._size
        self._epoch, self._order = -1, np.zeros(0, np.int64)

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


class CurveFitter(MovedNetwork):
    """A network that is moved along a curve whose bends follow the gradient of the loss (Garipov et al. 2018)."""

    def __init__(self, network: DifferentiatedNetwork, samples: CurveSamples, task: CurveTask) -> None:
        super().__init__(network)
        self._samples, self._task = samples, task
        self._norms = normalization_layers(network.module)
        with closing_on_failure(self):
            if self._norms and samples.batch(0)[0].size < 2:
                raise CurveError(
                    "BatchNorm needs batches of at least two samples for its statistics; raise batch_size, or let the "
                    "data set give larger batches."
                )
            self.move(task.first, task.buffers)
            self._ends = [self._flat(state) for state in (task.first, task.last)]
            # The buffers that change along the curve; normalization computes with none here.
            statistics = {id(buffer) for layer in self._norms for buffer in layer.buffers()}
            infos = tuple(info for info, tensor in named_tensors(network.module) if id(tensor) not in statistics)
            space = WeightSpace("torch", type(network.module).__name__, infos)
            self._between = BuffersBetween(space, task.buffers, [task.end_buffers] if task.end_buffers else [])

    def fit(self, begun: Fitting | None, seconds: float) -> Fitting:
        """Makes steps until all are done or the seconds are over, one at least; None begins on the straight line."""
        settings, device = self._task.settings, self._ends[0].device
        held = self._straight() if begun is None else begun
        bends, first, second = (
            torch.from_numpy(np.array(array)).to(device) for array in (held.bends, held.first, held.second)
        )
        losses, step, stop = held.losses.tolist(), held.step, time.perf_counter() + seconds
        with self._computing():
            while step < settings.steps:
                t = settings.place(step)
                loss, slopes = self._gradient(bends, t, *self._samples.batch(step))
                losses.append(self._checked(loss, slopes, t, step))
                # As Adam does (Kingma and Ba 2015); what it keeps is plain, so that it travels and is stored.
                first.lerp_(slopes, 1 - _BETAS[0])
                second.mul_(_BETAS[1]).addcmul_(slopes, slopes, value=1 - _BETAS[1])
                rate = settings.learning_rate * (1 - step / settings.steps)
                corrected = second.div(1 - _BETAS[1] ** (step + 1)).sqrt_().add_(_EPSILON)
                bends.addcdiv_(first, corrected, value=-rate / (1 - _BETAS[0] ** (step + 1)))
                step += 1
                if time.perf_counter() > stop:
                    break
        found, means, squares = (item.cpu().numpy() for item in (bends, first, second))
        return Fitting(step, found, means, squares, np.array(losses, np.float64))

    def gradient(self, bends: NDArray[Any], t: float, batch: Batch) -> tuple[float, NDArray[Any]]:
        """Returns a batch's loss at t (0 to 1) of the curve, and its gradient by the bends, shape (bends, weights)."""
        with self._computing():
            loss, slopes = self._gradient(torch.from_numpy(np.array(bends)).to(self._ends[0].device), t, batch, 0)
            return float(loss), slopes.cpu().numpy()

    def _straight(self) -> Fitting:
        count = self._task.settings.shape.bends
        shares = [number / (count + 1) for number in range(1, count + 1)]
        first, last = self._ends
        bends = torch.stack([first + share * (last - first) for share in shares]).cpu().numpy()
        return Fitting(0, bends, np.zeros_like(bends), np.zeros_like(bends), np.zeros(0))

    def _flat(self, state: State) -> torch.Tensor:
        device, dtype = self._weights.own[0].device, getattr(torch, self.layout.dtype)
        parts = [np.asarray(state[name]).astype(self.layout.dtype).reshape(-1) for name in self.layout.names]
        return torch.from_numpy(np.concatenate(parts)).to(device, dtype)

    def _place(self, shares: torch.Tensor, bends: torch.Tensor) -> None:
        """Moves the network to the point with these shares of the control points."""
        point = shares[0] * self._ends[0] + shares[-1] * self._ends[1] + shares[1:-1] @ bends
        with torch.no_grad():
            for target, part in zip(self._weights.own, torch.split(point, self.layout.sizes), strict=True):
                target.copy_(part.view(target.shape))
            if self._between.names:
                # The bends have the first network's.
                for name, values in {**self._between.networks[0], **self._between.at([float(shares[-1])])}.items():
                    target = self._tensors[name]
                    collapsed(target).copy_(collapsed(to_tensor(values), target))

    def _gradient(self, bends: torch.Tensor, t: float, batch: Batch, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a batch's loss at a place of the curve, and its gradient by the bends, shape (bends, weights)."""
        shares = torch.from_numpy(self._task.settings.shape.weights(t)[0]).to(bends.dtype).to(bends.device)
        self._place(shares, bends)
        self._network.start_batch(number)
        batch = self._fitting(batch)
        outputs = call_network(self._network.forward, batch.inputs)
        loss, weight = self._network.total.differentiable(outputs, batch)
        if weight is not None:
            loss = loss / weight
        if not loss.requires_grad or (weight is not None and float(weight) == 0):
            return loss.detach().new_zeros(()), torch.zeros_like(bends)  # padding alone teaches nothing
        slope = self._weights.flat(self._weights.gradient(loss)).to(bends.dtype)
        # The gradient by a bend is that by the point's weights, times the bend's share of the point.
        return loss.detach(), shares[1:-1, None] * slope

    def _checked(self, loss: torch.Tensor, slopes: torch.Tensor, t: float, step: int) -> float:
        value = float(loss)
        if not math.isfinite(value) or not bool(torch.isfinite(slopes).all()):
            raise CurveError(
                f"the loss or its gradient is not finite at t = {t:.3f} of the curve, in step {step + 1} of "
                f"{self._task.settings.steps} (loss {value:g}). Use a lower learning_rate (it is "
                f"{self._task.settings.learning_rate:g}); if it is step 1, look at the loss on the straight line first "
                "(Measure.barrier)."
            )
        return value

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        network = self._network
        with (
            network.settings(),
            twice_differentiable(network.module, network.devices),
            _batch_statistics(self._norms),
        ):
            try:
                yield
            except RuntimeError as error:
                if not changes_in_place(error):
                    raise
                raise CurveError(f"{CHANGED_IN_PLACE}.") from error


def check_fitting(placement: Placement, samples: Samples) -> None:
    """Raises CurveError where a network is not on one device, or its samples are not there."""
    if placement.is_kept or samples.passes is not None:
        raise CurveError(
            "a curve is fitted on one device, with samples that are held there: let callback_fn put the network on "
            "one device, use fewer samples (num_samples), or allow more memory (sample_memory)."
        )


@contextlib.contextmanager
def _batch_statistics(layers: list[_NormBase]) -> Iterator[None]:
    """Lets normalization layers compute with the statistics of each batch; their own stay as they are."""
    with values_kept(buffer for layer in layers for buffer in layer.buffers()):
        try:
            for layer in layers:
                layer.train()
            yield
        finally:
            for layer in layers:
                layer.eval()
