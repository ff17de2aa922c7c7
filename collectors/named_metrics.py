"""Metrics that are given by their names, and Loss, the metric that is the mean loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .validation import wrong_value

_MICRO, _MACRO = {"average": "micro"}, {"average": "macro"}
_BY_CLASS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("acc", "accuracy", "top_1_accuracy"), ("MulticlassAccuracy", _MICRO)),
    "top_5_accuracy": ("MulticlassAccuracy", {**_MICRO, "top_k": 5}),
    "precision": ("MulticlassPrecision", _MACRO),
    "recall": ("MulticlassRecall", _MACRO),
    **dict.fromkeys(("f1", "F1"), ("MulticlassF1Score", _MACRO)),
    "confusion_matrix": ("MulticlassConfusionMatrix", {}),
}
_BY_VALUE = {"mae": "MeanAbsoluteError", "mse": "MeanSquaredError"}
# Losses leave such targets out by default.
_IGNORED = -100

METRIC_NAMES = tuple(sorted({"loss", *_BY_CLASS, *_BY_VALUE}, key=str.lower))
"""The names that a metric may be given by."""


class Loss:
    """The mean loss, as a metric: ``Model(metrics={"loss"})`` or ``Model(metrics={"name": Loss()})``.

    In ``Model`` each batch counts as many times as it has samples. By hand: ``update(loss)`` for each batch, then
    ``compute()``, then ``reset()``; ``clear`` and ``eval`` are MindSpore's names of the last two.
    """

    is_the_loss = True
    """What measures a landscape anyway, so that ``callback_fn`` may return it among the metrics."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Starts a new mean."""
        self._total, self._weight = 0.0, 0

    def update(self, loss: Any, samples: int = 1) -> None:
        """Takes in the loss of a batch.

        Args:
            loss: a number, or an array or tensor, of which the mean counts.
            samples: how many times it counts.
        """
        mean = loss.mean() if getattr(loss, "shape", ()) else loss
        self._total += float(mean) * samples
        self._weight += samples

    def compute(self) -> float:
        """Returns the mean so far.

        Raises:
            RuntimeError: nothing was taken in.
        """
        if not self._weight:
            raise RuntimeError("Loss has no batch to compute a mean of; call update(loss) first.")
        return self._total / self._weight

    clear = reset
    eval = compute


class MetricByName:
    """A metric of torchmetrics, which is made when the first batch shows how many classes there are."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._device: Any = None
        self._metric: Any = None
        _torchmetrics(name)

    def reset(self) -> None:
        """Starts anew; the number of classes may be another one."""
        self._metric = None

    def to(self, device: Any) -> MetricByName:
        self._device = device
        if self._metric is not None:
            self._metric = self._metric.to(device)
        return self

    def update(self, outputs: Any, targets: Any) -> None:
        """Takes in outputs and targets: of equal shapes (mae, mse), or (N, classes, ...) and class numbers (N, ...)."""
        if self._metric is None:
            metric = self._make(outputs, targets)
            self._metric = metric if self._device is None else metric.to(self._device)
        self._metric.update(outputs, targets)

    def compute(self) -> Any:
        return float("nan") if self._metric is None else self._metric.compute()

    def _make(self, outputs: Any, targets: Any) -> Any:
        package = _torchmetrics(self._name)
        if self._name in _BY_VALUE:
            return getattr(package, _BY_VALUE[self._name])()
        scores, classes = tuple(getattr(outputs, "shape", ())), tuple(getattr(targets, "shape", ()))
        if len(scores) < 2 or (scores[0], *scores[2:]) != classes or targets.is_floating_point():
            raise ValueError(
                f"the metric {self._name!r} needs outputs of shape (N, classes, ...) and integer targets of shape "
                f"(N, ...), but got {scores} and {classes} ({getattr(targets, 'dtype', type(targets).__name__)}). Give "
                f"the torchmetrics object that fits, such as metrics={{{self._name!r}: BinaryAccuracy()}}."
            )
        kind, options = _BY_CLASS[self._name]
        if options.get("top_k", 0) > scores[1]:
            raise ValueError(
                f"the metric {self._name!r} needs {options['top_k']} classes or more, but got {scores[1]}."
            )
        return getattr(package.classification, kind)(num_classes=scores[1], ignore_index=_IGNORED, **options)


def metric_by_name(name: str) -> Loss | MetricByName:
    if name not in METRIC_NAMES:
        expected = f"one of the names {list(METRIC_NAMES)}, or an object: metrics={{'name': metric}}"
        raise wrong_value("a metric that is given by name", expected, name)
    return Loss() if name == "loss" else MetricByName(name)


def _torchmetrics(name: str) -> Any:
    try:
        import torchmetrics
    except ImportError as error:
        raise ImportError(
            f"the metric {name!r} comes from torchmetrics; install it with "
            "pip install 'summary-landscape[torchmetrics]'."
        ) from error
    return torchmetrics
