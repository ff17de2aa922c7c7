"""Which samples of its data set a DataLoader (PyTorch) visits, or gives where its class iterates in its own way."""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from ..errors import SamplesError
from ..users_code import warn_and_note
from .batches import Batch, MakeBatch, cut, quick_mark
from .sources import join

_LISTED = (Sequence, np.ndarray, torch.Tensor)
# A loader that gives so many times as many samples as its data set has will not end.
_ENDLESS = 16


@dataclass(frozen=True)
class _Visits:
    indices: Sequence[int] | None  # of a fixed set of samples; None for all of the data set
    problem: str = ""  # why what it visits is no fixed set; then the indices are those that it chooses from
    kind: str = ""  # of the sampler that has the problem


def visited_indices(loader: DataLoader[Any], asked: int | None, notes: list[str]) -> list[int] | None:
    """Returns the indices of the samples that a loader visits, in data-set order; None for all of them."""
    # The process's generators may move. The sampler and its own generators stay as they are.
    found = _visits_of_loader(loader)
    if found.problem:
        count = len(loader.dataset if found.indices is None else found.indices)  # type: ignore[arg-type]
        name = "samples" if loader.batch_sampler is not None else "batches"
        shown = f"{asked} of the {count}" if asked is not None and asked < count else f"all {count}"
        text = (
            f"the DataLoader's {found.kind} {found.problem}, but a landscape needs a fixed set: {shown} {name} that it "
            "chooses from are measured, each once. To choose them yourself, give the DataLoader a Subset of the data "
            "set in place of this sampler, or use num_samples."
        )
        warn_and_note(notes, text)
    # A subset is part of the data's meaning (a validation split, a process's share), and so is how often an index is
    # listed; the order of a visit is not.
    return None if found.indices is None else sorted(found.indices)


def _visits_of_loader(loader: DataLoader[Any]) -> _Visits:
    batches: Any = loader.batch_sampler
    if batches is None:
        return _visits_of(loader.sampler, loader.dataset)
    if getattr(type(batches), "__iter__", None) is BatchSampler.__iter__:
        found = _visits_of(batches.sampler, loader.dataset)
        if found.problem or not batches.drop_last:
            return found
        # The last samples are left out, where they fill no batch.
        if isinstance(batches.sampler, _LISTED):
            indices = _numbers(batches.sampler)
            return _Visits(indices[: len(indices) - len(indices) % batches.batch_size])
        visits = _looked_at(batches, loader.dataset, chain.from_iterable)
        return _Visits(found.indices, visits.problem, visits.kind) if visits.problem else visits
    if isinstance(batches, _LISTED):
        return _Visits(_numbers(chain.from_iterable(batches)))
    found = _looked_at(batches, loader.dataset, chain.from_iterable)
    if found.problem and hasattr(batches, "sampler"):
        chosen_from = _visits_of(batches.sampler, loader.dataset)
        return chosen_from if chosen_from.problem else _Visits(chosen_from.indices, found.problem, found.kind)
    return found


def _visits_of(sampler: Any, dataset: Any) -> _Visits:
    kind = type(sampler).__name__
    if isinstance(sampler, _LISTED):
        return _Visits(_numbers(sampler))
    if type(sampler) is SubsetRandomSampler:
        return _Visits(_numbers(sampler.indices))
    if isinstance(sampler, WeightedRandomSampler):
        if not sampler.replacement and sampler.num_samples == len(sampler.weights):
            return _Visits(range(len(sampler.weights)))
        chosen_from = torch.nonzero(sampler.weights).flatten().tolist()
        return _Visits(chosen_from, f"draws {sampler.num_samples} at random by their weights", kind)
    if type(sampler).__iter__ is RandomSampler.__iter__:
        count = len(sampler.data_source)
        if not sampler.replacement and sampler.num_samples % count == 0:
            return _Visits(range(count))
        return _Visits(range(count), f"draws {sampler.num_samples} at random", kind)
    found = _looked_at(sampler, dataset, iter)
    indices = getattr(sampler, "indices", None)
    if found.problem and isinstance(indices, _LISTED):
        return _Visits(_numbers(indices), found.problem, kind)
    return found


def _looked_at(sampler: Any, dataset: Any, flat: Callable[[Any], Iterable[Any]]) -> _Visits:
    """Returns what a sampler visits in two rounds; ``flat`` returns the indices of what it gives."""
    try:
        count = len(dataset)
    except TypeError:
        return _Visits(None)  # which cannot be read, and says so

    def visit(visited: Any) -> list[int]:
        # It may have no end.
        return [operator.index(index) for index in islice(flat(islice(iter(visited), count + 1)), count + 1)]

    kind = type(sampler).__name__
    try:
        # A copy, because it may count its rounds, shuffle its own list, or hold a generator that a training draws from.
        visited = copy.deepcopy(sampler, {id(dataset): dataset})
        first = visit(visited)
        if len(set(first)) < len(first):
            return _Visits(None, "visits samples more than once", kind)
        if set(first) == set(range(count)):
            return _Visits(None)
        if set(visit(visited)) != set(first):
            return _Visits(None, "visits other samples each time", kind)
    except Exception as error:
        return _Visits(None, f"cannot be asked what it visits ({type(error).__name__}: {error})", kind)
    return _Visits(first)


def _numbers(indices: Iterable[Any]) -> list[int]:
    return [int(index) for index in indices]


def own_iteration(loader: DataLoader[Any], make_batch: MakeBatch, notes: list[str]) -> Iterable[Any] | None:
    """Returns the batches of a loader with an ``__iter__`` of its own; None where its data set is read instead."""
    if type(loader).__iter__ is DataLoader.__iter__:
        return None

    def made(items: Iterable[Any]) -> Iterator[Batch]:
        return (make_batch(item, None) for item in items)

    dataset: Any = loader.dataset
    try:
        most = _ENDLESS * (len(dataset) + 1)
    except TypeError:
        return None  # it cannot be read, and says so
    try:
        # Batches without samples may have no end either.
        first, second = ([mark for mark, _ in islice(_samples(made(islice(loader, most))), most)] for _ in range(2))
    except SamplesError:
        return None  # what is wrong with a batch is said where it is read
    if len(first) == most or Counter(first) != Counter(second):
        text = (
            f"the DataLoader, whose class {type(loader).__name__} iterates in a way of its own, gives other samples "
            "each time or has no end, but a landscape needs a fixed set: its data set is measured, each sample once. "
            "To choose them yourself, give a DataLoader of a Subset of the data set."
        )
        warn_and_note(notes, text)
        return None
    # What gives all samples, in any order, is read as its data set.
    if len(first) == len(dataset):
        plain = (loader.collate_fn([dataset[index]]) for index in range(len(dataset)))
        if Counter(first) == Counter(mark for mark, _ in _samples(made(plain))):
            return None
    if first == second:
        return loader
    given = list(made(loader))
    ordered = [batch for _, batch in sorted(_samples(given), key=lambda pair: pair[0])]
    # A loss may belong to its batches, which are as large as the loader's.
    batches = join(ordered).batches(max(batch.size for batch in given))
    return [(batch.inputs, batch.targets) if batch.targets is not None else batch.inputs[0] for batch in batches]


def _samples(batches: Iterable[Batch]) -> Iterator[tuple[int, Batch]]:
    """Yields the samples of batches, each with a number that others hardly ever have; what is not cut is one."""
    for batch in batches:
        for start in range(batch.size if batch.can_be_cut else 1):
            part = cut(batch, start, start + 1) if batch.can_be_cut else batch
            yield quick_mark(part), part
