"""Says which metric raised; a traceback alone shows that only to those who know their metrics' code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from collectors.errors import LandscapeError

from .batches import Batch
from .errors import CallbackFunctionError
from .memory_shortage import is_memory_shortage
from .totals import Pending, Total

_Result = TypeVar("_Result")


class NamedMetric(Total):
    """A metric that says its name where the user's code raises.

    Args:
        label: what an error's text calls it, such as "metric 'accuracy'".
        metric: adds it up.
    """

    def __init__(self, label: str, metric: Total) -> None:
        self._label, self._metric = label, metric
        self.adds_up = metric.adds_up

    def reset(self) -> None:
        """Starts a new sum."""
        self._metric.reset()

    def add(self, outputs: Any, batch: Batch) -> None:
        """Adds one batch."""
        named_call(self._label, self._metric.add, outputs, batch)

    def result(self) -> dict[str, float]:
        """Returns the result over all batches."""
        return named_call(self._label, self._metric.result)

    def pending(self) -> Pending:
        """Returns the result over all batches, not yet read."""
        return named_call(self._label, self._metric.pending)


def named_call(label: str, function: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
    """Returns what a function returns.

    Args:
        label: what an error's text calls the metric.
        function: the user's, or what calls it.
        arguments: its own.
        options: its own, by name.

    Raises:
        CallbackFunctionError: it raised; the original, with its traceback, is the cause. Errors that name the metric
            already pass as they are, and so does a shortage of memory, which smaller batches mend.
    """
    try:
        return function(*arguments, **options)
    except LandscapeError:
        raise
    except Exception as error:
        if is_memory_shortage(error):
            raise
        raise metric_error(label, error) from error


def metric_error(label: str, error: Exception) -> CallbackFunctionError:
    """Returns what to raise from an error that a metric raised."""
    return CallbackFunctionError(f"{label} raised {type(error).__name__}: {error}")
