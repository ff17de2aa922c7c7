"""Calls callback_fn, and makes the evaluator that what it returns asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from collectors.networks.readers import NETWORK_KINDS, describe_network, framework_of
from collectors.networks.weight_space import WeightSpace

from .errors import CallbackFunctionError, SampleLossesError, closing_on_failure
from .evaluator import Evaluator, MeasurementSetup
from .measuring.memory_shortage import getting_ready
from .users_code import is_ours, place_of


def call_callback(callback_fn: Callable[[], Any]) -> Any:
    """Returns callback_fn's result; its exception becomes one that says where in the user's code it was raised."""
    try:
        return callback_fn()
    except (Exception, SystemExit) as error:
        raise CallbackFunctionError(f"callback_fn raised {type(error).__name__}: {error}{place_of(error)}") from error


def make_evaluator(result: Any, setup: MeasurementSetup) -> Evaluator:
    """Returns an evaluator of callback_fn's result: (model, network, dataset, metrics), or an Evaluator."""
    if isinstance(result, Evaluator):
        wanted, found = setup.options.precision, result.description.options.precision
        if wanted not in ("float32", found):  # one that is lower by itself says so in its description
            raise ValueError(
                f'precision="{wanted}" does not reach the Evaluator that callback_fn returns, whose description says '
                f'"{found}". Pass precision="{found}", or build the Evaluator with these options.'
            )
        if setup.options.groups is not None:
            raise SampleLossesError(
                "groups does not reach the Evaluator that callback_fn returns; leave it out, and let the Evaluator "
                "measure its groups as metrics."
            )
        if setup.options.keep_samples and not result.description.options.keep_samples:
            raise SampleLossesError(
                "keep_samples=True does not reach the Evaluator that callback_fn returns; leave it out, or return "
                "(model, network, dataset, metrics), of which we measure each sample's loss."
            )
        if setup.options.samples not in ("first", result.description.options.samples):
            raise ValueError(
                f'samples="{setup.options.samples}" does not reach the Evaluator that callback_fn returns. Leave it '
                "out and let the Evaluator choose its samples, or build it with these options."
            )
        policy = result.description.options.buffers
        if setup.options.buffers == "recalibrate" and policy != "recalibrate":
            raise ValueError(
                'buffers="recalibrate" does not reach the Evaluator that callback_fn returns, whose description says '
                f'"{policy}". Leave buffers out, or build the Evaluator with these options.'
            )
        if setup.options.seed_each_point and not result.description.options.seed_each_point:
            raise ValueError(
                "seed_each_point=True does not reach the Evaluator that callback_fn returns. Leave it out and let the "
                "Evaluator set its seed at each point, or build it with these options."
            )
        return _completed(result, setup)
    framework = _framework(result)
    model, network, dataset, metrics = result
    module = import_module(f".{framework}.evaluator", __package__)
    with users_errors(), getting_ready("the network and its samples were put on their device"):
        evaluator: Evaluator = module.EVALUATOR(model, network, dataset, metrics, setup)
    return _completed(evaluator, setup)


@contextlib.contextmanager
def users_errors() -> Iterator[None]:
    """Turns what was raised by no code of ours into a CallbackFunctionError."""
    try:
        yield
    except Exception as error:
        if is_ours(error):  # and says what is wrong
            raise
        raise CallbackFunctionError(
            f"what callback_fn returned raised {type(error).__name__}: {error}{place_of(error)}"
        ) from error


def _completed(evaluator: Evaluator, setup: MeasurementSetup) -> Evaluator:
    """Returns the evaluator, which also measures the ends of the Hessian's spectrum where these are asked for."""
    if not setup.options.extremes:
        return evaluator
    from .measuring.extremes import WithExtremes

    with closing_on_failure(evaluator):
        return WithExtremes(evaluator)


def space_of(result: Any) -> WeightSpace:
    """Returns the description of the network in (model, network, dataset, metrics), or of an Evaluator's."""
    if isinstance(result, Evaluator):
        return result.description.space
    _framework(result)
    return describe_network(result[1])


def _framework(result: Any) -> str:
    if not isinstance(result, tuple | list) or len(result) != 4:
        shown = f"a {type(result).__name__}" + (f" of {len(result)}" if isinstance(result, tuple | list) else "")
        raise CallbackFunctionError(
            f"callback_fn must return (model, network, dataset, metrics) or an Evaluator, but returned {shown}. For "
            "PyTorch: a Model or a loss function, an nn.Module, a DataLoader, and a dict of metrics (may be empty)."
        )
    framework = framework_of(result[1])
    if framework is None:
        raise CallbackFunctionError(
            "the second item that callback_fn returns must be a network of a supported framework "
            f"({NETWORK_KINDS}), but is {type(result[1]).__name__}."
        )
    return framework
