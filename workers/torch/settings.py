"""PyTorch's global settings while something is measured; the user's own come back afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

_FULL = ("ieee", "none")


@contextlib.contextmanager
def measurement_settings(device: torch.device, threads: int) -> Iterator[None]:
    """No gradients, no autocast, full float32 precision, no autotuning, and a number of CPU threads."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":
            flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
            stack.enter_context(flags)
        _full_precision(stack, device)
        before = torch.get_num_threads()
        if before != threads:
            torch.set_num_threads(threads)
            stack.callback(torch.set_num_threads, before)
        yield


def _full_precision(stack: contextlib.ExitStack, device: torch.device) -> None:
    try:
        before = torch.get_float32_matmul_precision()
        if before != "highest":
            torch.set_float32_matmul_precision("highest")
            stack.callback(torch.set_float32_matmul_precision, before)
    except RuntimeError:
        pass  # the user has set the newer attributes, beside which PyTorch refuses the older function
    for owner in _precision_owners(device):
        before = getattr(owner, "fp32_precision", "none")
        if before not in _FULL:
            owner.fp32_precision = "ieee"
            stack.callback(setattr, owner, "fp32_precision", before)


def _precision_owners(device: torch.device) -> Iterator[Any]:
    """Yields what has an ``fp32_precision`` (since PyTorch 2.9), the general before the particular."""
    backends = torch.backends
    yield backends
    if device.type == "cuda":
        yield from (backends.cuda.matmul, getattr(backends.cudnn, "conv", None), getattr(backends.cudnn, "rnn", None))
    else:
        mkldnn = getattr(backends, "mkldnn", None)
        yield mkldnn
        yield from (getattr(mkldnn, name, None) for name in ("matmul", "conv", "rnn"))
