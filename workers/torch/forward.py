"""How a network is called: in which precision, and with which outputs for its loss and metrics (PyTorch)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from ..errors import CallbackFunctionError
from ..measurement_options import MeasurementOptions
from ..measuring.memory_shortage import is_memory_shortage
from ..measuring.totals import Total, low_precision_note
from ..samples.batches import Batch
from .gradients import Gradients, lacks_gradients, without_graph
from .losses import OwnLoss, StepResult, WeighedMean, label_means, split_into_samples
from .settings import Float32Losses, at_least_float32, in_bfloat16


class ForwardPass:
    """Makes of a network the function whose outputs, in at least float32, the loss and the metrics are given."""

    def __init__(
        self,
        own_loss: OwnLoss | None,
        options: MeasurementOptions,
        devices: Collection[torch.device],
        gradients: Gradients | None = None,
    ) -> None:
        self._options, self.precision = options, options.precision
        self._own_loss, self.is_own_loss = own_loss, own_loss is not None
        self.gradients = Gradients() if gradients is None else gradients
        self._types = sorted({device.type for device in devices}) if options.precision == "bfloat16" else []
        # Outputs of a network that computes its own loss are widened only where that loss shows the need: looking in
        # costs time.
        self._widens = own_loss is None

    def of(self, network: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function from inputs to outputs, or from a batch to loss and outputs for a network's own loss."""
        own_loss, widens, are_on = self._own_loss, self._widens, self.gradients.are_on
        if own_loss is not None:

            def run_step(batch: Any) -> StepResult:
                with in_bfloat16(self._types), Float32Losses() if self._widens else contextlib.nullcontext():
                    result = own_loss.forward(network, batch)
                if not are_on:
                    return result
                return StepResult(without_graph(result.loss), without_graph(result.own_outputs))

            return self.gradients.recorded(run_step)

        def run(*inputs: Any, **named_inputs: Any) -> Any:
            with in_bfloat16(self._types) if self._types else contextlib.nullcontext():
                outputs = network(*inputs, **named_inputs)
            return at_least_float32(outputs) if widens else outputs

        return self.gradients.forward(run)

    @property
    def obstacle(self) -> str:
        """Why the network must not be compiled, or ""."""
        if self._options.seed_each_point:
            return "compiled code draws other random numbers (seed_each_point)"
        if self.gradients.are_on:
            return "its loss needs gradients"
        # Compiled code calls no loss function that could be given float32.
        widened = self._own_loss is not None and self._widens
        return "its own loss is computed in float32 although the network is not" if widened else ""

    def ways_to_add_up(self, loss: Callable[..., Any] | None, batches: Sequence[Batch]) -> list[Total]:
        """Returns the candidates for the test of the partition: the loss as it may be added up over batches."""
        split: Total | None = None
        if self._own_loss is None:
            assert loss is not None
            label, called = "the loss", self.gradients.loss(loss)
            split = split_into_samples(loss, self.gradients.loss)
        else:
            label, called = "the network's own loss", lambda outputs, _: outputs.loss
        by_samples = WeighedMean("loss", label, called)
        if split is not None:
            return [by_samples, split]
        # What the user says of samples goes before labels.
        has_weights = self._own_loss is not None and self._own_loss.samples is not None
        return [by_samples, *([] if has_weights else label_means(label, called, batches[0]))]

    def find_in_float32(self, find: Callable[[], Total]) -> list[str]:
        """Finds out how the loss is added up, in at least float32 where that works; returns notes for the user."""
        try:
            loss = find()
        except CallbackFunctionError as error:
            lacking = not self.gradients.are_on and lacks_gradients(error)
            if self._own_loss is not None or lacking or is_memory_shortage(error.__cause__ or error):
                raise
            self._widens = False
            try:
                find()
            except CallbackFunctionError:
                raise error from error.__cause__
            return [
                "loss and metrics are computed from the network's outputs in low precision, because they do not take "
                f"them in float32 ({error.__cause__ or error})."
            ]
        if self._own_loss is not None and loss.low_precision is not None:
            self._widens = True
            loss = find()
        return low_precision_note(loss)
