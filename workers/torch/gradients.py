"""Losses that differentiate, such as those of physics-informed networks: measured with gradients on (PyTorch)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from collectors.networks.batches import map_leaves

from ..errors import CallbackFunctionError

_Result = TypeVar("_Result")

NOTE = (
    "the loss needs gradients, so it is measured with gradients on: nothing is compiled, no layer is computed once for "
    "a plane, and each batch takes more time and memory."
)

_OF_METRICS = (
    " Metrics get the outputs without gradients: compute what needs them in the network or in the step of an OwnLoss, "
    "and return it with the outputs."
)
# What PyTorch says where gradients are off: torch.autograd.grad and backward, retain_grad, register_hook.
_SIGNS = ("does not require grad", "requires_grad=False", "doesn't require gradient")


class Gradients:
    """Whether what the user's code computes is recorded for gradients; it is not, until a loss shows the need."""

    def __init__(self, modules: Iterable[object] = (), *, restore: bool = False) -> None:
        self._parameters = [
            parameter for item in modules if isinstance(item, torch.nn.Module) for parameter in item.parameters()
        ]
        self._found: list[tuple[torch.nn.Parameter, torch.Tensor | None]] = []
        self._restore = restore
        self.are_on = False

    def retried(self, work: Callable[[], _Result]) -> tuple[_Result, list[str]]:
        """Returns what some work gives, with gradients where it fails for the want of them, and notes for the user."""
        try:
            return work(), []
        except CallbackFunctionError as error:
            if self.are_on or not lacks_gradients(error):
                raise
        # What is in ``grad`` is put aside, so that no loss adds to it.
        self._found = [(parameter, parameter.grad) for parameter in self._parameters] if self._restore else []
        self.are_on = True
        self._clear()
        try:
            return work(), [NOTE]
        except CallbackFunctionError as error:
            if not lacks_gradients(error):
                raise
            raise CallbackFunctionError(f"{error}{_OF_METRICS}") from error.__cause__

    def forward(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function that makes outputs; with gradients on they are ``RecordedOutputs``."""

        def run(*inputs: Any, **named_inputs: Any) -> RecordedOutputs:
            return RecordedOutputs(lambda: self.recorded(forward)(*inputs, **named_inputs))

        return run if self.are_on else forward

    def recorded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function, which records what it computes where gradients are on."""

        def run(*inputs: Any, **named_inputs: Any) -> Any:
            with self._on():
                return function(*map_leaves(own_tensor, inputs), **map_leaves(own_tensor, named_inputs))

        return run if self.are_on else function

    def loss(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a loss of (outputs, targets), whose value keeps nothing where gradients are on."""

        def run(outputs: RecordedOutputs, targets: Any) -> Any:
            with self._on():
                return outputs.value_of(loss, targets)

        return run if self.are_on else loss

    def close(self) -> None:
        for parameter, gradient in self._found:
            parameter.grad = gradient
        self._found = []

    @contextlib.contextmanager
    def _on(self) -> Iterator[None]:
        try:
            # The caller may be in inference mode, in which nothing is ever recorded.
            with torch.inference_mode(False), torch.enable_grad():
                yield
        finally:
            self._clear()  # what a loss leaves in ``grad``

    def _clear(self) -> None:
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad = None


class RecordedOutputs:
    """Outputs with what a loss needs to differentiate them, which it may use up."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute
        self._fresh: Any = compute()
        self._is_fresh = True
        self._values: dict[int, Any] = {}
        self.plain = without_graph(self._fresh)

    def value_of(self, loss: Callable[..., Any], targets: Any) -> Any:
        """Returns a loss, which is computed once; each other one gets outputs that are computed anew."""
        if id(loss) not in self._values:
            outputs = self._fresh if self._is_fresh else self._compute()
            self._fresh, self._is_fresh = None, False
            self._values[id(loss)] = without_graph(loss(outputs, targets))
        return self._values[id(loss)]


def lacks_gradients(error: BaseException | None) -> bool:
    """Returns whether an exception, or one that caused it, says that something was not recorded for gradients."""
    while error is not None:
        if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS):
            return True
        error = error.__cause__
    return False


def without_graph(value: Any) -> Any:
    """Returns a value without what gradients would need; what needs none is returned itself."""
    if isinstance(value, RecordedOutputs):
        return value.plain
    if isinstance(value, torch.Tensor):
        return value.detach() if value.requires_grad else value
    if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves(value)):
        return tree_map_only(torch.Tensor, torch.Tensor.detach, value)
    return value


def own_tensor(leaf: Any) -> Any:
    """Returns the same values as a tensor of its own, whose ``requires_grad`` and ``grad`` the user's code may set."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.clone() if leaf.is_inference() else leaf.detach()
