"""Keras' evaluator: the compiled loss and metrics, on the PyTorch, the JAX and the TensorFlow back end."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import keras

from collectors.networks.batches import call_network

from ..curvature.products import ProductSettings
from ..errors import closing_on_failure
from ..evaluator import MeasurementSetup
from ..measuring.array_evaluator import ArrayEvaluator
from ..measuring.checks import callback_errors, check_recalibration
from ..measuring.totals import Total, check_metrics
from ..samples.batches import cut
from ..samples.data_sets import read_sets
from ..users_code import warn_and_note
from .losses import BatchLoss, SampleLoss, find_loss, make_metrics, rounding_notes
from .network import KerasNetwork
from .products import KINDS, KerasProducts
from .samples import read_keras_samples

_PROBE = 4


class KerasEvaluator(ArrayEvaluator):
    """Measures a Keras network (contract 2).

    Args:
        model: a compiled ``keras.Model``, whose loss and metrics count, with what regularizers add, as in ``evaluate``;
            or a ``keras.losses.Loss``, a function of (y_true, y_pred) or Keras' name of a loss.
        network: the network, often the same object; it ends as it was found.
        dataset: (x, y) or (x, y, sample_weight) of arrays, a PyDataset, a DataLoader, or an iterable of batches;
            or a mapping of several of these by name.
        metrics: name to ``keras.metrics.Metric`` or function of (y_true, y_pred), beside the compiled ones.
        setup: what is measured, and how; Keras says on which device.
    """

    precisions = ("float32", "bfloat16")

    def __init__(self, model: Any, network: Any, dataset: Any, metrics: Any, setup: MeasurementSetup) -> None:
        further_metrics = check_metrics(metrics, "keras.metrics.Metric or function of y_true and y_pred")
        sets = read_sets(dataset, setup.options, setup.memory, read_keras_samples)
        loss, judge = find_loss(model)
        self._arrays = arrays = KerasNetwork(network, precision=setup.options.precision)
        self._threads = setup.threads
        statistics = None
        with closing_on_failure(arrays):
            first = sets[0].samples.own_batches[0]
            self._probe = probe = cut(first, 0, min(first.size, _PROBE))
            with arrays.settings(setup.threads), callback_errors():
                prediction = call_network(arrays.forward, probe.inputs)
                loss(prediction, probe.targets)  # builds Keras' compiled loss, which JAX could not while it compiles
                totals = make_metrics(model, further_metrics, network, prediction, probe.targets)
            if setup.options.buffers == "recalibrate":
                batches = sets[0].samples.batches(setup.options.recalibration_batch_size)
                warn_and_note(sets[0].notes, *check_recalibration(self._by_batch.normalizes_by_batch, batches))
                statistics = self._by_batch.statistics_of
            warn_and_note(sets[0].notes, *rounding_notes(judge))
        candidates: list[Total] = [BatchLoss(loss)]
        with contextlib.suppress(ValueError):
            candidates.append(SampleLoss(judge, network, with_penalties=isinstance(model, keras.Model)))
        super().__init__(arrays, sets, candidates, totals, setup, statistics)

    def products(self, settings: ProductSettings) -> KerasProducts:
        return self._products_of(self._arrays, settings)

    def _gradients_of_curves(self) -> KerasProducts:
        return self._products_of(self._by_batch, ProductSettings())

    def _products_of(self, network: KerasNetwork, settings: ProductSettings) -> KerasProducts:
        return KINDS[network.back_end](network.in_float32(), self._main, self.settings, settings)

    @functools.cached_property
    def _by_batch(self) -> KerasNetwork:
        with self._arrays.settings(self._threads), callback_errors():
            return self._arrays.normalized_by_batch(self._probe.inputs)


EVALUATOR = KerasEvaluator
