"""The factors of the optimizer that trains, where they are saved with the checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from ..networks.readers import is_sharded
from ..weights.kronecker import LayerFactors
from .plan import Parameters

_NAME = "collect_landscape['factors']"


@runtime_checkable
class KeepsFactors(Protocol):
    """A second-order optimizer, such as ``collectors.thor`` makes."""

    def keep_factors(self) -> None:
        """Keeps the factors of each refresh from now on."""

    def kept_factors(self) -> Sequence[LayerFactors]:
        """Returns those of the last refresh."""


def kept_factors(parameters: Parameters) -> Callable[[], Sequence[LayerFactors]]:
    """Lets the optimizer of a training keep its factors, and returns how to ask for them.

    Args:
        parameters: the training's ``cb_params``.

    Raises:
        ValueError: the optimizer has no factors, or the parameters are divided among processes.
    """
    given = parameters.get("optimizer")
    # Accelerate, and so Transformers' Trainer, wraps it.
    optimizer = given if isinstance(given, KeepsFactors) else getattr(given, "optimizer", None)
    if not isinstance(optimizer, KeepsFactors):
        came = "no optimizer is known" if given is None else f"it is {type(given).__name__}"
        raise ValueError(
            f"{_NAME} needs a Thor optimizer, whose factors it saves, but {came}. Train with thor(network, ...)"
            + (" and pass it on: collector.watch(network, optimizer=...)" if given is None else "")
            + ", or leave factors out."
        )
    if is_sharded(parameters.get("network")):
        raise ValueError(
            f"{_NAME} needs whole layers, but the parameters are divided among processes; leave factors out."
        )
    optimizer.keep_factors()
    return optimizer.kept_factors
