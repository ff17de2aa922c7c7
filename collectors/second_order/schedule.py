"""A learning rate or a damping: one number, one for each step, or a function of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..validation import check_float, wrong_type, wrong_value

_EXPECTED = "a number, a sequence or one-dimensional tensor of numbers (one for each step), or a function of the step"


class Schedule:
    """A hyperparameter's value at each step: one number, one for each step (the last holds on), or a function of it."""

    def __init__(self, name: str, value: Any, positive: bool = False) -> None:
        self._name, self._positive = name, positive
        self._function: Callable[[int], Any] | None = None
        self._values: list[float] = []
        if isinstance(value, torch.Tensor | np.ndarray):
            if value.ndim > 1:
                raise wrong_value(name, _EXPECTED, value)
            value = value.tolist()
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            self._values = [self._checked(f"{name}[{index}]", item) for index, item in enumerate(value)]
            if not self._values:
                raise wrong_value(name, "a sequence with at least one number", value)
        elif callable(value) and not isinstance(value, type):
            self._function = value
        elif isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise wrong_type(name, _EXPECTED, value)
        else:
            self._values = [self._checked(name, value)]

    @property
    def constant(self) -> bool:
        return self._function is None and len(self._values) == 1

    def at(self, step: int) -> float:
        """Returns the value of a step; the first step is 0."""
        if self._function is not None:
            value = self._function(step)
            if isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 0:
                value = value.item()
            return self._checked(f"{self._name}({step})", value)
        return self._values[min(step, len(self._values) - 1)]

    def _checked(self, name: str, value: Any) -> float:
        number = check_float(name, value, minimum=0.0)
        if self._positive and not math.sqrt(number):
            raise wrong_value(name, "more than 0", value)
        return number
