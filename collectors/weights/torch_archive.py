"""PyTorch's files: an archive of storages, or one behind the other before 1.6; which tensors are a network's."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError
from ..files.file_kinds import ENOUGH_BYTES, check_kind, damaged, first_line
from ..networks.weight_space import is_extra_state, numpy_dtype
from .tensor_pickle import Described, DividedTensor, StoredTensor, UnreadableTensor, UnsupportedPickleError, read_pickle

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LONGEST_NOTE = 64
MOST_VIEWS = 4
"""How many times the bytes of its storages the tensors of a file may have; tied weights may have several shapes."""
_ELEMENT_TYPES = re.compile(
    r"bool|u?int(?:8|16|32|64)|float(?:16|32|64)|bfloat16|float8_(?:e4m3fn|e5m2|e4m3fnuz|e5m2fnuz|e8m0fnu)|complex(?:64|128)"
)
_NESTED_KEYS = (
    "state_dict", "model_state_dict", "model_state", "model", "module", "network", "net", "params", "weights", "state",
)  # fmt: skip
_TENSORS = (StoredTensor, UnreadableTensor, DividedTensor)
_DEEPEST = 4


class TorchScriptError(Exception):
    """The file is a program of TorchScript, not a state dict."""


class Archive:
    """An open PyTorch file: ``content`` as ``read_pickle`` returns it; places are (first byte, bytes) of storages."""

    def __init__(
        self,
        file: IO[bytes],
        content: Any,
        places: Mapping[str, tuple[int, int]],
        *,
        is_swapped: bool = False,
        checksums: Mapping[str, int] | None = None,
    ) -> None:
        self.content = content
        self._file, self._places, self._is_swapped = file, places, is_swapped
        self._checksums = checksums or {}

    def read(self, tensors: Mapping[str, StoredTensor]) -> dict[str, NDArray[Any]]:
        """Returns the values of tensors, each storage read once and dropped before the next one."""
        claimed = sum(byte_count(item) for item in tensors.values())
        if claimed > MOST_VIEWS * sum(size for _, size in self._places.values()):
            raise ValueError("its tensors repeat values of their storages; save contiguous copies of them")
        by_storage: dict[str, list[str]] = {}
        for name, tensor in tensors.items():
            by_storage.setdefault(tensor.storage, []).append(name)
        found: dict[str, NDArray[Any]] = {}
        for storage, names in by_storage.items():
            values = self._storage(storage)
            for name in names:
                found[name] = _values(values, tensors[name], is_swapped=self._is_swapped)
        return {name: found[name] for name in tensors}

    def _storage(self, key: str) -> NDArray[np.uint8]:
        if key not in self._places:
            raise ValueError(f"the storage {key!r} is missing")
        start, size = self._places[key]
        values = np.empty(size, np.uint8)
        self._file.seek(start)
        if self._file.readinto(values.data) != size:  # type: ignore[attr-defined]
            raise EOFError(f"the storage {key!r} is cut off")
        # Zero where the file was written without checksums.
        if self._checksums.get(key) and zlib.crc32(values.data) != self._checksums[key]:
            raise ValueError(f"the storage {key!r} has another checksum than its values")
        return values


def part_archive(file: IO[bytes], start: int, length: int) -> Archive:
    if start < 0 or length < 0 or start + length > os.fstat(file.fileno()).st_size:
        raise ValueError(f"it has no {length} bytes behind byte {start}")
    file.seek(start)
    return _zip_archive(io.BytesIO(file.read(length)), length)


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Opens a PyTorch file; where it is damaged or of another kind, any kind of Exception is raised."""
    with path.open("rb") as file:
        begins = file.read(ENOUGH_BYTES)
        check_kind(path, begins, "PyTorch", "ZIP", "pickle")
        is_zip = begins.startswith(b"PK\x03\x04")
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        yield _zip_archive(file, size) if is_zip else _legacy_archive(file)


def element_type(dtype: str) -> np.dtype[Any]:
    if not _ELEMENT_TYPES.fullmatch(dtype):
        raise UnsupportedPickleError(f"unsupported element type {dtype}; convert such tensors")
    return numpy_dtype(dtype)


def byte_count(tensor: StoredTensor | DividedTensor) -> int:
    return math.prod(tensor.shape) * element_type(tensor.dtype).itemsize


def _zip_archive(file: IO[bytes], size: int) -> Archive:
    members = zipfile.ZipFile(file).infolist()
    # Before their compression is looked at: TorchScript compresses its code.
    if any(info.filename.endswith("/constants.pkl") and info.filename.count("/") == 1 for info in members):
        raise TorchScriptError
    # Nothing is allocated for what a file claims: members must be stored as they are, and none larger than the file.
    for info in members:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
            raise ValueError(f"its member {info.filename[:80]!r} is compressed or encrypted, as PyTorch writes none")
    if sum(info.file_size for info in members) > size:
        raise ValueError("its members claim more bytes than the file has")
    if len({info.filename for info in members}) < len(members):
        raise ValueError("it has two members of the same name")
    pickles = [info for info in members if info.filename.endswith("/data.pkl") and info.filename.count("/") == 1]
    if len(pickles) != 1:
        raise ValueError(f"it has {len(pickles)} members 'data.pkl'")
    top = pickles[0].filename.removesuffix("data.pkl")
    named = {info.filename.removeprefix(top): info for info in members if info.filename.startswith(top)}
    order = "little"
    if "byteorder" in named:
        order = _bytes(file, named["byteorder"], _LONGEST_NOTE).decode()
        if order not in ("little", "big"):
            raise ValueError(f"its byte order is {order!r}")
    content = read_pickle(io.BytesIO(_bytes(file, named["data.pkl"], size)))
    storages = {name.removeprefix("data/"): info for name, info in named.items() if name.startswith("data/")}
    places = {name: (_start(file, info), info.file_size) for name, info in storages.items()}
    checksums = {name: info.CRC for name, info in storages.items()}
    return Archive(file, content, places, is_swapped=order == "big", checksums=checksums)


def _start(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    file.seek(info.header_offset)
    signature, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if signature != b"PK\x03\x04":
        raise ValueError(f"its member {info.filename[:80]!r} is missing")
    return info.header_offset + _LOCAL_HEADER.size + int(name) + int(extra)


def _bytes(file: IO[bytes], info: zipfile.ZipInfo, most: int) -> bytes:
    if info.file_size > most:
        raise ValueError(f"its member {info.filename[:80]!r} has {info.file_size} bytes")
    file.seek(_start(file, info))
    return file.read(info.file_size)


def _legacy_archive(file: IO[bytes]) -> Archive:
    if read_pickle(file) != _MAGIC_NUMBER:
        raise UnsupportedPickleError("it is a pickle that torch.save did not write")
    if read_pickle(file) != _PROTOCOL:
        raise ValueError("its protocol is none of PyTorch's")
    system = read_pickle(file)
    types: dict[str, str] = {}
    content = read_pickle(file, types)
    keys = read_pickle(file)
    if not isinstance(system, dict) or not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("it does not list its storages")
    end = os.fstat(file.fileno()).st_size
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        if key in places:
            raise ValueError(f"it has the storage {key[:80]!r} twice")
        (count,) = struct.unpack("<q", file.read(8))
        start = file.tell()
        size = count * element_type(types[key]).itemsize
        if not 0 <= size <= end - start:
            raise ValueError(f"its storage {key[:80]!r} has {count} elements, more than are there")
        places[key] = start, size
        file.seek(start + size)
    return Archive(file, content, places, is_swapped=system.get("little_endian") is False)


def _values(storage: NDArray[np.uint8], tensor: StoredTensor, *, is_swapped: bool) -> NDArray[Any]:
    dtype = element_type(tensor.dtype)
    if is_swapped:
        width = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
        unsigned = np.dtype(f"u{width}")
        storage = storage[: storage.size // width * width].view(unsigned).byteswap().view(np.uint8)
    elements = storage[: storage.size // dtype.itemsize * dtype.itemsize].view(dtype)
    if 0 in tensor.shape:
        return np.empty(tensor.shape, dtype)
    last = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.strides, strict=True))
    if tensor.offset + last >= elements.size:
        raise ValueError(f"a tensor of the shape {tensor.shape} ends beyond its storage")
    steps = [step * dtype.itemsize for step in tensor.strides]
    # Types that NumPy does not know itself cannot be given strides.
    plain = elements[tensor.offset :].view(f"u{dtype.itemsize}" if dtype.itemsize <= 8 else np.complex128)
    values = np.array(np.lib.stride_tricks.as_strided(plain, tensor.shape, steps), order="C").view(dtype)
    if tensor.conjugate:
        values = values.conj()
    return np.asarray(-values if tensor.negative else values)


@contextlib.contextmanager
def readable(path: Path, otherwise: str) -> Iterator[None]:
    """Turns whatever a damaged checkpoint makes a reader raise into an error that says what is wrong."""
    try:
        yield
    except CheckpointError:
        raise
    except TorchScriptError as error:
        raise CheckpointError(
            f"checkpoint {path} is a program of TorchScript (torch.jit.save), not a state dict. If you trust the file, "
            "load it yourself and save its weights with torch.save(torch.jit.load(...).state_dict(), ...)."
        ) from error
    except UnsupportedPickleError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be read as plain tensors ({first_line(error)}). "
            "If you trust the file, load it yourself where its classes can be imported, and save its state dict alone "
            "with torch.save(network.state_dict(), ...)."
        ) from error
    except Exception as error:
        # Damaged bytes make a reader raise nearly anything.
        # A KeyError's text is nothing but the key.
        reason = "it refers to what it does not have" if isinstance(error, LookupError) else first_line(error)
        raise damaged(path, otherwise, reason) from error


def stored_tensors(path: Path, content: object) -> dict[str, StoredTensor]:
    """Returns where the network's tensors lie, each storage once, provided that they fit into the file's size."""
    limit = path.stat().st_size
    left = MOST_VIEWS * limit
    result: dict[str, StoredTensor] = {}
    seen: set[StoredTensor] = set()
    for name, tensor in find_tensors(path, content).items():
        if isinstance(tensor, UnreadableTensor):
            raise CheckpointError(
                f"checkpoint {path} holds {name!r} as a sparse, quantized or empty ('meta') tensor, which cannot be "
                "read; save it as an ordinary tensor."
            )
        if not isinstance(tensor, StoredTensor):
            continue
        size = byte_count(tensor)
        if size and tensor in seen:
            continue
        left -= size
        if size > limit or left < 0:
            # A view that repeats few values (stride 0), or many views of the same, would unfold to any size.
            raise CheckpointError(
                f"checkpoint {path} holds {name!r} of shape {tensor.shape}, more than the file's {limit} bytes; "
                "save a contiguous copy of it."
            )
        seen.add(tensor)
        result[name] = tensor
    return result


def addressed(path: Path, content: object, prefix: str | None) -> tuple[object, str | None]:
    """Returns the part of what was saved that a prefix ("state.model.") leads to, and what is left of the prefix."""
    parts = [part for part in (prefix or "").split(".") if part]
    # Names that begin with the prefix go before keys.
    with contextlib.suppress(CheckpointError):
        if not parts or any(name.startswith(f"{'.'.join(parts)}.") for name in find_tensors(path, content)):
            return content, prefix
    while parts and isinstance(content, Mapping) and isinstance(content.get(parts[0]), Mapping):
        content = content[parts.pop(0)]
    return content, ".".join(parts) or None


def other_weights(content: object, found: Collection[str]) -> list[str]:
    """Returns under which keys of what was saved there are tensors beside those that were found."""
    if not isinstance(content, Mapping) or any(name in content for name in found):
        return []
    keys = {key: _nested_tensors(value, _DEEPEST) for key, value in content.items() if isinstance(value, Mapping)}
    read = next((key for key in (*_NESTED_KEYS, *keys) if keys.get(key) is not None), None)
    return [str(key) for key, tensors in keys.items() if tensors is not None and key != read]


def extra_states(content: object) -> list[str]:
    """Returns the names of what layers keep beside their weights, of whatever kind, where the tensors are."""
    found = _nested_tensors(content, _DEEPEST) if isinstance(content, Mapping) else None
    return [name for name in found or () if isinstance(name, str) and is_extra_state(name)]


def find_tensors(path: Path, content: object) -> Mapping[str, Any]:
    """Returns the descriptions of the network's tensors in what was saved, which may be nested."""
    _check_is_plain("it", content)
    if not isinstance(content, Mapping):
        kind = "Tensor" if isinstance(content, StoredTensor | UnreadableTensor) else type(content).__name__
        raise CheckpointError(f"checkpoint {path} holds a {kind}, not a dictionary of tensors.")
    found = _nested_tensors(content, _DEEPEST)
    if found is None and "param_groups" in content:
        raise CheckpointError(
            f"checkpoint {path} is an optimizer's state (it has 'param_groups'), without the network's weights; give "
            "the file that holds those."
        )
    if found is None:
        mappings = {key: value for key, value in content.items() if isinstance(key, str) and isinstance(value, Mapping)}
        near = [key for key, value in mappings.items() if any(isinstance(item, _TENSORS) for item in value.values())]
        remedy = f"`landscape convert --strip-prefix {near[0][:80]}.` reads those there; or save" if near else "Save"
        raise CheckpointError(
            f"checkpoint {path} holds no tensors at its top level and none under the keys {list(_NESTED_KEYS)}; it has "
            f"{[str(key)[:80] for key in content if isinstance(key, str)][:20]}. {remedy} the state dict "
            "alone."
        )
    found = {name: item for name, item in found.items() if not (isinstance(name, str) and is_extra_state(name))}
    for name, item in found.items():
        # It may be a tensor of a class that we do not know.
        _check_is_plain(f"its {name!r}", item)
    tensors = {name: item for name, item in found.items() if isinstance(item, _TENSORS)}
    named = {str(name): item for name, item in tensors.items() if isinstance(name, str | int)}
    if len(named) < len(tensors):
        raise CheckpointError(
            f"checkpoint {path} has tensors whose names are neither texts nor numbers, or are the same once written "
            "out; save a dictionary of tensors with texts as names."
        )
    return named


def _nested_tensors(content: Mapping[Any, Any], depth: int) -> Mapping[Any, Any] | None:
    # Nested first: beside a state dict there may be single tensors, such as an epoch's number.
    for key in _NESTED_KEYS:
        _check_is_plain(f"its {key!r}", content.get(key))
        if depth and isinstance(content.get(key), Mapping):
            found = _nested_tensors(content[key], depth - 1)
            if found is not None:
                return found
    return content if any(isinstance(item, _TENSORS) for item in content.values()) else None


def _check_is_plain(label: str, value: object) -> None:
    if isinstance(value, Described):
        raise UnsupportedPickleError(f"{label} is an object of {value.name[:200]}, which only code can make")
