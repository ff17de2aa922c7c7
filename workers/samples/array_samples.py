"""Samples as NumPy arrays, for frameworks that take these."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from collectors.networks.batches import leaves, map_leaves

from ..errors import SamplesError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from .batches import as_batch, is_array, is_tensor
from .samples import Samples
from .sources import Stream, indexed_source, read_source, stream_source

_BATCH_SIZE = 128


def read_array_samples(
    dataset: object,
    options: MeasurementOptions,
    memory: SampleMemory = SampleMemory(),  # noqa: B008
) -> tuple[Samples, list[str]]:
    """Reads the samples once, in data-set order, each array and tensor as one of NumPy; returns notes as well."""
    notes: list[str] = []
    if is_pair_of_arrays(dataset):
        pair = map_leaves(as_numpy, dataset)

        def read(indices: Sequence[int]) -> Any:
            # Views where that is possible; the user's arrays may be mapped from a disk.
            adjacent = indices[-1] - indices[0] == len(indices) - 1
            return rows_of(pair, slice(indices[0], indices[-1] + 1) if adjacent else np.asarray(indices))

        available = range(count_rows(pair))
        source = indexed_source(read, available, _BATCH_SIZE, options, notes, without_batches=True)
        return read_source(source, options, notes, memory), notes
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(dataset, data.DataLoader | data.Dataset):
        from .torch_samples import read_samples

        return read_samples(dataset, options, lambda item, _: as_batch(map_leaves(as_numpy, item)), memory)
    if not isinstance(dataset, Iterable):
        raise TypeError(
            "dataset must be a pair (inputs, targets) of arrays, an iterable of batches of such pairs, or a PyTorch "
            f"DataLoader or Dataset, but got {type(dataset).__name__}."
        )
    convert = functools.partial(map, functools.partial(map_leaves, as_numpy), dataset)
    # An iterator stays one, so that it is not read a second time.
    source = stream_source(convert() if isinstance(dataset, Iterator) else Stream(convert, dataset), options)
    return read_source(source, options, notes, memory), notes


def as_numpy(leaf: Any) -> Any:
    """Returns an array of any framework as a NumPy array, and anything else unchanged."""
    if is_tensor(leaf):
        from collectors.networks.torch_network import to_array

        return to_array(leaf)
    if isinstance(leaf, np.ndarray) or not hasattr(leaf, "shape"):
        return leaf
    if hasattr(leaf, "asnumpy"):  # MindSpore
        return leaf.asnumpy()
    array = np.asarray(leaf)
    if array.dtype.hasobject and not array.ndim:
        raise SamplesError(
            f"dataset must give arrays, but gave a {type(leaf).__name__}, which NumPy takes for one object; make it "
            "dense (toarray() in SciPy, to_dense or to_tensor() in TensorFlow)."
        )
    return array


def is_pair_of_arrays(dataset: object) -> bool:
    """Returns whether a data set is (inputs, targets) of arrays or of nested tuples, lists and dicts of them."""
    if not isinstance(dataset, tuple | list) or len(dataset) != 2:
        return False
    # A list of two batches looks alike, but its first entry is a pair itself.
    first, second = dataset
    is_batch = isinstance(first, tuple | list) and len(first) == 2 and isinstance(second, tuple | list)
    # And so does a list of two batches that are dictionaries.
    are_alike = isinstance(first, Mapping) and isinstance(second, Mapping) and first.keys() == second.keys()
    is_batch |= isinstance(dataset, list) and are_alike
    return not is_batch and any(hasattr(leaf, "shape") for leaf in leaves(dataset))


def count_rows(pair: Any) -> int:
    """Returns how many samples a pair of (inputs, targets) has, of nested arrays."""
    lengths = {len(leaf) for leaf in leaves(pair) if is_array(leaf) and leaf.ndim}
    if not lengths:
        kinds = " and ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves(pair)))
        raise SamplesError(
            f"dataset must hold arrays, but holds {kinds}; convert them in callback_fn (to_numpy() of pandas, [:] of "
            "h5py)."
        )
    if len(lengths) != 1:
        raise SamplesError(
            f"dataset must hold as many targets as inputs, but its arrays have the lengths {sorted(lengths)}."
        )
    return lengths.pop()


def rows_of(pair: Any, which: Any) -> Any:
    return map_leaves(lambda leaf: leaf[which] if is_array(leaf) and leaf.ndim else leaf, pair)
