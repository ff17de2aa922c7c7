"""What the pickle in a PyTorch file says, read without making anything that it asks for."""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any

MOST_INSTRUCTIONS = 2_000_000
_MOST_AXES = 64
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = (
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINSTRING",
)  # fmt: skip
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
# The classes of typed storages; what they hold comes without a name since PyTorch 2.
_STORAGES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Untyped": "uint8", "Bool": "bool",
    "ComplexDouble": "complex128", "ComplexFloat": "complex64", "QInt8": "qint8", "QUInt8": "quint8",
    "QInt32": "qint32", "QUInt4x2": "quint4x2", "QUInt2x4": "quint2x4",
}  # fmt: skip
_STORAGE = re.compile(r"torch\.(?:storage\.|cuda\.)?(\w+)Storage")
# What is no tensor, but often lies beside some.
_OF_NO_USE = re.compile(
    r"builtins\.(bytearray|set|frozenset|complex)|_codecs\.encode|torch\.device|torch\.serialization\._get_layout"
    r"|torch\.per_(tensor|channel)_\w+|argparse\.Namespace|collections\.defaultdict|pathlib\.(_local\.)?\w+|datetime\.\w+"
    r"|numpy\.(_?core\.multiarray\.scalar|dtype)"
)
_ELEMENT_TYPE = re.compile(r"torch\.((?:bool|bfloat16|(?:float|complex|q?u?int|bits)\d+\w*))")
_UNREADABLE = re.compile(
    r"torch\.(?:\w+\.)*\w*Tensor|torch\._utils\._rebuild_(?:qtensor|sparse_tensor|meta_tensor_no_storage|nested_tensor"
    r"|wrapper_subclass|device_tensor_from_(?:numpy|cpu_tensor))"
)


class UnsupportedPickleError(Exception):
    """What is read needs something that state dicts have no use for."""


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor's values lie in the file."""

    storage: str
    dtype: str  # PyTorch's name of the element type, such as "float32"
    offset: int  # of the first element, in elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements, one for each axis
    conjugate: bool = False
    negative: bool = False


@dataclass(frozen=True)
class Chunk:
    """A part of a tensor: ``offsets`` of its first element there, and in which bytes of which file it lies."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    start: int
    length: int


@dataclass(frozen=True)
class DividedTensor:
    """A tensor in parts that cover it, each element once; ``dtype`` is PyTorch's name of the element type."""

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


class UnreadableTensor:
    """A tensor that is no ordinary one: sparse, quantized, nested, or without values."""


class Thing:
    """Any other object, of which nothing is kept."""


# Bytes are of no use, like sets; other protocols than PyTorch's own 2 have instructions for them.
_BYTES = ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8")
_MADE: Mapping[str, Callable[[], Any]] = {
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": Thing, **dict.fromkeys(_BYTES, Thing),
}  # fmt: skip


# Written out, objects that name each other would never end.
@dataclass(eq=False, repr=False)
class Described(Thing):
    """An object that is not made, as the pickle describes it: by class or function, arguments and state."""

    name: str
    arguments: Any
    state: Any = None


@dataclass(frozen=True)
class Name:
    """A class, a function or an element type that the pickle names, such as "torch.float32"."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """A storage, or the part of one that begins at an element."""

    key: str
    dtype: str
    count: int
    offset: int


def read_pickle(stream: IO[bytes], storages: dict[str, str] | None = None, *, most: int = MOST_INSTRUCTIONS) -> Any:
    """Reads one pickle: plain values as they are, else ``StoredTensor``, ``UnreadableTensor`` or a ``Thing``."""
    # The mapping gets the element type of every storage that the pickle names.
    return _Reading({} if storages is None else storages, most).read(stream)


# ``torch.load(weights_only=True)`` runs no code either, but calls what a state dict needs with the file's arguments:
# ``bytearray(6 << 30)`` in 400 bytes fills the memory. Here calls are described, so that a file costs its size at most.
class _Reading:
    def __init__(self, storages: dict[str, str], most: int) -> None:
        self._storages = storages
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._most = self._left = most

    def read(self, stream: IO[bytes]) -> Any:
        for instruction, argument, _ in pickletools.genops(stream):
            self._spend(1)
            if instruction.name == "STOP":
                return self._stack.pop()
            self._do(instruction.name, argument)
        raise EOFError("the pickle has no end")

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise UnsupportedPickleError(f"unsupported pickle of more than {self._most} instructions")

    def _do(self, instruction: str, argument: Any) -> None:
        stack = self._stack
        if instruction in _LITERALS:
            stack.append(argument)
        elif instruction in _CONSTANTS:
            stack.append(_CONSTANTS[instruction])
        elif instruction in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if argument is None else argument] = stack[-1]
        elif instruction in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif instruction == "MARK":
            self._outer.append(stack)
            self._stack = []
        elif instruction in _SHORT_TUPLES:
            count = _SHORT_TUPLES[instruction]
            if len(stack) < count:
                raise IndexError("the pickle takes more than it has")
            stack[-count:] = [tuple(stack[-count:])]
        elif instruction == "TUPLE":
            items = tuple(self._since_mark())
            self._stack.append(items)
        elif instruction in _MADE:
            stack.append(_MADE[instruction]())
        elif instruction in ("APPEND", "APPENDS"):
            self._add_items([stack.pop()] if instruction == "APPEND" else self._since_mark())
        elif instruction in ("SETITEM", "SETITEMS"):
            self._set_items([stack.pop(), stack.pop()][::-1] if instruction == "SETITEM" else self._since_mark())
        elif instruction == "GLOBAL":
            stack.append(_named(argument))
        elif instruction == "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            if not isinstance(name, str) or not isinstance(module, str):
                raise TypeError("the pickle names what is no text")
            stack.append(_named(f"{module} {name}"))
        elif instruction in ("ADDITEMS", "FROZENSET"):
            self._since_mark()
            if instruction == "FROZENSET":
                self._stack.append(Thing())
            self._last(Thing)
        elif instruction == "BINPERSID":
            stack.append(self._persistent(stack.pop()))
        elif instruction in ("REDUCE", "NEWOBJ"):
            arguments, function = stack.pop(), stack.pop()
            stack.append(self._called(function, arguments))
        elif instruction == "BUILD":
            # An object's own attributes; tensors and dictionaries need none.
            state, target = stack.pop(), self._last(dict | StoredTensor | UnreadableTensor | Thing)
            if isinstance(target, Described):
                target.state = state
        elif instruction not in ("PROTO", "FRAME"):
            raise UnsupportedPickleError(f"unsupported instruction {instruction}")

    def _persistent(self, identity: Any) -> _Storage | Name:
        # Files of before PyTorch 1.6 have a network's classes with their source code.
        if isinstance(identity, tuple) and identity[:1] == ("module",) and isinstance(identity[1], Name):
            return identity[1]
        storage = _storage(identity)
        self._storages.setdefault(storage.key, storage.dtype)
        return storage

    def _add_items(self, items: list[Any]) -> None:
        # Objects that are not made have lists and dictionaries, too, such as a defaultdict.
        target = self._last(list | Thing)
        if isinstance(target, list):
            target.extend(items)

    def _set_items(self, items: list[Any]) -> None:
        target = self._last(dict | Thing)
        for key, value in zip(items[::2], items[1::2], strict=True):
            if isinstance(target, dict):
                target[_as_key(key)] = value

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._outer.pop()
        return items

    def _last(self, kind: Any) -> Any:
        value = self._stack[-1]
        if not isinstance(value, kind):
            raise TypeError(f"the pickle changes a {type(value).__name__}")
        return value

    def _called(self, function: object, arguments: object) -> Any:
        if not isinstance(function, Name) or not isinstance(arguments, tuple):
            raise TypeError("the pickle calls what is no function")
        if function.name in ("collections.OrderedDict", "collections.Counter", "torch.Size"):
            contents = arguments[0] if arguments else ()
            # Called again and again with one long list, a short pickle would fill the memory.
            self._spend(len(contents))
            if function.name == "torch.Size":
                return tuple(contents)
            pairs = contents.items() if isinstance(contents, dict) else contents
            return {_as_key(key): value for key, value in pairs}
        if function.name == "torch._tensor._rebuild_from_type_v2":
            inner, _, inner_arguments, _ = arguments
            if not isinstance(inner, Name) or inner.name == function.name:
                raise TypeError("the pickle calls what is no function")
            return self._called(inner, inner_arguments)
        if function.name in _TENSORS:
            return _TENSORS[function.name](*arguments)
        if _UNREADABLE.fullmatch(function.name):
            return UnreadableTensor()
        is_useless = _OF_NO_USE.fullmatch(function.name) or _STORAGE.fullmatch(function.name)
        return Thing() if is_useless else Described(function.name, arguments)


def _named(argument: str) -> Name:
    module, _, name = argument.partition(" ")
    # Protocol 2 has the names of Python 2.
    return Name(f"{'builtins' if module == '__builtin__' else module}.{name}")


def _storage(identity: Any) -> _Storage:
    mark, kind, key, _, count, *view = identity
    found = _STORAGE.fullmatch(kind.name) if isinstance(kind, Name) else None
    if mark != "storage" or found is None or not isinstance(key, str) or not _is_count(count):
        raise UnsupportedPickleError("unsupported persistent object")
    dtype = _STORAGES.get(found[1])
    if dtype is None:
        raise UnsupportedPickleError(f"unsupported storage {kind.name}")
    # Files of before PyTorch 0.4 have views of storages.
    offset = 0 if not view or view[0] is None else view[0][1]
    if not _is_count(offset):
        raise ValueError("a part of a storage begins nowhere")
    return _Storage(key, dtype, count, offset)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_more: Any) -> StoredTensor:
    if isinstance(storage, Described):
        raise UnsupportedPickleError(f"a tensor's values are an object of {storage.name[:200]}")
    if not isinstance(storage, _Storage) or not _is_count(offset):
        raise TypeError("a tensor has no storage")
    if len(sizes("a tensor", shape)) != len(sizes("a tensor", strides)):
        raise ValueError(f"a tensor has {len(shape)} axes and {len(strides)} strides")
    offset += storage.offset
    last = offset + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= storage.count:
        raise ValueError(f"a tensor of the shape {shape} ends beyond its storage of {storage.count} elements")
    return StoredTensor(storage.key, storage.dtype, offset, shape, strides)


def _tensor_v3(*arguments: Any) -> StoredTensor:
    tensor, named = _tensor(*arguments), arguments[6]
    found = _ELEMENT_TYPE.fullmatch(named.name) if isinstance(named, Name) else None
    if found is None:
        raise ValueError("a tensor has no element type")
    # Its storage is counted in bytes, the rest in elements; where the tensor ends is checked again with its values.
    return _with_signs(replace(tensor, dtype=found[1]), *arguments[7:])


def _with_signs(tensor: StoredTensor, signs: Any = None, *_more: Any) -> StoredTensor:
    if not isinstance(signs, Mapping):
        return tensor
    return replace(tensor, conjugate=bool(signs.get("conj")), negative=bool(signs.get("neg")))


def _parameter(tensor: Any, *_more: Any) -> Any:
    if not isinstance(tensor, StoredTensor | UnreadableTensor):
        raise TypeError("a parameter has no tensor")
    return tensor


def sizes(holder: str, numbers: object) -> tuple[int, ...]:
    """Returns a shape, or strides, provided that they are such."""
    if not isinstance(numbers, tuple) or len(numbers) > _MOST_AXES or not all(map(_is_count, numbers)):
        # Not quoted: lists that name each other would take for ever to write.
        raise ValueError(f"{holder} has a shape or strides that are no short list of sizes")
    return numbers


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _as_key(key: Any) -> Any:
    # Nested tuples that name each other would take for ever to hash.
    return key if isinstance(key, str | int | float | Described | None) else Thing()


_TENSORS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": lambda *arguments: _with_signs(_tensor(*arguments), *arguments[6:]),
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    **dict.fromkeys(("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"), _parameter),
    "torch.nn.parameter.Parameter": _parameter,
}
