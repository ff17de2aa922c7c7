"""A user's loss and metrics in PyTorch, as what adds them up over batches."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ..errors import CallbackFunctionError
from ..measuring.sample_loss import SampleLossTotal
from ..measuring.totals import BatchMean, NamedMetric, Pending, Total, check_metrics, scalar
from ..samples.batches import Batch
from .precision import at_least_float32

_REDUCTIONS = ("mean", "sum", "batchmean", "none")


def split_into_samples(loss: Callable[..., Any]) -> SampleLossTotal | None:
    """Returns the loss without its reduction, or None when it has no reduction that we know.

    The caller checks the result against the loss itself: a user's class may give ``reduction`` another meaning.
    """
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
    known = not isinstance(loss, nn.Module) or type(loss).__module__.startswith("torch.nn.")
    reduction = "mean" if reduction == "none" else str(reduction)
    return SampleLossTotal(elementwise, reduction, weights, ignored, known=known)


def place_loss(loss: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Returns the loss with the tensors that it was given as keywords (class weights) on the device, as float32."""
    if not isinstance(loss, functools.partial):
        return loss
    keywords = {
        key: at_least_float32(item.to(device)) if isinstance(item, torch.Tensor) else item
        for key, item in loss.keywords.items()
    }
    return functools.partial(loss.func, *loss.args, **keywords)


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

    def fresh(self) -> Total:
        """Returns a new sum of the same, with a state of its own."""
        fresh = copy.copy(self)
        fresh._metric = copy.deepcopy(self._metric)
        fresh.reset()
        return fresh

    def pending(self) -> Pending:
        """Returns the result over all batches."""
        value = scalar(f"metric {self._name!r}", self._metric.compute())
        return Pending([value], lambda numbers: {self._name: numbers[0]})


def make_metrics(metrics: object, device: torch.device, named: type[NamedMetric] = NamedMetric) -> dict[str, Total]:
    """Returns an accumulator for each metric.

    Args:
        metrics: name to torchmetrics object or function of (outputs, targets); None means none.
        device: where the network runs.
        named: puts the metric's name into errors, and takes batches as the network does.

    Raises:
        CallbackFunctionError: it is not such a dictionary, or a name cannot be stored.
    """
    totals: dict[str, Total] = {}
    for name, metric in check_metrics(metrics, "torchmetrics object or function of outputs and targets").items():
        is_class = isinstance(metric, type)
        if not is_class and all(callable(getattr(metric, method, None)) for method in ("reset", "update", "compute")):
            total: Total = TorchmetricsTotal(name, metric, device)
        elif callable(metric) and not is_class:
            total = BatchMean(name, f"metric {name!r}", metric)
        else:
            raise CallbackFunctionError(
                f"metric {name!r} must be a torchmetrics object or a function of (outputs, targets), but is {metric!r}."
            )
        totals[name] = named(f"metric {name!r}", total)
    return totals
