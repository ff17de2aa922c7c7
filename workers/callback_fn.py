"""Calls callback_fn, and makes the evaluator that what it returns asks for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from collectors.networks.readers import NETWORK_KINDS, framework_of

from .errors import CallbackFunctionError
from .evaluator import Evaluator, MeasurementOptions
from .measurement_plan import MeasurementPlan, Workload


def call_callback(callback_fn: Callable[[], Any]) -> Any:
    """Returns what callback_fn returns.

    Raises:
        CallbackFunctionError: it raised.
    """
    try:
        return callback_fn()
    except Exception as error:
        raise CallbackFunctionError(f"callback_fn raised {type(error).__name__}: {error}") from error


def make_evaluator(
    result: Any,
    options: MeasurementOptions,
    *,
    threads: int = 1,
    device: str | None = None,
    plan: MeasurementPlan | None = None,
    restore_network: bool = True,
    workload: Workload | None = None,
) -> Evaluator:
    """Returns an evaluator of what callback_fn returned.

    Args:
        result: (model, network, dataset, metrics), or an Evaluator.
        options: what is measured.
        threads: CPU threads that this worker may use.
        device: the framework's name of the device; None means the CPU.
        plan: how to compute; None tunes one on the real network and data.
        restore_network: whether ``close`` puts the network back; a worker of its own saves that memory.
        workload: for how much work a plan is tuned.

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
    # The other frameworks always compile, or never do.
    tuned = {"workload": workload} if framework == "torch" else {}
    evaluator: Evaluator = import_module(f".{framework}.evaluator", __package__).EVALUATOR(
        model,
        network,
        dataset,
        metrics,
        options=options,
        threads=threads,
        device=device or "cpu",
        plan=plan,
        restore_network=restore_network,
        **tuned,
    )
    return evaluator
