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


def choose_loss(
    whole: Total,
    split: Total | None,
    forward: Callable[..., Any],
    samples: Samples,
    metrics: Mapping[str, Total],
    tolerance: float,
) -> ChosenLoss:
    """Measures under two partitions of the samples and returns how to add the loss up.

    Args:
        whole: the user's loss, as it is.
        split: the same as sums over samples, or None where it is unknown how the loss splits.
        forward: the network.
        samples: what is measured.
        metrics: the metrics, which follow the same rule.
        tolerance: relative difference up to which two values are equal.

    Raises:
        NondeterministicLossError: the same batches gave two losses.
        SamplesError: no target counts.
    """
    candidates: list[Total] = [whole]
    if split is not None and _agree(split, whole, forward, samples.own_batches, tolerance):
        candidates.insert(0, split)
    bound: dict[str, str] = {}
    for total in candidates:
        bound = _bound_to_batches(total, forward, samples, metrics, tolerance)
        if "loss" not in bound:
            return ChosenLoss(total, tuple(bound.values()))
    return ChosenLoss(whole, tuple(bound.values()))


def choose_weighting(
    candidates: Sequence[Total],
    forward: Callable[..., Any],
    samples: Samples,
    metrics: Mapping[str, Total],
    tolerance: float,
) -> ChosenLoss:
    """Measures under two partitions of the samples and returns how to weight a network's own loss.

    Args:
        candidates: the ways to weight batches; the first is for a loss that belongs to its batches.
        forward: the network.
        samples: what is measured.
        metrics: the metrics, which follow the same rule.
        tolerance: relative difference up to which two values are equal.

    Raises:
        NondeterministicLossError: the same batches gave two losses.
        SamplesError: no label counts.
    """
    chosen = candidates[0]
    if len(candidates) > 1:
        gaps, no_labels = [], None
        for total in candidates:
            try:
                gaps.append(_gap(total, forward, samples))
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
    bound = _bound_to_batches(chosen, forward, samples, metrics, tolerance)
    return ChosenLoss(candidates[0] if "loss" in bound else chosen, tuple(bound.values()))


def _gap(total: Total, forward: Callable[..., Any], samples: Samples) -> float:
    """Returns the relative difference between two partitions; infinite where they cannot be compared."""
    try:
        first = run_batches(forward, samples.own_batches, total, {})["loss"]
        second = run_batches(forward, samples.other_batches(), total, {})["loss"]
    except SamplesError:
        raise
    except Exception:
        return float("inf")
    gap = abs(first - second) / abs(first) if first else abs(second)
    return gap if np.isfinite(gap) else float("inf")


def _bound_to_batches(
    loss: Total,
    forward: Callable[..., Any],
    samples: Samples,
    metrics: Mapping[str, Total],
    tolerance: float,
) -> dict[str, str]:
    as_loaded = run_batches(forward, samples.own_batches, loss, metrics)
    as_loaded.pop("loss_stderr", None)
    try:
        otherwise = run_batches(forward, samples.other_batches(), loss, metrics)
    except SamplesError:
        raise
    except Exception:
        otherwise = {}  # it needs a batch as the loader makes it
    notes: dict[str, str] = {}
    for name, value in as_loaded.items():
        adds_up = loss.adds_up if name == "loss" else metrics[name].adds_up
        label = name if name == "loss" else f"metric {name!r}"
        kept = "so the data set's own batches are kept" + (" and it has no standard error." if name == "loss" else ".")
        if name not in otherwise or not _is_close(value, otherwise[name], tolerance):
            if not notes:
                again = run_batches(forward, samples.own_batches, loss, metrics)
                check_same_values("callback_fn's network", as_loaded, again, "in the same batches")
            notes[name] = f"{label} depends on how samples are batched, {kept}"
        elif not np.isfinite(value) and not adds_up:
            notes[name] = (
                f"{label} is {value} with the weights that callback_fn gives, which leaves open whether it depends on "
                f"how samples are batched, {kept}"
            )
    return notes


def _agree(split: Total, whole: Total, forward: Callable[..., Any], batches: Sequence[Batch], tolerance: float) -> bool:
    """Returns whether the sums give what the loss itself gives, batch for batch."""
    for batch in batches:
        outputs = call_network(forward, batch.inputs)
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
        if not _is_close(value, whole.result()["loss"], tolerance):
            return False
    return True


def _is_close(first: float, second: float, tolerance: float) -> bool:
    return bool(np.isclose(first, second, rtol=tolerance, atol=1e-7, equal_nan=True))
