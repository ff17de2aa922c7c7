"""Fits the bends of a curve between two PyTorch networks, on the user's own network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.modules.batchnorm import _NormBase

from collectors.networks.batches import call_network
from collectors.networks.torch_network import named_tensors, to_tensor
from collectors.networks.weight_space import WeightSpace

from ...curves.curve import CurveTask
from ...errors import CurveError, closing_on_failure
from ...measuring.curve_fitting import BETAS, EPSILON, CurveFitter, CurveSamples, buffers_along
from ...samples.batches import Batch
from ...samples.samples import Samples
from ..placement import Placement
from ..settings import normalization_layers
from ..snapshot import set_values, values_kept
from .network import DifferentiatedNetwork, MovedNetwork
from .second_order import CHANGED_IN_PLACE, changes_in_place, twice_differentiable


class TorchCurveFitter(MovedNetwork, CurveFitter):
    """A curve that is fitted where the network is."""

    def __init__(self, network: DifferentiatedNetwork, samples: CurveSamples, task: CurveTask) -> None:
        MovedNetwork.__init__(self, network)
        self._norms = normalization_layers(network.module)
        with closing_on_failure(self):
            self.move(task.first, task.buffers)
            CurveFitter.__init__(self, self.layout, samples, task, normalizes=bool(self._norms))
            # The buffers that change along the curve; normalization computes with none here.
            statistics = {id(buffer) for layer in self._norms for buffer in layer.buffers()}
            infos = tuple(info for info, tensor in named_tensors(network.module) if id(tensor) not in statistics)
            self._between = buffers_along(WeightSpace("torch", type(network.module).__name__, infos), task)

    def _follow(self, slopes: Any, bends: Any, first: Any, second: Any, rate: float, step: int) -> None:
        # PyTorch's own kernels round in another way than arithmetic on whole arrays: fits go on as they began.
        first.lerp_(slopes, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(slopes, slopes, value=1 - BETAS[1])
        corrected = second.div(1 - BETAS[1] ** step).sqrt_().add_(EPSILON)
        bends.addcdiv_(first, corrected, value=-rate / (1 - BETAS[0] ** step))

    def _on_device(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(self._weights.own[0].device)

    def _on_host(self, array: torch.Tensor) -> NDArray[Any]:
        return array.cpu().numpy()

    def _slope(self, point: torch.Tensor, share: float, batch: Batch, number: int) -> tuple[float, torch.Tensor]:
        with torch.no_grad():
            for target, part in zip(self._weights.own, torch.split(point, self.layout.sizes), strict=True):
                target.copy_(part.view(target.shape))
            if self._between.names:
                # The bends have the first network's.
                for name, values in {**self._between.networks[0], **self._between.at([share])}.items():
                    set_values(self._tensors[name], to_tensor(values))
        self._network.start_batch(number)
        batch = self._fitting(batch)
        outputs = call_network(self._network.forward, batch.inputs)
        loss, weight = self._network.total.differentiable(outputs, batch)
        if weight is not None:
            loss = loss / weight
        if not loss.requires_grad or (weight is not None and float(weight) == 0):
            return 0.0, torch.zeros_like(point)  # padding alone teaches nothing
        return float(loss.detach()), self._weights.flat(self._weights.gradient(loss)).to(point.dtype)

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        network = self._network
        with network.settings(), twice_differentiable(network.module, network.devices), _batch_statistics(self._norms):
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
