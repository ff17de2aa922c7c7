"""What a network computes, as one number: its layers, their settings and all code that they reach (PyTorch)."""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import logging
import platform
import re
import struct
import sys
import types
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

_SIMPLE = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, np.dtype, np.generic)
_SHARED = ("torch", "numpy")
_COLLECTIONS = (dict, tuple, list, collections.OrderedDict, collections.deque)
# What Python writes into a class beside its code: where it stands, and its annotations.
_NO_CODE = (
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__annotations_cache__", "__annotate_func__",
    "__firstlineno__", "__static_attributes__",
)  # fmt: skip
# What is nothing but its parts.
_WRAPPERS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (types.MethodType, ("__self__", "__func__")),
    (functools.partial, ("func", "args", "keywords")),
    (property, ("fget", "fset", "fdel")),
    ((staticmethod, classmethod), ("__func__",)),
    (functools.cached_property, ("func",)),
    (functools._lru_cache_wrapper, ("__wrapped__",)),
)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_MOST_OBJECTS = 20_000
_MOST_BYTES = 1 << 20


class UnknownCodeError(Exception):
    """Something that a network reaches has neither a value nor source that could be compared."""


def code_of_network(network: nn.Module) -> str:
    """Returns a hash of what decides what a network computes but for weights' values, or raises UnknownCodeError."""
    # That are the layers with their settings, shapes and memory layouts, and the byte code of every function that these
    # reach by name. PyTorch, NumPy and Python count by their versions.
    description = _Description()
    try:
        description.add(network)
    except RecursionError:
        raise UnknownCodeError("it is nested too deeply") from None
    return description.hash.hexdigest()


class _Description:
    def __init__(self) -> None:
        self.hash = hashlib.sha256(repr((platform.python_version(), torch.__version__, np.__version__)).encode())
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []  # so that no other object gets the address of one that was seen

    def add(self, value: Any) -> None:
        if isinstance(value, _SIMPLE) and type(value) in _SIMPLE:
            self._say(type(value).__name__, value)
        elif isinstance(value, _NAMED):
            self._say(type(value).__name__, str(value))
        elif id(value) in self._seen:
            self._say("again", self._seen[id(value)])
        else:
            self._add_new(value)

    def _add_new(self, value: Any) -> None:
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        if len(self._seen) > _MOST_OBJECTS:
            raise UnknownCodeError("it is too large")
        self._say(type(value).__name__)
        parts = next((names for kinds, names in _WRAPPERS if isinstance(value, kinds)), None)
        if parts is not None:
            for name in parts:
                self.add(getattr(value, name))
        elif isinstance(value, torch.Tensor):
            self._add_tensor(value, with_values=not isinstance(value, nn.Parameter))
        elif isinstance(value, np.ndarray):
            self._add_values(value)
        elif isinstance(value, nn.Module):
            self._add_module(value)
        elif isinstance(value, Mapping):
            self._add_instance(value)
            for pair in value.items():
                self._add_all(pair)
        elif isinstance(value, tuple | list | collections.deque):
            self._add_instance(value)
            self._add_all(value)
        elif isinstance(value, set | frozenset):
            self._say(*sorted(map(repr, value)))
        elif isinstance(value, weakref.ref):
            self.add(value())
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.CodeType):
            self._say(
                value.co_name, value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_flags
            )
            self._add_all(value.co_consts)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, types.ModuleType):
            self._add_file(value)
        elif isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
            self._say(value.__qualname__, str(getattr(value, "__module__", None)))
        elif isinstance(value, re.Pattern):
            self._say(value.pattern, value.flags)
        elif isinstance(value, logging.Logger):
            self._say(value.name)
        elif _is_shared(type(value)) and callable(value) and hasattr(value, "__name__"):
            self._say(str(value.__name__), str(value))  # operators of PyTorch
        else:
            self._add_instance(value)

    def _add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def _add_module(self, module: nn.Module) -> None:
        self.add(type(module))
        for name, item in vars(module).items():
            self._say(name)
            if name in ("_parameters", "_buffers"):
                for key, tensor in item.items():
                    self._say(key)
                    if tensor is None or id(tensor) in self._seen:
                        self.add(tensor)
                    else:
                        self._seen[id(tensor)] = len(self._seen)
                        self._add_tensor(tensor, with_values=False)
            else:
                self.add(item)

    def _add_tensor(self, tensor: torch.Tensor, *, with_values: bool) -> None:
        self._say(type(tensor).__name__, tuple(tensor.shape), tensor.dtype, tensor.device, tensor.requires_grad)
        if tensor.layout is not torch.strided:
            raise UnknownCodeError(f"it holds a tensor of layout {tensor.layout}")
        self._say(tensor.stride())
        if with_values:
            if tensor.device.type != "cpu":
                raise UnknownCodeError("it holds a tensor on a device that is neither parameter nor buffer")
            self._add_values(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())

    def _add_values(self, values: np.ndarray[Any, Any]) -> None:
        if values.dtype.hasobject or values.nbytes > _MOST_BYTES:
            raise UnknownCodeError("it holds a large array that is neither parameter nor buffer")
        self._say(values.shape, values.dtype)
        self.hash.update(values.tobytes())

    def _add_function(self, function: types.FunctionType) -> None:
        self._say(function.__module__, function.__qualname__)
        if _is_shared(function):
            return
        self._add_all((function.__code__, function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty one
                self.add(cell.cell_contents)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self._say(name)
                self.add(function.__globals__[name])

    def _add_class(self, class_: type) -> None:
        self._say(class_.__module__, class_.__qualname__)
        if _is_shared(class_):
            return
        self._add_all(class_.__bases__)
        for name, item in vars(class_).items():
            if name in _NO_CODE:
                continue
            self._say(name)
            if not isinstance(item, types.GetSetDescriptorType | types.MemberDescriptorType):
                self.add(item)

    def _add_file(self, module: types.ModuleType) -> None:
        self._say(module.__name__)
        if _is_shared(module):
            return
        file = getattr(module, "__file__", None)
        try:
            self.hash.update(Path(file or "").read_bytes())
        except OSError:
            raise UnknownCodeError(f"module {module.__name__} has no file") from None

    def _add_instance(self, value: Any) -> None:
        """Adds an object's class and attributes; one of a built-in collection has none."""
        class_ = type(value)
        if class_ in (*_COLLECTIONS, types.MappingProxyType):
            return
        built_in = next(base for base in class_.__mro__ if not _is_written_in_python(base))
        if built_in not in (object, *_COLLECTIONS):
            # It may hold what no attribute shows.
            raise UnknownCodeError(f"it reaches an object of {class_.__module__}.{class_.__qualname__}")
        self.add(class_)
        self.add(dict(getattr(value, "__dict__", {})))
        for base in class_.__mro__:
            for name, item in vars(base).items():
                if isinstance(item, types.MemberDescriptorType):
                    self._say(name)
                    self.add(getattr(value, name, None))

    def _say(self, *words: object) -> None:
        self.hash.update(repr(words).encode())
        self.hash.update(b"\n")


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _is_written_in_python(class_: type) -> bool:
    """Returns whether its objects hold what the base's hold, slots, a dictionary and weak references, and no more."""
    base = class_.__base__
    if base is None or not class_.__flags__ & _HEAP_TYPE:
        return False
    # Classes of C are heap types as well, more of them with each version of Python.
    pointers = sum(isinstance(item, types.MemberDescriptorType) for item in vars(class_).values())
    pointers += class_.__dictoffset__ not in (0, -1, base.__dictoffset__)  # -1: Python keeps it before the object
    pointers += class_.__weakrefoffset__ > 0 and class_.__weakrefoffset__ != base.__weakrefoffset__
    return class_.__basicsize__ - base.__basicsize__ <= pointers * struct.calcsize("P")


def _is_shared(value: Any) -> bool:
    """Returns whether a version says what is in a module, or in that of something."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    top = str(name or "").partition(".")[0]
    return top in _SHARED or (top in sys.stdlib_module_names and top != "__main__")
