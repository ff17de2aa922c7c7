"""Batches of samples: nested tuples, lists and dictionaries of NumPy arrays or PyTorch tensors; and their digests."""

from __future__ import annotations

import functools
import hashlib
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.networks.batches import is_graph, is_packed, leaves, map_leaves, sample_count

from ..errors import SamplesError

WRAP = "wrap a data set of single samples in a DataLoader(dataset, batch_size=128)"
"""What to do with a list of samples where batches are needed."""


@dataclass(frozen=True)
class Batch:
    """Inputs and targets of a few samples; nested tuples, lists and dictionaries of arrays or tensors."""

    inputs: Any
    targets: Any  # what the loss gets beside the outputs
    size: int
    can_be_cut: bool = True  # each array's first axis numbers the samples, or none; not so in graphs and lists


def is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or is_tensor(value)


def is_tensor(value: object) -> bool:
    """Returns whether a value is a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


@functools.cache
def float64_device(device: Any) -> Any:
    """Returns a device of PyTorch, or the CPU for one that has no float64, such as Apple's GPUs."""
    torch = sys.modules["torch"]
    if device.type in ("cpu", "cuda"):
        return device
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return torch.device("cpu")
    return device


def on_host(values: Any, dtype: Any = None) -> NDArray[Any]:
    """Returns an array, or a tensor on any device, as an array of NumPy."""
    return np.asarray(values.detach().cpu() if is_tensor(values) else values, dtype)


def in_float64(array: Any) -> Any:
    """Returns an array as float64 where it is, and on the CPU where its device has none; no other is waited for."""
    if not is_tensor(array):
        return array.astype(np.float64)
    return array.to(float64_device(array.device)).double()


MakeBatch = Callable[[object, "int | None"], Batch]
"""Makes a batch of what a data set gave, and of how many samples its loader put into that; None where nobody knows."""


def as_batch(item: object, count: int | None = None) -> Batch:  # noqa: ARG001 - its targets say how many there are
    if not isinstance(item, tuple | list) or len(item) != 2:
        shown = f"a {type(item).__name__}" + (f" of {len(item)}" if isinstance(item, tuple | list) else "")
        raise SamplesError(
            f"dataset must give batches of (inputs, targets), but gave {shown}. Several inputs go together into a "
            "tuple or a dict; without targets, give the inputs twice or return an Evaluator of your own."
        )
    inputs, targets = item
    first = next((leaf for leaf in leaves(inputs) if is_array(leaf) and leaf.ndim > 0), None)
    if first is None:
        raise SamplesError(
            f"dataset must give tensors as inputs, but gave {type(inputs).__name__}; {WRAP}, or convert them in its "
            "collate_fn."
        )
    graphs = _count_graphs(inputs)
    if graphs is not None:
        return Batch(inputs, targets, graphs, can_be_cut=False)
    has_axes = is_array(targets) or isinstance(targets, np.generic)
    if targets.ndim == 0 if has_axes else isinstance(targets, int | float):
        raise SamplesError(
            f"dataset must give batches of (inputs, targets), but gave inputs of shape {tuple(first.shape)} with one "
            f"number as targets, which is a single sample: {WRAP}. If it is a batch, give one target for each sample."
        )
    if any(map(is_packed, inputs if isinstance(inputs, tuple | list) else ())) or is_packed(inputs):
        return Batch(inputs, targets, sample_count(inputs, targets), can_be_cut=False)
    size = len(first)
    # A list may have one target for each sample, whatever its own shape.
    is_listed = isinstance(targets, list | tuple) and len(targets) == size
    lengths = {len(leaf) for leaf in leaves(targets) if is_array(leaf) and leaf.ndim > 0}
    if not is_listed and lengths and size not in lengths:
        raise SamplesError(
            f"dataset must give as many targets as inputs in a batch, but gave {size} inputs and targets of length "
            f"{sorted(lengths)}; {WRAP}."
        )
    return Batch(inputs, targets, size)


def as_whole_batch(item: object, count: int | None = None, samples: Callable[[Any], int] | None = None) -> Batch:
    """Returns a batch for the network as it is, without targets; ``samples``, the user's, goes before the count."""
    arrays = [leaf for leaf in leaves(item) if is_array(leaf) and leaf.ndim > 0]
    if not arrays:
        raise SamplesError(
            f"dataset must give batches that are or hold tensors (in tuples, lists or dictionaries), but gave "
            f"{type(item).__name__}; {WRAP}, or convert them in its collate_fn."
        )
    lengths = sorted({len(leaf) for leaf in arrays})
    listed = _count_graphs(item) or _count_listed(item)
    if samples is not None:
        found = samples(item)
        if isinstance(found, bool) or not hasattr(found, "__index__") or int(found) < 1:
            raise SamplesError(
                f"samples must return how many samples a batch holds, 1 or more, but returned {found!r}."
            )
        count = int(found)
    elif listed is not None:
        count = listed
    elif count is None and len(lengths) > 1:
        raise SamplesError(
            f"the tensors of a batch have first axes of {' and '.join(map(str, lengths))}, so nothing says how many "
            "samples it holds, by which its loss and metrics are weighed. Say it: OwnLoss(step, samples=lambda batch: "
            "...), or give a DataLoader with a batch_size over a data set that is read by index."
        )
    return Batch((item,), None, count or lengths[0], can_be_cut=listed is None and lengths == [count or lengths[0]])


def cut(batch: Batch, start: int, stop: int) -> Batch:
    """Returns some samples of a batch, as views."""
    return picked(batch, slice(start, stop), min(stop, batch.size) - start)


def picked(batch: Batch, which: slice | NDArray[np.int64], size: int) -> Batch:
    """Returns so many samples of a batch: those of a slice as views, those with numbers as copies."""

    def part(leaf: Any) -> Any:
        return leaf[which] if is_array(leaf) and leaf.ndim and len(leaf) == batch.size else leaf

    return Batch(map_leaves(part, batch.inputs), map_leaves(part, batch.targets), size)


def map_batch(function: Callable[[Any], Any], batch: Batch) -> Batch:
    inputs, targets = map_leaves(function, batch.inputs), map_leaves(function, batch.targets)
    return replace(batch, inputs=inputs, targets=targets)


def leaf_bytes(leaf: Any) -> tuple[str, bytes | memoryview] | None:
    """Returns a leaf's type and shape, and its values; None for an object that has no values to compare."""
    if is_tensor(leaf):
        if leaf.layout is not sys.modules["torch"].strided or leaf.is_nested or leaf.is_meta:
            kind = "a meta" if leaf.is_meta else "a nested" if leaf.is_nested else "a sparse"
            raise SamplesError(
                f"dataset must give dense tensors with values, but gave {kind} one; make it dense in the data set or "
                "its collate_fn (to_dense(), or to_padded_tensor() of a nested one)."
            )
        host = leaf.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if host.ndim and host.stride(-1) != 1:  # every stride of a single element is contiguous, and not each has bytes
            host = host.clone(memory_format=sys.modules["torch"].contiguous_format)
        return f"{host.dtype}|{tuple(host.shape)}|", host.reshape(-1).view(sys.modules["torch"].uint8).numpy().data
    if isinstance(leaf, np.ndarray):
        if leaf.dtype.hasobject:
            return f"{leaf.dtype}|{leaf.shape}|", repr(leaf.tolist()).encode()
        # No copy where the array is contiguous; it may be as large as memory.
        return f"{leaf.dtype}|{leaf.shape}|", np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data
    text = repr(leaf)
    # An object's default text is its address, which differs between two reads and two workers.
    return None if " at 0x" in text else (f"{type(leaf).__name__}|", text.encode())


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


def same_leaves(first: Any, second: Any) -> bool:
    """Returns whether two nested values are equal bit for bit, as far as they can be compared."""
    one, other = list(leaves(first)), list(leaves(second))
    return len(one) == len(other) and all(map(_same_leaf, one, other))


def _same_leaf(one: Any, other: Any) -> bool:
    ours, theirs = leaf_bytes(one), leaf_bytes(other)
    if ours is None or theirs is None:
        return type(one) is type(other)
    return ours[0] == theirs[0] and bytes(ours[1]) == bytes(theirs[1])


def _count_graphs(item: Any) -> int | None:
    """Returns how many graphs of PyTorch Geometric a batch holds; None where it holds none."""
    if isinstance(item, tuple | list) and item:
        item = item[0]
    return int(getattr(item, "num_graphs", 1)) if is_graph(item) else None


def _count_listed(item: Any) -> int | None:
    """Returns the number of samples in (samples, targets) that are lists, as of images of several sizes; else None."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        return None
    samples, targets = item
    if not isinstance(samples, tuple | list) or not samples or not all(map(is_array, samples)):
        return None
    count = len(samples)
    if isinstance(targets, tuple | list):
        is_listed = len(targets) == count and all(isinstance(target, Mapping) for target in targets)
    else:
        is_listed = is_array(targets) and targets.ndim > 0 and len(targets) == count != len(samples[0])
    return count if is_listed else None
