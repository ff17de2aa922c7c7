"""Checkpoints of DeepSpeed's ZeRO: a folder with the parts of every process, put together to a network's weights."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .tensor_pickle import Described, StoredTensor, UnsupportedPickleError
from .torch_archive import Archive, open_archive

Arrays: TypeAlias = dict[str, NDArray[Any]]

# What the names of the parts end with, and how they begin where ZeRO alone divides the network.
_MODEL = "model_states.pt", re.compile(r"(?:zero_pp_rank_(\d{1,6})_)?mp_rank_00_")
_OPTIMIZER = "optim_states.pt", re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d{1,6})_mp_rank_00_")
_LATEST = "latest"
_MOST_AXES = 64


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
    if stage in (1, 2):
        groups = [
            _flat(item, state["single_partition_of_fp32_groups"])
            for item, state in zip(optimizers, states, strict=True)
        ]
        paddings = states[0].get("param_alignment_paddings") or itertools.repeat(())
        merged = [np.concatenate(parts) for parts in zip(*groups, strict=True)]
        found: Arrays = {}
        for names, flat, padding in zip(shapes, merged, paddings, strict=False):
            found.update(_cut(names, flat, padding, align=2 * count))
        if len(shapes) != len(merged):
            raise ValueError(f"it has {len(merged)} groups of parameters, and the shapes of {len(shapes)}")
        return found
    if stage == 3:
        flats = [
            np.concatenate(_flat(item, state["fp32_flat_groups"]))
            for item, state in zip(optimizers, states, strict=True)
        ]
        names = {name: shape for group in shapes for name, shape in group.items()}
        return {**_frozen(models), **_gathered(names, flats)}
    raise UnsupportedPickleError(f"unsupported stage {stage}")


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
    for shape in group.values():
        if (
            not isinstance(shape, tuple)
            or len(shape) > _MOST_AXES
            or not all(type(length) is int and 0 <= length < 2**62 for length in shape)
        ):
            raise ValueError("a parameter has a shape that is no list of sizes")
    return {str(name): shape for name, shape in group.items()}
