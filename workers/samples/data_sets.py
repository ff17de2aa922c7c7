"""Which data sets are measured: one, or several by name."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import SamplesError
from ..evaluator import SampleMemory
from ..measurement_options import MeasurementOptions
from ..metric_names import check_set_name
from .random_state import random_state_kept
from .samples import Samples

_EXAMPLE = '{"train": train_loader, "test": test_loader}'


@dataclass(frozen=True)
class DataSet:
    """A data set as callback_fn gave it."""

    name: str  # in a mapping; "" where there is one data set without a name
    data: object  # in any form that the evaluator of the network reads
    options: MeasurementOptions  # with the number of its own samples


def find_data_sets(dataset: object, options: MeasurementOptions) -> list[DataSet]:
    """Returns the data sets that callback_fn's third item stands for, the main one first."""
    # A batch may be a mapping too, but it lies in a list or comes from a loader: a mapping always names data sets.
    if not isinstance(dataset, Mapping):
        if isinstance(options.num_samples, Mapping):
            raise ValueError(
                f"num_samples must be one number, because callback_fn returned one data set without a name, but got "
                f"{dict(options.num_samples)}. For numbers by name, return a mapping such as {_EXAMPLE}."
            )
        return [DataSet("", dataset, options)]
    if not dataset:
        raise SamplesError(f"dataset must hold at least one data set, such as {_EXAMPLE}, but the mapping is empty.")
    for name, data in dataset.items():
        check_set_name(name)
        if hasattr(data, "shape") or isinstance(data, Mapping | str | bytes) or data is None:
            kind = "a dict" if isinstance(data, Mapping) else f"a {type(data).__name__}"
            raise SamplesError(
                "dataset is a mapping, which always stands for several data sets by name, such as "
                f"{_EXAMPLE}; but its entry {name!r} is {kind}, which is no data set. If the mapping is a single batch "
                "of named arrays, put it into a list ([batch]), or give a pair of (inputs, targets) with a dict of "
                "arrays as inputs."
            )
    counts = options.num_samples if isinstance(options.num_samples, Mapping) else None
    unknown = [name for name in counts or () if name not in dataset]
    if unknown:
        raise ValueError(
            f"num_samples must name data sets that callback_fn returns ({', '.join(map(repr, dataset))}), but names "
            f"{', '.join(map(repr, unknown))}."
        )
    return [
        DataSet(name, data, options if counts is None else replace(options, num_samples=counts.get(name)))
        for name, data in dataset.items()
    ]


@dataclass(frozen=True)
class ReadSet:
    """A data set whose samples are read; its name is "" where there is one data set without a name."""

    name: str
    samples: Samples
    notes: list[str]


def read_sets(
    dataset: object,
    options: MeasurementOptions,
    memory: SampleMemory,
    read: Callable[[Any, MeasurementOptions, SampleMemory], tuple[Samples, list[str]]],
) -> list[ReadSet]:
    """Reads the data sets of callback_fn's third item, main one first; the process's generators stay as they are."""
    found = find_data_sets(dataset, options)
    for is_asked, obstacle in (
        (
            options.buffers == "recalibrate" and not memory.obstacle,
            'buffers="recalibrate" needs all samples for the statistics before it measures the first one; use '
            'buffers="fixed"',
        ),
        (len(found) > 1, "several data sets are measured at each point in turn, and all of them must be in memory"),
        (options.groups is not None, "the groups of all samples must be known before the first point"),
        (options.keep_samples, "the loss of each sample is kept, and for that all samples must be in memory"),
    ):
        if is_asked:
            memory = replace(memory, obstacle=obstacle)
    sets: list[ReadSet] = []
    for index, item in enumerate(found):
        own = memory
        if item.name:
            held = [pickle.loads(each)[index] for each in memory.held]
            limit = memory.limit
            if isinstance(limit, int):
                limit = max(1, limit - sum(known.samples.nbytes for known in sets))
            own = replace(memory, held=tuple(each for each in held if each is not None), limit=limit)
        with naming_set(item.name), random_state_kept():
            sets.append(ReadSet(item.name, *read(item.data, item.options, own)))
    if len(sets) > 1 and options.buffers == "recalibrate":
        main = sets[0]
        main.notes.append(f"at each point, the statistics are recalibrated on the data set {main.name!r} alone.")
    return sets


@contextlib.contextmanager
def naming_set(name: str) -> Iterator[None]:
    """Puts the name of a data set in front of what is raised; "" is none."""
    try:
        yield
    except Exception as error:
        prefix = f"data set {name!r}: "
        if name and error.args and isinstance(error.args[0], str) and not error.args[0].startswith("data set "):
            error.args = (prefix + error.args[0], *error.args[1:])
        raise


def note_of_set(name: str, note: str) -> str:
    return f"data set {name!r}: {note}" if name else note
