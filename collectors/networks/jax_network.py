"""JaxNetwork: a function and its parameters, which together are what other frameworks call a network."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..validation import wrong_type
from .weight_space import WeightSpace


@dataclass(frozen=True, eq=False)
class JaxNetwork:
    """A JAX network: a function, and the parameters that it is called with.

    Parameters are named by their path, joined by dots ("Dense_0.kernel", "layers.0.bias"). Any registered pytree will
    do. A dict with the key "params" is taken for Flax's collections: "params" are the parameters, without that word in
    their names, and all others ("batch_stats") are buffers. Floating-point arrays are parameters, other arrays are
    buffers; other leaves, and random keys, stay as they are.

    Example::

        JaxNetwork(model.apply, variables)                             # flax.linen
        JaxNetwork(functools.partial(model.apply, train=False), {"params": params, "batch_stats": batch_stats})
        JaxNetwork(predict, parameters)                                # a plain function predict(parameters, inputs)
        JaxNetwork(lambda module, x: module(x, train=False), module)   # an nnx.Module that needs more than its inputs

    Attributes:
        apply: called as ``apply(parameters, inputs)``, in eval mode, and traced by ``jax.jit``; a tuple of inputs
            becomes several arguments, a dict becomes keywords. With ``buffers`` it is called with
            ``{"params": parameters, **buffers}`` as its first argument. A module is in eval mode then.
        parameters: a pytree of arrays, a dict of Flax's collections, or a flax.nnx.Module.
        buffers: further collections by name, such as {"batch_stats": ...}; None where ``parameters`` holds everything.
        name: the network's name; None takes that of the module or function behind ``apply``.
        trainable: says for each parameter's name whether a plane spans it; None: all of them.
        update: what statistics are recalibrated with (``buffers="recalibrate"``): called as ``apply`` is, it normalizes
            by the batch and returns (outputs, collections with running averages that went on by this batch), such as
            ``functools.partial(model.apply, train=True, mutable=["batch_stats"])``. An nnx.Module needs none.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: both ``parameters`` and ``buffers`` hold collections.
    """

    apply: Callable[..., Any]
    parameters: Any
    buffers: Mapping[str, Any] | None = None
    name: str | None = None
    trainable: Callable[[str], bool] | None = None
    update: Callable[..., tuple[Any, Any]] | None = None

    def __post_init__(self) -> None:
        for argument in ("apply", "trainable", "update"):
            value = getattr(self, argument)
            if not callable(value) and (argument == "apply" or value is not None):
                raise wrong_type(argument, "a function", value)
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise wrong_type("name", "a str with at least one character, or None", self.name)
        if self.buffers is not None and not isinstance(self.buffers, Mapping):
            raise wrong_type("buffers", 'a dict of collections such as {"batch_stats": ...}, or None', self.buffers)
        if self.buffers is not None and (holds_collections(self.parameters) or "params" in self.buffers):
            raise ValueError(
                'parameters and buffers both hold collections; give JaxNetwork(apply, {"params": ..., "batch_stats": '
                '...}), or JaxNetwork(apply, params, buffers={"batch_stats": ...}).'
            )

    @property
    def tree(self) -> Any:
        return self.parameters if self.buffers is None else {"params": self.parameters, **self.buffers}


class ParametersFunction:
    """A training's present parameters, through a function: JAX's arrays never change, but each step makes new ones."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self._space: WeightSpace | None = None

    def check_space(self, space: WeightSpace) -> None:
        """Checks that the function returns the same parameters as at the beginning, apart from their values."""
        self._space = self._space or space
        if lines := self._space.differences(space):
            raise ValueError(
                "the function given to watch must return the same names, shapes and element types each time, but now "
                "they differ:\n  " + "\n  ".join(lines[:20])
            )


def is_parameters_function(value: object) -> bool:
    """Returns whether an object is a function that may be called without arguments."""
    if not isinstance(value, functools.partial) and not inspect.isroutine(value):
        return False
    try:
        inspect.signature(value).bind()
    except (TypeError, ValueError):
        return False
    return True


def holds_collections(tree: Any) -> bool:
    return isinstance(tree, Mapping) and "params" in tree and not hasattr(tree["params"], "shape")


def function_name(apply: Callable[..., Any]) -> str:
    while isinstance(apply, functools.partial):
        apply = apply.func
    owner = getattr(apply, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        return type(owner).__name__
    name = getattr(apply, "__name__", "")
    return name if name.isidentifier() else "JaxNetwork"
