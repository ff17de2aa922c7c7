"""Checkpoints of ``torch.distributed.checkpoint``: a folder with the parts of every process, read back whole."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files.file_kinds import ENOUGH_BYTES, check_kind
from .tensor_pickle import MOST_INSTRUCTIONS, Described, Name, StoredTensor, UnsupportedPickleError, read_pickle
from .torch_archive import FilePart, element_type, part_archive

METADATA = ".metadata"
_OF_ACCELERATE = "pytorch_model_fsdp_0"
_MODULE = "torch.distributed.checkpoint."
_MOST_CHUNKS = 4096
_MOST_AXES = 64


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


class ShardedFolder:
    """An open folder, its ``content`` nested as saved, tensors alone; where it is damaged, any Exception is raised."""

    def __init__(self, path: Path) -> None:
        self._path = path
        raw = (path / METADATA).read_bytes()
        check_kind(path / METADATA, raw[:ENOUGH_BYTES], "pickle")
        # Only described: PyTorch's reader unpickles it, which runs any code that it names. No part may lie outside the
        # folder, or claim more than it has.
        metadata = _state(read_pickle(io.BytesIO(raw), most=max(MOST_INSTRUCTIONS, len(raw))), "metadata.Metadata")
        entries, places = metadata["state_dict_metadata"], _places(metadata["storage_data"])
        paths = metadata.get("planner_data")
        self.content: dict[str, Any] = {}
        for name, entry in entries.items():
            if _is(entry, "metadata.TensorStorageMetadata"):
                if not isinstance(name, str):
                    raise TypeError("a tensor has a name that is no text")
                keys = paths.get(name, (name,)) if isinstance(paths, Mapping) else (name,)
                # Tensors in lists are of optimizers.
                if isinstance(keys, tuple) and all(isinstance(key, str) for key in keys):
                    _put(self.content, keys, _divided(name, entry.state, places))
        self.size = 0
        for part in {self._file(place[0]) for place in places.values()}:
            with part.open("rb") as file:
                check_kind(part, file.read(ENOUGH_BYTES), "PyTorch", "ZIP", "pickle")
                self.size += file.seek(0, os.SEEK_END)

    def read(self, tensors: Mapping[str, DividedTensor]) -> dict[str, NDArray[Any]]:
        return {name: self._whole(name, tensor) for name, tensor in tensors.items()}

    def _whole(self, name: str, tensor: DividedTensor) -> NDArray[Any]:
        _check_covered(name, tensor)
        whole = np.empty(tensor.shape, element_type(tensor.dtype))
        for chunk in tensor.chunks:
            place = tuple(
                slice(first, first + length) for first, length in zip(chunk.offsets, chunk.shape, strict=True)
            )
            whole[place] = self._part(name, tensor.dtype, chunk)
        return whole

    def _part(self, name: str, dtype: str, chunk: Chunk) -> NDArray[Any]:
        with self._file(chunk.file).open("rb") as file:
            archive = part_archive(FilePart(file, chunk.start, chunk.length))
            stored = archive.content
            if not isinstance(stored, StoredTensor) or (stored.shape, stored.dtype) != (chunk.shape, dtype):
                raise ValueError(f"a part of {name!r} is not the tensor that the metadata names")
            return archive.read({name: stored})[name]

    def _file(self, name: str) -> Path:
        path = self._path / name
        if Path(name).name != name or path.resolve().parent != self._path.resolve():
            raise ValueError(f"its part {name[:80]!r} lies outside of the folder")
        return path


def find_sharded_folder(path: Path) -> Path | None:
    """Returns the folder with the parts: this one, or the one in it that accelerate makes for the model; else None."""
    return next((folder for folder in (path, path / _OF_ACCELERATE) if (folder / METADATA).is_file()), None)


def _divided(
    name: str, entry: Any, places: Mapping[tuple[str, tuple[int, ...]], tuple[str, int, int]]
) -> DividedTensor:
    properties = entry["properties"].state
    dtype = properties[0] if isinstance(properties, tuple) else properties["dtype"]
    if not isinstance(dtype, Name):
        raise UnsupportedPickleError(f"unsupported element type of {name!r}")
    shape = _sizes(entry["size"])
    chunks = []
    for item in entry["chunks"]:
        chunk = _state(item, "metadata.ChunkStorageMetadata")
        offsets = _sizes(chunk["offsets"])
        chunks.append(Chunk(offsets, _sizes(chunk["sizes"]), *places[name, offsets]))
    return DividedTensor(dtype.name.removeprefix("torch."), shape, tuple(chunks))


def _places(stored: Any) -> dict[tuple[str, tuple[int, ...]], tuple[str, int, int]]:
    """Returns the file, the first byte and the bytes of each part, by its tensor's name and its offsets."""
    places = {}
    for key, value in stored.items():
        index, place = _state(key, "metadata.MetadataIndex"), _state(value, "filesystem._StorageInfo")
        if place.get("transform_descriptors"):
            raise UnsupportedPickleError("unsupported parts that are compressed or encrypted")
        found = place["relative_path"], place["offset"], place["length"]
        if not (isinstance(found[0], str) and all(isinstance(number, int) for number in found[1:])):
            raise TypeError("a part has no place")
        offsets = index.get("offset")
        places[index["fqn"], () if offsets is None else _sizes(offsets)] = found
    return places


def _check_covered(name: str, tensor: DividedTensor) -> None:
    """Raises if the chunks do not cover the tensor, each of its elements once."""
    if len(tensor.chunks) > _MOST_CHUNKS:
        raise ValueError(f"{name!r} has {len(tensor.chunks)} parts, more than {_MOST_CHUNKS}")
    axes = len(tensor.shape)
    if any(len(chunk.offsets) != axes or len(chunk.shape) != axes for chunk in tensor.chunks):
        raise ValueError(f"a part of {name!r} has another number of axes")
    filled = [chunk for chunk in tensor.chunks if math.prod(chunk.shape)]
    first = np.array([chunk.offsets for chunk in filled], np.int64).reshape(len(filled), axes)
    behind = first + np.array([chunk.shape for chunk in filled], np.int64).reshape(len(filled), axes)
    overlap = np.ones((len(filled), len(filled)), bool)
    for axis in range(axes):
        overlap &= (first[:, None, axis] < behind[None, :, axis]) & (first[None, :, axis] < behind[:, None, axis])
    whole = sum(math.prod(chunk.shape) for chunk in filled) == math.prod(tensor.shape)
    if not whole or (behind > np.array(tensor.shape, np.int64)).any() or overlap.sum() > len(filled):
        raise ValueError(f"the parts of {name!r} do not cover its shape {tensor.shape} once")


def _put(content: dict[str, Any], keys: tuple[str, ...], tensor: DividedTensor) -> None:
    *outer, last = keys
    for key in outer:
        content = content.setdefault(key, {})
        if not isinstance(content, dict):
            raise ValueError(f"{key!r} is a tensor and a dictionary at once")
    content[last] = tensor


def _is(value: object, kind: str) -> bool:
    return isinstance(value, Described) and value.name == _MODULE + kind


def _state(value: object, kind: str) -> Mapping[str, Any]:
    if not isinstance(value, Described) or not _is(value, kind) or not isinstance(value.state, Mapping):
        raise UnsupportedPickleError(f"unsupported metadata without a {kind}")
    return value.state


def _sizes(value: object) -> tuple[int, ...]:
    if (
        not isinstance(value, tuple)
        or len(value) > _MOST_AXES
        or not all(type(item) is int and 0 <= item < 2**62 for item in value)
    ):
        raise ValueError("a part has a shape that is no list of sizes")
    return value
