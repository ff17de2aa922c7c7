"""Measures many points in one pass over samples that memory does not hold."""

from __future__ import annotations

import itertools
import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import CallbackFunctionError, ChangedSamplesError, PointsFailedError
from ..evaluator import PassCost
from ..samples.batches import Batch
from ..samples.samples import Samples, SampleStream
from .memory_shortage import is_memory_shortage
from .totals import Total, add_more_batches

_Place = TypeVar("_Place")
# Reading takes at most a fifth of a pass with so many points ...
_MEASURING_PER_READING = 4.0
# ... which lasts a second at least. What is added up for each sample and point bounds them.
_LEAST_SECONDS = 1.0
_MOST_POINTS = 1024
# A move reads and writes each parameter a few times, and so takes a tenth of reading the samples once.
_SAMPLES_PER_WEIGHT = 32
_BYTES_PER_VALUE = 32
_BYTES_FOR_VALUES = 1 << 28


@dataclass(eq=False)
class StreamedMeasurement:
    """Measures places in passes, and learns how many are worth one."""

    stream: SampleStream
    forward: Callable[[], Callable[..., Any]]
    batches: Callable[[Samples], Sequence[Batch]]
    weights_size: int  # in bytes
    cost: PassCost | None = field(default=None, init=False)  # of a pass; None before the first one

    def measure(
        self, places: Sequence[_Place], visit: Callable[[_Place], None], totals: Sequence[Total]
    ) -> list[dict[str, float]]:
        """Returns each place's values after one pass; a PointsFailedError has those of the places that did not fail."""
        start = time.perf_counter()
        sums: list[list[Total]] = [[total.fresh() for total in totals] for _ in places]
        errors: list[str | None] = [None] * len(places)

        def add(index: int, batches: Iterable[Batch]) -> None:
            visit(places[index])
            add_more_batches(self.forward(), batches, sums[index])

        for block in self.stream.blocks():
            for group in self._groups(block):
                batches = [self.batches(part) for part in group]
                for index in range(len(places)):
                    if errors[index] is None:
                        errors[index] = _attempted(add, index, itertools.chain.from_iterable(batches))
                del batches, group
            del block
        rows: list[dict[str, float]] = [{} for _ in places]
        for index, parts in enumerate(sums):
            if errors[index] is None:
                errors[index] = _attempted(lambda: [rows[index].update(part.result()) for part in parts])  # noqa: B023
        self._learn(len(places), time.perf_counter() - start)
        if any(errors):
            raise PointsFailedError([None if error else row for row, error in zip(rows, errors, strict=True)], errors)
        return rows

    def measure_one(self, put: Callable[[], None], totals: Sequence[Total]) -> dict[str, float]:
        """Returns the values of the one place to which ``put`` moves the network."""
        try:
            return self.measure([None], lambda _: put(), totals)[0]
        except PointsFailedError as error:
            raise CallbackFunctionError(str(error)) from error

    def _groups(self, block: Sequence[Samples]) -> Iterator[list[Samples]]:
        """Yields the parts of a block that are measured at a place before the network moves to the next one."""
        # A few stay in the processor's cache for all places; with too few, the moves take longer than the rest.
        group: list[Samples] = []
        for part in block:
            group.append(part)
            if sum(item.nbytes for item in group) >= _SAMPLES_PER_WEIGHT * self.weights_size:
                yield group
                group = []
        if group:
            yield group

    def _learn(self, places: int, seconds: float) -> None:
        reading = self.stream.seconds
        each = max(seconds - reading, 1e-6) / places
        wanted = math.ceil(max(_MEASURING_PER_READING * reading, _LEAST_SECONDS) / each)
        room = _BYTES_FOR_VALUES // (_BYTES_PER_VALUE * self.stream.count)
        self.cost = PassCost(max(1, min(wanted, room, _MOST_POINTS)), reading, each)


def _attempted(work: Callable[..., object], *arguments: Any) -> str | None:
    """Returns the traceback of what the user's code raised; a lack of memory concerns all places, and other samples."""
    try:
        work(*arguments)
        return None
    except ChangedSamplesError:
        raise
    except Exception as error:
        if is_memory_shortage(error):
            raise
        return traceback.format_exc()
