"""Passes over all checkpoints of a plane, shard by shard: here, or each node of a cluster a part of the shards."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from collectors.errors import CheckpointError, reporting
from collectors.networks.weight_space import WeightSpace
from collectors.weights.safetensors_file import file_sha256

_MOST_SHARDS = 64
# Fewer would take less time than sending them.
_FEWEST_ELEMENTS = 2**20


class Piece(NamedTuple):
    """Elements of a tensor, in C order."""

    name: str
    start: int
    stop: int  # one after the last


def shards_of(space: WeightSpace) -> list[list[Piece]]:
    """Returns the trainable elements in parts of about equal size, which depend on the network alone.

    So sums over them, added part by part, are the same bits whoever computes the parts.
    """
    count = min(_MOST_SHARDS, math.ceil(space.dimension / _FEWEST_ELEMENTS))
    size = math.ceil(space.dimension / max(1, count))
    shards: list[list[Piece]] = [[]]
    room = size
    for tensor in space.trainable:
        start = 0
        while start < tensor.size:
            if not room:
                shards.append([])
                room = size
            stop = min(tensor.size, start + room)
            shards[-1].append(Piece(tensor.name, start, stop))
            room, start = room - (stop - start), stop
    return shards


def compute(function: Callable[..., Any], shared: Any, part: Sequence[Any]) -> Any:
    """Returns ``function(shared, *part)``, computed by one thread."""
    # A few rows are too little work for several threads: their waiting for each other costs up to thirty times as much.
    with threadpool_limits(1, "blas"):
        return function(shared, *part)


class Passes:
    """Computes all parts in this process, one after another."""

    def each(self, function: Callable[..., Any], shared: Any, parts: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yields ``function(shared, *part)`` for each part, in order."""
        return (compute(function, shared, part) for part in parts)


HERE = Passes()


def added(results: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Returns the sum of what the parts returned, entry by entry; a result is no longer needed once it is added."""
    return functools.reduce(lambda total, more: tuple(map(operator.add, total, more)), results)


def sha256_of(_: None, path: Path) -> str:
    """Returns the SHA-256 of a checkpoint file, as a pass computes it."""
    with reporting(f"checkpoint {path} cannot be read", kind=CheckpointError):
        return file_sha256(path)
