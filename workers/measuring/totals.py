"""Losses and metrics added up over batches, in float64, whichever framework computes them."""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from collectors.errors import LandscapeError
from collectors.networks.batches import call_network

from ..curvature.products import WITHOUT_GRADIENTS
from ..errors import CallbackFunctionError, CurvatureError
from ..metric_names import check_metric_name
from ..samples.batches import Batch, in_float64, is_tensor
from ..samples.data_sets import naming_set
from .memory_shortage import is_memory_shortage


@dataclass(frozen=True)
class Pending:
    numbers: Sequence[Any]  # perhaps still on their device
    finish: Callable[[Sequence[float]], dict[str, float]]  # makes the result of them
    samples: Mapping[str, Any] = field(default_factory=dict)  # arrays of a value for each sample, perhaps on theirs

    def read(self) -> dict[str, float]:
        return self.finish([float(number) for number in self.numbers])

    def renamed(self, data_set: str, rename: Callable[[str], str]) -> Pending:
        """Returns the result under its names in one of several data sets, which an error's text names."""

        def finish(numbers: Sequence[float]) -> dict[str, float]:
            with naming_set(data_set):
                return {rename(name): value for name, value in self.finish(numbers).items()}

        return Pending(self.numbers, finish, {rename(name): values for name, values in self.samples.items()})

    @classmethod
    def of(cls, result: dict[str, float]) -> Pending:
        """Returns a result that is known already."""
        return cls((), lambda _: result)


class Total(ABC):
    """Adds up a loss or a metric over batches."""

    adds_up: bool
    """Whether it is known to add batches up, so that samples on which this cannot be tested need not prove it."""
    is_sum = False  # over samples, and no mean
    splits = False  # whether it adds samples up one by one, and so is better than what gives one number for a batch

    advice = ""  # a sentence for the user of a loss that belongs to its batches, beginning with a space

    low_precision: str | None = None  # the element type of what was added, where that has fewer digits than float32

    @abstractmethod
    def reset(self) -> None:
        """Starts a new sum."""

    @abstractmethod
    def add(self, outputs: Any, batch: Batch) -> None:
        """Adds one batch."""

    @abstractmethod
    def pending(self) -> Pending:
        """Returns the result, without waiting for a device where the class can do that."""

    def differentiable(self, outputs: Any, batch: Batch) -> tuple[Any, Any]:
        """Returns a batch's sum of losses, which can be differentiated, and its weight; adds nothing.

        The loss of many batches is the sum of these sums over the sum of the weights; a weight of None means that the
        loss is the sum itself.

        Raises:
            CurvatureError: this class has no such sum.
        """
        raise CurvatureError(f"{type(self).__name__} gives no loss that can be differentiated; {WITHOUT_GRADIENTS}.")

    def halves(self, batch: Batch) -> list[Batch] | None:
        """Returns a batch twice, with another half of its labels ignored in each; None where there are none."""
        return None

    def fresh(self) -> Total:
        """Returns a new sum of the same, for totals whose ``reset`` replaces all that ``add`` changes."""
        fresh = copy.copy(self)
        fresh.reset()
        return fresh

    def result(self) -> dict[str, float]:
        """Returns the values over all batches: of a loss "loss" and, where samples have their own, "loss_stderr"."""
        return self.pending().read()


@dataclass(eq=False)
class BatchMean(Total):
    """The mean over batches of a function of (outputs, targets); a batch counts by its weight, or by its samples."""

    name: str
    label: str
    function: Callable[[Any, Any], Any]
    weight: Callable[[Batch], Any] = operator.attrgetter("size")
    adds_up = False

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._values: list[Any] = []
        self._weights: list[Any] = []

    def add(self, outputs: Any, batch: Batch) -> None:
        value = self.function(outputs, batch.targets)
        self.low_precision = low_precision(value)
        self._values.append(scalar(self.label, value))
        self._weights.append(self.weight(batch))

    def differentiable(self, outputs: Any, batch: Batch) -> tuple[Any, Any]:
        value, weight = self.function(outputs, batch.targets), self.weight(batch)
        scalar(self.label, value)
        if not is_tensor(value):
            raise CurvatureError(f"{self.label} must be a tensor, but is a {type(value).__name__}.")
        weight = in_float64(weight) if is_tensor(weight) else weight
        return in_float64(value.reshape(())) * weight, weight

    def pending(self) -> Pending:
        weights = np.array(self._weights, np.float64)
        return Pending(self._values, lambda numbers: {self.name: float(np.dot(numbers, weights) / weights.sum())})


def low_precision(value: Any) -> str | None:
    """Returns the name of an array's element type, in any framework, if that has fewer digits than float32."""
    name = str(getattr(value, "dtype", "")).rpartition(".")[2].lower()
    return name if name.startswith(("bfloat16", "float16", "float8", "float4")) else None


def low_precision_note(loss: Total) -> list[str]:
    """Returns what to say of a loss that comes out in fewer digits than float32, although outputs were float32."""
    return [] if loss.low_precision is None else [rounding_note(loss.low_precision)]


def rounding_note(dtype: str) -> str:
    digits = "three" if dtype == "float16" else "two"
    return (
        f"the loss comes out in {dtype}, which keeps about {digits} digits for each batch: small differences between "
        "points are rounding. Let it be computed in float32 (the outputs that a loss function is given are float32; a "
        "network that computes its own loss must convert them itself)."
    )


def batch_loss(loss: Callable[[Any, Any], Any]) -> BatchMean:
    return BatchMean("loss", "the loss", loss)


def scalar(label: str, value: Any) -> Any:
    """Returns a loss or a metric, still on its device, after checking that it is a single number."""
    if is_tensor(value):
        if value.numel() == 1:
            return in_float64(value.detach().reshape(()))
        shown = f"a tensor of shape {tuple(value.shape)}"
    elif isinstance(value, int | float | np.number | np.ndarray) and np.size(value) == 1:
        return float(np.asarray(value).reshape(()))
    elif isinstance(shape := getattr(value, "shape", None), tuple):
        if np.prod(shape, dtype=np.int64) == 1:
            return value.reshape(())
        shown = f"an array of shape {shape}"
    else:
        shown = f"a {type(value).__name__}"
    raise CallbackFunctionError(
        f"{label} must be a single number for a batch, but is {shown}; reduce it (for example mean())."
    )


def check_metrics(metrics: object, kinds: str) -> dict[str, Any]:
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise CallbackFunctionError(
            f"the fourth item that callback_fn returns must be a dict of metrics (name to {kinds}; may be empty), but "
            f"is a {type(metrics).__name__}."
        )
    return {check_metric_name(name): metric for name, metric in metrics.items()}


def add_up(forward: Callable[..., Any], batches: Sequence[Batch], totals: Sequence[Total]) -> list[Pending]:
    """Returns the totals over batches, from the same forward passes, without waiting for the device."""
    _add_anew(forward, batches, totals)
    return [total.pending() for total in totals]


def _add_anew(forward: Callable[..., Any], batches: Sequence[Batch], totals: Sequence[Total]) -> None:
    for total in totals:
        total.reset()
    add_more_batches(forward, batches, totals)


def add_more_batches(forward: Callable[..., Any], batches: Iterable[Batch], totals: Sequence[Total]) -> None:
    for batch in batches:
        outputs = call_network(forward, batch.inputs)
        for total in totals:
            total.add(outputs, batch)
        del outputs  # it may hold what gradients need, which no two batches should at once


def run_batches(
    forward: Callable[..., Any], batches: Sequence[Batch], loss: Total, metrics: Mapping[str, Total]
) -> dict[str, float]:
    """Returns the loss and every metric over batches, from the same forward passes."""
    totals = (loss, *metrics.values())
    _add_anew(forward, batches, totals)
    results: dict[str, float] = {}
    for total in totals:
        results |= total.result()
    return results


_Result = TypeVar("_Result")


@dataclass(eq=False)
class MetricObject(Total):
    """A framework's own metric: reset, updated with every batch, computed at the end."""

    name: str
    make: Callable[[], Any]  # returns one with a state of its own
    methods: tuple[str, str, str] = ("reset", "update", "compute")  # the second one takes (outputs, targets)
    targets: Callable[[Any], Any] = lambda targets: targets  # makes of a batch's targets what the metric takes
    adds_up = True

    def __post_init__(self) -> None:
        metric = self.make()
        self._reset, self._update, self._compute = (getattr(metric, method) for method in self.methods)

    def reset(self) -> None:
        self._reset()

    def add(self, outputs: Any, batch: Batch) -> None:
        self._update(outputs, self.targets(batch.targets))

    def fresh(self) -> Total:
        # Not a copy of the one that is in use: not every device lets tensors be copied in that way.
        fresh = replace(self)
        fresh.reset()
        return fresh

    def pending(self) -> Pending:
        return Pending([scalar(f"metric {self.name!r}", self._compute())], lambda numbers: {self.name: numbers[0]})


class NamedMetric(Total):
    """A metric whose name is in the error where the user's code raises."""

    def __init__(self, label: str, metric: Total) -> None:
        self._label, self._metric = label, metric
        self.adds_up = metric.adds_up

    def reset(self) -> None:
        self._metric.reset()

    def add(self, outputs: Any, batch: Batch) -> None:
        named_call(self._label, self._metric.add, outputs, batch)

    def fresh(self) -> Total:
        fresh = copy.copy(self)
        fresh._metric = self._metric.fresh()
        return fresh

    def pending(self) -> Pending:
        return named_call(self._label, self._metric.pending)


def named_call(label: str, function: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
    """Calls a function of the user's metric, and puts the metric's name into what it raises."""
    try:
        return function(*arguments, **options)
    except LandscapeError:  # it names the metric already
        raise
    except Exception as error:
        if is_memory_shortage(error):  # smaller batches mend it
            raise
        raise metric_error(label, error) from error


def metric_error(label: str, error: Exception) -> CallbackFunctionError:
    return CallbackFunctionError(f"{label} raised {type(error).__name__}: {error}")
