"""The loss of one step, out of what a network or a trainer hands over."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .validation import wrong_type

if TYPE_CHECKING:
    import torch


def step_loss(net_outputs: Any) -> float | torch.Tensor:
    """Returns the loss of a step: the first item of a tuple or list, the mean of an array; NaN and infinity stay.

    Returns:
        A float; where reading it would make the training wait for an accelerator, a tensor of shape () there.

    Raises:
        TypeError: there is no number to be found.
    """
    loss = net_outputs
    while isinstance(loss, tuple | list) and loss:
        loss = loss[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(loss, torch.Tensor):
        if loss.numel() == 0 or loss.is_complex():
            raise _no_number(net_outputs)
        # float64, so that the mean of many float16 losses does not overflow; Apple's GPUs lack it.
        mean = loss.detach().to(torch.float32 if loss.device.type == "mps" else torch.float64).mean()
        return float(mean) if mean.device.type == "cpu" else mean
    try:
        array = np.asarray(loss)
        # Kind "V" is how numpy sees bfloat16 and the float8 types.
        numbers = array.astype(np.float64) if array.dtype.kind in "iufV" else np.empty(0)
    except (TypeError, ValueError) as error:
        raise _no_number(net_outputs) from error
    if numbers.size == 0:
        raise _no_number(net_outputs)
    return float(numbers.mean())


def _no_number(net_outputs: Any) -> TypeError:
    expected = (
        "the loss (a number, a real array or tensor of at least one element) or a tuple or list that begins with it"
    )
    return wrong_type("cb_params.net_outputs", expected, net_outputs)
