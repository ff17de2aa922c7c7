"""What tells samples from others: a SHA-256 of all of them, and quick marks of single batches."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import numpy as np

from collectors.networks.batches import leaves

from .batches import Batch, is_array, leaf_bytes


class SampleDigest:
    """A SHA-256 of samples that come batch by batch; how they are batched does not count where batches fit together."""

    def __init__(self) -> None:
        self._hashes: list[Any] = []
        self._kinds: list[str] = []

    def add(self, batch: Batch) -> None:
        for index, leaf in enumerate(leaves((batch.inputs, batch.targets))):
            if index == len(self._hashes):
                self._hashes.append(hashlib.sha256())
                self._kinds.append("")
            kind, values = _kind_and_values(leaf, batch.size)
            if kind != self._kinds[index]:
                self._hashes[index].update(kind.encode())
                self._kinds[index] = kind
            self._hashes[index].update(values)

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(item.digest() for item in self._hashes)).hexdigest()


def quick_mark(batch: Batch) -> int:
    """Returns a number that other values of a batch, or another order of them, hardly ever have."""
    # As fast as memory: a sum of all values as whole numbers, and a checksum of the first and the last few.
    mark = 0
    for leaf in leaves((batch.inputs, batch.targets)):
        kind, values = _kind_and_values(leaf, batch.size)
        mark = zlib.crc32(kind.encode(), mark)
        flat = np.frombuffer(values, np.uint8) if len(values) else np.empty(0, np.uint8)
        whole = len(flat) - len(flat) % 8
        total = int(flat[:whole].view(np.uint64).sum(dtype=np.uint64)) if whole else 0
        mark = zlib.crc32(total.to_bytes(8, "little"), mark)
        for part in (flat[:4096], flat[max(whole - 4096, 0) :]):
            mark = zlib.crc32(part.data, mark)
    return mark


def _kind_and_values(leaf: Any, size: int) -> tuple[str, bytes | memoryview]:
    found = leaf_bytes(leaf)
    if found is None:
        return type(leaf).__name__, b""
    if not is_array(leaf):
        return f"{found[0]}{bytes(found[1])!r}", b""
    if leaf.ndim and len(leaf) == size:
        return f"{leaf.dtype}|{tuple(leaf.shape[1:])}|of each|", found[1]
    return found
