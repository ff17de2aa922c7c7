"""Checkpoints minus an origin, streamed block by block: whatever a run's length, a few blocks are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors.errors import CheckpointError
from collectors.validation import check_int

if TYPE_CHECKING:
    from jaxtyping import Float64

    from collectors.checkpoint_file import StateReader
    from collectors.network_state import Array, WeightSpace

BLOCK_BYTES = 64 * 2**20


class DifferenceBlock(NamedTuple):
    """A piece of one tensor over all checkpoints.

    Attributes:
        name: the tensor.
        start: the piece's first element in C order.
        stop: one after its last.
        origin: the origin's values, shape (elements,).
        differences: the checkpoints minus the origin, shape (checkpoints, elements).
    """

    name: str
    start: int
    stop: int
    origin: Float64[np.ndarray, " elements"]
    differences: Float64[np.ndarray, "checkpoints elements"]


def difference_blocks(
    checkpoints: Sequence[StateReader], origin: StateReader, space: WeightSpace, block_bytes: int = BLOCK_BYTES
) -> Iterator[DifferenceBlock]:
    """Yields the differences to the origin over all trainable elements, in the network's order.

    Args:
        checkpoints: read under the network's own names.
        origin: what is subtracted.
        space: the network.
        block_bytes: size of the float64 differences held at a time, over all checkpoints.

    Raises:
        CheckpointError: a checkpoint holds a value that is not finite.
    """
    block_bytes = check_int("block_bytes", block_bytes, minimum=1)
    step = max(1, block_bytes // (8 * max(1, len(checkpoints))))
    for tensor in space.trainable:
        for start in range(0, tensor.size, step):
            stop = min(start + step, tensor.size)
            base = _finite_block(origin, tensor.name, start, stop).astype(np.float64)
            differences = np.empty((len(checkpoints), stop - start))
            for row, checkpoint in zip(differences, checkpoints, strict=True):
                # Converted while it is subtracted: a float64 copy of its own would cost as much as the reading.
                np.subtract(_finite_block(checkpoint, tensor.name, start, stop), base, out=row)
            yield DifferenceBlock(tensor.name, start, stop, base, differences)


def not_finite(label: str, name: str) -> CheckpointError:
    """Returns the error for weights among which no plane can be laid."""
    return CheckpointError(
        f"{label} holds NaN or infinite values in {name!r}, so no direction can be computed from it; "
        "leave this checkpoint out (end the interval before training diverged)."
    )


def _finite_block(reader: StateReader, name: str, start: int, stop: int) -> Array:
    block = reader.read_block(name, start, stop)
    if not np.isfinite(block).all():
        raise not_finite(reader.label, name)
    return block
