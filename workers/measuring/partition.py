"""Finds out whether a loss splits into samples, so that batch size is free, or belongs to its batches."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from ..errors import SamplesError
from ..evaluator import Partition
from ..samples.batches import Batch
from ..samples.samples import Passes, Samples, TwoPartitions
from .checks import Closeness, check_same_values
from .memory_shortage import is_memory_shortage
from .totals import Pending, Total, add_batches, run_batches

_CLEARLY_CLOSER = 0.1
_MUST_SEE = 2  # the origin and the farthest point
_MEAN = " It is the mean over these batches, weighted by how many samples each holds"
_MEAN_OF_BATCHES = f"{_MEAN}; if it should be a sum or a ratio over all samples, let one batch hold them all."
_OPEN = "which leaves open whether it depends on how samples are batched, so"


class _Sum(Total):
    """A total over one partition; one that is tested also over each group of batches, and each batch alone."""

    def __init__(self, name: str, total: Total, *, is_tested: bool = True) -> None:
        total.reset()
        self.name, self._total, self._group = name, total, total.fresh() if is_tested else None
        self.value = math.nan
        self.groups: list[float] = []
        self.each: list[list[float]] = []
        self.sizes: list[list[int]] = []  # of each batch in each group
        self.error: Exception | None = None  # why there are no values

    def reset(self) -> None:
        """Begins a group of batches."""
        if self._group is not None:
            self._group.reset()
            self.groups.append(math.nan)
            self.each.append([])
            self.sizes.append([])

    def add(self, outputs: Any, batch: Batch) -> None:
        """Adds a batch to all and to its group."""
        if self.error is not None:
            return
        try:
            self._total.add(outputs, batch)
            if self._group is not None:
                self._group.add(outputs, batch)
                self.groups[-1] = value = self._value_of(self._group)
                if self.each[-1]:
                    alone = self._total.fresh()
                    alone.add(outputs, batch)
                    value = self._value_of(alone)
                self.each[-1].append(value)
                self.sizes[-1].append(batch.size)
        except Exception as error:
            if is_memory_shortage(error):
                raise
            self.error = error

    def pending(self) -> Pending:
        return self._total.pending()

    def finish(self) -> None:
        """Ends the sum; its total may be used for another one afterwards."""
        if self.error is None:
            try:
                self.value = self.result()[self.name]
            except Exception as error:
                self.error = error

    @property
    def has_failed(self) -> bool:
        """Whether it has no value for another reason than samples of which none counts."""
        return self.error is not None and not isinstance(self.error, SamplesError)

    def gap(self, other: _Sum) -> float:
        """Returns how much two partitions differ: all together, or group by group, whose differences may cancel."""
        with np.errstate(invalid="ignore"):  # a batch of padding is NaN in both, an infinite loss infinite in both
            gaps = np.nan_to_num(np.array(self.groups) - np.array(other.groups))
        return max(abs(self.value - other.value), float(np.linalg.norm(gaps * self._shares)))

    def spread(self) -> float:
        """Returns what the gap would be if the pieces of each group had quite other weights."""
        deviations = []
        for values, sizes in zip(self.each, self.sizes, strict=True):
            pieces, shares = np.nan_to_num(np.array(values), posinf=0.0, neginf=0.0), np.array(sizes) / sum(sizes)
            deviations.append(math.sqrt(float(shares @ (pieces - shares @ pieces) ** 2)))
        return float(np.linalg.norm(np.array(deviations) * self._shares))

    def agrees_in_batches(self, whole: _Sum, closeness: Closeness, scale: float) -> bool:
        """Returns whether each batch alone has the value that the loss itself has there."""
        return not any(
            _differ_in_kind(value, expected) or abs(value - expected) > closeness.in_one_batch.allowed(expected, scale)
            for value, expected in zip(chain(*self.each), chain(*whole.each), strict=False)
        )

    @property
    def _shares(self) -> Any:
        sizes = np.array([sum(sizes) for sizes in self.sizes], np.float64)
        return sizes / sizes.sum()

    def _value_of(self, part: Total) -> float:
        try:
            return part.result()[self.name]
        except SamplesError:
            return math.nan  # a batch of padding has no mean of its own, but does the sums no harm


@dataclass(eq=False)
class _Tested:
    """A way to add up the loss, or a metric.

    Attributes:
        own: at each place, over the data set's own batches.
        other: at each place, over other batches; None where these cannot be made, or tell nothing.
        fits: whether nothing speaks against its adding up.
        is_known: whether more places would not show more.
        gap: the largest relative difference between the two partitions.
        is_finite: whether it has a value at the last place.
    """

    name: str
    total: Total
    is_loss: bool
    own: list[_Sum] = field(default_factory=list)
    other: list[_Sum | None] = field(default_factory=list)
    fits: bool = True
    is_known: bool = False
    gap: float = 0.0
    is_finite: bool = False

    def new_sum(self, *, fresh: bool = False) -> _Sum:
        """Returns a sum over one partition; where two are made at once, one of them is fresh."""
        is_tested = self.is_loss or not self.total.adds_up
        return _Sum(self.name, self.total.fresh() if fresh else self.total, is_tested=is_tested)

    def judge(self, whole: _Tested, closeness: Closeness, places: slice = slice(None)) -> None:
        """Finds out what some places show; ``whole`` is the loss as it is for a batch."""
        values = [item.value for item in self.own[places]]
        sizes = [abs(value) for value in values if math.isfinite(value)]
        scale = max(sizes, default=0.0)
        self.fits, self.gap, self.is_finite = True, 0.0, bool(values) and math.isfinite(values[-1])
        tells, alike = False, True
        rows = zip(self.own[places], self.other[places], whole.own[places], whole.other[places], strict=True)
        for own, other, *expected in rows:
            for ours, loss in zip((own, other), expected, strict=True):
                if self.is_loss and ours is not None and loss is not None:
                    # A user's class may give ``reduction`` another meaning. Where the loss itself raises, its reduction
                    # is off: the sums take its elements' mean.
                    agrees = loss.error is not None or ours.agrees_in_batches(loss, closeness, scale)
                    self.fits &= agrees and not ours.has_failed
            if other is None:
                alike = False
            elif other.error is not None or _differ_in_kind(own.value, other.value):
                self.fits = False
            elif math.isfinite(own.value):
                gap, spread = own.gap(other), max(own.spread(), other.spread())
                allowed = closeness.allowed(own.value, scale, spread)
                self.fits &= gap <= allowed
                tells |= spread > closeness.telling * allowed
                alike &= spread <= allowed
                self.gap = max(self.gap, gap / abs(own.value) if own.value else gap)
        # A loss that moves with the weights and is the same for all samples does not depend on them. A pass over all
        # samples and a sum of those in memory differ anyway.
        same_samples = [item for item in self.own[places] if item.sizes == self.own[-1].sizes]
        sizes = [abs(item.value) for item in same_samples if math.isfinite(item.value)]
        moves = bool(sizes) and max(sizes) - min(sizes) > closeness.telling * closeness.allowed(scale, scale)
        self.is_known = self.total.adds_up or tells or (alike and moves) or not self.fits

    def note(self, samples: Samples, *, at_once: bool) -> str:
        """Returns a sentence that says why the data set's own batches are kept."""
        label = self.name if self.is_loss else f"metric {self.name!r}"
        kept = samples.kept_text(at_once) + (" and it has no standard error." if self.is_loss else ".")
        if not self.fits:
            mean = "" if samples.is_one_batch(at_once) else _MEAN_OF_BATCHES + self.total.advice
            return f"{label} depends on how samples are batched, so {kept}{mean}"
        if not any(self.other):
            cut = all(batch.can_be_cut for batch in samples.read_batches)
            what = "batches of one sample that cannot be joined" if cut else "lists or graphs, which are not cut"
            return f"{label} is measured in {what}, {_OPEN} {kept}{_MEAN}.{self.total.advice}"
        finite = any(math.isfinite(item.value) for item in self.own)
        looks = "hardly differs between batches" if finite else "is not finite"
        return f"{label} {looks} at the plane's origin, its corners and between them, {_OPEN} {kept}"


@dataclass(frozen=True)
class PartitionTest:
    """Compares whole batches with their pieces at a few places.

    Two partitions agree by chance where all samples have one loss (a head of zeros), and within rounding where losses
    are tiny (data learned by heart). So what counts is whether they agree where batches differ from each other.

    Attributes:
        forward: the network where it is.
        candidates: ways to add up the loss; the first is for a loss that belongs to its batches.
        closeness: of equal values.
    """

    forward: Callable[..., Any]
    samples: Samples
    candidates: Sequence[Total]
    metrics: Mapping[str, Total]
    closeness: Closeness

    def find(self, visits: Sequence[Callable[[bool], None]], *, on_plane: bool, may_be_few: bool = True) -> Partition:
        """Returns how the loss and the metrics are added up.

        Args:
            visits: each moves the network to a place; the argument says whether only a few samples are measured there.
            on_plane: whether the places are on a plane; what other weights do not show stays open.
            may_be_few: whether a few batches suffice where they tell enough.
        """
        whole, is_streamed = self.samples.partitions(), on_plane and self.samples.passes is not None
        for partitions in [whole.few(), whole] if may_be_few and not is_streamed else [whole]:
            ways = [_Tested("loss", total, True) for total in self.candidates]
            metrics = [_Tested(name, total, False) for name, total in self.metrics.items()]
            is_known, is_repeatable = False, False
            for count, visit in enumerate(visits):
                if count >= _MUST_SEE and is_known:
                    break
                move = functools.partial(visit, partitions is not whole)
                # A pass takes long: all samples are measured in the first place alone, elsewhere those in memory.
                passes = self.samples.passes if is_streamed and not count else None
                try:
                    move()
                    self._measure(ways, metrics, partitions, passes)
                except Exception:
                    if not count:
                        raise
                    continue  # a failed point, which ends no survey
                for item in (*ways, *metrics):
                    item.judge(ways[0], self.closeness, slice(-1, None))
                doubtful = not all(item.fits for item in (ways[0], *metrics) if item.own[-1].error is None)
                if doubtful and not is_repeatable:
                    move()
                    self._check_repeatable([ways[0], *metrics], partitions, in_memory=passes is None)
                    is_repeatable = True
                for item in (*ways, *metrics):
                    item.judge(ways[0], self.closeness)
                is_known = any(way.is_known for way in ways) and all(metric.is_known for metric in metrics)
            # A few batches may be padding, or alike.
            has_values = any(way.is_finite for way in ways) and all(metric.is_finite for metric in metrics)
            if len(partitions.groups) == len(whole.groups) or (has_values and (is_known or not on_plane)):
                break
        return self._decide(ways, metrics, on_plane=on_plane)

    def agrees(self, candidate: int, batch_size: int | None, expected: Mapping[str, float]) -> bool:
        """Returns whether all samples, where the network is, have values in other batches that are as expected."""
        own, other = self.samples.partitions().own_and_other()
        # Our own batches are no news where they are the data set's.
        size = max(batch.size for batch in self.samples.read_batches)
        groups = other if min(batch_size or size, self.samples.count) == size else own
        whole = _Sum("loss", self.candidates[0].fresh())
        metrics = [_Sum(name, total, is_tested=False) for name, total in self.metrics.items()]
        sums = [_Sum("loss", self.candidates[candidate]), *metrics]
        for batch in chain.from_iterable(groups):
            add_batches(self.forward, [batch], [whole, *sums])
        _finish([whole, *sums])
        for item in sums:
            value = expected[item.name]
            if item.error is not None or _differ_in_kind(item.value, value):
                return False
            if math.isfinite(value) and abs(item.value - value) > self.closeness.allowed(value, abs(value)):
                return False
        scale = max((abs(value) for value in whole.groups if math.isfinite(value)), default=0.0)
        # Where the loss itself raises, its reduction is off: the sums take its elements' mean.
        return whole.error is not None or sums[0].agrees_in_batches(whole, self.closeness, scale)

    def _measure(
        self, ways: Sequence[_Tested], metrics: Sequence[_Tested], partitions: TwoPartitions, passes: Passes | None
    ) -> None:
        """Measures samples in memory, or all in a pass, in both partitions where the network is."""
        tested, telling = [*ways, *metrics], [*ways, *metrics]
        halves: Callable[[Batch], list[Batch] | None] | None = None
        if not partitions.differ:
            # Batches that cannot be cut have halves of their labels, which tell something of means over labels alone.
            batch = partitions.own_and_other()[0][0][0]
            telling = [way for way in ways if way.total.halves(batch) is not None]
            halves = telling[0].total.halves if telling else None
        own, other, is_refused = [item.new_sum() for item in tested], list[_Sum](), False
        for block in [[partitions]] if passes is None else _blocks(passes, partitions.own_are_pieces):
            parts = block if halves is None else [_in_halves(part, halves) for part in block]
            groups = [part.own_and_other() for part in parts]
            for group in chain.from_iterable(batches for batches, _ in groups):
                add_batches(self.forward, group, own)
            if passes is None:
                _finish(own)  # the same totals are used for the other batches
            if telling:
                other = other or [item.new_sum(fresh=passes is not None) for item in tested]
            try:
                for group in chain.from_iterable(batches for _, batches in groups if telling and not is_refused):
                    add_batches(self.forward, group, other)
            except Exception as error:  # the network needs a batch as the data set makes it
                is_refused = True
                for failed in other:
                    failed.error = error
            del block, parts, groups
        _finish([*(() if passes is None else own), *other])
        # Where no way to add the loss up has a value, the place tells nothing of it.
        losses = own[: len(ways)]
        _raise_first([*own[len(ways) :], *(losses[:1] if all(loss.has_failed for loss in losses) else ())])
        for index, item in enumerate(tested):
            item.own.append(own[index])
            item.other.append(other[index] if item in telling else None)

    def _check_repeatable(self, tested: Sequence[_Tested], partitions: TwoPartitions, *, in_memory: bool) -> None:
        """Checks that the network where it is gives the same values again."""
        sums = [[item.own[-1] for item in tested]] if in_memory else []
        while len(sums) < 2:
            sums.append([item.new_sum() for item in tested])
            for group in partitions.own_and_other()[0]:
                add_batches(self.forward, group, sums[-1])
            _finish(sums[-1])
        for first, again in zip(*sums, strict=True):
            if first.error is None:
                values = {first.name: first.value}, {first.name: again.value}
                check_same_values("callback_fn's network", *values, where="in the same batches")

    def _decide(self, ways: Sequence[_Tested], metrics: Sequence[_Tested], *, on_plane: bool) -> Partition:
        def splits(item: _Tested) -> bool:
            return item.fits and (item.is_known or self.samples.count == 1 or not on_plane)

        fitting = [way for way in ways if splits(way)]
        fitting = [way for way in fitting if way.is_known] or fitting
        chosen = next((way for way in fitting if way.total.splits), None)
        if chosen is None:
            # Wrong weights may come close where all batches have nearly the same loss; the right ones come much closer.
            for way in fitting:
                chosen = way if chosen is None or way.gap < _CLEARLY_CLOSER * chosen.gap else chosen
        if not any(way.is_finite for way in ways):
            _raise_first(item for way in ways for item in way.own if not item.has_failed)
        if chosen is None:
            _raise_first(ways[0].own)
        loss = chosen or ways[0]
        kept = [item for item in (loss, *metrics) if not splits(item)]
        # What has no value at callback_fn's weights stays open until a plane is there.
        is_open = not on_plane and any(not (item.total.adds_up or item.is_finite) for item in (loss, *metrics))
        at_once = self.samples.passes is None
        if at_once and (kept or is_open) and self.samples.without_batches:
            try:
                run_batches(self.forward, self.samples.all_at_once(True).own_batches, loss.total, self.metrics)
            except Exception as error:
                if not is_memory_shortage(error):
                    raise
                at_once = False
        notes = tuple(item.note(self.samples, at_once=at_once) for item in kept)
        return Partition(ways.index(loss), bool(kept) or is_open, at_once, notes)


def _differ_in_kind(first: float, second: float) -> bool:
    """Returns whether two values differ and one is NaN or infinite."""
    return not (math.isfinite(first) and math.isfinite(second)) and not np.array_equal(first, second, equal_nan=True)


def _blocks(passes: Passes, own_are_pieces: bool) -> Iterator[list[TwoPartitions]]:
    """Reads all samples once; yields as many as memory holds at once."""
    for block in passes.blocks():
        yield [part.partitions().aligned(own_are_pieces=own_are_pieces) for part in block]


def _in_halves(partitions: TwoPartitions, halves: Callable[[Batch], list[Batch] | None]) -> TwoPartitions:
    groups = [(batch, halves(batch) or [batch, batch]) for batch, _ in partitions.groups]
    return replace(partitions, groups=groups)


def _raise_first(sums: Iterable[_Sum]) -> None:
    for item in sums:
        if item.error is not None:
            raise item.error


def _finish(sums: Iterable[_Sum]) -> None:
    for item in sums:
        item.finish()
