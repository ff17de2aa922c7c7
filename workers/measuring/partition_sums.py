"""Totals over one partition of the samples: all together, each group of batches, and each batch alone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collectors.networks.batches import call_network

from ..errors import SamplesError
from ..samples.batches import Batch
from .checks import Closeness
from .memory_shortage import is_memory_shortage
from .totals import Total

_SAME = 1e-5


def add_batches(forward: Callable[..., Any], batches: Sequence[Batch], totals: Sequence[Total]) -> None:
    """Resets every total and adds the batches up in all of them, from the same forward passes."""
    for total in totals:
        total.reset()
    for batch in batches:
        outputs = call_network(forward, batch.inputs)
        for total in totals:
            total.add(outputs, batch)
        del outputs  # it may hold what gradients need, which no two batches should at once


def run_batches(
    forward: Callable[..., Any], batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]
) -> dict[str, float]:
    """Returns the loss and every metric over batches, from the same forward passes."""
    totals = (loss, *metrics.values())
    add_batches(forward, batches, totals)
    results: dict[str, float] = {}
    for total in totals:
        results |= total.result()
    return results


@dataclass
class PartitionSum:
    """One total over one partition.

    Attributes:
        value: over all batches.
        groups: over each group of batches.
        each: of each batch alone.
        error: why there are none.
    """

    value: float = math.nan
    groups: list[float] = field(default_factory=list)
    each: list[float] = field(default_factory=list)
    error: Exception | None = None


class PartitionSums:
    """Adds batches up in several totals."""

    def __init__(
        self, forward: Callable[..., Any], totals: Sequence[Total], names: Sequence[str], always: Container[int]
    ) -> None:
        self._forward, self._totals, self._names = forward, totals, names
        self._sums, self._is_finished = [PartitionSum() for _ in totals], False
        for total in totals:
            total.reset()
        self._tested = [index for index, total in enumerate(totals) if index in always or not total.adds_up]

    def add(self, groups: Iterable[Sequence[Batch]]) -> None:
        """Adds the next groups of batches."""
        for group in groups:
            in_group = {index: self._totals[index].fresh() for index in self._tested}
            for batch in group:
                outputs = call_network(self._forward, batch.inputs)
                for index, found in enumerate(self._sums):
                    if found.error is None:
                        self._add(index, found, outputs, batch, in_group.get(index), alone=len(group) == 1)
                del outputs  # it may hold what gradients need, which no two batches should at once
            for index, total in in_group.items():
                found = self._sums[index]
                if found.error is None:
                    found.groups.append(self._value(total, index))
                    if len(group) == 1:
                        found.each.append(found.groups[-1])

    def finish(self) -> list[PartitionSum]:
        """Returns the sums of everything that was added until the first call."""
        is_first, self._is_finished = not self._is_finished, True
        for index, found in enumerate(self._sums):
            if is_first and found.error is None:
                try:
                    found.value = self._totals[index].result()[self._names[index]]
                except Exception as error:
                    found.error = error
        return self._sums

    def _add(
        self, index: int, found: PartitionSum, outputs: Any, batch: Batch, in_group: Total | None, *, alone: bool
    ) -> None:
        try:
            self._totals[index].add(outputs, batch)
            if in_group is not None:
                in_group.add(outputs, batch)
                if not alone:
                    itself = self._totals[index].fresh()
                    itself.add(outputs, batch)
                    found.each.append(self._value(itself, index))
        except Exception as error:
            if is_memory_shortage(error):
                raise
            found.error = error

    def _value(self, total: Total, index: int) -> float:
        try:
            return total.result()[self._names[index]]
        except SamplesError:
            return math.nan  # a batch of padding has no mean of its own, but does the sums no harm


def agrees_on_all(
    forward: Callable[..., Any],
    batches: Iterable[Batch],
    loss_of_batch: Total,
    totals: Mapping[str, Total],
    expected: Mapping[str, float],
    closeness: Closeness,
) -> bool:
    """Returns whether totals (the loss's first) over all samples are ``expected``, as measured in other batches."""
    sums = PartitionSums(forward, [loss_of_batch, *totals.values()], ["loss", *totals], range(1 + len(totals)))
    sums.add([batch] for batch in batches)
    whole, *found = sums.finish()
    for name, item in zip(totals, found, strict=True):
        value = expected[name]
        if item.error is not None or differ_in_kind(item.value, value):
            return False
        if math.isfinite(value) and abs(item.value - value) > closeness.allowed(value, abs(value)):
            return False
    if whole.error is not None:
        return True  # its reduction is off: the sums take its elements' mean
    scale = max((abs(value) for value in whole.each if math.isfinite(value)), default=0.0)
    return not any(
        differ_in_kind(value, other) or abs(value - other) > closeness.in_one_batch.allowed(other, scale)
        for value, other in zip(found[0].each, whole.each, strict=True)
    )


def best_of_own_batches(
    batches: Sequence[Batch], candidates: Sequence[Total], run: Callable[[Sequence[Batch], Total], dict[str, float]]
) -> int:
    """Returns which candidate suits a data set's batches: sums over samples where they are the loss, else the first."""
    few = batches[:1]
    try:
        whole = run(few, candidates[0])["loss"]
    except SamplesError:  # padding alone
        few = batches
        whole = run(few, candidates[0])["loss"]
    for index, candidate in enumerate(candidates):
        if candidate.splits and candidate.adds_up:
            with contextlib.suppress(SamplesError):
                if np.isclose(run(few, candidate)["loss"], whole, rtol=_SAME, atol=1e-7, equal_nan=True):
                    return index
    return 0


def differ_in_kind(first: float, second: float) -> bool:
    """Returns whether two values differ and one is NaN or infinite."""
    return not (math.isfinite(first) and math.isfinite(second)) and not np.array_equal(first, second, equal_nan=True)
