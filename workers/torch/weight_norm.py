"""Weight normalization with second derivatives that are right (PyTorch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class PlainWeightNorm(TorchFunctionMode):
    """While it is entered, ``weight_norm`` makes a weight from its direction and length step by step."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # The second derivative of PyTorch's own operator takes the norm for a constant: its Hessian is not symmetric.
        return _made(*args, **kwargs) if function is torch._weight_norm else function(*args, **kwargs)


def _made(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    return v * (g / torch.norm_except_dim(v, 2, dim))
