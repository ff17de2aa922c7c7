"""A user's loss and metrics in MindSpore: found in what callback_fn returned, and added up over batches."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import mindspore
import numpy as np
from mindspore import nn
from mindspore.train import Loss, Metric
from mindspore.train.metrics import get_metrics

from collectors.networks.batches import map_leaves
from collectors.networks.mindspore_network import to_array

from ..errors import CallbackFunctionError
from ..measuring import checks
from ..measuring.sample_loss import SampleLossTotal
from ..measuring.totals import BatchMean, MetricObject, NamedMetric, Total, batch_loss
from ..metric_names import check_metric_name

_Loss: TypeAlias = Callable[[Any, Any], Any]


def find_loss(model: Any) -> _Loss | None:
    """Returns the loss function of callback_fn's first item; None where that leaves the loss to the network."""
    if isinstance(model, mindspore.train.Model) or model is None:
        loss: _Loss | None = getattr(model, "_loss_fn", None)
        return loss
    return checks.find_loss(model, "a mindspore.train.Model with a loss_fn or a loss function of (outputs, targets)")


def make_candidates(loss: _Loss | None) -> list[Total]:
    """Returns a loss batch by batch, and the same as sums over samples where it splits into them."""
    if loss is None:  # of outputs that wait for their targets
        return [batch_loss(_OnArrays(lambda outputs, targets: outputs(targets)))]
    split = _split_into_samples(loss)
    return [batch_loss(_OnArrays(loss)), *([] if split is None else [split])]


@dataclass(frozen=True)
class _OnArrays:
    """A loss or a metric of outputs as tensors and targets as arrays, whose values are arrays."""

    of_tensors: _Loss

    def __call__(self, outputs: Any, targets: Any) -> Any:
        value = self.of_tensors(outputs, map_leaves(as_tensor, targets))
        return to_array(value) if isinstance(value, mindspore.Tensor) else value


def loss_of_tensors(total: Total) -> _Loss:
    """Returns what a total adds up, which MindSpore can differentiate."""
    adding: Any = total.elementwise if isinstance(total, SampleLossTotal) else cast(BatchMean, total).function
    loss: _Loss = adding.of_tensors
    return loss


def as_tensor(leaf: Any) -> Any:
    """Returns an array as a tensor, and anything else unchanged."""
    return mindspore.Tensor(np.ascontiguousarray(leaf).reshape(leaf.shape)) if isinstance(leaf, np.ndarray) else leaf


def _split_into_samples(loss: object) -> SampleLossTotal | None:
    """Returns the loss without its reduction, or None when it has no reduction that we know; the caller checks it."""
    if not isinstance(loss, nn.LossBase):
        return None
    if any(isinstance(cell, nn.Cell) for cell in loss.cells()) or any(True for _ in loss.get_parameters()):
        return None  # copying it would copy a network whose weights it looks at
    # Compiled graphs belong to an object, so that only a copy can be computed in another way.
    elementwise = copy.deepcopy(loss)
    elementwise.reduction = "none"
    elementwise.reduce = False
    reduction = "sum" if loss.reduce and not loss.average else "mean"
    by_class = isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss)
    weights = loss.weight if by_class else None
    ignored = int(loss.ignore_index) if by_class else None
    # A user's class may give ``reduction`` another meaning: the result is checked against the loss itself.
    known = type(loss).__module__.startswith("mindspore.")
    weights = None if weights is None else to_array(weights)
    return SampleLossTotal(_OnArrays(elementwise), reduction, weights, ignored, known=known)


def make_metrics(metrics: Any) -> dict[str, Total]:
    """Returns an accumulator for each metric; the loss, which is measured anyway, is left out."""
    if metrics is None:
        return {}
    functions = {}
    if isinstance(metrics, Mapping):
        functions = {
            name: item for name, item in metrics.items() if callable(item) and not isinstance(item, Metric | type)
        }
        metrics = {name: item for name, item in metrics.items() if name not in functions}
    try:
        objects = get_metrics(metrics) or {}
    except (TypeError, ValueError, KeyError) as error:
        raise CallbackFunctionError(
            "the fourth item that callback_fn returns must be metrics as mindspore.train.Model takes them (a dict of "
            f"name to Metric, or a set of names such as {{'accuracy'}}), but MindSpore says: {error}"
        ) from error
    totals: dict[str, Total] = {}
    for name, metric in objects.items():
        if not isinstance(metric, Metric):
            raise CallbackFunctionError(
                f"metric {name!r} must be a mindspore.train.Metric or a function of (outputs, targets), but is "
                f"{metric!r}."
            )
        if not isinstance(metric, Loss):
            make, targets = functools.partial(copy.deepcopy, metric), functools.partial(map_leaves, as_tensor)
            total = MetricObject(name, make, ("clear", "update", "eval"), targets)
            totals[check_metric_name(name)] = NamedMetric(f"metric {name!r}", total)
    for name, function in functions.items():
        label = f"metric {name!r}"
        totals[check_metric_name(name)] = NamedMetric(label, BatchMean(name, label, _OnArrays(function)))
    return totals
