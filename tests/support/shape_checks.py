"""Executes the shape annotations of our packages while the tests run.

Only array annotations are checked: everything else is the business of mypy and of our own validators, whose errors
the tests want to see.
"""

import builtins
import typing

import jaxtyping
from beartype import beartype

_NAMES = ("Float64", "Float32", "Int64", "UInt8", "Bool")

# The packages import these names for type checkers only, because importing jaxtyping takes a quarter of a second.
for _name in _NAMES:
    setattr(builtins, _name, getattr(jaxtyping, _name))


def only_shapes(function):
    """Checks a function's array annotations at each call."""
    if not hasattr(function, "__annotations__"):
        return function
    function.__annotations__ = {
        name: hint if any(f"{array}[" in str(hint) for array in _NAMES) else typing.Any
        for name, hint in function.__annotations__.items()
    }
    return beartype(function)
