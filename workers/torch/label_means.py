"""Losses that are means over the labels of a batch (tokens, pixels), of which ignored ones (-100) do not count."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..measuring.sample_loss import mean_over_samples
from ..measuring.totals import BatchMean, Pending
from ..samples.batches import Batch, is_tensor

_IGNORED = -100


class WeighedMean(BatchMean):
    """The mean over batches of a loss, where a batch with weight 0 has no value and counts nothing."""

    advice = " If another weight for each batch is right, OwnLoss(step, samples=...) returns it."

    def pending(self) -> Pending:
        """Returns the mean over all batches."""
        if any(isinstance(weight, torch.Tensor) for weight in self._weights):
            return Pending([*self._values, *self._weights], _weighted_mean)
        weights = self._weights
        return Pending(self._values, lambda values: _weighted_mean([*values, *weights]))


class LabelMean(WeighedMean):
    """The mean over batches of a loss, weighted by their labels that count."""

    def __init__(self, label: str, function: Callable[[Any, Any], Any], first: int) -> None:
        super().__init__("loss", label, function, self._counted)
        # So many labels of each sequence never count: 1 where each is predicted from those before it.
        self._first = first

    def halves(self, batch: Batch) -> list[Batch] | None:
        """Returns a batch twice, with another half of its labels ignored in each; None where it has none."""
        labels = _labels(batch)
        if labels is None or torch.iinfo(labels.dtype).min > _IGNORED:
            return None
        counts = labels != _IGNORED
        places = torch.cumsum(counts.flatten(), 0).reshape(labels.shape)
        first = places <= counts.sum() // 2
        return [_with_labels(batch, labels.masked_fill(ignored, _IGNORED)) for ignored in (first, ~first)]

    def _counted(self, batch: Batch) -> Any:
        labels = _labels(batch)
        if labels is None or labels.ndim < self._first:
            return 0.0
        return ((labels[:, self._first :] if self._first else labels) != _IGNORED).sum()


def label_means(label: str, function: Callable[[Any, Any], Any], batch: Batch) -> list[LabelMean]:
    """Returns the ways in which a loss may be a mean over labels, as far as a batch shows class labels."""
    labels = _labels(batch)
    return [] if labels is None else [LabelMean(label, function, first) for first in range(min(labels.ndim, 2))]


def _weighted_mean(numbers: Sequence[float]) -> dict[str, float]:
    values, weights = np.array(numbers, np.float64).reshape(2, -1)
    # A batch of padding has no mean, and counts nothing.
    numerators = np.multiply(values, weights, out=np.zeros_like(values), where=weights > 0)
    return mean_over_samples(numerators, weights, with_stderr=False)


def _labels(batch: Batch) -> Any:
    """Returns the class labels of a batch where there are any: targets, ``labels``, or the second item of a pair."""
    labels = batch.targets
    if labels is None:
        item = batch.inputs[0]
        if isinstance(item, Mapping):
            labels = item.get("labels")
        elif isinstance(item, tuple | list) and len(item) == 2:
            labels = item[1]
    if not is_tensor(labels) or not labels.ndim or labels.is_floating_point() or labels.dtype == torch.bool:
        return None
    return labels


def _with_labels(batch: Batch, labels: torch.Tensor) -> Batch:
    if batch.targets is not None:
        return replace(batch, targets=labels)
    item = batch.inputs[0]
    if isinstance(item, Mapping):
        item = copy.copy(item)
        item["labels"] = labels  # type: ignore[index]
    else:
        item = item._make([item[0], labels]) if hasattr(item, "_make") else type(item)([item[0], labels])
    return replace(batch, inputs=(item, *batch.inputs[1:]))
