"""Metrics beside the loss, from the same forward pass (PyTorch)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from .errors import CallbackFunctionError
from .torch_batches import Batch
from .torch_loss import scalar, weighted_mean

_RESERVED = ("loss", "loss_stderr")


class MetricTotal(Protocol):
    """Adds up one metric over batches."""

    adds_up: bool
    """Whether it is made for adding up batches, so that batches which cannot show it need not."""

    def reset(self) -> None:
        """Starts anew."""

    def add(self, outputs: Any, batch: Batch) -> None:
        """Adds one batch."""

    def result(self) -> float:
        """Returns the metric of all batches."""


class FunctionTotal:
    """A plain function of (outputs, targets), averaged over samples."""

    adds_up = False

    def __init__(self, name: str, function: Any) -> None:
        self._name = name
        self._function = function
        self.reset()

    def reset(self) -> None:
        """Starts a new sum."""
        self._values: list[torch.Tensor] = []
        self._sizes: list[int] = []

    def add(self, outputs: Any, batch: Batch) -> None:
        """Adds one batch."""
        self._values.append(scalar(f"metric {self._name!r}", self._function(outputs, batch.targets)))
        self._sizes.append(batch.size)

    def result(self) -> float:
        """Returns the result over all batches."""
        return weighted_mean(self._values, self._sizes)


class TorchmetricsTotal:
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

    def result(self) -> float:
        """Returns the result over all batches."""
        return float(scalar(f"metric {self._name!r}", self._metric.compute()))


def make_metrics(metrics: object, device: torch.device) -> dict[str, MetricTotal]:
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
    totals: dict[str, MetricTotal] = {}
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name or "/" in name or name.startswith(".") or "\0" in name:
            raise CallbackFunctionError(
                f"a metric's name must be a str without '/' that starts with no '.', but got {name!r}."
            )
        if name in _RESERVED or name.startswith("projected_"):
            raise CallbackFunctionError(f"metric {name!r} has a name that the landscape file needs itself; rename it.")
        is_class = isinstance(metric, type)
        if not is_class and all(callable(getattr(metric, method, None)) for method in ("reset", "update", "compute")):
            totals[name] = TorchmetricsTotal(name, metric, device)
        elif callable(metric) and not is_class:
            totals[name] = FunctionTotal(name, metric)
        else:
            raise CallbackFunctionError(
                f"metric {name!r} must be a torchmetrics object or a function of (outputs, targets), but is {metric!r}."
            )
    return totals
