"""Optimizer steps: accumulated, clipped and, for float16, scaled gradients around ``optimizer.step``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch

ClipGradients = Callable[[list[torch.Tensor]], Any]


@runtime_checkable
class WatchesLoss(Protocol):
    """An optimizer that looks at more of a backward pass than the gradients of its parameters, such as ``Thor``."""

    def watch_loss(self, scaler: torch.amp.GradScaler, loss_is_sum: bool) -> None: ...
    def gradients_multiplied(self, factor: float) -> None: ...


def calls_for_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether a step computes the loss itself, several times, as that of LBFGS does."""
    try:
        closure = inspect.signature(optimizer.step).parameters.get("closure")
    except ValueError:  # a step that is written in another language
        return False
    return closure is not None and closure.default is inspect.Parameter.empty


class OptimizerUpdate:
    """Turns the losses of batches into optimizer steps, one for ``accumulation_steps`` batches."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        accumulation_steps: int,
        clip_gradients: ClipGradients | None,
        loss_is_sum: bool,
    ) -> None:
        self._optimizer = optimizer
        self._scaler = scaler
        self._accumulation_steps = accumulation_steps
        self._clip_gradients = clip_gradients
        # As in one batch of all samples, each batch's mean loss counts by its number of samples; the last may be small.
        self._weighs = accumulation_steps > 1 and not loss_is_sum
        self._batches = self._samples = self._nominal = 0
        self.is_moving = False
        """Whether an optimizer step has begun and not ended, so that it may have moved some parameters only."""
        if isinstance(optimizer, WatchesLoss):
            optimizer.watch_loss(scaler, loss_is_sum)

    @property
    def pending(self) -> bool:
        return self._batches > 0

    @property
    def complete(self) -> bool:
        return self._batches == self._accumulation_steps

    def backward(self, loss: torch.Tensor, samples: int) -> None:
        if self._batches == 0:
            # At the group's start rather than after its step, so that hooks after a step see the gradients.
            self._optimizer.zero_grad()
            self._samples = 0
            self._nominal = max(samples, 1) * self._accumulation_steps
        self._batches += 1
        self._samples += samples
        if self._weighs:
            # Near 1/k, the scale that float16 losses are scaled for; `step` corrects what is left.
            loss = loss * (samples / self._nominal)
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def state_dict(self) -> dict[str, Any]:
        if not self.pending:
            return {}
        return {
            "batches": self._batches,
            "samples": self._samples,
            "nominal": self._nominal,
            "gradients": [parameter.grad for parameter in self._parameters()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._batches, self._samples, self._nominal = (state.get(name, 0) for name in ("batches", "samples", "nominal"))
        if not state:
            return
        for parameter, gradient in zip(self._parameters(), state["gradients"], strict=True):
            if gradient is not None and gradient.shape != parameter.shape:
                raise ValueError(f"a gradient of shape {tuple(gradient.shape)} for {tuple(parameter.shape)}")
            parameter.grad = None if gradient is None else torch.empty_like(parameter).detach().copy_(gradient)

    def step(self) -> None:
        parameters = self._parameters()
        if self._weighs and self._samples != self._nominal:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(self._nominal / self._samples)
            if isinstance(self._optimizer, WatchesLoss):
                self._optimizer.gradients_multiplied(self._nominal / self._samples)
        if self._clip_gradients is not None:
            self._scaler.unscale_(self._optimizer)
            self._clip_gradients(parameters)
        self.is_moving = True
        self._scaler.step(self._optimizer)
        self.is_moving = False
        self._scaler.update()
        self._batches = 0

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
