"""PyTorch's products of the Hessian and of the generalised Gauss-Newton matrix, share by share of the samples."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from collectors.networks.batches import call_network, leaves
from collectors.networks.torch_network import to_tensor
from collectors.networks.weight_space import State

from ...curvature.products import SHARES, WITHOUT_GRADIENTS, ProductSettings, Vector
from ...errors import CurvatureError
from ...hardware import free_memory
from ...measuring.shares import BatchedProducts, SharedBatches
from ...samples.batches import Batch
from ...samples.samples import Samples
from ..gradients import Gradients
from ..own_loss import OwnLoss
from ..placement import Placement
from .core_products import CoreProducts, ProductSum
from .network import DifferentiatedNetwork, MovedNetwork
from .operators import OwnDerivatives
from .second_order import (
    BatchGraph,
    check_functions,
    check_graph,
    counting_saved_bytes,
    second_derivative_errors,
    twice_differentiable,
)

if TYPE_CHECKING:
    from jaxtyping import Float64

# Products have three times as many operators as a forward pass, for which the plan is chosen: in small batches
# they take up to a quarter longer. So many samples are computed at once while their forward pass saves few bytes.
_MOST_AT_ONCE, _SMALL_BYTES = 256, 1 << 24
_PROBED = 4  # samples whose bytes are counted


class TorchProducts(MovedNetwork, BatchedProducts):
    """Products on the user's own network, moved in place, in at least float32; it ends as it was found."""

    def __init__(self, network: DifferentiatedNetwork, settings: ProductSettings) -> None:
        MovedNetwork.__init__(self, network)
        self._cores = CoreProducts(self._weights.own)
        self._is_ready = False
        try:
            BatchedProducts.__init__(self, settings, network.batch_size, is_widened=self._is_widened)
            self._use_batch_size(self._enlarged(network.batch_size))
        except BaseException:
            self.close()
            raise

    def move(self, parameters: State, buffers: State | None) -> None:
        """Puts the network at a set of weights."""
        self._forget()
        super().move(parameters, buffers)

    def loss(self, share: int) -> tuple[float, float | None]:
        """Returns a share's sum of losses and its weight."""

        def add() -> tuple[float, float | None]:
            value, weights = 0.0, []
            for number in self._samples.shares[share]:
                numerator, weight = self._total_of(number)
                value += float(numerator.detach()) if self._counts(weight) else 0.0
                weights += [] if weight is None else [float(weight)]
            return value, sum(weights) if weights else None

        return self._within_memory(add)

    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        """Returns the gradient of a share's sum of losses."""

        def add() -> Float64[np.ndarray, " weights"]:
            sums = ProductSum(self._weights.own)
            for number in self._samples.shares[share]:
                sums.add(self._gradient_of(number))
            return sums.vector()

        return self._within_memory(add)

    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        """Returns the matrix of a share's sum of losses times a vector."""

        def estimate() -> Float64[np.ndarray, " weights"]:
            sums = ProductSum(self._weights.own)
            for number, part in self._samples.parts(share, few):
                graph = self._new_graph(number, self._fitting(part))
                if graph.counts:
                    sums.add(graph.product(self._in_shapes(vector), keep=False))
                    return sums.vector() * (self.samples_in(share) / part.size)
            return sums.vector()

        return self._within_memory(estimate) if few else next(self.products(vector, [share]))

    def products(self, vector: Vector, shares: Sequence[int]) -> Iterator[Float64[np.ndarray, " weights"]]:
        """Yields the products of some shares; small ones of several batches are made at once, on a core each."""
        together = len(shares) if self._cores.is_wanted else 1

        def of(some: Sequence[int]) -> list[Float64[np.ndarray, " weights"]]:
            sums = [ProductSum(self._weights.own) for _ in some]
            self._cores.add(
                (
                    (total, graph, kept)
                    for total, share in zip(sums, some, strict=True)
                    for number in self._samples.shares[share]
                    for graph, kept in [self._graph_of(number)]
                    if graph is not None
                ),
                self._in_shapes(vector),
            )
            return [total.vector() for total in sums]

        for start in range(0, len(shares), together):
            yield from self._within_memory(functools.partial(of, shares[start : start + together]))

    def close(self) -> None:
        """Leaves the network as it was found."""
        self._cores.close()
        self._forget()
        super().close()

    def _shared(self, batch_size: int | None) -> SharedBatches:
        return SharedBatches(self._network.batches(batch_size), SHARES, whole=batch_size is None)

    def _use_batch_size(self, batch_size: int | None) -> None:
        super()._use_batch_size(batch_size)
        self._forget()

    def _enlarged(self, batch_size: int | None) -> int | None:
        """Returns how many samples are computed at once, which is the same on all workers."""
        if batch_size is None or batch_size >= _MOST_AT_ONCE or not self._samples.count:
            return batch_size

        def probe() -> float:
            # Of few samples the first shares hold nothing.
            parts = (self._samples.parts(share, _PROBED) for share in range(SHARES))
            number, part = next(itertools.chain.from_iterable(parts))
            batch = self._fitting(part)
            inputs = [leaf for leaf in leaves(batch.inputs) if isinstance(leaf, torch.Tensor)]
            with counting_saved_bytes([*self._weights.own, *inputs]) as saved:
                self._outputs(number, batch)
            return sum(saved.values()) / batch.size

        bytes_per_sample = self._within_memory(probe)
        while 2 * batch_size <= _MOST_AT_ONCE and 2 * batch_size * bytes_per_sample <= _SMALL_BYTES:
            batch_size *= 2
        return batch_size

    def _forget(self) -> None:
        self._graphs: dict[int, BatchGraph] = {}
        self._bytes_per_sample: float | None = None
        self._budget: float | None = None

    def _batch(self, number: int) -> Batch:
        return self._fitting(self._samples.batch(number))

    def _new_graph(self, number: int, batch: Batch) -> BatchGraph:
        outputs = self._outputs(number, batch)
        return BatchGraph(outputs, batch, self._network.total, self._weights, self._settings.matrix)

    def _outputs(self, number: int, batch: Batch) -> Any:
        self._network.start_batch(self._samples.number_of_batch(number))
        with OwnDerivatives():
            return call_network(self._network.forward, batch.inputs)

    def _gradient_of(self, number: int) -> Sequence[torch.Tensor | None]:
        """Returns the gradient of a batch's sum of losses; None for parameters without effect."""
        numerator, weight = self._total_of(number)
        if not self._counts(weight) or not numerator.requires_grad:
            return [None] * len(self._weights.own)
        return self._weights.gradient(numerator)

    def _total_of(self, number: int) -> tuple[Any, Any]:
        batch = self._batch(number)
        return self._network.total.differentiable(self._outputs(number, batch), batch)

    def _graph_of(self, number: int) -> tuple[BatchGraph | None, bool]:
        """Returns a batch's derivatives, None where it holds nothing that counts, and whether they are kept."""
        if number in self._graphs:
            return self._graphs[number], True
        size = self._samples.size(number)
        counting: contextlib.AbstractContextManager[dict[int, int]] = contextlib.nullcontext({})
        if self._bytes_per_sample is None:
            counting = counting_saved_bytes(self._weights.own)
        with counting as saved:
            graph = self._new_graph(number, self._batch(number))
        if not graph.counts:
            return None, False
        if self._bytes_per_sample is None:
            check_graph(graph)
            if self._settings.matrix == "hessian" and graph.functions:
                check_functions(graph, self._weights, functools.partial(self._gradient_of, number))
                graph = self._new_graph(number, self._batch(number))  # the other's weights were moved
            self._bytes_per_sample = max(sum(saved.values()) / size, 1.0)
        needed = self._bytes_per_sample * size
        if self._budget is None:
            self._budget = self._memory()
        # First derivatives that are kept make a product twice as fast; beyond the memory for them they are made anew.
        if needed > self._budget:
            return graph, False
        self._budget -= needed
        self._graphs[number] = graph
        return graph, True

    def _memory(self) -> float:
        memory = self._settings.memory
        if isinstance(memory, int):
            return memory
        device = self._weights.own[0].device
        if device.type == "cuda":
            return memory * torch.cuda.mem_get_info(device)[0]
        return memory * free_memory() / self._settings.neighbours

    def _in_shapes(self, vector: Vector) -> list[torch.Tensor]:
        parts = zip(self.layout.as_state(vector).values(), self._weights.own, strict=True)
        return [to_tensor(part).to(parameter.dtype).to(parameter.device) for part, parameter in parts]

    @staticmethod
    def _counts(weight: Any) -> bool:
        return weight is None or float(weight) != 0

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Makes ready for all that is called inside, once."""
        if self._is_ready:
            yield
            return
        module, devices = self._network.module, self._network.devices
        with (
            self._network.settings(),
            twice_differentiable(module, devices),
            second_derivative_errors(self._settings.matrix),
        ):
            self._is_ready = True
            try:
                yield
            finally:
                self._is_ready = False

    def _keeps_memory(self) -> bool:
        return bool(self._graphs)

    def _free_memory(self) -> None:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()
        keeps = self._keeps_memory()
        self._forget()
        self._budget = 0.0 if keeps else None


def check_products(
    settings: ProductSettings, placement: Placement, samples: Samples, own_loss: OwnLoss | None, gradients: Gradients
) -> None:
    """Raises CurvatureError where a network and its loss do not have the products that are asked for."""
    if placement.is_kept:
        raise CurvatureError(
            "the network is spread over several devices, and products of its Hessian are made on one: let callback_fn "
            f"put it on one device. Or {WITHOUT_GRADIENTS}."
        )
    if samples.passes is not None:
        raise CurvatureError(
            "the samples are read anew in each pass, because they do not fit into memory, and products of the Hessian "
            "need them held: use fewer samples (num_samples) or allow more memory (sample_memory). Or "
            f"{WITHOUT_GRADIENTS}."
        )
    if settings.matrix == "ggn" and (own_loss is not None or gradients.are_on):
        why = "the network computes its own loss" if own_loss is not None else "the loss differentiates by itself"
        raise CurvatureError(
            f'matrix="ggn" needs a loss that is a function of (outputs, targets) alone, but {why}: use '
            'matrix="hessian".'
        )
