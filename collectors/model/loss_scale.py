"""How losses are scaled for float16, under the names of MindSpore's managers."""

from __future__ import annotations

from typing import Any

import torch

from ..validation import check_bool, check_float, check_int


class FixedLossScaleManager:
    """Multiplies the loss by a fixed number; the gradients are divided by it before the optimizer sees them.

    Args:
        loss_scale: the number.
        drop_overflow_update: whether an optimizer step with infinite or undefined gradients is left out.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the number is less than 1.
    """

    def __init__(self, loss_scale: float = 128.0, drop_overflow_update: bool = True) -> None:
        self._scale = check_float("loss_scale", loss_scale, minimum=1.0)
        self._drops = check_bool("drop_overflow_update", drop_overflow_update)

    def get_loss_scale(self) -> float:
        """Returns what the loss is multiplied by."""
        return self._scale

    def get_drop_overflow_update(self) -> bool:
        """Returns whether a step with infinite gradients is left out."""
        return self._drops

    def scaler(self, device: str) -> torch.amp.GradScaler:
        """Returns what scales losses on a device."""
        return _FixedScaler(device, self._scale, self._drops)


class DynamicLossScaleManager:
    """Multiplies the loss by a number that grows, and shrinks when a gradient overflows; that step is left out.

    Args:
        init_loss_scale: the number at the beginning.
        scale_factor: what it grows and shrinks by.
        scale_window: after how many steps without overflow it grows.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
    """

    def __init__(self, init_loss_scale: float = 2.0**24, scale_factor: float = 2, scale_window: int = 2000) -> None:
        self._scale = check_float("init_loss_scale", init_loss_scale, minimum=1.0)
        self._factor = check_float("scale_factor", scale_factor, minimum=1.0 + 1e-6)
        self._window = check_int("scale_window", scale_window, minimum=1)

    def get_loss_scale(self) -> float:
        """Returns what the loss is multiplied by at the beginning."""
        return self._scale

    def get_drop_overflow_update(self) -> bool:
        """Returns True: a step with infinite gradients is left out."""
        return True

    def scaler(self, device: str) -> torch.amp.GradScaler:
        """Returns what scales losses on a device."""
        return torch.amp.GradScaler(
            device,
            init_scale=self._scale,
            growth_factor=self._factor,
            backoff_factor=1 / self._factor,
            growth_interval=self._window,
        )


LossScale = FixedLossScaleManager | DynamicLossScaleManager | torch.amp.GradScaler


class _FixedScaler(torch.amp.GradScaler):
    def __init__(self, device: str, scale: float, drops: bool) -> None:
        super().__init__(device, init_scale=scale)
        self._fixed, self._drops = scale, drops

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        if self._drops:
            return super().step(optimizer, *args, **kwargs)
        if not self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]:
            self.unscale_(optimizer)
        optimizer.step(*args, **kwargs)
        return None

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        super().update(self._fixed)
