"""Keras metrics beside the loss, from the same forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from collectors.networks.keras_network import to_array

from ..errors import CallbackFunctionError
from ..measuring.totals import BatchMean, NamedMetric, Pending, Total, named_call, scalar
from ..metric_names import check_metric_name
from ..samples.batches import Batch
from ..users_code import warn_user
from .loss import unpack
from .network import Prediction, attach_masks, compiled, masks_of


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
