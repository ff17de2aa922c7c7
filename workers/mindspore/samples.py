"""Samples out of a ``mindspore.dataset`` pipeline, read once, in data-set order."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import mindspore.dataset as pipelines
import numpy as np

from ..errors import SamplesError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..samples.array_samples import read_array_samples
from ..samples.samples import Samples
from ..samples.sources import Stream, read_source, stream_source
from ..users_code import warn_and_note


def read_mindspore_samples(
    dataset: object, options: MeasurementOptions, memory: SampleMemory
) -> tuple[Samples, list[str]]:
    """Reads samples once, in data-set order without shuffling, as arrays; a pipeline's last column is the target."""
    if not isinstance(dataset, pipelines.Dataset):
        return read_array_samples(dataset, options, memory)
    notes: list[str] = []
    stream = Stream(functools.partial(_batches, _straightened(copy.deepcopy(dataset), notes), options.seed))
    # MindSpore seeds Python's and NumPy's generators along with its own; who reads the data sets puts these back.
    seed = pipelines.config.get_seed()
    try:
        return read_source(stream_source(stream, options), options, notes, memory), notes
    finally:
        pipelines.config.set_seed(seed)


def _batches(dataset: Any, seed: int) -> Iterator[Any]:
    """Yields a pipeline's batches as pairs of (inputs, targets); random operations draw the same numbers each time."""
    pipelines.config.set_seed(seed)
    for columns in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True):
        if len(columns) < 2:
            raise SamplesError(
                f"dataset must have an input column and a target column, but has {dataset.get_col_names()}."
            )
        *inputs, targets = columns
        if np.ndim(targets) == 0:
            raise SamplesError("dataset must give batches, but gave single samples; end it with .batch(...).")
        yield inputs[0] if len(inputs) == 1 else tuple(inputs), targets


def _straightened(node: Any, notes: list[str]) -> Any:
    """Lets a pipeline's sources and operations keep the order of their data, and draw none of it; returns its end."""
    node.children = [_straightened(child, notes) for child in node.children]
    for child in node.children:
        child.parent = [node]
    if isinstance(node, pipelines.engine.datasets.ShuffleDataset):
        return node.children[0]
    if hasattr(node, "shuffle_flag"):
        node.shuffle_flag = 0
    sampler = getattr(node, "sampler", None)
    if isinstance(sampler, pipelines.DistributedSampler):
        sampler.shuffle = pipelines.Shuffle.FALSE
    elif sampler is not None:
        node.sampler = _without_draws(sampler, notes)
    return node


def _without_draws(sampler: Any, notes: list[str]) -> Any:
    """Returns a sampler of all that one chooses from, in data-set order; a note tells where it would draw some."""
    draws = sampler.num_samples is not None
    if isinstance(sampler, pipelines.RandomSampler):
        fixed = pipelines.SequentialSampler()
        draws |= sampler.replacement
    elif isinstance(sampler, pipelines.WeightedRandomSampler):
        fixed = pipelines.SubsetSampler([index for index, weight in enumerate(sampler.weights) if weight])
        draws = True
    elif isinstance(sampler, pipelines.SubsetRandomSampler):
        fixed = pipelines.SubsetSampler(sorted(sampler.indices))
        draws = False  # its indices are the first ones already
    else:
        return sampler
    if sampler.child_sampler is not None:
        fixed.add_child(sampler.child_sampler)
    if draws:
        count = "" if sampler.num_samples is None else f"{sampler.num_samples} "
        warn_and_note(
            notes,
            f"the pipeline's {type(sampler).__name__} draws {count}samples at random, but a landscape needs a fixed "
            "set: all samples that it chooses from are measured, each once. To choose them yourself, give the pipeline "
            "a SubsetSampler in place of this sampler, or use num_samples of the landscape.",
        )
    return fixed
