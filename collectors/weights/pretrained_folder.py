"""Checkpoints of Hugging Face's ``save_pretrained`` and ``Trainer``: folders with one file, or an index of parts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from ..files.file_kinds import ENOUGH_BYTES, check_kind
from ..files.places import AnyPath

INDEX_FILES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
# The first one that is there counts.
WEIGHT_FILES = ("model.safetensors", INDEX_FILES[0], "pytorch_model.bin", INDEX_FILES[1])
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_INDEX_ENDING = ".index.json"
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.safetensors|\.bin)")
_TRAINER_STATE = "trainer_state.json"
# What a Trainer puts beside the weights, and earlier versions the optimizer's factors beside our own checkpoints.
_BESIDE = re.compile(
    r"training_args\.bin|optimizer\.(pt|bin)|scheduler\.pt|scaler\.pt|rng_state(_\d+)?\.pth"
    r"|.+_\d+_(step|epoch)_factors\.safetensors"
)
_LARGEST_NOTE = 100 * 2**20


def find_pretrained(path: Path) -> Path | None:
    """Returns the folder's file or index of weights, else an adapter of peft, which is no network; None without any."""
    return next((path / name for name in (*WEIGHT_FILES, *ADAPTER_FILES) if (path / name).is_file()), None)


def is_beside(name: str) -> bool:
    """Returns whether a file of that name has no weights but what a Trainer resumes from, or an optimizer's factors."""
    return _BESIDE.fullmatch(name) is not None


def is_index(path: AnyPath) -> bool:
    return path.name.endswith(_INDEX_ENDING)


def read_index(path: Path) -> dict[str, list[str]]:
    """Returns the names of the tensors in each file beside the index; if damaged, any kind of Exception is raised."""
    with path.open("rb") as file:
        check_kind(path, file.read(ENOUGH_BYTES), "JSON")
    places = _read_json(path)["weight_map"]
    found: dict[str, list[str]] = {}
    for tensor, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith((".safetensors", ".bin")):
            raise ValueError(f"the part {str(file)[:80]!r} is no file beside it")
        found.setdefault(file, []).append(tensor)
    return found


def refuse_lone_part(path: Path) -> None:
    """Checks that a file is not one of several that are a checkpoint together."""
    match = _PART.fullmatch(path.name)
    if match is None or int(match[3]) < 2:
        return
    index = path.with_name(f"{match[1]}{match[4]}{_INDEX_ENDING}")
    where = index if index.is_file() else f"{index.name} (which is not beside it; copy it, too)"
    raise CheckpointError(
        f"checkpoint {path} is part {int(match[2])} of {int(match[3])} and holds some of the tensors only; give the "
        f"folder {path.parent}, or the index of all parts, {where}."
    )


def trainer_state(folder: Path) -> Mapping[str, Any]:
    """Returns what a Trainer's checkpoint says of itself; nothing where the folder has no such file."""
    file = folder / _TRAINER_STATE
    try:
        return _read_json(file) if file.is_file() else {}
    except (ValueError, RecursionError):
        # The weights can be read without it.
        return {}


def _read_json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _LARGEST_NOTE:
        raise ValueError(f"{path.name} has more than {_LARGEST_NOTE} bytes")
    content = json.loads(path.read_bytes().decode("utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no dictionary")
    return content
