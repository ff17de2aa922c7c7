"""Networks that get a whole batch and compute their own loss (PyTorch): Transformers, Lightning, Composer."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from collectors.networks.batches import call_network

from ..errors import CallbackFunctionError
from ..measuring.totals import NamedMetric
from ..samples.batches import Batch
from .precision import at_least_float32


class OwnLoss:
    """The first item that callback_fn returns where the network's loss comes from a whole batch.

    A batch may then be any tensor, tuple, list or mapping, as the data set's ``collate_fn`` makes it, and metrics are
    functions of (outputs, batch). The loss of all samples is the mean over batches, weighted by samples or by the
    labels that count (not -100; of a causal language model without the first of each sequence), whichever makes batch
    size free; where none does, the data set's own batches are kept. It has no ``loss_stderr``: that would take one
    forward pass for each sample.

    Metrics get the outputs in at least float32. Where the loss comes out in bfloat16 or float16, PyTorch's loss
    functions are given float32 in the network as well; a loss that is still rounded after that gets a note.

    Example::

        def step(network, batch):
            outputs = network(batch)
            return network.loss(outputs, batch), outputs

        def callback_fn():
            return OwnLoss(step), make_network(), loader, {}

    Args:
        step: function of (network, batch) that returns the loss, or (loss, outputs); None calls the network with the
            batch's entries as keywords and takes the ``loss`` of its output, as networks of Transformers give it.
        samples: function of a batch that returns how many samples it holds, by which its loss and metrics are weighed;
            None takes what the DataLoader put into it, or else the first axis that all its tensors share.

    Raises:
        TypeError: the step or samples cannot be called.
    """

    def __init__(
        self, step: Callable[[Any, Any], Any] | None = None, *, samples: Callable[[Any], int] | None = None
    ) -> None:
        for name, value, what in (
            ("step", step, "(network, batch) that returns the loss"),
            ("samples", samples, "a batch that returns how many samples it holds"),
        ):
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be a function of {what}, or None, but got {type(value).__name__}.")
        self.samples = samples
        self._step = _loss_of_outputs if step is None else step

    def forward(self, network: Callable[..., Any], batch: Any) -> StepResult:
        """Returns the loss and outputs of a network for a batch."""
        result = self._step(network, batch)
        loss, outputs = result if isinstance(result, tuple) and len(result) == 2 else (result, result)
        return StepResult(loss, outputs)


@dataclass(frozen=True)
class StepResult:
    loss: Any
    own_outputs: Any

    @cached_property
    def outputs(self) -> Any:
        """The outputs in at least float32, for metrics."""
        return at_least_float32(self.own_outputs)


class OwnMetric(NamedMetric):
    """A metric of (outputs, batch) instead of (outputs, targets)."""

    def add(self, outputs: Any, batch: Batch) -> None:
        super().add(outputs.outputs, Batch(None, batch.inputs[0], batch.size))


def own_loss_of(model: object, network: object) -> OwnLoss | None:
    """Returns the own loss that callback_fn's first item stands for, or None where it is a loss of outputs."""
    composer_model = getattr(sys.modules.get("composer"), "ComposerModel", ())
    if isinstance(network, composer_model) and (model is None or isinstance(model, composer_model)):
        return OwnLoss(composer_step)
    if model is None:
        return OwnLoss()
    return model if isinstance(model, OwnLoss) else None


def _loss_of_outputs(network: Callable[..., Any], batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, Mapping):
        raise _no_own_loss(f"the data set gives no dictionaries for it ({type(batch).__name__})")
    outputs = call_network(network, batch)
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if loss is None:
        raise _no_own_loss(f"its output has no loss ({type(outputs).__name__})")
    return loss, outputs


def _no_own_loss(found: str) -> CallbackFunctionError:
    return CallbackFunctionError(
        "the first item that callback_fn returned is None, which stands for a network that computes its own loss from "
        f"batches with labels in them, as those of Transformers do, but {found}. Give dictionaries with 'labels', or "
        "return a loss function, a Model or an OwnLoss instead of None."
    )


def composer_step(model: Any, batch: Any) -> tuple[Any, Any]:
    # A copy, because models may take things out of a batch, and the next point needs them again.
    batch = copy.copy(batch)
    outputs = at_least_float32(model(batch))
    loss = model.loss(outputs, batch)
    # One loss, as Composer's trainer makes it: the named total, else the sum of the means.
    if isinstance(loss, Mapping):
        loss = loss["total"] if "total" in loss else list(loss.values())
    loss = sum(part.mean() for part in loss) if isinstance(loss, tuple | list) else loss.mean()
    return loss, outputs
