"""From a data set to samples: what is read in one pass, and where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SamplesError
from ..evaluator import MeasurementOptions, SampleMemory
from .batches import Batch, as_batch, cut, same_leaves
from .samples import Samples, count_samples, no_samples
from .store import SampleWriter, open_held


@dataclass(frozen=True)
class SampleSource:
    """The samples that are measured, as the data set gives them.

    Attributes:
        read: begins a pass over their batches.
        few: reads a few batches alone, each with the number of its first sample, to compare them with other ones.
        count: how many samples there are; None where only a pass tells.
        without_batches: whether the batches are ours, because the data set has none.
        only_once: whether a second pass is not possible.
        first: the indices of the first batch, where there are indices.
    """

    read: Callable[[], Iterator[Batch]]
    few: Callable[[], Iterator[tuple[int, Batch]]]
    count: int | None = None
    without_batches: bool = False
    only_once: bool = False
    first: Sequence[int] = ()


@dataclass(frozen=True)
class Stream:
    """Batches that can be read again: each time one asks for them, from the start."""

    read: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.read()


def indexed_source(
    read: Callable[[Sequence[int]], Any],
    available: Sequence[int],
    batch_size: int,
    options: MeasurementOptions,
    notes: list[str],
    *,
    make_batch: Callable[[object], Batch] = as_batch,
    without_batches: bool,
    read_all: Callable[[Sequence[Sequence[int]]], Iterator[Any]] | None = None,
) -> SampleSource:
    """Returns the source for a data set that is read by index.

    Args:
        read: returns the batch of some indices.
        available: the indices that there are, in data-set order.
        batch_size: samples per batch.
        options: how many samples, and which.
        notes: for the user; more may be added.
        make_batch: checks a batch.
        without_batches: whether the batches are ours, because the data set has none.
        read_all: returns the batches of several lists of indices, where that is faster than one after another.

    Raises:
        SamplesError: it is empty.
    """
    if not available:
        raise no_samples()
    count = count_samples(len(available), options.num_samples, notes)
    indices: Sequence[int] = available[:count]
    if options.samples == "random":
        chosen = np.random.default_rng(options.seed).permutation(len(available))[:count]
        indices = [available[index] for index in sorted(int(index) for index in chosen)]
    parts = [indices[start : start + batch_size] for start in range(0, count, batch_size)]

    def batches() -> Iterator[Batch]:
        return map(make_batch, map(read, parts) if read_all is None else read_all(parts))

    def few() -> Iterator[tuple[int, Batch]]:
        for number in sorted({0, len(parts) // 2, len(parts) - 1}):
            yield number * batch_size, make_batch(read(parts[number]))

    return SampleSource(batches, few, count, without_batches, first=parts[0])


def stream_source(
    dataset: Iterable[Any],
    options: MeasurementOptions,
    *,
    make_batch: Callable[[object], Batch] = as_batch,
    without_batches: bool = False,
) -> SampleSource:
    """Returns the source for an iterable of batches, of which as many are read as are needed.

    Args:
        dataset: the batches.
        options: how many samples.
        make_batch: checks a batch.
        without_batches: whether the batches are ours, because the data set has none.

    Raises:
        ValueError: random samples were asked for.
    """
    if options.samples == "random":
        raise ValueError('samples="random" needs a data set that is read by index; use samples="first" for a stream.')

    def read() -> Iterator[Batch]:
        left = options.num_samples
        for item in _iterate(dataset):
            batch = make_batch(item)
            if left is not None:
                batch = cut(batch, 0, left) if batch.size > left else batch
                left -= batch.size
            yield batch
            if left == 0:
                return

    def few() -> Iterator[tuple[int, Batch]]:
        for batch in read():
            yield 0, batch
            return

    only_once = isinstance(dataset, Iterator)
    return SampleSource(read, few, without_batches=without_batches, only_once=only_once)


def read_source(
    source: SampleSource,
    options: MeasurementOptions,
    notes: list[str],
    memory: SampleMemory = SampleMemory(),  # noqa: B008
) -> Samples:
    """Returns the samples of a source: those that another worker of this machine holds, or read now.

    Args:
        source: the data set.
        options: how many samples.
        notes: for the user; more may be added.
        memory: what other workers hold, and whether these are kept for others.

    Raises:
        SamplesError: it is empty, unlabelled, or gives other samples each time.
        SampleMemoryError: there is no room for them.
    """
    for held in memory.held:
        samples = open_held(held)
        if samples is not None and _are_those_of(source, samples):
            return samples if memory.shared else samples.without_store()
    writer = SampleWriter()
    for batch in source.read():
        writer.add(batch)
    if not writer.count:
        raise no_samples()
    samples = writer.finish(without_batches=source.without_batches)
    samples = samples if memory.shared else samples.without_store()
    if source.count is None:
        check_first_batch(source, samples.read_batches[0])
        count_samples(samples.count, options.num_samples, notes)
    return samples


def check_first_batch(source: SampleSource, first: Batch) -> None:
    """Reads the first batch again and compares it; a source that can be read only once is not asked.

    Raises:
        SamplesError: it changed.
    """
    again = None if source.only_once else next(source.few(), None)
    if again is not None and not _are_same(again[1], first):
        raise SamplesError(
            "dataset must give the same samples each time, but its first batch changed between two reads. Switch "
            "shuffling and random augmentation off for the landscape."
        )


def _are_those_of(source: SampleSource, samples: Samples) -> bool:
    """Returns whether samples that another worker read are this worker's, by their number and a few batches."""
    if source.only_once or source.count not in (None, samples.count):
        return False
    starts, start = {}, 0
    for batch in samples.read_batches:
        starts[start] = batch
        start += batch.size
    return all(number in starts and _are_same(batch, starts[number]) for number, batch in source.few())


def _are_same(one: Batch, other: Batch) -> bool:
    return same_leaves((one.inputs, one.targets), (other.inputs, other.targets))


def _iterate(dataset: Iterable[Any]) -> Iterator[Any]:
    try:
        return iter(dataset)
    except TypeError as error:
        raise TypeError(
            "dataset must be a DataLoader, a Dataset, a pair of tensors or an iterable of batches, but got "
            f"{type(dataset).__name__}."
        ) from error
