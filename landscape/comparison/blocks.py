"""Blocks of samples: how much of a difference is due to which samples a data set happens to have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.networks.batches import sample_count
from workers.metric_names import name_in_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float64, Int64

MOST_BLOCKS = 64


class InBlocks:
    """Gives the block of each sample: its number in the data set modulo 64."""

    # It is asked once for each batch, in order, by each worker, of which each has one.

    def __init__(self) -> None:
        self._asked = 0

    def __call__(self, inputs: Any, targets: Any) -> Int64[np.ndarray, " samples"]:
        """Returns the blocks of the next batch."""
        count = sample_count(inputs, targets)
        numbers = np.arange(self._asked, self._asked + count) % MOST_BLOCKS
        self._asked += count
        return numbers


def block_names(metrics: Sequence[str]) -> list[str]:
    """Returns what the losses of the blocks are called; nothing where samples are not told apart."""
    names = [name_in_group("loss", block) for block in range(MOST_BLOCKS)]
    return [name for name in names if name in metrics]


def block_sizes(samples: int, blocks: int) -> Float64[np.ndarray, " blocks"]:
    """Returns how many of the samples are in each block."""
    return np.array([len(range(block, samples, MOST_BLOCKS)) for block in range(blocks)], np.float64)
