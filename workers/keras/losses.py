"""A Keras loss, as Keras' own evaluation computes it, and as sums over samples; metrics from the same forward pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
from keras.src.backend import get_keras_mask
from keras.src.losses.loss import apply_mask, reduce_weighted_values
from keras.src.trainers.compile_utils import CompileLoss
from numpy.typing import NDArray

from collectors.networks.batches import map_leaves
from collectors.networks.keras_network import to_array

from ..curvature.products import WITHOUT_GRADIENTS
from ..errors import CallbackFunctionError, CurvatureError
from ..measuring.checks import wrong_loss
from ..measuring.sample_loss import SummedLoss
from ..measuring.totals import BatchMean, NamedMetric, Pending, Total, named_call, rounding_note, scalar
from ..metric_names import check_metric_name
from ..samples.batches import Batch
from ..users_code import warn_user
from .network import NARROW, Prediction, attach_masks, compiled, masks_of

Loss = Callable[[Prediction, Any], Any]


def find_loss(model: Any) -> tuple[Loss, Any]:
    """Returns the loss of a batch, and what Keras compiled it to (None where a model adds its losses itself)."""
    if isinstance(model, keras.Model):
        _check_model(model)
        return _loss_of_model(model), getattr(model, "_compile_loss", None)
    if isinstance(model, type) or not (isinstance(model, str) or callable(model)):
        raise wrong_loss(
            "a compiled keras.Model, a keras.losses.Loss, a function of (y_true, y_pred) or the name of a Keras loss",
            model,
        )
    judge = CompileLoss(model)

    def loss(prediction: Prediction, targets: Any) -> Any:
        labels, weights = unpack(targets)
        return judge(labels, prediction.outputs, weights)

    return loss, judge


def rounding_notes(judge: Any) -> list[str]:
    """Returns notes where Keras rounds outputs and losses to a loss's type; its compiled loss has seen a batch."""
    dtypes = {str(term.loss.dtype) for term in getattr(judge, "_flat_losses", None) or []}
    return [rounding_note(dtype) for dtype in sorted(dtypes & set(NARROW))]


def unpack(targets: Any) -> tuple[Any, Any]:
    """Returns a batch's targets and its sample weights (or None), as tensors of Keras' back end."""
    tensors = map_leaves(keras.ops.convert_to_tensor, targets)
    return tensors["targets"], tensors.get("sample_weight")


class BatchLoss(BatchMean):
    """The mean over batches, weighted by samples, of what Keras computes for a batch."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        with_tensorflow = keras.backend.backend() == "tensorflow"
        super().__init__("loss", "the loss", (lambda *batch: to_array(loss(*batch))) if with_tensorflow else loss)

    def differentiable(self, outputs: Prediction, batch: Batch) -> tuple[Any, Any]:
        return keras.ops.reshape(self._loss(outputs, batch.targets), ()) * batch.size, batch.size


class SampleLoss(SummedLoss):
    """A compiled Keras loss, which has seen a batch, as two sums for each sample; ValueError if it does not split."""

    adds_up = True

    def __init__(self, judge: Any, network: Any, *, with_penalties: bool) -> None:
        self._terms = list(getattr(judge, "_flat_losses", None) or [])
        kinds = {"sum" if term.loss.reduction == "sum" else "mean" for term in self._terms}
        if len(kinds) != 1:
            raise ValueError("the loss has no terms, or terms of several reductions")
        self._elementwise = compiled(self._split, network)
        self._with_penalties = with_penalties
        super().__init__(kinds.pop())

    def reset(self) -> None:
        super().reset()
        self._penalties: list[float] = []
        self._sizes: list[int] = []

    def add(self, outputs: Prediction, batch: Batch) -> None:
        targets, weights = unpack(batch.targets)
        terms = self._elementwise(targets, outputs.outputs, masks_of(outputs.outputs), weights)
        numerators, denominators = self._combine([(_float64(first), _float64(second)) for first, second in terms])
        self._numerators.append(numerators)
        self._denominators.append(denominators)
        self._has_stderr &= len(numerators) == batch.size
        self._sizes.append(batch.size)
        if self._with_penalties:
            self._penalties.append(sum(float(_float64(penalty).sum()) for penalty in outputs.penalties))

    def differentiable(self, outputs: Prediction, batch: Batch) -> tuple[Any, Any]:
        """Returns a batch's sum, with penalties as a part of each sample's loss, and its weight."""
        targets, weights = unpack(batch.targets)
        terms = self._split(targets, outputs.outputs, masks_of(outputs.outputs), weights)
        if len(terms) > 1 and self._reduction == "mean":
            terms = [
                (numerators / denominators, keras.ops.ones_like(denominators)) for numerators, denominators in terms
            ]
        total = sum(
            factor * keras.ops.sum(numerators) for factor, (numerators, _) in zip(self._factors, terms, strict=True)
        )
        weight = None if self._reduction == "sum" else keras.ops.sum(terms[0][1])
        if not self._with_penalties or not outputs.penalties:
            return total, weight
        if weight is None:
            raise CurvatureError(
                f'a Keras loss with reduction="sum" beside what regularizers and layers add has no curvature here: '
                f"give it another reduction, or return the loss function alone; {WITHOUT_GRADIENTS}."
            )
        return total + sum(keras.ops.sum(penalty) for penalty in outputs.penalties) * weight, weight

    def pending(self) -> Pending:
        whole = super().pending()
        result = whole.read()
        if self._with_penalties:
            result["loss"] += self._penalty
        return replace(Pending.of(result), samples=whole.samples)

    def _of_samples(self, numerators: Any, denominators: Any) -> tuple[Any, Any]:
        """Returns the numerator and the denominator of each sample; penalties are a part of each sample's loss."""
        numerators, denominators = super()._of_samples(numerators, denominators)
        if denominators is None:
            return numerators + self._penalty / len(numerators), None
        return numerators + self._penalty * denominators, denominators

    @property
    def _penalty(self) -> float:
        return float(np.dot(self._penalties, self._sizes)) / sum(self._sizes) if self._with_penalties else 0.0

    @property
    def _factors(self) -> list[float]:
        return [1.0 if term.loss_weights is None else float(term.loss_weights) for term in self._terms]

    def _split(self, targets: Any, outputs: Any, masks: Any, weights: Any) -> list[tuple[Any, Any]]:
        attach_masks(outputs, masks)
        return [
            _sums_of_samples(
                term.loss, _at(term.path, targets), _at(term.path, outputs), _at(term.path, weights, if_nested=True)
            )
            for term in self._terms
        ]

    def _combine(self, terms: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> tuple[NDArray[Any], NDArray[Any]]:
        factors = self._factors
        if len(terms) == 1:
            return factors[0] * terms[0][0], terms[0][1]
        if self._reduction == "mean" and any(np.ptp(denominators) for _, denominators in terms):
            raise ValueError("outputs whose samples count differently have no common mean over samples")
        parts = [
            factor * (numerators if self._reduction == "sum" else numerators / denominators)
            for factor, (numerators, denominators) in zip(factors, terms, strict=True)
        ]
        return np.sum(parts, axis=0), np.ones(len(parts[0]))


def _check_model(model: Any) -> None:
    name = type(model).__name__
    if not model.compiled:
        raise CallbackFunctionError(
            f"the first item that callback_fn returns must be a compiled model, but {name} is not compiled; call "
            "model.compile(loss=...)."
        )
    if type(model).test_step is not keras.Model.test_step:
        raise CallbackFunctionError(
            f"callback_fn must return a model that Keras evaluates, but {name} has a test_step of its own; override "
            "compute_loss instead, or return a loss function instead of the model."
        )


def _loss_of_model(model: Any) -> Loss:
    options = {"training": False} if "training" in inspect.signature(model.compute_loss).parameters else {}

    def loss(prediction: Prediction, targets: Any) -> Any:
        labels, weights = unpack(targets)
        given = {"x": prediction.inputs, "y": labels, "y_pred": prediction.outputs, "sample_weight": weights}
        # The forward pass may have been a compiled one, which leaves nothing behind in the layers.
        model._losses_override = list(prediction.penalties)
        try:
            return model.compute_loss(**given, **options)
        finally:
            model._losses_override = []

    return loss


def _sums_of_samples(loss: Any, targets: Any, outputs: Any, weights: Any) -> tuple[Any, Any]:
    """Returns for each sample what ``loss.__call__`` adds up, and by how much it counts."""
    mask = get_keras_mask(outputs)
    outputs, targets = (
        keras.tree.map_structure(lambda leaf: keras.ops.convert_to_tensor(leaf, dtype=loss.dtype), part)
        for part in (outputs, targets)
    )
    elements = loss.call(targets, outputs)
    own_mask = get_keras_mask(elements)
    if own_mask is not None:
        mask = own_mask if mask is None else mask & own_mask
    numerators = reduce_weighted_values(elements, sample_weight=weights, mask=mask, reduction="none", dtype=loss.dtype)
    count = elements.shape[0]
    size = int(np.prod(numerators.shape))
    if loss.reduction == "mean_with_sample_weight" and (weights is not None or mask is not None):
        counted = apply_mask(weights, mask, dtype=loss.dtype, reduction=loss.reduction)
    elif mask is not None:
        counted = keras.ops.cast(mask, "float32") * (size / int(np.prod(mask.shape)))
    else:
        counted = keras.ops.full((count, 1), size / count)
    return _sum_rows(numerators), _sum_rows(counted)


def _sum_rows(array: Any) -> Any:
    return array if len(array.shape) == 1 else keras.ops.sum(keras.ops.reshape(array, (array.shape[0], -1)), axis=1)


def _at(path: Sequence[Any], value: Any, *, if_nested: bool = False) -> Any:
    if if_nested and not keras.tree.is_nested(value):
        return value
    for key in path:
        value = value[key]
    return value


def _float64(tensor: Any) -> NDArray[Any]:
    return to_array(tensor).astype(np.float64)


class MetricState:
    """A Keras metric and what it has seen, apart from the metric's own variables, which stay as they are."""

    def __init__(self, metric: Any, network: Any, *, weighted: bool, prediction: Prediction, targets: Any) -> None:
        self._metric = metric
        self._weighted = weighted
        self._update_once(prediction, targets)
        self._update = compiled(self._stateless_update, network)
        self.reset()

    def reset(self) -> None:
        with keras.StatelessScope() as scope:
            self._metric.reset_state()
        fresh = [scope.get_current_value(variable) for variable in self._metric.variables]
        self._values = [
            variable.value if value is None else value
            for variable, value in zip(self._metric.variables, fresh, strict=True)
        ]

    def add(self, prediction: Prediction, targets: Any) -> None:
        labels, weights = unpack(targets)
        outputs = prediction.outputs
        self._values = self._update(
            self._values, labels, outputs, masks_of(outputs), weights if self._weighted else None
        )

    def result(self) -> Any:
        return self._metric.stateless_result(self._values)

    def _update_once(self, prediction: Prediction, targets: Any) -> None:
        # Some metrics make their variables with their first batch, which is impossible while JAX compiles.
        before = [(variable, to_array(variable)) for variable in self._metric.variables]
        labels, weights = unpack(targets)
        options = {"sample_weight": weights} if self._weighted and weights is not None else {}
        self._metric.update_state(labels, prediction.outputs, **options)
        self._metric.reset_state()
        for variable, value in before:
            variable.assign(value)

    def _stateless_update(self, values: Any, labels: Any, outputs: Any, masks: Any, weights: Any) -> Any:
        attach_masks(outputs, masks)
        options = {} if weights is None else {"sample_weight": weights}
        return self._metric.stateless_update_state(values, labels, outputs, **options)


class MetricValue(Total):
    """One of the numbers that a Keras metric returns; the first one leads: it feeds the metric for the others."""

    adds_up = True

    def __init__(self, name: str, state: MetricState, *, leads: bool = True, key: str | None = None) -> None:
        self._name, self._state, self._leads, self._key = name, state, leads, key

    def reset(self) -> None:
        if self._leads:
            self._state.reset()

    def add(self, outputs: Prediction, batch: Batch) -> None:
        if self._leads:
            self._state.add(outputs, batch.targets)

    def pending(self) -> Pending:
        result = self._state.result()
        value = result if self._key is None else result[self._key]
        return Pending.of({self._name: float(scalar(f"metric {self._name!r}", to_array(value)))})


def make_metrics(
    model: Any, metrics: Mapping[str, Any], network: Any, prediction: Prediction, targets: Any
) -> dict[str, Total]:
    """Returns an accumulator for each metric of a compiled model, and for each of a dictionary."""
    totals: dict[str, Total] = {}
    first = {"prediction": prediction, "targets": targets}
    together = getattr(model, "_compile_metrics", None) if isinstance(model, keras.Model) else None
    if isinstance(model, keras.Model) and type(model).compute_metrics is not keras.Model.compute_metrics:
        warn_user(
            f"{type(model).__name__} has a compute_metrics of its own, which is not called: its compiled metrics are "
            "measured. Give others as the fourth item that callback_fn returns."
        )
    if together is not None:
        label = "one of the compiled metrics"
        state = named_call(label, MetricState, together, network, weighted=True, **first)
        for index, name in enumerate(state.result()):
            value = MetricValue(name, state, leads=index == 0, key=name)
            totals[check_metric_name(name)] = NamedMetric(label, value)
    for name, metric in metrics.items():
        label = f"metric {name!r}"
        if name in totals:
            raise CallbackFunctionError(f"{label} is among the compiled metrics already; rename one of them.")
        if isinstance(metric, keras.metrics.Metric):
            state = named_call(label, MetricState, metric, network, weighted=False, **first)
            totals[name] = NamedMetric(label, MetricValue(name, state))
        elif callable(metric) and not isinstance(metric, type):
            totals[name] = NamedMetric(label, BatchMean(name, label, _mean_of(metric)))
        else:
            raise CallbackFunctionError(
                f"{label} must be a keras.metrics.Metric or a function of (y_true, y_pred), but is {metric!r}; "
                "for example keras.metrics.SparseCategoricalAccuracy()."
            )
    return totals


def _mean_of(function: Callable[[Any, Any], Any]) -> Callable[[Prediction, Any], float]:
    def mean(prediction: Prediction, targets: Any) -> float:
        # Keras' own functions give a number for each sample.
        values = function(unpack(targets)[0], prediction.outputs)
        return float(np.mean(to_array(values), dtype=np.float64))

    return mean
