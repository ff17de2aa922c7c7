"""Keras' evaluator: the compiled loss and metrics, on the PyTorch, the JAX and the TensorFlow back end."""

from __future__ import annotations

import contextlib
from typing import Any

import keras

from collectors.networks.batches import call_network

from ..curvature.products import ProductSettings, ShareProducts
from ..evaluator import MeasurementSetup
from ..measuring.array_evaluator import ArrayEvaluator, Target
from ..measuring.checks import callback_errors
from ..measuring.totals import Total
from ..samples.batches import cut
from ..samples.data_sets import read_sets
from ..users_code import warn_user
from .loss import BatchLoss, SampleLoss, find_loss, rounding_notes
from .metrics import find_metrics, make_metrics
from .network import KerasNetwork
from .products import KerasProducts
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

    def __init__(self, model: Any, network: Any, dataset: Any, metrics: Any, setup: MeasurementSetup) -> None:
        further_metrics = find_metrics(metrics)
        main, *further = read_sets(dataset, setup.options, setup.memory, read_keras_samples)
        samples, notes = main.samples, main.notes
        loss, judge = find_loss(model)
        arrays = KerasNetwork(network)
        try:
            first = samples.own_batches[0]
            probe = cut(first, 0, min(first.size, _PROBE))
            with arrays.settings(setup.threads), callback_errors():
                prediction = call_network(arrays.forward, probe.inputs)
                loss(prediction, probe.targets)  # builds Keras' compiled loss, which JAX could not while it compiles
                totals = make_metrics(model, further_metrics, network, prediction, probe.targets)
            for note in rounding_notes(judge):
                notes.append(note)
                warn_user(note)
        except BaseException:
            arrays.close()
            raise
        super().__init__(
            arrays,
            Target(
                samples=samples,
                whole=BatchLoss(loss),
                split=_split(judge, network, with_penalties=isinstance(model, keras.Model)),
                metrics=totals,
                notes=notes,
                name=main.name,
                further=further,
            ),
            setup,
        )
        self._arrays = arrays

    def products(self, settings: ProductSettings) -> ShareProducts:
        """Returns what makes products of the main data set's loss."""
        main = self._main
        return KerasProducts(self._arrays, main.loss, main.samples, main.batch_size, self.settings, settings)


def _split(judge: Any, network: Any, *, with_penalties: bool) -> Total | None:
    with contextlib.suppress(ValueError):
        return SampleLoss(judge, network, with_penalties=with_penalties)
    return None


EVALUATOR = KerasEvaluator
