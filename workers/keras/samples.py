"""Samples of the kinds of data that Keras' ``fit`` and ``evaluate`` take."""

from __future__ import annotations

import copy
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras

from ..errors import SamplesError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..samples.array_samples import read_array_samples
from ..samples.batches import is_array
from ..samples.samples import Samples
from ..samples.sources import Stream


def read_keras_samples(dataset: Any, options: MeasurementOptions, memory: SampleMemory) -> tuple[Samples, list[str]]:
    """Reads samples once, in order, with targets as of ``split_batch``; returns them with notes for the user."""
    of_torch = sys.modules.get("torch.utils.data")
    if _is_tuple_of_arrays(dataset):
        samples, notes = read_array_samples(split_batch(dataset), options, memory)
    elif of_torch is not None and isinstance(dataset, of_torch.DataLoader | of_torch.Dataset):
        samples, notes = read_array_samples(_with_split_batches(dataset), options, memory)
        if not hasattr(dataset, "batch_size"):  # a Dataset, whose batches are ours
            samples = samples.without_own_batches()
    elif isinstance(dataset, Iterator):
        samples, notes = read_array_samples(map(split_batch, dataset), options, memory)
    else:
        if options.num_samples is None and _is_endless(dataset):
            raise SamplesError(
                "dataset has no end, as after tf.data's repeat() or in a PyDataset whose num_batches is None; leave "
                "repeat() out, or say with num_samples how many of its samples are measured."
            )
        if isinstance(dataset, keras.utils.PyDataset):
            number = dataset.num_batches
            dataset = Stream(functools.partial(_by_index, dataset), None if number is None else range(number))
        if not isinstance(dataset, Iterable):
            raise TypeError(
                "dataset must be (x, y) or (x, y, sample_weight) of arrays, a PyDataset, a DataLoader or an iterable "
                f"of batches, but got {type(dataset).__name__}."
            )
        samples, notes = read_array_samples(Stream(lambda: map(split_batch, dataset), dataset), options, memory)
    if keras.backend.backend() == "torch":
        # Once, instead of at each point; JAX and TensorFlow take NumPy's memory as it is.
        samples = samples.map(lambda leaf: keras.ops.convert_to_tensor(leaf) if is_array(leaf) else leaf)
    return samples, notes


def split_batch(item: Any) -> tuple[Any, dict[str, Any]]:
    """Returns (x, {"targets": y, "sample_weight": weights}) of (x, y, weights), the latter only where it is there."""
    if not isinstance(item, tuple | list) or len(item) not in (2, 3):
        shown = f"a {type(item).__name__}" + (f" of {len(item)}" if isinstance(item, tuple | list) else "")
        raise SamplesError(
            f"dataset must give batches of (x, y) or (x, y, sample_weight), but gave {shown}. Several inputs go "
            "together into a list or a dict; without targets, give the inputs twice or return an Evaluator of your own."
        )
    inputs, targets, *weights = item
    # Keras takes None for no weights.
    present = {"sample_weight": weights[0]} if weights and weights[0] is not None else {}
    return inputs, {"targets": targets, **present}


def _is_endless(dataset: Any) -> bool:
    if isinstance(dataset, keras.utils.PyDataset):
        return dataset.num_batches is None
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not isinstance(dataset, tensorflow.data.Dataset):
        return False
    return int(dataset.cardinality()) == int(tensorflow.data.INFINITE_CARDINALITY)


def _by_index(dataset: Any) -> Iterator[Any]:
    """Yields a PyDataset's batches; older versions of Keras cannot iterate over it."""
    number = dataset.num_batches
    return (dataset[index] for index in (itertools.count() if number is None else range(number)))


def _is_tuple_of_arrays(dataset: Any) -> bool:
    """Returns whether it is what ``evaluate`` takes as x, y and sample_weight."""
    if not isinstance(dataset, tuple | list) or len(dataset) not in (2, 3):
        return False
    # Two or three batches look alike. As everywhere in Keras, a tuple is a batch, a list holds several inputs.
    batch = tuple if isinstance(dataset, tuple) else (tuple, list)
    are_batches = all(isinstance(part, batch) and len(part) in (2, 3) for part in dataset)
    return not are_batches and any(hasattr(leaf, "shape") for leaf in keras.tree.flatten(dataset))


def _with_split_batches(dataset: Any) -> Any:
    from torch.utils.data import DataLoader, Dataset, default_collate

    if isinstance(dataset, Dataset):
        loader: Any = DataLoader(dataset, batch_size=128)
        collate: Callable[[Any], Any] = default_collate
    else:
        loader, collate = copy.copy(dataset), dataset.collate_fn
    loader.collate_fn = lambda items: split_batch(collate(items))
    return loader
