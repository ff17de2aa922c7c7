"""How a network is called: in which precision, and with which outputs for its loss and metrics (PyTorch)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

from ..errors import CallbackFunctionError
from ..measurement_options import MeasurementOptions
from ..measuring.memory_shortage import is_memory_shortage
from ..measuring.totals import Total, low_precision_note
from ..samples.batches import Batch
from .gradients import Gradients, lacks_gradients, without_graph
from .losses import WeighedMean, label_means, split_into_samples
from .own_loss import OwnLoss, StepResult, weightings
from .precision import Float32Losses, in_bfloat16, with_float32_outputs


class ForwardPass:
    """Makes of a network the function whose outputs, in at least float32, the loss and the metrics are given."""

    def __init__(
        self,
        own_loss: OwnLoss | None,
        options: MeasurementOptions = MeasurementOptions(),  # noqa: B008
        devices: Collection[torch.device] = (),
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
        if self._own_loss is not None:
            return self._without_graph(self._own_loss.forward(network, self._around_step))
        if self._types:
            network = self._in_bfloat16(network)
        return self.gradients.forward(with_float32_outputs(network) if self._widens else network)

    def _without_graph(self, step: Callable[[Any], StepResult]) -> Callable[[Any], StepResult]:
        recorded = self.gradients.recorded(step)

        def run(batch: Any) -> StepResult:
            result = recorded(batch)
            return StepResult(without_graph(result.loss), without_graph(result.own_outputs))

        return run if self.gradients.are_on else step

    def _in_bfloat16(self, network: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Any, **named_inputs: Any) -> Any:
            with in_bfloat16(self._types):
                return network(*inputs, **named_inputs)

        return run

    @contextlib.contextmanager
    def _around_step(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self._types:
                stack.enter_context(in_bfloat16(self._types))
            if self._widens:
                stack.enter_context(Float32Losses())
            yield

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
        if self._own_loss is not None:
            return weightings(self._own_loss, batches[0])
        assert loss is not None
        split, called = split_into_samples(loss, self.gradients.loss), self.gradients.loss(loss)
        by_samples = WeighedMean("loss", "the loss", called)
        return [by_samples, *(label_means("the loss", called, batches[0]) if split is None else [split])]

    def find_way(self, find: Callable[[], Total]) -> list[str]:
        """Finds out how the loss is added up, with gradients where it needs them; see ``find_in_float32``."""
        notes, more = self.gradients.retried(lambda: self.find_in_float32(find))
        return [*more, *notes]

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
