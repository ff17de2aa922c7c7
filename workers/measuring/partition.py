"""Finds out whether a loss splits into samples, so that batch size is free, or belongs to its batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SamplesError
from ..evaluator import Partition
from ..samples.samples import Groups, Passes, Samples, TwoPartitions
from .checks import Closeness, check_same_values
from .memory_shortage import is_memory_shortage
from .partition_sums import PartitionSum, PartitionSums, differ_in_kind, run_batches
from .totals import Total

_CLEARLY_CLOSER = 0.1
_MEAN = " It is the mean over these batches, weighted by how many samples each holds"
_MEAN_OF_BATCHES = f"{_MEAN}; if it should be a sum or a ratio over all samples, let one batch hold them all."
_PLACES = "the plane's origin, its corners and between them"


@dataclass(frozen=True)
class _Place:
    """Every total over the loader's own batches, and over other ones; None where these cannot be made."""

    own: Sequence[PartitionSum]
    other: Sequence[PartitionSum | None]


@dataclass(frozen=True)
class _Verdict:
    """What is known of one total.

    Attributes:
        fits: whether nothing speaks against its adding up.
        told: whether batches differed enough somewhere for that to mean something.
        gap: the largest relative difference between the two partitions.
        value: at the last place.
    """

    fits: bool
    told: bool
    gap: float
    value: float


class PartitionTest:
    """Measures under two partitions of the samples, at a few places, to find out how the loss is added up."""

    # Two partitions agree by chance where all samples have one loss (a head of zeros), and within rounding where losses
    # are tiny (data learned by heart). So what counts is whether they agree where batches differ from each other.
    def __init__(
        self,
        forward: Callable[..., Any],
        samples: Samples,
        candidates: Sequence[Total],
        metrics: Mapping[str, Total],
        closeness: Closeness,
        *,
        few: bool = False,
        passes: Passes | None = None,
    ) -> None:
        self._passes = passes
        self._forward, self._samples, self._closeness = forward, samples, closeness
        # The first candidate is for a loss that belongs to its batches.
        self._totals = [*candidates, *metrics.values()]
        self._names = ["loss"] * len(candidates) + list(metrics)
        self._loss, self._metrics = range(len(candidates)), range(len(candidates), len(self._totals))
        partitions = samples.partitions()
        self._partitions = partitions.few() if few else partitions
        self._is_whole = len(self._partitions.groups) == len(partitions.groups)
        self._label_means = self._find_label_means()
        self._places: list[_Place] = []
        self._repeated = False

    def look(self, visits: Sequence[Callable[[], None]] = (lambda: None,)) -> None:
        """Measures under both partitions where visits move the network; at the very first place nothing may fail.

        Several visits are for samples that are read in passes, because metrics may share what they add up.
        """
        own = [self._new_sums() for _ in visits]
        other: dict[int, PartitionSums] = {}
        failed: set[int] = set()
        apart: dict[int, Exception] = {}
        sizes: list[list[int]] = []
        for block in self._blocks():
            sizes += [pieces for partitions in block for pieces in self._sizes(partitions)]
            groups = [self._own_and_other(partitions) for partitions in block]
            is_wanted = self._passes is not None or _differ(sizes)
            for index, visit in enumerate(visits):
                if index in failed:
                    continue
                try:
                    visit()
                    for own_groups, _ in groups:
                        own[index].add(own_groups)
                except Exception as error:
                    if self._must_have(index) or (self._passes is not None and is_memory_shortage(error)):
                        raise
                    failed.add(index)  # a failed point, which ends no survey
                    continue
                try:
                    if self._passes is None:
                        own[index].finish()
                    other[index] = other.get(index) or self._new_sums()
                    for _, other_groups in groups if is_wanted and index not in apart else ():
                        other[index].add(other_groups)
                except Exception as error:  # the network needs a batch as the loader makes it
                    apart[index] = error
            del block, groups
        self._set_shares(sizes)
        for index, visit in enumerate(visits):
            if index not in failed:
                others = self._impossible(apart[index]) if index in apart else other[index].finish()
                self._add_place(own[index].finish(), others if _differ(sizes) else None, visit, self._must_have(index))

    def _must_have(self, index: int) -> bool:
        return index == 0 and not self._places

    def _add_place(
        self, own: Sequence[PartitionSum], other: Sequence[PartitionSum] | None, visit: Callable[[], None], first: bool
    ) -> None:
        """Keeps what a place tells, unless a metric or the loss raised there; at the first, ``decide`` raises it."""
        errors = [own[index].error for index in self._metrics]
        if first:
            _raise_first(errors)
        elif any(errors) or self._loss_failure(own) is not None:
            return
        # What else the user's code makes of ignored labels is of no interest.
        kept = () if other is None else self._label_means or range(len(other))
        place = _Place(
            own, [other[index] if other is not None and index in kept else None for index in range(len(own))]
        )
        if self._is_doubtful(place):
            visit()
            # What is measured again is in memory.
            self._check_repeatable(own if self._passes is None else self._sums_in_memory())
        self._places.append(place)

    def _blocks(self) -> Iterator[list[TwoPartitions]]:
        """Yields the samples in both partitions, as many as memory holds at once."""
        if self._passes is None:
            yield [self._partitions]
            return
        for block in self._passes.blocks():
            yield [part.partitions().aligned(own_are_pieces=self._partitions.own_are_pieces) for part in block]

    def _own_and_other(self, partitions: TwoPartitions) -> tuple[Groups, Groups]:
        own, other = partitions.own_and_other()
        return own, self._in_halves(own) if self._label_means else other

    def _loss_failure(self, own: Sequence[PartitionSum]) -> Exception | None:
        """Returns what the loss raised where no way to add it up has a value: then the place tells nothing of it."""
        errors = [own[index].error for index in self._loss]
        raised = [error for error in errors if error is not None and not isinstance(error, SamplesError)]
        return raised[0] if len(raised) == len(errors) else None

    def _find_label_means(self) -> list[int]:
        """Returns which totals tell something of batches that cannot be cut, if half of their labels are ignored."""
        if self._partitions.differ:
            return []
        ((batch, *_), *_), _ = self._partitions.own_and_other()
        return [index for index in self._loss if self._totals[index].halves(batch) is not None]

    def _in_halves(self, groups: Groups) -> Groups:
        halves = self._totals[self._label_means[0]].halves
        return [[half for batch in group for half in halves(batch) or [batch, batch]] for group in groups]

    def _sizes(self, partitions: TwoPartitions) -> list[list[int]]:
        if self._label_means:
            return [[batch.size, batch.size] for batch, _ in partitions.groups]
        return [[piece.size for piece in pieces] for _, pieces in partitions.groups]

    def _impossible(self, error: Exception) -> list[PartitionSum]:
        return [PartitionSum(error=error) for _ in self._totals]

    def _is_doubtful(self, place: _Place) -> bool:
        return not self._repeated and any(
            not self._verdict(index, [place]).fits for index in (0, *self._metrics) if place.own[index].error is None
        )

    def _set_shares(self, piece_sizes: Sequence[Sequence[int]]) -> None:
        sizes = np.array([sum(pieces) for pieces in piece_sizes], np.float64)
        self._shares = sizes / sizes.sum()
        self._piece_shares = [np.array(pieces) / sum(pieces) for pieces in piece_sizes]

    @property
    def is_told(self) -> bool:
        """Whether looking at more places would not tell more."""
        known = [self._is_known(index) for index in self._loss]
        return any(known) and all(self._is_known(index) for index in self._metrics)

    def suffices(self, *, on_plane: bool) -> bool:
        """Returns whether looking at all batches instead of a few would not tell more: few may be padding or alike."""
        has_value = [math.isfinite(self._verdict(index).value) for index in range(len(self._totals))]
        has_values = any(has_value[: len(self._loss)]) and all(has_value[len(self._loss) :])
        return self._is_whole or (has_values and (self.is_told or not on_plane))

    def decide(self, *, on_plane: bool, at_once: bool = True) -> Partition:
        """Returns how the loss is added up; at weights off a plane, what the places do not show stays open."""
        chosen = self._choose(self._loss, on_plane)
        failure = next((place.own[0].error for place in self._places if place.own[0].error), None)
        if not any(math.isfinite(self._verdict(index).value) for index in self._loss):
            errors = (place.own[index].error for index in self._loss for place in self._places)
            _raise_first(error for error in errors if isinstance(error, SamplesError))
        if chosen is None:
            _raise_first([failure])
        notes = [self._note(0 if chosen is None else chosen, on_plane, at_once=at_once)]
        notes += [self._note(index, on_plane, at_once=at_once) for index in self._metrics]
        found = tuple(filter(None, notes))
        is_open = not on_plane and any(
            not self._totals[index].adds_up and not math.isfinite(self._verdict(index).value)
            for index in (chosen or 0, *self._metrics)
        )
        return Partition(chosen or 0, chosen is None or bool(found) or is_open, at_once, found)

    def try_at_once(self, candidate: int) -> None:
        """Measures all samples as one batch, to find out whether memory holds that."""
        metrics = {self._names[index]: self._totals[index] for index in self._metrics}
        run_batches(self._forward, self._samples.all_at_once(True).own_batches, self._totals[candidate], metrics)

    def _choose(self, candidates: Iterable[int], on_plane: bool) -> int | None:
        """Returns the candidate that adds batches up, or None."""
        fitting = [index for index in candidates if self._adds_up(index, on_plane)]
        fitting = [index for index in fitting if self._is_known(index)] or fitting
        split = next((index for index in fitting if self._totals[index].splits), None)
        if split is not None or not fitting:
            return split
        # Wrong weights may come close where all batches have nearly the same loss; the right ones come much closer.
        chosen = fitting[0]
        for index in fitting:
            if self._verdict(index).gap < _CLEARLY_CLOSER * self._verdict(chosen).gap:
                chosen = index
        return chosen

    def _adds_up(self, index: int, on_plane: bool) -> bool:
        verdict = self._verdict(index)
        is_single = self._samples.count == 1
        return verdict.fits and (self._is_known(index) or is_single or not on_plane)

    def _is_known(self, index: int) -> bool:
        verdict = self._verdict(index)
        return self._totals[index].adds_up or verdict.told or not verdict.fits

    def _verdict(self, index: int, places: Sequence[_Place] | None = None) -> _Verdict:
        places = self._places if places is None else places
        values = [place.own[index].value for place in places]
        sizes = [abs(value) for value in values if math.isfinite(value)]
        scale = max(sizes, default=0.0)
        fits, told, largest_gap, alike = True, False, 0.0, True
        for place in places:
            own, other = place.own[index], place.other[index]
            fits &= self._agrees(index, place, scale)
            if other is None:
                alike = False
                continue
            if other.error is not None or differ_in_kind(own.value, other.value):
                fits = False
            elif math.isfinite(own.value):
                gap, spread = self._gap(own, other), self._spread(other if len(other.each) > len(own.each) else own)
                allowed = self._closeness.allowed(own.value, scale, spread)
                fits &= gap <= allowed
                told |= spread > self._closeness.telling * allowed
                alike &= spread <= allowed
                largest_gap = max(largest_gap, gap / abs(own.value) if own.value else gap)
        # A loss that moves with the weights and is the same for all samples does not depend on them.
        moves = bool(sizes) and max(sizes) - min(sizes) > self._closeness.telling * self._closeness.allowed(
            scale, scale
        )
        return _Verdict(fits, told or (alike and moves), largest_gap, values[-1] if values else math.nan)

    def _agrees(self, index: int, place: _Place, scale: float) -> bool:
        """Returns whether a candidate gives for each batch what the loss itself gives."""
        if index not in self._loss:
            return True
        sums = [(place.own[index], place.own[0])]
        other, whole_of_other = place.other[index], place.other[0]
        if other is not None and whole_of_other is not None:
            sums.append((other, whole_of_other))
        for ours, whole in sums:
            if ours.error is not None and not isinstance(ours.error, SamplesError):
                return False  # a user's class that gives ``reduction`` another meaning
            if whole.error is not None:
                continue  # its reduction is off: the sums take its elements' mean
            for value, expected in zip(ours.each, whole.each, strict=False):
                if differ_in_kind(value, expected):
                    return False
                if abs(value - expected) > self._closeness.in_one_batch.allowed(expected, scale):
                    return False
        return True

    def _note(self, index: int, on_plane: bool, *, at_once: bool) -> str | None:
        """Returns for what keeps the data set's batches a sentence that says so."""
        if self._adds_up(index, on_plane):
            return None
        is_loss, name = index in self._loss, self._names[index]
        label = name if is_loss else f"metric {name!r}"
        verdict = self._verdict(index)
        kept = self._samples.kept_text(at_once) + (" and it has no standard error." if is_loss else ".")
        if not verdict.fits:
            mean = "" if self._samples.is_one_batch(at_once) else _MEAN_OF_BATCHES + self._totals[index].advice
            return f"{label} depends on how samples are batched, so {kept}{mean}"
        if all(place.other[index] is None for place in self._places):
            cut = all(batch.can_be_cut for batch, _ in self._partitions.groups)
            what = "batches of one sample that cannot be joined" if cut else "lists or graphs, which are not cut"
            return (
                f"{label} is measured in {what}, which leaves open whether it depends on how samples are batched, so "
                f"{kept}{_MEAN}.{self._totals[index].advice}"
            )
        finite = any(math.isfinite(place.own[index].value) for place in self._places)
        found = "hardly differs between batches" if finite else "is not finite"
        return (
            f"{label} {found} at {_PLACES}, which leaves open whether it depends on how samples are batched, so {kept}"
        )

    def _gap(self, own: PartitionSum, other: PartitionSum) -> float:
        """Returns how much two partitions differ: all together, or group by group, whose differences may cancel."""
        together = abs(own.value - other.value)
        if not own.groups:
            return together
        with np.errstate(invalid="ignore"):  # a batch of padding is NaN in both, an infinite loss infinite in both
            gaps = np.nan_to_num(np.array(own.groups) - np.array(other.groups))
        return max(together, float(np.linalg.norm(gaps * self._shares)))

    def _spread(self, pieces: PartitionSum) -> float:
        """Returns what the gap would be if the pieces of each group had quite other weights."""
        if not pieces.each:
            return 0.0
        deviations, values = [], iter(pieces.each)
        for shares in self._piece_shares:
            found = np.nan_to_num(np.array([next(values) for _ in shares]), posinf=0.0, neginf=0.0)
            deviations.append(math.sqrt(float(shares @ (found - shares @ found) ** 2)))
        return float(np.linalg.norm(np.array(deviations) * self._shares))

    def _new_sums(self) -> PartitionSums:
        # In passes several places are added up at once.
        totals = self._totals if self._passes is None else [total.fresh() for total in self._totals]
        return PartitionSums(self._forward, totals, self._names, self._loss)

    def _sums_in_memory(self) -> list[PartitionSum]:
        sums = self._new_sums()
        sums.add(self._partitions.own_and_other()[0])
        return sums.finish()

    def _check_repeatable(self, expected: Sequence[PartitionSum]) -> None:
        self._repeated, again = True, self._sums_in_memory()
        for index in (0, *self._metrics):
            if expected[index].error is None:
                first, second = ({self._names[index]: item[index].value} for item in (expected, again))
                check_same_values("callback_fn's network", first, second, "in the same batches")


def _differ(piece_sizes: Sequence[Sequence[int]]) -> bool:
    return any(len(pieces) > 1 for pieces in piece_sizes)


def _raise_first(errors: Iterable[Exception | None]) -> None:
    """Raises the first of some errors, where there is one."""
    for error in errors:
        if error is not None:
            raise error
