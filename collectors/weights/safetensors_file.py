"""Checkpoints as safetensors files: written whole or not at all, read in blocks."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError, reporting
from ..files.file_kinds import ENOUGH_BYTES, check_kind
from ..files.local_files import writing
from ..files.places import AnyPath
from ..files.remote_path import RemotePath
from ..networks.weight_space import State, numpy_dtype, state_sha256

RESERVED_PREFIX = "checkpoint/"
"""The prefix of names that the checkpoint of a whole training keeps for itself."""
STATE_FORMAT = "summary-landscape checkpoint"
"""The format that such a checkpoint names in its metadata."""
_HEADER_LIMIT = 100 * 1024 * 1024
# NumPy's limits; a file that asks for more is damaged or hostile.
_MOST_AXES, _LARGEST = 32, 2**48
# Each is hashed while it is still in the processor's cache from being written.
_BLOCK_BYTES = 1 << 20
_ALIGNMENT = 8
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
_TYPE_NAMES = {name: short for short, name in _DTYPES.items()}
STORABLE_DTYPES = frozenset(_DTYPES.values())
# Element type, shape, first byte, byte after the last.
_Entry = tuple[str, tuple[int, ...], int, int]


class StateReader(Protocol):
    """One full set of weights: a checkpoint file, or arrays in memory."""

    @property
    def label(self) -> str:
        """What to call it in an error's text."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Name to shape of every tensor it holds."""

    @property
    def dtypes(self) -> Mapping[str, str]:
        """Name to NumPy's name of the element type."""

    def read(self, name: str) -> NDArray[Any]:
        """Returns one tensor, as a copy."""

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Returns the elements ``start`` to ``stop`` of one tensor in C order, shape (stop - start,)."""

    def sha256(self) -> str:
        """Returns the SHA-256 by which this set of weights is recognized."""


Portable: TypeAlias = Callable[[], StateReader]
"""What another process calls to read a set of weights by itself, as far as it reaches its files; can be pickled."""


def portable(reader: StateReader) -> Portable | None:
    """Returns how another process reads the same weights, bit for bit; None where only this one can."""
    method = getattr(reader, "portable", None)
    return None if method is None else method()


class MemoryState:
    """Arrays in memory, read like a checkpoint file."""

    def __init__(self, state: State, label: str = "the state", *, is_fresh: bool = False) -> None:
        self.label = label
        # Nobody else holds the arrays, so that they need not be copied.
        self._is_fresh = is_fresh
        self._state = {name: np.asarray(array) for name, array in state.items()}
        self.shapes = {name: array.shape for name, array in self._state.items()}
        self.dtypes = {name: array.dtype.name for name, array in self._state.items()}

    def read(self, name: str) -> NDArray[Any]:
        return self._state[name] if self._is_fresh else self._state[name].copy()

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        return self._state[name].reshape(-1)[start:stop]

    def sha256(self) -> str:
        return state_sha256(self._state)


# The library maps files, and mapped pages count as resident memory. Planes stream over all checkpoints of a run, for
# which ``readinto`` needs one block at a time.
class CheckpointFile:
    """A safetensors file, read by tensor or by block."""

    copies: object = None
    """What removes the copies that it is one of, once nobody has it any more."""

    def __init__(
        self,
        path: str | os.PathLike[str] | RemotePath,
        label: str | None = None,
        place: AnyPath | None = None,  # where others find it, if this is a copy
        sha256: str | None = None,  # the file's, where another process computed it
    ) -> None:
        self.path = path if isinstance(path, RemotePath) else Path(path).absolute()
        self.label = label or str(path)
        self._place = place or self.path
        self._digest = sha256
        with self._open() as file:
            self.metadata, self._entries, self._start = _read_header(file, self.label)
        self.shapes = {name: shape for name, (_, shape, _, _) in self._entries.items()}
        self.dtypes = {name: dtype for name, (dtype, _, _, _) in self._entries.items()}

    def read(self, name: str) -> NDArray[Any]:
        shape = self.shapes[name]
        return self.read_block(name, 0, math.prod(shape)).reshape(shape)

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        dtype_name, _, first, _ = self._entries[name]
        dtype = numpy_dtype(dtype_name)
        block = np.empty(stop - start, dtype)
        truncated = CheckpointError(f"checkpoint {self.label} is truncated inside {name!r}; copy it again.")
        # Opened anew for each block: a long run has more checkpoints than a process may hold open files.
        with self._open() as file:
            file.seek(self._start + first + start * dtype.itemsize)
            _fill(block, file, truncated)
        return block

    def sha256(self) -> str:
        if self._digest is None:
            with reporting(f"checkpoint {self.label} cannot be read", kind=CheckpointError):
                self._digest = file_sha256(self.path)
        return self._digest

    def portable(self) -> Portable | None:
        """Returns how another process reads the file, checked by its size and SHA-256."""
        place = self._place if isinstance(self._place, RemotePath) else self._place.absolute()
        return functools.partial(read_whole, place, self.label, self._start + _end(self._entries), self.sha256())

    @contextlib.contextmanager
    def _open(self) -> Iterator[io.RawIOBase]:
        with reporting(f"checkpoint {self.label} cannot be read", kind=CheckpointError):
            with io.FileIO(self.path) if isinstance(self.path, Path) else self.path.open_raw() as file:
                yield file


def read_whole(path: AnyPath, label: str, size: int, sha256: str) -> StateReader:
    """Reads a safetensors file into memory, and hashes it in the same pass, so that no other bytes are returned."""
    other = CheckpointError(f"checkpoint {label} is not the expected file here; copy it again.")
    with reporting(f"checkpoint {label} cannot be read", kind=CheckpointError):
        if not path.is_file():  # a pipe would be waited for
            raise other
        with path.open("rb") as file:
            _, entries, start = _read_header(file, label)
            if start + _end(entries) != size:
                raise other
            file.seek(0)
            digest = hashlib.sha256(file.read(start))
            state, position = {}, start
            for name, (dtype, shape, first, stop) in _in_order(entries):
                digest.update(file.read(start + first - position))
                position = start + stop
                flat = np.empty(math.prod(shape), numpy_dtype(dtype))
                _fill(flat, file, other, digest)
                state[name] = flat.reshape(shape)
    if digest.hexdigest() != sha256:
        raise other
    return MemoryState(state, label, is_fresh=True)


def _fill(array: NDArray[Any], file: Any, truncated: CheckpointError, digest: Any = None) -> None:
    view = memoryview(array.view(np.uint8).data)
    while view:
        # In blocks, so that what is hashed is still in the processor's cache.
        count = file.readinto(view if digest is None else view[:_BLOCK_BYTES])
        if not count:
            raise truncated
        if digest is not None:
            digest.update(view[:count])
        view = view[count:]


def write_checkpoint(path: str | os.PathLike[str], state: State, metadata: Mapping[str, str] | None = None) -> str:
    """Writes a state as a safetensors file, so that the name never holds half a file; returns the file's SHA-256."""
    digest = hashlib.sha256()
    with writing(path) as file:
        for piece in checkpoint_parts(state, metadata or {}):
            # In blocks, so that what is hashed is still in the processor's cache.
            for start in range(0, len(piece), _BLOCK_BYTES):
                block = piece[start : start + _BLOCK_BYTES]
                file.write(block)
                digest.update(block)
    return digest.hexdigest()


def file_sha256(path: AnyPath) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_header(file: io.RawIOBase | io.BufferedReader, label: str) -> tuple[dict[str, str], dict[str, _Entry], int]:
    def broken(why: str) -> CheckpointError:
        return CheckpointError(
            f"checkpoint {label} is not a whole safetensors file ({why}); copy it again or train that part again."
        )

    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    begins = file.read(ENOUGH_BYTES) or b""
    check_kind(label, begins, "safetensors")
    file.seek(8)
    if size < 8:
        raise broken(f"it has only {size} bytes")
    length = int.from_bytes(begins[:8], "little")
    if length > min(_HEADER_LIMIT, size - 8):
        raise broken(f"its header claims {length} bytes, the file has {size}")
    try:
        # The format is UTF-8; json itself would guess UTF-16 and UTF-32 from bytes.
        header = json.loads((file.read(length) or b"").decode("utf-8"))
        given = header.pop("__metadata__", {})
        metadata = {str(key): str(value) for key, value in given.items()}
        entries = {name: _entry(name, value) for name, value in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise broken(f"its header cannot be read: {error}") from error
    end = _end(entries)
    if 8 + length + end != size:
        raise broken(f"its header describes {8 + length + end} bytes, the file has {size}")
    ends = 0
    for name, (_, _, start, stop) in _in_order(entries):
        if start < ends and start < stop:  # a small file could claim any amount of memory
            raise broken(f"{name!r} overlaps another tensor")
        ends = max(ends, stop)
    return metadata, entries, 8 + length


def _in_order(entries: Mapping[str, _Entry]) -> list[tuple[str, _Entry]]:
    return sorted(entries.items(), key=lambda item: item[1][2:])


def _end(entries: Mapping[str, _Entry]) -> int:
    return max((stop for _, _, _, stop in entries.values()), default=0)


def _entry(name: str, value: Mapping[str, Any]) -> _Entry:
    dtype = _DTYPES[value["dtype"]]
    shape = tuple(value["shape"])
    start, stop = value["data_offsets"]
    if len(shape) > _MOST_AXES:
        raise ValueError(f"{name!r} has {len(shape)} axes, more than {_MOST_AXES}")
    if not all(type(number) is int and 0 <= number < _LARGEST for number in (*shape, start, stop)):
        raise ValueError(f"{name!r} has a shape or an offset that is not a non-negative integer")
    # NumPy refuses overlong axes also where another axis is empty.
    if math.prod(length or 1 for length in shape) >= _LARGEST:
        raise ValueError(f"{name!r} has the shape {shape}, which is too large")
    count = math.prod(shape)
    if stop - start != count * numpy_dtype(dtype).itemsize:
        raise ValueError(f"{name!r} has {stop - start} bytes for the shape {shape} of {dtype}")
    return dtype, shape, start, stop


def checkpoint_parts(tensors: State, metadata: Mapping[str, str]) -> Iterator[memoryview]:
    """Yields the bytes of a safetensors file: its header, then the values of each tensor, which are not copied."""
    for name, array in tensors.items():
        if array.dtype.name not in _TYPE_NAMES:
            raise TypeError(
                f"{name!r} is {array.dtype.name}, which checkpoints cannot hold; convert it to one of "
                f"{sorted(_TYPE_NAMES)}."
            )
    # The library's order: the widest element types first, then by name.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name in order:
        array = tensors[name]
        start, end = end, end + array.nbytes
        dtype, shape = _TYPE_NAMES[array.dtype.name], list(array.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield memoryview(len(text).to_bytes(8, "little") + text)
    for name in order:
        array = tensors[name]
        # In C order, little-endian.
        yield np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
