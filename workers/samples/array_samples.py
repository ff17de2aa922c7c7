"""Samples as NumPy arrays, for frameworks that take these."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from collectors.networks.batches import leaves, map_leaves

from ..errors import SamplesError
from ..evaluator import MeasurementOptions
from .batches import is_array, is_tensor
from .samples import Samples, Stream, collect_samples, count_samples, no_samples, read_stream

_BATCH_SIZE = 128


def read_array_samples(dataset: object, options: MeasurementOptions) -> tuple[Samples, list[str]]:
    """Reads the samples once, in data-set order.

    Args:
        dataset: a pair (inputs, targets) of arrays or of nested tuples, lists and dicts of arrays; an iterable of
            batches of such pairs; or a PyTorch DataLoader or Dataset.
        options: how many samples, and which.

    Returns:
        The samples, every array and tensor as a NumPy array, and notes for the user.

    Raises:
        TypeError: the data set is of a kind that cannot be read.
        ValueError: random samples of a stream were asked for.
        SamplesError: it is empty, unlabelled, or gives other samples each time.
    """
    notes: list[str] = []
    if _is_pair_of_arrays(dataset):
        return _read_pair(dataset, options, notes), notes
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(dataset, data.DataLoader | data.Dataset):
        from .torch_samples import read_samples

        samples, notes = read_samples(dataset, options)
        return samples.map(as_numpy), notes
    if not isinstance(dataset, Iterable):
        raise TypeError(
            "dataset must be a pair (inputs, targets) of arrays, an iterable of batches of such pairs, or a PyTorch "
            f"DataLoader or Dataset, but got {type(dataset).__name__}."
        )
    convert = functools.partial(map, functools.partial(map_leaves, as_numpy), dataset)
    # An iterator stays one, so that it is not read a second time.
    raw = read_stream(convert() if isinstance(dataset, Iterator) else Stream(convert), options, notes)
    return collect_samples(raw, options), notes


def as_numpy(leaf: Any) -> Any:
    """Returns an array of any framework as a NumPy array, and anything else unchanged."""
    if is_tensor(leaf):
        from collectors.networks.torch_network import to_array

        return to_array(leaf)
    if isinstance(leaf, np.ndarray) or not hasattr(leaf, "shape"):
        return leaf
    if hasattr(leaf, "asnumpy"):  # MindSpore
        return leaf.asnumpy()
    return np.asarray(leaf)


def _is_pair_of_arrays(dataset: object) -> bool:
    if not isinstance(dataset, tuple | list) or len(dataset) != 2:
        return False
    # A list of two batches looks alike, but its first entry is a pair itself.
    first, second = dataset
    is_batch = isinstance(first, tuple | list) and len(first) == 2 and isinstance(second, tuple | list)
    return not is_batch and any(hasattr(leaf, "shape") for leaf in leaves(dataset))


def _read_pair(dataset: Any, options: MeasurementOptions, notes: list[str]) -> Samples:
    inputs, targets = (map_leaves(as_numpy, part) for part in dataset)
    lengths = {len(leaf) for leaf in leaves((inputs, targets)) if is_array(leaf) and leaf.ndim}
    if len(lengths) != 1:
        raise SamplesError(
            f"dataset must hold as many targets as inputs, but its arrays have the lengths {sorted(lengths)}."
        )
    available = lengths.pop()
    if not available:
        raise no_samples()
    count = count_samples(available, options.num_samples, notes)
    chosen: Any = slice(0, count)
    if options.samples == "random":
        chosen = np.sort(np.random.default_rng(options.seed).permutation(available)[:count])

    def take(leaf: Any) -> Any:
        return leaf[chosen] if is_array(leaf) and leaf.ndim else leaf

    inputs, targets = map_leaves(take, inputs), map_leaves(take, targets)

    def batch(start: int) -> Any:
        def part(leaf: Any) -> Any:
            return leaf[start : start + _BATCH_SIZE] if is_array(leaf) and leaf.ndim else leaf

        return map_leaves(part, inputs), map_leaves(part, targets)

    batches = [batch(start) for start in range(0, count, _BATCH_SIZE)]
    return collect_samples(batches, options, without_batches=True)
