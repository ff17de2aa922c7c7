"""Metrics of one evaluation: objects that accumulate, and functions averaged over samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..named_metrics import METRIC_NAMES, Loss, MetricByName, metric_by_name
from ..validation import wrong_type


class WeightedMean(Loss):
    """The mean of batch values, each weighted by its number of samples; NaN where there are none."""

    def compute(self) -> float:
        return super().compute() if self._weight else float("nan")


def named_metrics(metrics: Any) -> dict[str, Any]:
    """Returns the metrics by name; objects given in a set, list or tuple are named after their classes."""
    if metrics is None:
        return {}
    if isinstance(metrics, Mapping):
        return {name: _checked(name, metric) for name, metric in metrics.items()}
    if not isinstance(metrics, list | tuple | set | frozenset):
        expected = f"a dict of metrics, or a set or list of torchmetrics objects and of names ({list(METRIC_NAMES)})"
        raise wrong_type("metrics", expected, metrics)
    named: dict[str, Any] = {}
    for metric in metrics:
        by_name = isinstance(metric, str)
        if not by_name and not accumulates(metric):
            expected = (
                "a torchmetrics object (functions need a name: metrics={'name': function}) or the name of a metric"
            )
            raise wrong_type("an item of metrics", expected, metric)
        name = metric if by_name else type(metric).__name__
        if name in named:
            raise ValueError(f"metrics has two items called {name!r}; give names: metrics={{'name': metric, ...}}.")
        named[name] = metric_by_name(metric) if by_name else metric
    return dict(sorted(named.items())) if isinstance(metrics, set | frozenset) else named


def _checked(name: Any, metric: Any) -> Any:
    if not isinstance(name, str):
        raise wrong_type("a key of metrics", "a str", name)
    if isinstance(metric, str):
        return metric_by_name(metric)
    if not accumulates(metric) and (not callable(metric) or isinstance(metric, type)):
        expected = "a torchmetrics object, a function of (outputs, targets) or the name of a metric"
        raise wrong_type(f"metrics[{name!r}]", expected, metric)
    return metric


def accumulates(metric: Any) -> bool:
    """Returns whether a metric keeps its own totals, as those of torchmetrics do."""
    if isinstance(metric, type):
        return False
    return all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset"))


class MetricTotals:
    """The totals of one evaluation; metrics that accumulate are reset, and moved to the device of the outputs."""

    def __init__(self, metrics: Mapping[str, Any], device: torch.device) -> None:
        self.mean_loss = WeightedMean()
        self._metrics = dict(metrics)
        self._means = {name: WeightedMean() for name, metric in metrics.items() if not accumulates(metric)}
        for name, metric in metrics.items():
            if name not in self._means:
                metric.reset()
                if isinstance(metric, torch.nn.Module | MetricByName):
                    metric.to(device)

    def update(self, outputs: Any, targets: Any, samples: int, loss: float | None) -> None:
        """Takes in one batch; its loss is the mean over its samples, None where the network has no loss function."""
        if loss is not None:
            self.mean_loss.update(loss, samples)
        for name, metric in self._metrics.items():
            if name in self._means:
                self._means[name].update(_number(name, metric(outputs, targets)), samples)
            elif isinstance(metric, Loss):
                metric.update(float("nan") if loss is None else loss, samples)
            else:
                metric.update(outputs, targets)

    def compute(self) -> dict[str, Any]:
        """Returns floats, CPU tensors where a metric has several values, and named results as ``name/result``."""
        results: dict[str, Any] = {}
        for name, metric in self._metrics.items():
            result = self._means.get(name, metric).compute()
            if isinstance(result, Mapping):
                results.update({f"{name}/{key}": _plain(item) for key, item in result.items()})
            else:
                results[name] = _plain(result)
        return results


def _plain(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return float(result.item()) if result.numel() == 1 else result.detach().cpu()
    return result


def _number(name: str, value: Any) -> float:
    if isinstance(value, torch.Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, int | float):
        return float(value)
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    raise TypeError(
        f"metrics[{name!r}] must return one number for a batch, but returned {type(value).__name__}{shape}. "
        "Take its mean over the batch."
    )
