"""Products with the graphs of several batches at once, each on one core (PyTorch)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float64

from ...samples.batches import float64_device
from .second_order import BatchGraph

# Of which all shares' products are held at once, in float64.
_MOST_WEIGHTS = 1 << 22
_AHEAD = 4

GraphOfSum: TypeAlias = tuple["ProductSum", BatchGraph, bool]
"""What a batch's product is added to, its graph, and whether that is kept for another product."""


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
        """Returns the sum, shape (weights,)."""
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
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _add_now(self, ready: Sequence[GraphOfSum], vectors: Sequence[torch.Tensor], threads: int) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        torch.set_num_threads(1)  # part of it is the whole process's
        try:
            futures = [self._pool.submit(graph.product, vectors, keep=kept) for _, graph, kept in ready]
            failures = [future.exception() for future in futures]  # none runs on when the first failure is raised
            for failure in failures:
                if failure is not None:
                    raise failure
        finally:
            torch.set_num_threads(threads)
        for (total, *_), future in zip(ready, futures, strict=True):
            total.add(future.result())
