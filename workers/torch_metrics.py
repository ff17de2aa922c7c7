"""Metrics beside the loss, from the same forward pass (PyTorch)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from .batches import Batch
from .errors import CallbackFunctionError
from .metric_errors import NamedMetric
from .totals import BatchMean, Pending, Total, check_metric_name, scalar


class TorchmetricsTotal(Total):
    """A torchmetrics object: updated with every batch and computed at the end."""

    adds_up = True

    def __init__(self, name: str, metric: Any, device: torch.device) -> None:
        self._name = name
        self._metric = copy.deepcopy(metric).to(device)

    def reset(self) -> None:
        """Starts a new sum."""
        self._metric.reset()

    def add(self, outputs: Any, batch: Batch) -> None:
        """Adds one batch."""
        self._metric.update(outputs, batch.targets)

    def result(self) -> dict[str, float]:
        """Returns the result over all batches."""
        return self.pending().read()

    def pending(self) -> Pending:
        """Returns the result over all batches, not yet read."""
        value = scalar(f"metric {self._name!r}", self._metric.compute())
        return Pending([value], lambda numbers: {self._name: numbers[0]})


def make_metrics(metrics: object, device: torch.device) -> dict[str, Total]:
    """Returns an accumulator for each metric.

    Args:
        metrics: name to torchmetrics object or function of (outputs, targets); None means none.
        device: where the network runs.

    Raises:
        CallbackFunctionError: it is no such dictionary, or a name cannot be stored.
    """
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise CallbackFunctionError(
            "callback_fn must return, in fourth place, a dict of metrics (name to torchmetrics object or function "
            "of outputs and "
            f"targets; may be empty), but there is {type(metrics).__name__}."
        )
    totals: dict[str, Total] = {}
    for name, metric in metrics.items():
        check_metric_name(name)
        is_class = isinstance(metric, type)
        if not is_class and all(callable(getattr(metric, method, None)) for method in ("reset", "update", "compute")):
            total: Total = TorchmetricsTotal(name, metric, device)
        elif callable(metric) and not is_class:
            total = BatchMean(name, f"metric {name!r}", metric)
        else:
            raise CallbackFunctionError(
                f"metric {name!r} must be a torchmetrics object or a function of (outputs, targets), but is {metric!r}."
            )
        totals[name] = NamedMetric(f"metric {name!r}", total)
    return totals
