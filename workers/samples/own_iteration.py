"""DataLoaders whose class iterates in a way of its own: what they give is measured, where it is the same each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from ..errors import SamplesError
from ..users_code import warn_user
from .batches import Batch, MakeBatch, cut
from .digest import quick_mark

# A loader that gives so many times as many samples as its data set has will not end.
_ENDLESS = 16


def own_iteration(loader: DataLoader[Any], make_batch: MakeBatch, notes: list[str]) -> Iterable[Any] | None:
    """Returns the batches of a loader with an ``__iter__`` of its own; None where its data set is read instead."""
    if type(loader).__iter__ is DataLoader.__iter__:
        return None
    dataset: Any = loader.dataset
    try:
        most = _ENDLESS * (len(dataset) + 1)
    except TypeError:
        return None  # it cannot be read, and says so
    try:
        # Batches without samples may have no end either.
        first, second = (
            [mark for mark, _ in islice(_samples(islice(loader, most), make_batch), most)] for _ in range(2)
        )
    except SamplesError:
        return None  # what is wrong with a batch is said where it is read
    if len(first) == most or Counter(first) != Counter(second):
        text = (
            f"the DataLoader, whose class {type(loader).__name__} iterates in a way of its own, gives other samples "
            "each time or has no end, but a landscape needs a fixed set: its data set is measured, each sample once. "
            "To choose them yourself, give a DataLoader of a Subset of the data set."
        )
        warn_user(text)
        notes.append(text)
        return None
    # What gives all samples, in any order, is read as its data set.
    if len(first) == len(dataset):
        plain = (loader.collate_fn([dataset[index]]) for index in range(len(dataset)))
        if Counter(first) == Counter(mark for mark, _ in _samples(plain, make_batch)):
            return None
    if first == second:
        return loader
    ordered = [batch for _, batch in sorted(_samples(loader, make_batch), key=lambda pair: pair[0])]
    return [(batch.inputs, batch.targets) if batch.targets is not None else batch.inputs[0] for batch in ordered]


def _samples(batches: Iterable[Any], make_batch: MakeBatch) -> Iterator[tuple[int, Batch]]:
    """Yields the samples of batches, each with a number that others hardly ever have; what is not cut is one."""
    for item in batches:
        batch = make_batch(item, None)
        for start in range(batch.size if batch.can_be_cut else 1):
            part = cut(batch, start, start + 1) if batch.can_be_cut else batch
            yield quick_mark(part), part
