"""Finds out whether a loss splits into samples, so that batch size is free, or belongs to its batches.

Whole batches are compared with their pieces at a few places. Both agree by chance where all samples have one loss (a
head of zeros), and within rounding where losses are tiny (data learned by heart). So what counts is whether they agree
where batches differ from each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collectors.networks.batches import call_network

from ..errors import SamplesError
from ..evaluator import Partition
from ..samples.batches import Batch
from ..samples.samples import Regrouped, Samples, SampleStream
from .checks import Closeness, check_same_values
from .memory_shortage import is_memory_shortage
from .totals import Total, run_batches

_CLEARLY_CLOSER = 0.1
_MUST_SEE = 2  # the origin and the farthest point
_MEAN = " It is the mean over these batches, weighted by how many samples each holds"
_MEAN_OF_BATCHES = f"{_MEAN}; if it should be a sum or a ratio over all samples, let one batch hold them all."
_OPEN = "which leaves open whether it depends on how samples are batched, so"


class _Sum:
    """What a total gives over one partition: over all and, where it is tested, over each group and each batch."""

    def __init__(self, name: str, total: Total, *, is_tested: bool = True) -> None:
        total.reset()
        self.name, self._total, self._group, self._is_tested = name, total, total, is_tested
        self.value = math.nan
        self.groups: list[float] = []
        self.each: list[tuple[int, int, float]] = []  # each batch's group, size and value
        self.error: Exception | None = None  # why there are no values
        # To the value over other batches; None where these cannot be made, or tell nothing.
        self.gap: float | None = None
        self.spread = 0.0  # what the gap would be if the pieces of each batch had quite other weights
        self.beyond = 0.0  # how far a batch's value is from the loss itself, beyond rounding

    def add(self, outputs: Any, batch: Batch, *, begins: bool) -> None:
        """Adds a batch, which begins a group or belongs to the last one."""
        if self.error is not None:
            return
        try:
            self._total.add(outputs, batch)
            if self._is_tested:
                alone = self._total.fresh()
                alone.add(outputs, batch)
                value = self._value_of(alone)
                if begins:
                    self._group = alone
                    self.groups.append(value)
                else:
                    self._group.add(outputs, batch)
                    self.groups[-1] = self._value_of(self._group)
                self.each.append((len(self.groups) - 1, batch.size, value))
        except Exception as error:
            if is_memory_shortage(error):
                raise
            self.error = error

    def finish(self) -> None:
        if self.error is None:
            try:
                self.value = self._total.result()[self.name]
            except Exception as error:
                self.error = error

    @property
    def count(self) -> int:
        return sum(size for _, size, _ in self.each)

    @property
    def has_failed(self) -> bool:
        """Whether it has no value for another reason than samples of which none counts."""
        return self.error is not None and not isinstance(self.error, SamplesError)

    def differs(self, other: _Sum) -> tuple[float, float]:
        """Returns how much two partitions differ, and how much they would if pieces had quite other weights."""
        if other.error is not None or _differ_in_kind(self.value, other.value):
            return math.inf, 0.0
        if not (self.groups and math.isfinite(self.value)):
            return abs(self.value - other.value), 0.0
        spreads = []
        for side in (self, other):
            group, sizes, values = np.array(side.each, np.float64).T
            group, values = group.astype(int), np.nan_to_num(values, posinf=0.0, neginf=0.0)
            counts = np.bincount(group, sizes)
            means = np.bincount(group, sizes * values) / counts
            variances = np.bincount(group, sizes * (values - means[group]) ** 2) / counts
            shares = counts / counts.sum()
            spreads.append(float(np.linalg.norm(np.sqrt(variances) * shares)))
        with np.errstate(invalid="ignore"):  # a batch of padding is NaN in both, an infinite loss infinite in both
            gaps = np.nan_to_num(np.array(self.groups) - np.array(other.groups))
        # The differences of groups may cancel.
        return max(abs(self.value - other.value), float(np.linalg.norm(gaps * shares))), max(spreads)

    def excess(self, loss: _Sum, share: float) -> float:
        """Returns how far a batch's value is from the loss itself there, beyond that share of it."""
        if self.has_failed:
            return math.inf
        if loss.error is not None:  # its reduction is off: the sums take its elements' mean
            return 0.0
        pairs = [(value, wanted) for (*_, value), (*_, wanted) in zip(self.each, loss.each, strict=False)]
        if any(_differ_in_kind(value, wanted) for value, wanted in pairs):
            return math.inf
        beyond = [abs(value - wanted) - share * abs(wanted) for value, wanted in pairs if math.isfinite(wanted)]
        return max(beyond, default=0.0)

    def _value_of(self, part: Total) -> float:
        try:
            return part.result()[self.name]
        except SamplesError:
            return math.nan  # a batch of padding has no mean of its own, but does the sums no harm


@dataclass(eq=False)
class _Tested:
    """A way to add up the loss, or a metric, and what the places so far show of it."""

    name: str
    total: Total
    is_loss: bool
    looks: list[_Sum] = field(default_factory=list)  # over the data set's own batches, at each place
    fits: bool = True  # whether nothing speaks against its adding up
    is_known: bool = False  # whether more places would not show more
    gap: float = 0.0  # the largest relative one

    @property
    def is_finite(self) -> bool:
        """Whether it has a value at the last place."""
        return bool(self.looks) and math.isfinite(self.looks[-1].value)

    def new_sum(self, total: Total) -> _Sum:
        return _Sum(self.name, total, is_tested=self.is_loss or not self.total.adds_up)

    def judge(self, closeness: Closeness) -> None:
        finite = [look for look in self.looks if math.isfinite(look.value)]
        scale = max((abs(look.value) for look in finite), default=0.0)
        seen = [
            (look.gap, look.spread, abs(look.value), closeness.allowed(look.value, scale, look.spread))
            for look in finite
            if look.gap is not None
        ]
        # A user's class may give ``reduction`` another meaning.
        honest = all(look.beyond <= closeness.noise * scale and look.gap != math.inf for look in self.looks)
        self.fits = honest and all(gap <= allowed for gap, _, _, allowed in seen)
        self.gap = max((gap / value if value else gap for gap, _, value, _ in seen), default=0.0)
        tells = any(spread > closeness.telling * allowed for _, spread, _, allowed in seen)
        # A loss that moves with the weights and is the same for all samples does not depend on them.
        alike = len(seen) == len(finite) and all(spread <= allowed for _, spread, _, allowed in seen)
        # A pass over all samples and a sum of those in memory differ anyway.
        sizes = [abs(look.value) for look in finite if look.count == self.looks[-1].count]
        moves = bool(sizes) and max(sizes) - min(sizes) > closeness.telling * closeness.allowed(scale, scale)
        self.is_known = self.total.adds_up or tells or (alike and moves) or not self.fits

    def note(self, samples: Samples, *, at_once: bool) -> str:
        """Returns a sentence that says why the data set's own batches are kept."""
        label = self.name if self.is_loss else f"metric {self.name!r}"
        kept = samples.kept_text(at_once) + (" and it has no standard error." if self.is_loss else ".")
        if not self.fits:
            mean = "" if samples.is_one_batch(at_once) else _MEAN_OF_BATCHES + self.total.advice
            return f"{label} depends on how samples are batched, so {kept}{mean}"
        if all(look.gap is None for look in self.looks):
            cut = all(batch.can_be_cut for batch in samples.read_batches)
            what = "batches of one sample that cannot be joined" if cut else "lists or graphs, which are not cut"
            return f"{label} is measured in {what}, {_OPEN} {kept}{_MEAN}.{self.total.advice}"
        finite = any(math.isfinite(look.value) for look in self.looks)
        looks = "hardly differs between batches" if finite else "is not finite"
        return f"{label} {looks} at the plane's origin, its corners and between them, {_OPEN} {kept}"


@dataclass(frozen=True)
class PartitionTest:
    """Compares whole batches with their pieces; the first candidate is for a loss that belongs to its batches."""

    forward: Callable[..., Any]
    samples: Samples
    candidates: Sequence[Total]
    metrics: Mapping[str, Total]
    closeness: Closeness

    def find(self, visits: Sequence[Callable[[bool], None]], *, on_plane: bool, may_be_few: bool = True) -> Partition:
        """Returns how all is added up; a visit moves the network, perhaps roughly; what no plane shows stays open."""
        every, is_streamed = self.samples.regrouped(), on_plane and self.samples.passes is not None
        for groups in [self.samples.regrouped(few=True), every] if may_be_few and not is_streamed else [every]:
            ways = [_Tested("loss", total, True) for total in self.candidates]
            metrics = [_Tested(name, total, False) for name, total in self.metrics.items()]
            tested, is_known, is_repeatable = [*ways, *metrics], False, False
            for count, visit in enumerate(visits):
                if count >= _MUST_SEE and is_known:
                    break
                # A pass takes long: all samples are measured in the first place alone, elsewhere those in memory.
                passes = self.samples.passes if is_streamed and not count else None
                try:
                    visit(groups is not every)
                    looks = self._look(tested, groups, passes)
                except Exception:
                    if not count:
                        raise
                    continue  # a failed point, which ends no survey
                for item, seen in zip(tested, looks, strict=True):
                    item.looks.append(seen)
                    item.judge(self.closeness)
                kept = [item for item in (ways[0], *metrics) if item.looks[-1].error is None]
                if not is_repeatable and not all(item.fits for item in kept):
                    is_repeatable = True
                    visit(groups is not every)
                    looks = looks if passes is None else self._look(tested, groups)
                    for item, one, again in zip(tested, looks, self._look(tested, groups), strict=True):
                        if item in kept:
                            values = {item.name: one.value}, {item.name: again.value}
                            check_same_values("callback_fn's network", *values, where="in the same batches")
                is_known = any(way.is_known for way in ways) and all(metric.is_known for metric in metrics)
            # A few batches may be padding, or alike.
            has_values = any(way.is_finite for way in ways) and all(metric.is_finite for metric in metrics)
            if len(groups) == len(every) or (has_values and (is_known or not on_plane)):
                break
        return self._decide(ways, metrics, on_plane=on_plane)

    def agrees(self, candidate: int, batch_size: int | None, expected: Mapping[str, float]) -> bool:
        """Returns whether all samples, where the network is, have values in other batches that are as expected."""
        # Our own batches are no news where they are the data set's.
        size = max(batch.size for batch in self.samples.read_batches)
        are_news = min(batch_size or size, self.samples.count) != size
        whole, loss = _Sum("loss", self.candidates[0].fresh()), _Sum("loss", self.candidates[candidate])
        sums = [loss, *(_Sum(name, total, is_tested=False) for name, total in self.metrics.items())]
        for own, other in self.samples.regrouped():
            for batch in own if are_news else other:
                self._add([batch], [whole, *sums])
        for item in sums:
            item.finish()
            value = expected[item.name]
            if item.error is not None or _differ_in_kind(item.value, value):
                return False
            if math.isfinite(value) and abs(item.value - value) > self.closeness.allowed(value, abs(value)):
                return False
        scale = max((abs(value) for value in whole.groups if math.isfinite(value)), default=0.0)
        return loss.excess(whole, self.closeness.of_batch) <= self.closeness.noise * scale

    def _add(self, batches: Sequence[Batch], sums: Sequence[_Sum]) -> None:
        """Adds a group of batches to all sums, from the same forward passes."""
        for place, batch in enumerate(batches):
            outputs = call_network(self.forward, batch.inputs)
            for item in sums:
                item.add(outputs, batch, begins=not place)
            del outputs  # it may hold what gradients need, which no two batches should at once

    def _look(self, tested: Sequence[_Tested], groups: Regrouped, passes: SampleStream | None = None) -> list[_Sum]:
        """Measures samples in memory, or all in a pass, in both partitions where the network is."""
        telling, halves = tested, None
        if all(len(own) == len(other) for own, other in groups):
            # Batches that cannot be cut have halves of their labels, which tell something of means over labels alone.
            telling = [item for item in tested if item.total.halves(groups[0][0][0]) is not None]
            halves = telling[0].total.halves if telling else None
        ours = [item.new_sum(item.total) for item in tested]
        theirs = [item.new_sum(item.total.fresh()) if item in telling else None for item in tested]
        given = [item for item in theirs if item is not None]
        for block in [groups] if passes is None else _blocks(passes):
            for own, _ in block:
                self._add(own, ours)
            try:
                for own, other in block if given else ():
                    self._add((halves and halves(own[0])) or other, given)
            except Exception as error:  # the network needs a batch as the data set makes it
                for item in given:
                    item.error = error
            del block
        for item in (*ours, *given):
            item.finish()
        # Where no way to add the loss up has a value, the place tells nothing of it.
        losses = ours[: len(self.candidates)]
        failed = [*ours[len(losses) :], *(losses[:1] if all(loss.has_failed for loss in losses) else ())]
        _raise_first(item.error for item in failed)
        share = self.closeness.of_batch
        for way, one, two in zip(tested, ours, theirs, strict=True):
            pairs = ((one, ours[0]), (two, theirs[0])) if way.is_loss else ()
            one.beyond = max((item.excess(loss, share) for item, loss in pairs if item and loss), default=0.0)
            if two is not None:
                one.gap, one.spread = one.differs(two)
        return ours

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
            errors = [look.error for way in ways for look in way.looks]
            _raise_first(error for error in errors if isinstance(error, SamplesError))
        if chosen is None:
            _raise_first(look.error for look in ways[0].looks)
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


def _blocks(passes: SampleStream) -> Iterator[Regrouped]:
    """Reads all samples once; yields as many as memory holds at once."""
    for block in passes.blocks():
        yield [group for part in block for group in part.regrouped()]
        del block


def _raise_first(errors: Iterable[Exception | None]) -> None:
    for error in filter(None, errors):
        raise error
