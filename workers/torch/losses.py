"""A user's loss and metrics in PyTorch, as what adds them up over batches: by samples, or by labels that count."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from collectors.named_metrics import metric_by_name
from collectors.networks.batches import mapping_like

from ..errors import CallbackFunctionError
from ..measuring.sample_loss import SampleLossTotal, check_weight, mean_and_stderr
from ..measuring.totals import BatchMean, MetricObject, NamedMetric, Pending, Total, check_metrics
from ..samples.batches import Batch, is_tensor
from .gradients import without_graph
from .precision import at_least_float32

_REDUCTIONS = ("mean", "sum", "batchmean", "none")
_IGNORED = -100  # of labels (tokens, pixels), those that do not count


def split_into_samples(
    loss: Callable[..., Any], called: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda loss: loss
) -> SampleLossTotal | None:
    """Returns the loss without its reduction, or None when it has no reduction that we know; the caller checks it."""
    elementwise: Any
    keywords: dict[str, Any]
    if isinstance(loss, nn.Module):
        reduction = getattr(loss, "reduction", None)
        if reduction not in _REDUCTIONS:
            return None
        # A shallow copy: a loss that looks at the network (a penalty on its weights) must see it move.
        elementwise = copy.copy(loss)
        elementwise.reduction = "none"
        by_class = isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)
        keywords = {"weight": loss.weight, "ignore_index": loss.ignore_index} if by_class else {}
    else:
        partial = loss if isinstance(loss, functools.partial) else functools.partial(loss)
        function, keywords = partial.func, partial.keywords
        if partial.args or getattr(functional, getattr(function, "__name__", ""), None) is not function:
            return None
        parameters = inspect.signature(function).parameters
        reduction = keywords.get("reduction", parameters["reduction"].default if "reduction" in parameters else None)
        if reduction not in _REDUCTIONS:
            return None
        elementwise = functools.partial(function, **{**keywords, "reduction": "none"})
        by_class = function in (functional.cross_entropy, functional.nll_loss)
    ignored = keywords.get("ignore_index", -100) if by_class else None
    weights = keywords.get("weight") if by_class else None
    # A user's class may give ``reduction`` another meaning: the result is checked against the loss itself.
    known = not isinstance(loss, nn.Module) or type(loss).__module__.startswith("torch.nn.")
    reduction = "mean" if reduction == "none" else str(reduction)
    return SampleLossTotal(called(elementwise), reduction, weights, ignored, known=known)


def place_loss(loss: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Returns the loss with the tensors that it was given as keywords (class weights) on the device, as float32."""
    if not isinstance(loss, functools.partial):
        return loss
    keywords = {
        key: at_least_float32(item.to(device)) if isinstance(item, torch.Tensor) else item
        for key, item in loss.keywords.items()
    }
    return functools.partial(loss.func, *loss.args, **keywords)


class OutputMetric(NamedMetric):
    """A metric of (outputs, targets), which gets outputs that need no gradients."""

    def add(self, outputs: Any, batch: Batch) -> None:
        super().add(without_graph(outputs), batch)


def make_metrics(metrics: object, device: torch.device, named: type[NamedMetric] = OutputMetric) -> dict[str, Total]:
    """Returns an accumulator for each torchmetrics object, function of (outputs, targets), or name of a metric."""
    totals: dict[str, Total] = {}
    kinds = "torchmetrics object or function of outputs and targets"
    for name, metric in check_metrics(_without_names(metrics), kinds).items():
        is_class = isinstance(metric, type)
        if not is_class and all(callable(getattr(metric, method, None)) for method in ("reset", "update", "compute")):
            total: Total = MetricObject(name, functools.partial(_copied, metric, device))
        elif callable(metric) and not is_class:
            total = BatchMean(name, f"metric {name!r}", metric)
        else:
            raise CallbackFunctionError(
                f"metric {name!r} must be a torchmetrics object or a function of (outputs, targets), but is {metric!r}."
            )
        totals[name] = named(f"metric {name!r}", total)
    return totals


def _copied(metric: Any, device: torch.device) -> Any:
    own = copy.deepcopy(metric)
    return own.to(device) if hasattr(own, "to") else own


def _without_names(metrics: object) -> object:
    """Returns the metrics with objects in the place of names, and without the loss, which is measured anyway."""
    if isinstance(metrics, set | frozenset) and all(isinstance(item, str) for item in metrics):
        metrics = {name: name for name in sorted(metrics)}
    if not isinstance(metrics, Mapping):
        return metrics
    try:
        objects = {name: metric_by_name(item) if isinstance(item, str) else item for name, item in metrics.items()}
    except ValueError as error:
        raise CallbackFunctionError(f"the fourth item that callback_fn returns: {error}") from error
    return {name: metric for name, metric in objects.items() if not getattr(metric, "is_the_loss", False)}


class WeighedMean(BatchMean):
    """The mean over batches of a loss, where a batch with weight 0 has no value and counts nothing."""

    advice = " If another weight for each batch is right, OwnLoss(step, samples=...) returns it."

    def pending(self) -> Pending:
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
        first = torch.cumsum(counts.flatten(), 0).reshape(labels.shape) <= counts.sum() // 2
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
    check_weight(float(weights.sum()))
    return {"loss": float(mean_and_stderr(numerators, weights)[1])}


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
        item = mapping_like(item, {**item, "labels": labels})
    else:
        item = item._make([item[0], labels]) if hasattr(item, "_make") else type(item)([item[0], labels])
    return replace(batch, inputs=(item, *batch.inputs[1:]))
