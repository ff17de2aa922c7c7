"""Checkpoints that several processes wrote, read back whole: PyTorch's distributed ones, and DeepSpeed's ZeRO."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import operator
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ..files.file_kinds import ENOUGH_BYTES, check_kind
from .tensor_pickle import (
    MOST_INSTRUCTIONS,
    Chunk,
    Described,
    DividedTensor,
    Name,
    StoredTensor,
    UnsupportedPickleError,
    read_pickle,
    sizes,
)
from .torch_archive import MOST_VIEWS, Archive, element_type, open_archive, part_archive

Arrays: TypeAlias = dict[str, NDArray[Any]]

METADATA = ".metadata"
_OF_ACCELERATE = "pytorch_model_fsdp_0"
_MODULE = "torch.distributed.checkpoint."
_MOST_CHUNKS = 4096
# What the names of ZeRO's parts end with, and how they begin where ZeRO alone divides the network.
_MODEL = "model_states.pt", re.compile(r"(?:zero_pp_rank_(\d{1,6})_)?mp_rank_00_")
_OPTIMIZER = "optim_states.pt", re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d{1,6})_mp_rank_00_")
_LATEST = "latest"
# By the stage of ZeRO, where a process has its part of the float32 values.
_GROUPS = {1: "single_partition_of_fp32_groups", 2: "single_partition_of_fp32_groups", 3: "fp32_flat_groups"}


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
        # A short list of parts may name the same long one again and again.
        self._left = MOST_VIEWS * self.size

    def read(self, tensors: Mapping[str, DividedTensor]) -> dict[str, NDArray[Any]]:
        found = {}
        for name, tensor in tensors.items():
            _check_covered(name, tensor)
            whole = found[name] = np.empty(tensor.shape, element_type(tensor.dtype))
            for chunk in tensor.chunks:
                behind = map(operator.add, chunk.offsets, chunk.shape)
                whole[*map(slice, chunk.offsets, behind)] = self._part(name, tensor.dtype, chunk)
        return found

    def _part(self, name: str, dtype: str, chunk: Chunk) -> NDArray[Any]:
        with self._file(chunk.file).open("rb") as file:
            archive = part_archive(file, chunk.start, chunk.length)
            self._left -= chunk.length
            if self._left < 0:
                raise ValueError("its parts repeat bytes of its files")
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
    shape = sizes("a part", entry["size"])
    chunks = []
    for item in entry["chunks"]:
        chunk = _state(item, "metadata.ChunkStorageMetadata")
        offsets = sizes("a part", chunk["offsets"])
        chunks.append(Chunk(offsets, sizes("a part", chunk["sizes"]), *places[name, offsets]))
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
        places[index["fqn"], () if offsets is None else sizes("a part", offsets)] = found
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


def _is(value: object, kind: str) -> TypeGuard[Described]:
    return isinstance(value, Described) and value.name == _MODULE + kind


def _state(value: object, kind: str) -> Mapping[str, Any]:
    if not _is(value, kind) or not isinstance(value.state, Mapping):
        raise UnsupportedPickleError(f"unsupported metadata without a {kind}")
    return value.state


def find_zero_folder(path: Path) -> Path | None:
    """Returns the folder with the parts: this one, or one in it that its file ``latest`` names; None without any."""
    if any(path.glob(f"*{_MODEL[0]}")):
        return path
    latest = path / _LATEST
    if not latest.is_file() or latest.stat().st_size > 255:
        return None
    name = latest.read_text(encoding="utf-8", errors="replace").strip()
    folder = path / name
    inside = bool(name) and folder.is_dir() and folder.resolve().parent == path.resolve()
    return folder if inside and any(folder.glob(f"*{_MODEL[0]}")) else None


def read_zero_folder(path: Path) -> Arrays:
    """Returns the network's parameters and buffers, trained ones in float32."""
    with contextlib.ExitStack() as stack:
        models, optimizers = (
            [stack.enter_context(open_archive(file)) for file in _parts(path, *named)] for named in (_MODEL, _OPTIMIZER)
        )
        # The float32 values, as in DeepSpeed's ``zero_to_fp32.py`` (Rajbhandari et al. 2020 describe the stages).
        found = _from_optimizers(models, optimizers) if optimizers else {}
        return {**_from_module(models[0], found), **found}


def _parts(path: Path, ending: str, beginning: re.Pattern[str]) -> list[Path]:
    """Returns the files of one kind, one for each process in their order."""
    files = [file for file in path.iterdir() if file.name.endswith(ending)]
    ranks: dict[int, Path] = {}
    for file in files:
        match = beginning.fullmatch(file.name.removesuffix(ending))
        if match is None:
            raise UnsupportedPickleError(
                f"unsupported part {file.name[:80]}: only networks that ZeRO alone divides can be read, without "
                "pipelines, tensor parallelism and experts"
            )
        if file.resolve().parent != path.resolve():
            raise ValueError(f"its part {file.name[:80]} links out of the folder")
        ranks[int(match[1] or 0)] = file
    if sorted(ranks) != [*range(len(files))]:
        raise ValueError(f"it has the parts of the processes {sorted(ranks)[:20]}, not of all")
    return [ranks[rank] for rank in range(len(files))]


def _from_optimizers(models: Sequence[Archive], optimizers: Sequence[Archive]) -> Arrays:
    states = [archive.content["optimizer_state_dict"] for archive in optimizers]
    stage, count = states[0]["zero_stage"], states[0]["partition_count"]
    stage = stage.arguments[0] if isinstance(stage, Described) else stage
    counts = count if isinstance(count, list) else [count]
    if any(type(number) is not int for number in (stage, *counts)):
        # Not quoted: lists that name each other would take for ever to write.
        raise TypeError("its stage, or the number of its processes, is no number")
    count = max(counts)
    if count != len(states):
        raise ValueError(f"it was written by {count} processes, and has the parts of {len(states)}")
    shapes = [_shapes(group) for group in models[0].content["param_shapes"]]
    if stage not in _GROUPS:
        raise UnsupportedPickleError(f"unsupported stage {stage}")
    groups = [_flat(item, state[_GROUPS[stage]]) for item, state in zip(optimizers, states, strict=True)]
    if stage < 3:
        paddings = states[0].get("param_alignment_paddings") or itertools.repeat(())
        merged = [np.concatenate(parts) for parts in zip(*groups, strict=True)]
        found: Arrays = {}
        for names, flat, padding in zip(shapes, merged, paddings, strict=False):
            found.update(_cut(names, flat, padding, align=2 * count))
        if len(shapes) != len(merged):
            raise ValueError(f"it has {len(merged)} groups of parameters, and the shapes of {len(shapes)}")
        return found
    flats = [*map(np.concatenate, groups)]
    names = {name: shape for group in shapes for name, shape in group.items()}
    return {**_frozen(models), **_gathered(names, flats)}


def _from_module(model: Archive, found: Arrays) -> Arrays:
    """Returns what the first process holds whole: buffers, and but for ZeRO 3 what is not trained."""
    content = model.content
    divided = {name for group in content.get("param_shapes") or () for name in group}
    frozen = content.get("frozen_param_shapes") or {}
    shared = content.get("shared_params") or {}
    tensors = {
        name: tensor
        for name, tensor in content["module"].items()
        if isinstance(tensor, StoredTensor)
        and name not in found
        and name not in shared
        # ZeRO 3 leaves empty tensors where parameters were.
        and (0 not in tensor.shape or name not in {*divided, *frozen})
    }
    return model.read(tensors)


def _cut(shapes: Mapping[str, tuple[int, ...]], flat: NDArray[Any], padding: Sequence[int], align: int) -> Arrays:
    """Returns the tensors that lie behind each other in a vector."""
    found, start = {}, 0
    if any(type(length) is not int or length < 0 for length in padding):
        raise ValueError("a parameter is filled up by no number of elements")
    for index, (name, shape) in enumerate(shapes.items()):
        size: int = math.prod(shape)
        found[name] = flat[start : start + size].reshape(shape)
        start += size + (padding[index] if padding else 0)
    # DeepSpeed fills up to a multiple of twice the number of processes.
    if math.ceil(start / align) != math.ceil(flat.size / align):
        raise ValueError(f"its parameters have {start} elements, and its parts {flat.size}")
    return found


def _gathered(shapes: Mapping[str, tuple[int, ...]], flats: Sequence[NDArray[Any]]) -> Arrays:
    """Returns the tensors of which every process has a part of equal length, the last one filled up."""
    found, start = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        stop = start + math.ceil(size / len(flats))
        found[name] = np.concatenate([flat[start:stop] for flat in flats])[:size].reshape(shape)
        start = stop
    if any(flat.size != start for flat in flats):
        raise ValueError(f"its parameters have {start} elements in each process, and its parts {flats[0].size}")
    return found


def _frozen(models: Sequence[Archive]) -> Arrays:
    shapes = _shapes(models[0].content.get("frozen_param_shapes") or {})
    parts = [model.read(model.content["frozen_param_fragments"]) if shapes else {} for model in models]
    return {
        name: np.concatenate([part[name].reshape(-1) for part in parts])[: math.prod(shape)].reshape(shape)
        for name, shape in shapes.items()
    }


def _flat(archive: Archive, groups: Any) -> list[NDArray[Any]]:
    return [
        array.reshape(-1) for array in archive.read({str(index): item for index, item in enumerate(groups)}).values()
    ]


def _shapes(group: Mapping[Any, Any]) -> dict[str, tuple[int, ...]]:
    return {str(name): sizes("a parameter", shape) for name, shape in group.items()}
