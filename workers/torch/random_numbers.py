"""The same random numbers at every point: generators are seeded for each batch, and put back afterwards (PyTorch)."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..samples.batches import Batch
from ..samples.random_state import random_state_kept

SAME_DRAWS = "under seed_each_point=True each point draws its numbers in one pass over the batches, in order"
"""Why samples cannot be read in passes."""

_ANOTHER = 0x5EED  # so that no draw is that of a user's own torch.manual_seed(0)


class RandomNumbers:
    """Seeds the generators of PyTorch (CPU and used GPUs), NumPy and Python for each batch; None seeds nothing."""

    def __init__(self, seed: int | None, devices: Collection[torch.device]) -> None:
        others = sorted({device.type for device in devices} - {"cpu", "cuda"})
        if others and seed is not None:
            raise ValueError(f"seed_each_point=True is available on CPUs and NVIDIA GPUs, but not on {others[0]}.")
        self._seed = seed
        self._gpus = [device for device in devices if device.type == "cuda"]

    def notes(self, batches: Sequence[Batch]) -> list[str]:
        """Returns what a reader of the landscape must know."""
        if self._seed is None:
            return []
        size = max(batch.size for batch in batches)
        return [
            f"the same random numbers are drawn at every point (seed_each_point=True, seed {self._seed}), anew for "
            f"each of the {len(batches)} batches of at most {size} samples, which are kept: the loss is one draw of a "
            "random one, and points differ by their weights alone."
        ]

    def kept(self, settings: contextlib.AbstractContextManager[None]) -> contextlib.AbstractContextManager[None]:
        """Returns the settings, at whose end all generators are put back, which are the process's own."""
        return settings if self._seed is None else self._kept_with(settings)

    @contextlib.contextmanager
    def _kept_with(self, settings: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        with settings, random_state_kept(), torch.random.fork_rng(self._gpus):
            yield

    def numbered(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function for one pass over the batches, in order; what follows a batch draws after it."""
        if self._seed is None:
            return forward
        seed, numbers = self._seed, itertools.count()

        def run(*inputs: Any, **named_inputs: Any) -> Any:
            self._start(_seed_of_batch(seed, next(numbers)))
            return forward(*inputs, **named_inputs)

        return run

    def start_batch(self, number: int) -> None:
        """Lets what follows draw the numbers of the data set's own batch with this number; does nothing unseeded."""
        if self._seed is not None:
            self._start(_seed_of_batch(self._seed, number))

    def _start(self, value: int) -> None:
        torch.default_generator.manual_seed(value)
        for gpu in self._gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(value)
        random.seed(value)
        np.random.seed(value % 2**32)  # noqa: NPY002


@functools.lru_cache(maxsize=1 << 12)
def _seed_of_batch(seed: int, number: int) -> int:
    # By the seed and the batch's place among the data set's own batches, and by nothing else: not by the point, by what
    # was measured before, or by the worker.
    # PyTorch's generator of the CPU takes 32 bits.
    return int(np.random.SeedSequence([_ANOTHER, seed, number]).generate_state(1)[0])
