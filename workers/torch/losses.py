"""A user's loss and metrics in PyTorch, of outputs or the network's own, as what adds them up over batches."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from collectors.named_metrics import metric_by_name
from collectors.networks.batches import call_network, mapping_like

from ..errors import CallbackFunctionError
from ..measuring.sample_loss import SampleLossTotal, check_weight, mean_and_stderr
from ..measuring.totals import BatchMean, MetricObject, NamedMetric, Pending, Total, check_metrics
from ..samples.batches import Batch, float64_device, in_float64, is_tensor
from .gradients import without_graph
from .settings import at_least_float32

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


class OwnMetric(NamedMetric):
    """A metric of (outputs, batch) instead of (outputs, targets)."""

    def add(self, outputs: Any, batch: Batch) -> None:
        super().add(outputs.outputs, Batch(None, batch.inputs[0], batch.size))


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


@dataclass(frozen=True)
class PendingPoint:
    # On the device if it has float64, shape (numbers,); those of the parts, then the losses of samples.
    numbers: torch.Tensor
    parts: Sequence[Pending]  # how the results are made of them


def pending_point(parts: Sequence[Pending], device: torch.device) -> PendingPoint:
    numbers = [number for part in parts for number in part.numbers]
    if any(isinstance(number, torch.Tensor) for number in numbers):
        place = float64_device(device)
        as_tensors = [
            in_float64(number).to(place)
            if isinstance(number, torch.Tensor)
            else torch.as_tensor(number, dtype=torch.float64, device=place)
            for number in numbers
        ]
        samples = [values.to(as_tensors[0]) for part in parts for values in part.samples.values()]
        return PendingPoint(torch.cat([torch.stack(as_tensors), *samples]), parts)
    return PendingPoint(torch.tensor([float(number) for number in numbers], dtype=torch.float64), parts)


def read_points(points: Sequence[PendingPoint]) -> list[dict[str, Any]]:
    """Returns the results of all points after one transfer, with the losses of samples where these are kept."""
    if not points:
        return []
    results: list[dict[str, Any]] = []
    for point, row in zip(points, torch.stack([point.numbers for point in points]).cpu().numpy(), strict=True):
        samples = [item for part in point.parts for item in part.samples.items()]
        sizes = [*(len(part.numbers) for part in point.parts), *(len(values) for _, values in samples)]
        pieces = iter(np.split(row, np.cumsum(sizes)[:-1]))
        results.append({})
        for part, piece in zip(point.parts, pieces, strict=False):
            results[-1] |= part.finish(piece.tolist())
        results[-1] |= {name: piece for (name, _), piece in zip(samples, pieces, strict=True)}
    return results


class OwnLoss:
    """The first item that callback_fn returns where the network's loss comes from a whole batch.

    A batch may then be any tensor, tuple, list or mapping, as the data set's ``collate_fn`` makes it, and metrics are
    functions of (outputs, batch). The loss of all samples is the mean over batches, weighted by samples or by the
    labels that count (not -100; of a causal language model without the first of each sequence), whichever makes batch
    size free; where none does, the data set's own batches are kept. It has no ``loss_stderr``: that would take one
    forward pass for each sample.

    Metrics get the outputs in at least float32. Where the loss comes out in bfloat16 or float16, PyTorch's loss
    functions are given float32 in the network as well; a loss that is still rounded after that gets a note.

    Example::

        def step(network, batch):
            outputs = network(batch)
            return network.loss(outputs, batch), outputs

        def callback_fn():
            return OwnLoss(step), make_network(), loader, {}

    Args:
        step: function of (network, batch) that returns the loss, or (loss, outputs); None calls the network with the
            batch's entries as keywords and takes the ``loss`` of its output, as networks of Transformers give it.
        samples: function of a batch that returns how many samples it holds, by which its loss and metrics are weighed;
            None takes what the DataLoader put into it, or else the first axis that all its tensors share.

    Raises:
        TypeError: the step or samples cannot be called.
    """

    def __init__(
        self, step: Callable[[Any, Any], Any] | None = None, *, samples: Callable[[Any], int] | None = None
    ) -> None:
        for name, value, what in (
            ("step", step, "(network, batch) that returns the loss"),
            ("samples", samples, "a batch that returns how many samples it holds"),
        ):
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be a function of {what}, or None, but got {type(value).__name__}.")
        self.samples = samples
        self._step = _loss_of_outputs if step is None else step

    def forward(self, network: Callable[..., Any], batch: Any) -> StepResult:
        """Returns the loss and outputs of a network for a batch."""
        result = self._step(network, batch)
        loss, outputs = result if isinstance(result, tuple) and len(result) == 2 else (result, result)
        return StepResult(loss, outputs)


@dataclass(frozen=True)
class StepResult:
    loss: Any
    own_outputs: Any

    @functools.cached_property
    def outputs(self) -> Any:
        """The outputs in at least float32, for metrics."""
        return at_least_float32(self.own_outputs)


def own_loss_of(model: object, network: object) -> OwnLoss | None:
    """Returns the own loss that callback_fn's first item stands for, or None where it is a loss of outputs."""
    composer_model = getattr(sys.modules.get("composer"), "ComposerModel", ())
    if isinstance(network, composer_model) and (model is None or isinstance(model, composer_model)):
        return OwnLoss(composer_step)
    if model is None:
        return OwnLoss()
    return model if isinstance(model, OwnLoss) else None


def _loss_of_outputs(network: Callable[..., Any], batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, Mapping):
        raise _no_own_loss(f"the data set gives no dictionaries for it ({type(batch).__name__})")
    outputs = call_network(network, batch)
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if loss is None:
        raise _no_own_loss(f"its output has no loss ({type(outputs).__name__})")
    return loss, outputs


def _no_own_loss(found: str) -> CallbackFunctionError:
    return CallbackFunctionError(
        "the first item that callback_fn returned is None, which stands for a network that computes its own loss from "
        f"batches with labels in them, as those of Transformers do, but {found}. Give dictionaries with 'labels', or "
        "return a loss function, a Model or an OwnLoss instead of None."
    )


def composer_step(model: Any, batch: Any) -> tuple[Any, Any]:
    # A copy, because models may take things out of a batch, and the next point needs them again.
    batch = copy.copy(batch)
    outputs = at_least_float32(model(batch))
    loss = model.loss(outputs, batch)
    # One loss, as Composer's trainer makes it: the named total, else the sum of the means.
    if isinstance(loss, Mapping):
        loss = loss["total"] if "total" in loss else list(loss.values())
    loss = sum(part.mean() for part in loss) if isinstance(loss, tuple | list) else loss.mean()
    return loss, outputs
