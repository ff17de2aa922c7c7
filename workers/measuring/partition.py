"""Finds out whether a loss splits into samples, so that batch size is free, or belongs to its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectors.networks.batches import call_network

from ..errors import SamplesError
from ..samples.batches import Batch
from ..samples.samples import Samples
from .checks import check_same_values
from .totals import Total

_CLEARLY_CLOSER = 0.1


@dataclass(frozen=True)
class ChosenLoss:
    """How the loss is added up.

    Attributes:
        total: adds it up.
        notes: for the loss and each metric that belongs to the loader's own batches, a sentence that says so.
    """

    total: Total
    notes: tuple[str, ...]


def add_batches(forward: Callable[..., Any], batches: Sequence[Batch], totals: Sequence[Total]) -> None:
    """Resets every total and adds the batches up in all of them, from the same forward passes."""
    for total in totals:
        total.reset()
    for batch in batches:
        outputs = call_network(forward, batch.inputs)
        for total in totals:
            total.add(outputs, batch)


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


@dataclass(frozen=True)
class TwoPartitions:
    """Measures under two partitions of the samples, to find out how the loss is added up.

    Attributes:
        forward: the network.
        samples: what is measured.
        metrics: by name; they follow the same rule as the loss.
        tolerance: relative difference up to which two values are equal.
    """

    forward: Callable[..., Any]
    samples: Samples
    metrics: Mapping[str, Total]
    tolerance: float

    def choose_loss(self, whole: Total, split: Total | None) -> ChosenLoss:
        """Returns how to add a loss up.

        Args:
            whole: the user's loss, as it is.
            split: the same as sums over samples, or None where it is unknown how the loss splits.

        Raises:
            NondeterministicLossError: the same batches gave two losses.
            SamplesError: no target counts.
        """
        candidates: list[Total] = [whole]
        if split is not None and self._agree(split, whole):
            candidates.insert(0, split)
        bound: dict[str, str] = {}
        for total in candidates:
            bound = self._bound_to_batches(total)
            if "loss" not in bound:
                return ChosenLoss(total, tuple(bound.values()))
        return ChosenLoss(whole, tuple(bound.values()))

    def choose_weighting(self, candidates: Sequence[Total]) -> ChosenLoss:
        """Returns how to weight a network's own loss.

        Args:
            candidates: the ways to weight batches; the first is for a loss that belongs to its batches.

        Raises:
            NondeterministicLossError: the same batches gave two losses.
            SamplesError: no label counts.
        """
        chosen = candidates[0]
        if len(candidates) > 1:
            gaps, no_labels = [], None
            for total in candidates:
                try:
                    gaps.append(self._gap(total))
                except SamplesError as error:
                    gaps.append(float("inf"))
                    no_labels = error
            if no_labels is not None and np.isinf(min(gaps)):
                raise no_labels
            # Wrong weights may come close where all batches have nearly the same loss; the right ones come much closer.
            smallest = gaps[0]
            for total, gap in zip(candidates, gaps, strict=True):
                if gap < _CLEARLY_CLOSER * smallest:
                    chosen, smallest = total, gap
        bound = self._bound_to_batches(chosen)
        return ChosenLoss(candidates[0] if "loss" in bound else chosen, tuple(bound.values()))

    def _gap(self, total: Total) -> float:
        """Returns the relative difference between two partitions; infinite where they cannot be compared."""
        try:
            first = run_batches(self.forward, self.samples.own_batches, total, {})["loss"]
            second = run_batches(self.forward, self.samples.other_batches(), total, {})["loss"]
        except SamplesError:
            raise
        except Exception:
            return float("inf")
        gap = abs(first - second) / abs(first) if first else abs(second)
        return gap if np.isfinite(gap) else float("inf")

    def _bound_to_batches(self, loss: Total) -> dict[str, str]:
        """Returns for the loss and each metric that belongs to the loader's own batches a sentence that says so."""
        as_loaded = run_batches(self.forward, self.samples.own_batches, loss, self.metrics)
        as_loaded.pop("loss_stderr", None)
        try:
            otherwise = run_batches(self.forward, self.samples.other_batches(), loss, self.metrics)
        except SamplesError:
            raise
        except Exception:
            otherwise = {}  # it needs a batch as the loader makes it
        notes: dict[str, str] = {}
        for name, value in as_loaded.items():
            is_loss = name == "loss"
            label = name if is_loss else f"metric {name!r}"
            kept = "so the data set's own batches are kept" + (" and it has no standard error." if is_loss else ".")
            if name not in otherwise or not self._is_close(value, otherwise[name]):
                if not notes:
                    again = run_batches(self.forward, self.samples.own_batches, loss, self.metrics)
                    check_same_values("callback_fn's network", as_loaded, again, "in the same batches")
                notes[name] = f"{label} depends on how samples are batched, {kept}"
            elif not np.isfinite(value) and not (loss if is_loss else self.metrics[name]).adds_up:
                notes[name] = (
                    f"{label} is {value} with the weights that callback_fn gives, which leaves open whether it depends "
                    f"on how samples are batched, {kept}"
                )
        return notes

    def _agree(self, split: Total, whole: Total) -> bool:
        """Returns whether the sums give what the loss itself gives, batch for batch."""
        for batch in self.samples.own_batches:
            outputs = call_network(self.forward, batch.inputs)
            split.reset()
            try:
                split.add(outputs, batch)
                value = split.result()["loss"]
            except SamplesError:
                value = float("nan")  # a batch of padding only has no mean of its own, but does no harm to the sums
            except Exception:
                return False  # a user's class that gives ``reduction`` another meaning
            whole.reset()
            try:
                whole.add(outputs, batch)
            except Exception:
                continue  # its reduction is off: the sums take its elements' mean
            if not self._is_close(value, whole.result()["loss"]):
                return False
        return True

    def _is_close(self, first: float, second: float) -> bool:
        return bool(np.isclose(first, second, rtol=self.tolerance, atol=1e-7, equal_nan=True))
