"""From a data set to samples: what is read in one pass, and where it is kept."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from typing import Any

import numpy as np

from ..errors import SampleMemoryError, SamplesError
from ..evaluator import SampleMemory
from ..hardware import free_memory, size_text
from ..measurement_options import MeasurementOptions
from ..users_code import warn_and_note
from .batches import Batch, MakeBatch, SampleDigest, as_batch, cut, quick_mark, same_leaves
from .samples import PassFacts, Samples, SampleStream, count_samples, no_samples
from .store import SampleWriter, open_held

# After so many samples, and more batches than its length says, a stream counts as one without an end.
_ENDLESS = 10_000_000
# What stays in memory of samples that are read anew, two batches at least.
_HEAD_BYTES = 1 << 26
_HEAD_BATCHES = 2
# What a pass has in memory at once, the head kept beside it.
_BLOCK_SHARE = 0.25


@dataclass(frozen=True)
class SampleSource:
    """The samples that are measured, as the data set gives them."""

    read: Callable[[], Iterator[Batch]]  # begins a pass over their batches
    few: Callable[[], Iterator[tuple[int, Batch]]]  # a few batches, each with its first sample's number, to compare
    count: int | None = None  # how many samples there are; None where only a pass tells
    without_batches: bool = False  # whether the batches are ours, because the data set has none
    only_once: bool = False  # whether a second pass is not possible
    first: Sequence[int] = ()  # the indices of the first batch, where there are indices
    read_fast: Callable[[], Iterator[Batch]] | None = None  # ``read``, in the processes of the data set's loader


@dataclass(frozen=True)
class Stream:
    """Batches that can be read again from the start; there are as many as in ``source``, if that has a length."""

    read: Callable[[], Iterator[Any]]
    source: object = None

    def __iter__(self) -> Iterator[Any]:
        return self.read()

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]


def indexed_source(
    read: Callable[[Sequence[int]], Any],
    available: Sequence[int],
    batch_size: int,
    options: MeasurementOptions,
    notes: list[str],
    *,
    make_batch: MakeBatch = as_batch,
    without_batches: bool,
    read_all: Callable[[Sequence[Sequence[int]]], Iterator[Any]] | None = None,
) -> SampleSource:
    """Returns the source for a data set that is read by index; ``read_all`` reads in the processes of its loader."""
    if not available:
        raise no_samples()
    count = count_samples(len(available), options.count, notes)
    indices: Sequence[int] = available[:count]
    if options.samples == "random":
        chosen = np.random.default_rng(options.seed).permutation(len(available))[:count]
        indices = [available[index] for index in sorted(chosen.tolist())]
    parts = [indices[start : start + batch_size] for start in range(0, count, batch_size)]

    def batches(read_parts: Callable[[Sequence[Sequence[int]]], Iterator[Any]]) -> Iterator[Batch]:
        return map(make_batch, read_parts(parts), map(len, parts))

    def few() -> Iterator[tuple[int, Batch]]:
        for number in sorted({0, len(parts) // 2, len(parts) - 1}):
            yield number * batch_size, make_batch(read(parts[number]), len(parts[number]))

    one_by_one = partial(map, read)
    read_fast = partial(batches, read_all or one_by_one)
    return SampleSource(partial(batches, one_by_one), few, count, without_batches, first=parts[0], read_fast=read_fast)


def stream_source(
    dataset: Iterable[Any],
    options: MeasurementOptions,
    *,
    make_batch: MakeBatch = as_batch,
    without_batches: bool = False,
) -> SampleSource:
    """Returns the source for an iterable of batches, of which as many are read as are needed."""
    if options.samples == "random":
        raise ValueError('samples="random" needs a data set that is read by index; use samples="first" for a stream.')

    def read() -> Iterator[Batch]:
        left, seen, empty = options.count, 0, 0
        for number, item in enumerate(_iterate(dataset), start=1):
            batch = make_batch(item, None)
            seen += batch.size if left is None else 0
            empty += not batch.size
            _check_end(dataset, number, seen, empty)
            if left is not None:
                batch = cut(batch, 0, left) if batch.size > left and batch.can_be_cut else batch
                left = max(0, left - batch.size)
            yield batch
            if left == 0:
                return

    return SampleSource(
        read,
        lambda: ((0, batch) for batch in islice(read(), 1)),
        without_batches=without_batches,
        only_once=isinstance(dataset, Iterator),
    )


def read_source(
    source: SampleSource,
    options: MeasurementOptions,
    notes: list[str],
    memory: SampleMemory = SampleMemory(),  # noqa: B008
) -> Samples:
    """Returns the samples of a source, from another worker of this machine or read now; more notes may be added."""
    share = memory.limit * (2 if memory.obstacle else 1)
    limit = memory.limit if isinstance(memory.limit, int) else share * free_memory()
    for held in memory.held:
        taken = _taken(held, source, limit)
        if taken is not None:
            return taken if memory.shared else taken.without_store()
    writer = SampleWriter(memory.folder if memory.shared else None)
    for batch in source.read():
        writer.add(batch)
        expected = writer.size if source.count is None else writer.size / writer.count * source.count
        if expected > limit:
            del writer
            return _streamed(source, options, notes, memory, expected, limit)
    if not writer.count:
        raise no_samples()
    samples = writer.finish(without_batches=source.without_batches)
    samples = samples if memory.shared else samples.without_store()
    if source.count is None:
        again = None if source.only_once else next(source.few(), None)
        if again is not None and not _are_same(again[1], samples.read_batches[0]):
            raise SamplesError(
                "dataset must give the same samples each time, but its first batch changed between two reads. Switch "
                "shuffling and random augmentation off for the landscape."
            )
        count_samples(samples.count, options.count, notes)
        if options.count is not None and samples.count > options.count:
            notes.append(f"{samples.count} samples are used, because the data set's last batch cannot be cut.")
    return samples


def _taken(held: bytes, source: SampleSource, limit: float) -> Samples | None:
    """Returns what another worker has where this one's source gives the same, by its number and a few batches."""
    content = pickle.loads(held)
    samples = None if isinstance(content, PassFacts) else open_held(content)
    if samples is not None:
        known: Sequence[Any] = samples.read_batches
        sizes: Sequence[int] = [batch.size for batch in known]
        is_same: Callable[[Batch, Any], bool] = _are_same
    elif isinstance(content, PassFacts):
        known, sizes = content.marks, content.sizes
        is_same = _has_mark
    else:
        return None
    if source.only_once or source.count not in (None, sum(sizes)):
        return None
    starts = dict(zip(accumulate(sizes, initial=0), known, strict=False))
    if not all(number in starts and is_same(batch, starts[number]) for number, batch in source.few()):
        return None
    return _with_passes(source, limit, content) if samples is None else samples


def _streamed(
    source: SampleSource, options: MeasurementOptions, notes: list[str], memory: SampleMemory, size: float, limit: float
) -> Samples:
    """Returns the head of samples that are read anew in each pass."""
    found = f"the samples take {'more than ' if source.count is None else ''}{size_text(size)}"
    if source.only_once or memory.obstacle:
        reason = "dataset can be read only once" if source.only_once else memory.obstacle
        raise SampleMemoryError(
            f"{found}, more than the {size_text(limit)} that sample_memory allows, and they cannot be read anew in "
            f"each pass: {reason}. Use fewer samples (num_samples), or a larger sample_memory if the machine has it."
        )
    samples = _with_passes(source, limit)
    if source.count is None:
        count_samples(samples.total, options.count, notes)
    # Without sizes, which differ between machines: notes are part of the file.
    text = (
        "the samples take more memory than sample_memory allows, so that they are read anew for each group of points; "
        "each batch is then measured at all of them."
    )
    warn_and_note(notes, text)
    return samples


def _with_passes(source: SampleSource, limit: float, facts: PassFacts | None = None) -> Samples:
    """Reads all samples once; returns the head (two batches at least), which stays in memory, with passes over all."""
    read, block_size = source.read_fast or source.read, _BLOCK_SHARE * limit
    digest, head = SampleDigest(), SampleWriter()
    sizes: list[int] = []
    marks: list[int] = []
    for batch in read():
        in_head = len(sizes) < _HEAD_BATCHES or head.size < min(block_size, _HEAD_BYTES)
        if in_head:
            head.add(batch)
        elif facts is not None:
            # Another worker's pass has found the rest.
            break
        digest.add(batch)
        sizes.append(batch.size)
        marks.append(quick_mark(batch))
    if not sizes:
        raise no_samples()
    if facts is None:
        facts = PassFacts(tuple(sizes), tuple(marks), digest.hexdigest())
    samples = head.finish(without_batches=source.without_batches).without_store()
    return samples.head_of(SampleStream(read, facts, block_size, copied=source.count is None, join=join))


def join(batches: Sequence[Batch]) -> Samples:
    """Returns the samples of several batches, which can be cut anew where they fit together."""
    writer = SampleWriter()
    for batch in batches:
        writer.add(batch)
    return writer.finish(without_batches=False).without_store()


def _has_mark(batch: Batch, mark: int) -> bool:
    return quick_mark(batch) == mark


def _are_same(one: Batch, other: Batch) -> bool:
    return same_leaves((one.inputs, one.targets), (other.inputs, other.targets))


def _check_end(dataset: object, number: int, seen: int, empty: int) -> None:
    """Raises SamplesError where a stream may have no end; ``seen`` is 0 where it is known how many samples are read."""
    if max(seen, empty) <= _ENDLESS:
        return
    length = None
    with contextlib.suppress(TypeError, NotImplementedError):
        length = len(dataset)  # type: ignore[arg-type]
    if number <= (length or 0):
        return
    if empty > _ENDLESS:
        raise SamplesError(
            f"dataset has given more than {_ENDLESS:,} batches without any sample, so it may never end. Leave such "
            "batches out, and let it end after its last sample."
        )
    said = (
        "does not say how many there are (it has no length)"
        if length is None
        else f"more batches than its length says ({length:,})"
    )
    raise SamplesError(
        f"dataset has given more than {_ENDLESS:,} samples and {said}, so it may never end. Say how many are measured: "
        "num_samples=10_000."
    )


def _iterate(dataset: Iterable[Any]) -> Iterator[Any]:
    try:
        return iter(dataset)
    except (pickle.PicklingError, AttributeError) as error:
        if isinstance(error, AttributeError) and "pickle" not in str(error):
            raise
        raise SamplesError(
            f"dataset cannot be sent to the processes of its loader ({error}); define it in a module that they can "
            "import, or use num_workers=0."
        ) from error
    except TypeError as error:
        raise TypeError(
            "dataset must be a DataLoader, a Dataset, a pair of tensors or an iterable of batches, but got "
            f"{type(dataset).__name__}."
        ) from error
