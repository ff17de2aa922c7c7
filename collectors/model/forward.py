"""The forward pass of a Model: network and loss function, in its precision and on its device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from ..callbacks.callback_manager import Tell, silent
from ..networks.batches import call_network, is_packed, length_of
from ..validation import wrong_type

LossFunction = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True)
class Forward:
    """A network and its loss function (None: the network returns its loss), to be called; options as in ``Model``."""

    network: nn.Module
    loss_fn: LossFunction | None
    amp_level: str
    keep_batchnorm_fp32: bool | None = None

    @property
    def device(self) -> torch.device:
        """The device of the network's first parameter or buffer, the CPU where it has none."""
        tensors: Iterator[torch.Tensor] = chain(self.network.parameters(), self.network.buffers())
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    @property
    def reduced_type(self) -> torch.dtype | None:
        """The element type that mixed precision computes in, or None for full precision."""
        if self.amp_level == "O0" or (self.amp_level == "auto" and self.device.type != "cuda"):
            return None
        return torch.float16 if self.device.type == "cuda" else torch.bfloat16

    @property
    def loss_is_sum(self) -> bool:
        if isinstance(self.loss_fn, functools.partial):  # of one of PyTorch's functions
            return self.loss_fn.keywords.get("reduction") == "sum"
        return getattr(self.loss_fn, "reduction", "mean") == "sum"

    @property
    def scales_loss(self) -> bool:
        """Whether float16 needs a scaled loss that nobody asked for: at the levels O2 and auto."""
        return self.reduced_type is torch.float16 and self.amp_level != "O3"

    def autocast(self) -> AbstractContextManager[Any]:
        """Returns the context in which the loss function computes."""
        dtype = self.reduced_type
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)

    @contextmanager
    def network_autocast(self) -> Iterator[None]:
        with self.autocast(), ExitStack() as hooks:
            kept = self.amp_level != "O3" if self.keep_batchnorm_fp32 is None else self.keep_batchnorm_fp32
            if kept and self.reduced_type is not None:
                for module in self.network.modules():
                    if isinstance(module, nn.modules.batchnorm._BatchNorm):
                        hooks.callback(module.register_forward_pre_hook(_in_float32).remove)
            yield

    def place(self, name: str, batch: Any, index: int) -> tuple[Any, Any]:
        expected = f"{name} must yield (inputs, targets) pairs, but its batch {index} is"
        remedy = "Several inputs go into one tuple or dict: ((a, b), targets)."
        if not isinstance(batch, tuple | list):
            raise TypeError(f"{expected} a {type(batch).__name__}. {remedy}")
        if len(batch) != 2:
            raise ValueError(f"{expected} a {type(batch).__name__} of {len(batch)}. {remedy}")
        return to_device(batch[0], self.device), to_device(batch[1], self.device)

    def __call__(self, inputs: Any, targets: Any, tell: Tell = silent) -> tuple[torch.Tensor | None, Any]:
        """Returns the loss (None without a loss function), a scalar tensor, and the network's outputs."""
        outputs = self.outputs(inputs, tell, "eval_")
        return (None if self.loss_fn is None else self._loss(outputs, targets)), outputs

    def training_loss(self, inputs: Any, targets: Any, tell: Tell = silent) -> torch.Tensor:
        """Returns the loss, shape (); without ``loss_fn`` the network's first output, or its mean over samples."""
        outputs = self.outputs(inputs, tell)
        tell("before_loss")
        loss = self._loss(outputs, targets)
        tell("after_loss", loss=loss)
        return loss

    def outputs(self, inputs: Any, tell: Tell = silent, phase: str = "") -> Any:
        tell(f"{phase}before_forward")
        with self.network_autocast():
            outputs = call_network(self.network, inputs)
        tell(f"{phase}after_forward", outputs=outputs)
        return outputs

    def _loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        if self.loss_fn is not None:
            with self.autocast():
                return check_loss("loss_fn", self.loss_fn(outputs, targets))
        first = outputs[0] if isinstance(outputs, tuple | list) and outputs else outputs
        mean = first.mean() if isinstance(first, torch.Tensor) and first.ndim == 1 and first.numel() else first
        return check_loss("network (as there is no loss_fn)", mean)

    @contextmanager
    def eval_mode(self) -> Iterator[None]:
        # Module by module: a frozen BatchNorm that was in eval mode during training stays there afterwards.
        modes = [(module, module.training) for module in self.network.modules()]
        self.network.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


def _in_float32(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.float() if isinstance(value, torch.Tensor) else value for value in inputs)


def check_loss(name: str, loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor):
        raise TypeError(f"{name} must return a scalar tensor, the loss, but returned {type(loss).__name__}.")
    if loss.numel() != 1:
        raise ValueError(
            f"{name} must return a scalar tensor, the loss, but returned one of shape {tuple(loss.shape)}. "
            "Use a loss with reduction='mean' (or 'sum')."
        )
    return loss.reshape(())


def check_dataset(name: str, dataset: Any) -> None:
    if not isinstance(dataset, Iterable) and not hasattr(type(dataset), "__getitem__"):
        raise wrong_type(name, "a DataLoader or another iterable of (inputs, targets) batches", dataset)
    if isinstance(dataset, Iterator):
        raise TypeError(
            f"{name} must be iterable again and again, but got {type(dataset).__name__}, which is used up after one "
            "pass. Give a DataLoader or a list of batches."
        )
    if length_of(dataset) == 0:
        raise empty_dataset(name)


def empty_dataset(name: str) -> ValueError:
    return ValueError(
        f"{name} must yield at least one batch, but got none. A DataLoader with drop_last=True has none when the "
        "batch size exceeds the number of samples."
    )


def announce_epoch(dataset: Any, epoch: int) -> None:
    """Tells a distributed sampler the epoch (0-based); without it every epoch has the same order."""
    for owner in ("sampler", "batch_sampler"):
        set_epoch = getattr(getattr(dataset, owner, None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)


def to_device(value: Any, device: torch.device) -> Any:
    """Returns the value with every tensor in it (also inside tuples, lists and dicts) on the device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if is_packed(value):
        return value.to(device)  # but for the batch sizes, which stay on the CPU
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(to_device(item, device) for item in value)
    if isinstance(value, Mapping):
        return {key: to_device(item, device) for key, item in value.items()}
    return value
