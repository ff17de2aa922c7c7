"""PyTorch's products of the Hessian and of the generalised Gauss-Newton matrix, share by share of the samples."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeAlias

import numpy as np
import torch

from collectors.networks.batches import call_network, leaves
from collectors.networks.torch_network import to_tensor
from collectors.networks.weight_space import State
from collectors.shapes import Float64

from ...curvature.products import SHARES, WITHOUT_GRADIENTS, ProductSettings, Vector
from ...errors import CurvatureError, closing_on_failure
from ...hardware import free_memory
from ...measuring.products import BatchedProducts, SharedBatches
from ...samples.batches import Batch, float64_device
from ...samples.samples import Samples
from ..gradients import Gradients
from ..losses import OwnLoss
from ..placement import Placement
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

# Products have three times as many operators as a forward pass, for which the plan is chosen: in small batches
# they take up to a quarter longer. So many samples are computed at once while their forward pass saves few bytes.
_MOST_AT_ONCE, _SMALL_BYTES = 256, 1 << 24
_PROBED = 4  # samples whose bytes are counted
# Of which all shares' products are held at once, in float64.
_MOST_WEIGHTS = 1 << 22
_AHEAD = 4

GraphOfSum: TypeAlias = tuple["ProductSum", BatchGraph, bool]
"""What a batch's product is added to, its graph, and whether that is kept for another product."""


class TorchProducts(MovedNetwork, BatchedProducts):
    """Products on the user's own network, moved in place, in at least float32; it ends as it was found."""

    def __init__(self, network: DifferentiatedNetwork, settings: ProductSettings) -> None:
        MovedNetwork.__init__(self, network)
        self._cores = CoreProducts(self._weights.own)
        self._is_ready = False
        with closing_on_failure(self):
            BatchedProducts.__init__(self, settings, network.batch_size, is_widened=self._is_widened)
            self._use_batch_size(self._enlarged(network.batch_size))

    def move(self, parameters: State, buffers: State | None) -> None:
        self._forget()
        super().move(parameters, buffers)

    def _loss_of(self, number: int) -> tuple[float, float | None]:
        numerator, weight = self._total_of(number)
        return float(numerator.detach()) if self._counts(weight) else 0.0, None if weight is None else float(weight)

    def gradient(self, share: int) -> Float64[np.ndarray, " weights"]:
        def add() -> Float64[np.ndarray, " weights"]:
            sums = ProductSum(self._weights.own)
            for number in self._samples.shares[share]:
                sums.add(self._gradient_of(number))
            return sums.vector()

        return self._within_memory(add)

    def product(self, vector: Vector, share: int, *, few: int = 0) -> Float64[np.ndarray, " weights"]:
        def estimate() -> Float64[np.ndarray, " weights"]:
            sums = ProductSum(self._weights.own)
            for number, part in self._samples.parts(share, few):
                graph = self._new_graph(number, part)
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
                self._computed(number, batch)
            return sum(saved.values()) / batch.size

        bytes_per_sample = self._within_memory(probe)
        while 2 * batch_size <= _MOST_AT_ONCE and 2 * batch_size * bytes_per_sample <= _SMALL_BYTES:
            batch_size *= 2
        return batch_size

    def _forget(self) -> None:
        self._graphs: dict[int, BatchGraph] = {}
        self._bytes_per_sample: float | None = None
        self._budget: float | None = None

    def _new_graph(self, number: int, part: Batch | None = None) -> BatchGraph:
        return BatchGraph(*self._computed(number, part), self._network.total, self._weights, self._settings.matrix)

    def _computed(self, number: int, part: Batch | None = None) -> tuple[Any, Batch]:
        """Returns the outputs for a batch, or for a part of it, and the samples that were computed."""
        batch = self._fitting(self._samples.batch(number) if part is None else part)
        self._network.start_batch(self._samples.pieces[number].batch)
        with OwnDerivatives():
            return call_network(self._network.forward, batch.inputs), batch

    def _gradient_of(self, number: int) -> Sequence[torch.Tensor | None]:
        """Returns the gradient of a batch's sum of losses; None for parameters without effect."""
        numerator, weight = self._total_of(number)
        if not self._counts(weight) or not numerator.requires_grad:
            return [None] * len(self._weights.own)
        return self._weights.gradient(numerator)

    def _total_of(self, number: int) -> tuple[Any, Any]:
        return self._network.total.differentiable(*self._computed(number))

    def _graph_of(self, number: int) -> tuple[BatchGraph | None, bool]:
        """Returns a batch's derivatives, None where it holds nothing that counts, and whether they are kept."""
        if number in self._graphs:
            return self._graphs[number], True
        size = len(self._samples.pieces[number].samples)
        counting: contextlib.AbstractContextManager[dict[int, int]] = contextlib.nullcontext({})
        if self._bytes_per_sample is None:
            counting = counting_saved_bytes(self._weights.own)
        with counting as saved:
            graph = self._new_graph(number)
        if not graph.counts:
            return None, False
        if self._bytes_per_sample is None:
            check_graph(graph)
            if self._settings.matrix == "hessian" and graph.functions:
                check_functions(graph, self._weights, functools.partial(self._gradient_of, number))
                graph = self._new_graph(number)  # the other's weights were moved
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
        memory, device = self._settings.memory, self._weights.own[0].device
        if isinstance(memory, int):
            return memory
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
        return memory * (free_memory() / self._settings.neighbours if free is None else free)

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
        with (
            self._network.settings(),
            twice_differentiable(self._network.module, self._network.devices),
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


class ProductSum:
    """A sum of vectors in float64, which are given as parts in the parameters' shapes."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._totals = [
            torch.zeros(item.shape, dtype=torch.float64, device=float64_device(item.device)) for item in parameters
        ]

    def add(self, parts: Sequence[torch.Tensor | None]) -> None:
        """Adds a vector; None is zero."""
        for total, part in zip(self._totals, parts, strict=True):
            if part is not None:
                total.add_(part.detach().to(total.device))

    def vector(self) -> Float64[np.ndarray, " weights"]:
        return torch.cat([total.reshape(-1).cpu() for total in self._totals]).numpy()


class CoreProducts:
    """Makes products on all cores: a batch on each, which keeps them busier than a batch on all of them."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        # A matter of the network and of the plan's threads alone, so that all workers get the same bits.
        self.is_wanted = (
            all(parameter.device.type == "cpu" for parameter in parameters)
            and sum(parameter.numel() for parameter in parameters) <= _MOST_WEIGHTS
        )
        """Whether the network is small enough, and on a CPU."""
        self._pool: ThreadPoolExecutor | None = None

    def add(self, work: Iterable[GraphOfSum], vectors: Sequence[torch.Tensor]) -> None:
        """Adds the products of batches with a vector, which is in the parameters' shapes, to their sums, in order."""
        threads = torch.get_num_threads()
        if not self.is_wanted or threads == 1:
            for total, graph, kept in work:
                total.add(graph.product(vectors, keep=kept))
            return
        ready: list[GraphOfSum] = []
        # Read on the calling thread, no further than necessary: the network and the loss are the user's, who may count
        # on a single one. Only derivatives are made on others.
        for item in work:
            ready.append(item)
            # Graphs that are not kept take memory until their product is made.
            if len(ready) == _AHEAD * threads or sum(not kept for *_, kept in ready) == threads:
                self._add_now(ready, vectors, threads)
                ready = []
        self._add_now(ready, vectors, threads)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _add_now(self, ready: Sequence[GraphOfSum], vectors: Sequence[torch.Tensor], threads: int) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        torch.set_num_threads(1)  # part of it is the whole process's
        try:
            futures = [self._pool.submit(graph.product, vectors, keep=kept) for _, graph, kept in ready]
            wait(futures)  # none runs on when the first failure is raised
        finally:
            torch.set_num_threads(threads)
        for (total, *_), future in zip(ready, futures, strict=True):
            total.add(future.result())


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
