"""Metrics beside the loss, from the same forward pass (MindSpore)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from mindspore.train import Loss, Metric
from mindspore.train.metrics import get_metrics

from .batches import Batch, map_leaves
from .errors import CallbackFunctionError
from .metric_errors import NamedMetric
from .mindspore_loss import as_tensor, call_loss
from .totals import BatchMean, Total, check_metric_name, scalar


class MetricTotal(Total):
    """A MindSpore metric: cleared, updated with every batch, evaluated at the end."""

    adds_up = True

    def __init__(self, name: str, metric: Metric) -> None:
        self._name = name
        self._metric = copy.deepcopy(metric)

    def reset(self) -> None:
        """Starts a new sum."""
        self._metric.clear()

    def add(self, outputs: Any, batch: Batch) -> None:
        """Adds one batch."""
        self._metric.update(outputs, map_leaves(as_tensor, batch.targets))

    def result(self) -> dict[str, float]:
        """Returns the result over all batches."""
        return {self._name: float(scalar(f"metric {self._name!r}", self._metric.eval()))}


def make_metrics(metrics: Any) -> dict[str, Total]:
    """Returns an accumulator for each metric; the loss, which is measured anyway, is left out.

    Args:
        metrics: as ``mindspore.train.Model`` takes them (name to ``Metric``, or a set of names), where a function of
            (outputs, targets) may stand for a metric; None means none.

    Raises:
        CallbackFunctionError: it is no such collection, or a name is unknown or cannot be stored.
    """
    if metrics is None:
        return {}
    functions = {}
    if isinstance(metrics, Mapping):
        functions = {name: item for name, item in metrics.items() if _is_function(item)}
        metrics = {name: item for name, item in metrics.items() if name not in functions}
    try:
        found = get_metrics(metrics) or {}
    except (TypeError, ValueError, KeyError) as error:
        raise CallbackFunctionError(
            "callback_fn must return, in fourth place, metrics as mindspore.train.Model takes them (a dict of name to "
            f"Metric, or a set of names such as {{'accuracy'}}), but MindSpore says: {error}"
        ) from error
    totals: dict[str, Total] = {}
    for name, metric in found.items():
        if not isinstance(metric, Metric):
            raise CallbackFunctionError(
                f"metric {name!r} must be a mindspore.train.Metric or a function of (outputs, targets), but is "
                f"{metric!r}."
            )
        if not isinstance(metric, Loss):
            totals[check_metric_name(name)] = NamedMetric(f"metric {name!r}", MetricTotal(name, metric))
    for name, function in functions.items():
        label = f"metric {name!r}"
        totals[check_metric_name(name)] = NamedMetric(label, BatchMean(name, label, _on_tensors(function)))
    return totals


def _is_function(item: object) -> bool:
    return callable(item) and not isinstance(item, Metric | type)


def _on_tensors(function: Any) -> Any:
    return lambda outputs, targets: call_loss(function, outputs, targets)
