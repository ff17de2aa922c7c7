"""Calls callback_fn, and makes the evaluator that what it returns asks for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from collectors.networks.readers import NETWORK_KINDS, framework_of

from .errors import CallbackFunctionError
from .evaluator import Evaluator, MeasurementSetup
from .measuring.memory_shortage import getting_ready


def call_callback(callback_fn: Callable[[], Any]) -> Any:
    """Returns what callback_fn returns.

    Raises:
        CallbackFunctionError: it raised.
    """
    try:
        return callback_fn()
    except Exception as error:
        raise CallbackFunctionError(f"callback_fn raised {type(error).__name__}: {error}") from error


def make_evaluator(result: Any, setup: MeasurementSetup) -> Evaluator:
    """Returns an evaluator of what callback_fn returned.

    Args:
        result: (model, network, dataset, metrics), or an Evaluator.
        setup: what is measured, and how.

    Raises:
        CallbackFunctionError: the result is something else.
        TypeError: a part of it has the wrong type.
        LandscapeError: the network or the data cannot be measured; the subclass says why.
    """
    if isinstance(result, Evaluator):
        return result
    if not isinstance(result, tuple | list) or len(result) != 4:
        shown = f"a {type(result).__name__}" + (f" of {len(result)}" if isinstance(result, tuple | list) else "")
        raise CallbackFunctionError(
            f"callback_fn must return (model, network, dataset, metrics) or an Evaluator, but returned {shown}. For "
            "PyTorch: a Model or a loss function, an nn.Module, a DataLoader, and a dict of metrics (may be empty)."
        )
    model, network, dataset, metrics = result
    framework = framework_of(network)
    if framework is None:
        raise CallbackFunctionError(
            "the second item that callback_fn returns must be a network of a supported framework "
            f"({NETWORK_KINDS}), but is {type(network).__name__}."
        )
    module = import_module(f".{framework}.evaluator", __package__)
    with getting_ready("the network and its samples were put on their device"):
        evaluator: Evaluator = module.EVALUATOR(model, network, dataset, metrics, setup)
    return evaluator
