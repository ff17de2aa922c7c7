"""The evaluator of MindSpore networks."""

from __future__ import annotations

import functools
from typing import Any

from ..curvature.products import ProductSettings
from ..errors import CallbackFunctionError, closing_on_failure
from ..evaluator import MeasurementSetup
from ..measuring.array_evaluator import ArrayEvaluator
from ..measuring.checks import callback_errors, check_recalibration
from ..samples.data_sets import read_sets
from ..users_code import warn_and_note
from .losses import find_loss, make_candidates, make_metrics
from .network import MindSporeNetwork
from .products import MindSporeProducts
from .samples import read_mindspore_samples


class MindSporeEvaluator(ArrayEvaluator):
    """Measures a MindSpore network (contract 2).

    Args:
        model: a ``mindspore.train.Model``, or a loss function; None, or a Model without loss_fn, where the network
            computes its loss itself, of the inputs and the targets.
        network: an ``nn.Cell``.
        dataset: a batched ``mindspore.dataset`` pipeline, or what ``read_array_samples`` takes; or a mapping of several
            by name.
        metrics: as ``Model`` takes them, where a function of (outputs, targets) may stand for a metric.
        setup: what is measured, and how; the process's context says on which device.
    """

    def __init__(self, model: Any, network: Any, dataset: Any, metrics: Any, setup: MeasurementSetup) -> None:
        loss, totals = find_loss(model), make_metrics(metrics)
        if loss is None and totals:
            raise CallbackFunctionError(
                f"metrics must be empty where the network computes its loss itself, because they need outputs, but got "
                f"{sorted(totals)}; leave them out, or return a Model with a loss_fn and a network that gives outputs."
            )
        sets = read_sets(dataset, setup.options, setup.memory, read_mindspore_samples)
        self._cell = MindSporeNetwork(network, computes_loss=loss is None)
        statistics = None
        if setup.options.buffers == "recalibrate":
            batches = sets[0].samples.batches(setup.options.recalibration_batch_size)
            with closing_on_failure(self._cell), callback_errors():
                followed = self._cell.batch_statistics(batches[0])
                warn_and_note(sets[0].notes, *check_recalibration(bool(followed), batches))
            statistics = functools.partial(self._cell.statistics_of, followed)
        super().__init__(self._cell, sets, make_candidates(loss), totals, setup, statistics)

    def products(self, settings: ProductSettings) -> MindSporeProducts:
        return MindSporeProducts(self._cell, self._main, self.settings, settings)


EVALUATOR = MindSporeEvaluator
