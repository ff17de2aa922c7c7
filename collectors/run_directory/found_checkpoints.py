"""The checkpoints that a user names: files, folders of them, and patterns, on this machine and behind URLs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import CheckpointError, reason_of
from ..files.file_kinds import ENOUGH_BYTES, begins_as_pytorch
from ..files.places import AnyPath, check_directory
from ..files.remote_path import RemotePath
from ..validation import wrong_type
from ..weights.foreign_checkpoint import AMBIGUOUS_SUFFIXES, CHECKPOINT_SUFFIXES
from ..weights.pretrained_folder import ADAPTER_FILES, WEIGHT_FILES, is_beside
from ..weights.sharded_folder import METADATA, find_sharded_folder, find_zero_folder
from .numbering import natural_key

_PATTERN = re.compile(r"[*?\[]")


def find_checkpoints(paths: object) -> list[AnyPath]:
    """Returns the checkpoints that paths name, in order; those of a folder or a pattern are sorted as people count."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if isinstance(paths, bytes) or not isinstance(paths, Sequence):
        raise wrong_type("paths", "a list of paths, or the path of a folder", paths)
    found: list[AnyPath] = []
    for index, item in enumerate(paths):
        place = check_directory(f"paths[{index}]", item)
        try:
            found += _found_at(place, is_alone=len(paths) == 1)
        except OSError as error:
            raise CheckpointError(f"checkpoint {place} cannot be read: {reason_of(error)}.") from error
    return found


def _found_at(place: AnyPath, *, is_alone: bool) -> list[AnyPath]:
    if place.is_dir():
        # A folder of a Trainer has the last weights beside the folders of earlier ones.
        inside = [folder for folder in _folders(place) if _is_checkpoint(folder)]
        if _is_checkpoint(place):
            return _sorted(inside) if is_alone and inside else [place]
        files = [
            file
            for file in _files(place)
            if not file.name.startswith(".") and not is_beside(file.name) and _may_hold_weights(file)
        ]
        if not inside and not files:
            raise CheckpointError(
                f"{place} is a folder without checkpoints: no file there ends with {', '.join(CHECKPOINT_SUFFIXES)}, "
                f"no PyTorch file with {', '.join(AMBIGUOUS_SUFFIXES)}, and no folder there is a checkpoint of "
                "Transformers, torch.distributed.checkpoint or DeepSpeed."
            )
        return _sorted([*inside, *files])
    if not _PATTERN.search(str(place)) or place.exists():
        return [place]
    matching = place.glob() if isinstance(place, RemotePath) else _matching(place)
    checkpoints = [match for match in matching if not is_beside(match.name)]
    if not checkpoints:
        raise CheckpointError(f"nothing matches {place}; check the pattern.")
    return _sorted(checkpoints)


def _matching(pattern: Path) -> list[Path]:
    # What is there is meant as it is written: folders may have brackets in their names.
    folder = next(above for above in pattern.parents if above.exists())
    return [*folder.glob(str(pattern.relative_to(folder)))]


def _may_hold_weights(file: AnyPath) -> bool:
    suffix = file.suffix.lower()
    if suffix not in AMBIGUOUS_SUFFIXES:
        return suffix in CHECKPOINT_SUFFIXES
    with file.open("rb") as content:
        return begins_as_pytorch(content.read(ENOUGH_BYTES))


def _is_checkpoint(folder: AnyPath) -> bool:
    names = {*WEIGHT_FILES, *ADAPTER_FILES, METADATA}
    if isinstance(folder, RemotePath):
        return any(file.name in names or file.name.endswith("_model_states.pt") for file in folder.files())
    with contextlib.suppress(OSError):
        is_divided = find_zero_folder(folder) is not None or find_sharded_folder(folder) is not None
        return is_divided or any((folder / name).is_file() for name in names)
    return False


def _folders(place: AnyPath) -> list[AnyPath]:
    return [*place.folders()] if isinstance(place, RemotePath) else [item for item in place.iterdir() if item.is_dir()]


def _files(place: AnyPath) -> list[AnyPath]:
    return [*place.files()] if isinstance(place, RemotePath) else [item for item in place.iterdir() if item.is_file()]


def _sorted(places: Sequence[AnyPath]) -> list[AnyPath]:
    return sorted(places, key=lambda place: natural_key(str(place)))
