"""Totals over one partition of the samples: all together, each group of batches, and each batch alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from collectors.networks.batches import call_network

from ..errors import SamplesError
from ..samples.batches import Batch
from .memory_shortage import is_memory_shortage
from .totals import Total


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
    """Adds batches up in several totals.

    Args:
        forward: the network, where it is now.
        totals: what is added up; they are reset.
        names: of each total's value.
        always: the totals whose groups count even if it is known that they add batches up.
    """

    def __init__(
        self, forward: Callable[..., Any], totals: Sequence[Total], names: Sequence[str], always: Container[int]
    ) -> None:
        self._forward, self._totals, self._names = forward, totals, names
        self._sums = [PartitionSum() for _ in totals]
        for total in totals:
            total.reset()
        self._tested = [index for index, total in enumerate(totals) if index in always or not total.adds_up]

    def add(self, groups: Sequence[Sequence[Batch]]) -> None:
        """Adds the next groups of batches."""
        for group in groups:
            in_group = {index: self._totals[index].fresh() for index in self._tested}
            for batch in group:
                outputs = call_network(self._forward, batch.inputs)
                for index, found in enumerate(self._sums):
                    if found.error is None:
                        self._add(index, found, outputs, batch, in_group.get(index), alone=len(group) == 1)
            for index, total in in_group.items():
                found = self._sums[index]
                if found.error is None:
                    found.groups.append(self._value(total, index))
                    if len(group) == 1:
                        found.each.append(found.groups[-1])

    def finish(self) -> list[PartitionSum]:
        """Returns the sums of everything that was added."""
        for index, found in enumerate(self._sums):
            if found.error is None:
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
