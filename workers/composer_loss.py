"""Composer's models: their own loss of a whole batch, and their own metrics."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import DataLoader

from collectors.validation import check_instance

from .samples.sources import Stream
from .torch.losses import OwnLoss, composer_step

try:
    import composer
    from composer.core import DataSpec
except ImportError as error:
    raise ImportError(
        f"Composer cannot be imported ({error}); install it with pip install 'summary-landscape[composer]'."
    ) from error


def evaluator_from(
    model: composer.ComposerModel, dataloader: Any, metrics: Mapping[str, Any] | None = None
) -> tuple[OwnLoss, composer.ComposerModel, Any, dict[str, Any]]:
    """Returns what a callback_fn returns for a Composer model.

    Example::

        def callback_fn():
            return evaluator_from(make_model(), make_loader())

    The loss is ``model.loss(model.forward(batch), batch)``, in eval mode. What is returned can be pickled if
    the model and the data can, so ``functools.partial(evaluator_from, model, dataloader)`` is a callback_fn as well.

    Args:
        model: the ComposerModel, built like the one that was trained.
        dataloader: what Composer evaluates on: a DataLoader or another iterable of batches, a DataSpec (its transforms
            are applied), or an Evaluator (its metrics are measured); or a mapping of several of these by name, of
            which the first says what the metrics are.
        metrics: name to torchmetrics object, which is updated by ``model.update_metric``, or function of (outputs,
            batch); None takes the model's own, ``model.get_metrics(is_train=False)``.

    Raises:
        TypeError: ``model`` is not a ComposerModel.
    """
    check_instance("model", model, composer.ComposerModel, "a composer.ComposerModel")
    several = isinstance(dataloader, Mapping)
    found = {name: _data_of(item) for name, item in (dataloader if several else {"": dataloader}).items()}
    data: Any = {name: item for name, (item, _) in found.items()} if several else found[""][0]
    chosen = next((names for _, names in found.values()), None)
    if metrics is None:
        metrics = model.get_metrics(is_train=False)
        if chosen is not None:
            metrics = {name: metric for name, metric in metrics.items() if name in chosen}
    measured = {
        name: _MetricOfModel(model, metric) if hasattr(metric, "update") and not isinstance(metric, type) else metric
        for name, metric in metrics.items()
    }
    return OwnLoss(composer_step), model, data, measured


class _MetricOfModel:
    """A torchmetrics object of (outputs, batch): the model knows which parts of them it needs."""

    def __init__(self, model: Any, metric: Any) -> None:
        self._model, self._metric = model, copy.deepcopy(metric)

    def __deepcopy__(self, memo: dict[int, Any]) -> _MetricOfModel:
        # Not a copy of the model: it must be the one that moves.
        return _MetricOfModel(self._model, self._metric)

    def to(self, device: Any) -> _MetricOfModel:
        self._metric = self._metric.to(device)
        return self

    def reset(self) -> None:
        self._metric.reset()

    def update(self, outputs: Any, batch: Any) -> None:
        batch = copy.copy(batch)
        self._model.update_metric(batch, self._model.eval_forward(batch, outputs), self._metric)

    def compute(self) -> Any:
        return self._metric.compute()


def _data_of(item: Any) -> tuple[Any, Any]:
    """Returns the data of one of Composer's forms, and the names of its metrics; None where it does not say them."""
    chosen = None
    if isinstance(item, composer.Evaluator):
        item, chosen = item.dataloader, item.metric_names
    if not isinstance(item, DataSpec):
        return item, chosen
    loader = item.dataloader
    if not isinstance(loader, DataLoader):
        return Stream(functools.partial(map, functools.partial(_transformed, item), loader)), chosen
    transformed = copy.copy(loader)
    transformed.collate_fn = functools.partial(_collated, loader.collate_fn, item)
    return transformed, chosen


def _collated(collate: Callable[[Any], Any], spec: Any, samples: Any) -> Any:
    return _transformed(spec, collate(samples))


def _transformed(spec: Any, batch: Any) -> Any:
    return spec.microbatch_transforms(spec.batch_transforms(batch))
