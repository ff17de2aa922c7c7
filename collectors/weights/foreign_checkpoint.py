"""Checkpoints of any tool, in files and folders of any kind, read as named arrays; no code from a file ever runs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import CheckpointError, reporting
from ..files.file_kinds import ENOUGH_BYTES, check_kind
from ..files.places import AnyPath, on_this_machine
from ..files.remote_path import RemotePath
from . import tensorflow_file, torch_archive
from .jax_file import MSGPACK, NPZ, ORBAX, find_orbax, read_msgpack, read_npz, read_orbax
from .keras_file import is_keras_file, read_keras_file
from .safetensors_file import RESERVED_PREFIX, STATE_FORMAT, CheckpointFile, MemoryState, StateReader
from .sharded_folder import METADATA, ShardedFolder, find_sharded_folder, find_zero_folder, read_zero_folder
from .tensor_pickle import DividedTensor
from .wrapped_names import check_not_adapters_alone, plain_names

CHECKPOINT_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".tar", ".chkpt", MSGPACK)
"""What the names of files with weights end with."""
AMBIGUOUS_SUFFIXES = (".t7", ".net", ".weights", ".pkl", ".model")
"""What they end with as well, as do those of other programs' files."""
# What save_pretrained and the Trainer of Hugging Face write: folders with one file, or an index of parts.
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
# What training loops keep beside the weights; Lightning and Transformers say global_step.
_COUNTERS = {
    **dict.fromkeys(("epoch", "epochs"), "epoch"),
    **dict.fromkeys(("global_step", "step", "steps", "iteration", "iter", "iter_num", "num_updates"), "step"),
}
_LONGEST_COUNTER = 19


@dataclass(frozen=True)
class ForeignCheckpoint:
    tensors: Mapping[str, NDArray[Any]]  # by name, each storage once, under the names of the plain network
    counters: Mapping[str, int]  # how far the training was, as far as it says so: under "epoch", "step" or both
    said: tuple[str, ...] = ()  # what was removed from names or left out on request, one sentence each
    left_out: tuple[str, ...] = ()  # what else it holds, one sentence each
    framework: str = "torch"  # whose networks have such names, as far as the file shows it


def read_checkpoint(
    path: AnyPath | str | os.PathLike[str], strip_prefix: str | None = None, network: object = None
) -> ForeignCheckpoint:
    """Returns what any checkpoint holds, under names without ``strip_prefix``; Keras' are read into ``network``."""
    place = path if isinstance(path, RemotePath) else Path(path)
    # The files that an index names lie beside it.
    is_part = isinstance(place, RemotePath) and is_index(place)
    whole = place.parent if is_part else place
    with reporting(f"checkpoint {place} cannot be read", kind=CheckpointError):
        refuse_lone_part(place)
        with on_this_machine(whole, is_beside) as near:
            try:
                return _read_any(near / place.name if is_part else near, strip_prefix, network)
            except CheckpointError as error:
                # Nobody has heard of the copy.
                raise CheckpointError(str(error).replace(str(near), str(whole))) from error.__cause__


def open_checkpoint(place: AnyPath) -> StateReader:
    """Returns a reader of a checkpoint: of its files where these are safetensors, else of a copy in memory."""
    if isinstance(place, Path) and (found := _plain_safetensors(place)) is not None:
        return found
    checkpoint = read_checkpoint(place)
    for sentence in checkpoint.left_out:
        # Without the checkpoint's name, so that a list of many says it once.
        warnings.warn(f"a checkpoint holds more than is read here; {sentence}", UserWarning, stacklevel=2)
    return MemoryState(checkpoint.tensors, str(place))


def _plain_safetensors(path: Path) -> StateReader | None:
    """Returns a reader of safetensors files of which nothing is left out; None for anything else."""
    if path.is_dir():
        weights = find_pretrained(path)
        if weights is None or find_zero_folder(path) is not None or find_sharded_folder(path) is not None:
            return None
        path = weights
    if path.suffix.lower() != ".safetensors":
        return None
    refuse_lone_part(path)
    file = CheckpointFile(path)
    found = plain_names(str(path), file.shapes)
    check_not_adapters_alone(str(path), found.held)
    is_whole = len(found.held) == len(file.shapes) and not any(name.startswith(RESERVED_PREFIX) for name in file.shapes)
    return file if is_whole else None


def _read_any(path: Path, strip_prefix: str | None, network: object = None) -> ForeignCheckpoint:
    if path.is_dir():
        return _read_folder(path, strip_prefix)
    if is_index(path):
        return _read_parts(path, strip_prefix)
    refuse_lone_part(path)
    found = _read_file(path, strip_prefix, network)
    beside = _counters(trainer_state(path.parent)) if path.name in WEIGHT_FILES else {}
    return replace(found, counters={**found.counters, **beside})


def _read_file(path: Path, strip_prefix: str | None, network: object) -> ForeignCheckpoint:
    # TensorFlow itself calls a checkpoint by what its files have in common.
    if not path.exists() and (index := path.with_name(f"{path.name}{tensorflow_file.ENDING}")).is_file():
        path = index
    suffix = path.suffix.lower()
    if is_keras_file(path):
        return _named(path, read_keras_file(path, network), strip_prefix, framework="keras")
    if suffix == ".safetensors":
        file = CheckpointFile(path)
        return _named(
            path, file.shapes, strip_prefix, file.metadata, lambda shapes: {name: file.read(name) for name in shapes}
        )
    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} does not exist.")
    if suffix in (MSGPACK, NPZ):
        state, content = read_npz(path) if suffix == NPZ else read_msgpack(path)
        return _named(path, state, strip_prefix, content, framework="jax")
    if suffix == ".ckpt":
        from .mindspore_file import is_mindspore_file, load_ckpt, without_optimizer

        # Lightning's files have the same suffix.
        if is_mindspore_file(path):
            return _named(path, without_optimizer(load_ckpt(path)), strip_prefix, framework="mindspore")
    return _read_torch_file(path, strip_prefix)


def _read_torch_file(path: Path, strip_prefix: str | None) -> ForeignCheckpoint:
    with torch_archive.readable(path, "no PyTorch file"), torch_archive.open_archive(path) as archive:
        content, rest = torch_archive.addressed(path, archive.content, strip_prefix)
        tensors = torch_archive.stored_tensors(path, content)
        present = {**tensors, **dict.fromkeys(torch_archive.extra_states(content))}
        found = _named(path, present, rest, archive.content, archive.read)
        if content is not archive.content:
            return replace(found, said=(f"the weights are those under {strip_prefix!r}, as asked for.", *found.said))
        others = torch_archive.other_weights(content, tensors)
        left = [f"left out: other weights under {key!r}, which strip_prefix='{key}.' takes." for key in others]
        return replace(found, left_out=(*found.left_out, *left))


def _read_folder(path: Path, strip_prefix: str | None) -> ForeignCheckpoint:
    beside = trainer_state(path)
    if (parts := find_zero_folder(path)) is not None:
        with torch_archive.readable(path, "not whole"):
            return _named(path, read_zero_folder(parts), strip_prefix, beside)
    if (parts := find_sharded_folder(path)) is not None:
        with torch_archive.readable(path, "not whole"):
            folder = ShardedFolder(parts)
            found = torch_archive.find_tensors(path, folder.content)
            tensors = {name: tensor for name, tensor in found.items() if isinstance(tensor, DividedTensor)}
            if sum(map(torch_archive.byte_count, tensors.values())) > folder.size:
                raise ValueError(f"its tensors claim more than the {folder.size} bytes of its parts")
            return _named(path, tensors, strip_prefix, beside, folder.read)
    if (arrays := find_orbax(path)) is not None:
        state, content = read_orbax(arrays)
        return _named(path, state, strip_prefix, content, framework="jax")
    if (weights := find_pretrained(path)) is not None:
        return _read_any(weights, strip_prefix)
    raise CheckpointError(
        f"checkpoint {path} is a folder, but neither torch.distributed.checkpoint wrote it (it has no {METADATA}) nor "
        "DeepSpeed (it has no *_model_states.pt, and no file 'latest' that names a folder with such) nor Orbax (it has "
        f"no {ORBAX}) nor save_pretrained (it has none of {', '.join(WEIGHT_FILES)}); give the folder that holds these "
        "files."
    )


def _read_parts(index: Path, strip_prefix: str | None) -> ForeignCheckpoint:
    with torch_archive.readable(index, "no index of a checkpoint"):
        by_file = read_index(index)
        state: dict[str, NDArray[Any]] = {}
        for name, wanted in by_file.items():
            file = index.with_name(name)
            if not file.is_file():
                raise CheckpointError(
                    f"checkpoint {index} names the part {name}, which is not beside it; copy it there."
                )
            if file.suffix == ".safetensors":
                part = CheckpointFile(file)
                values = {key: part.read(key) for key in wanted if key in part.shapes}
            else:
                with torch_archive.readable(file, "no PyTorch file"), torch_archive.open_archive(file) as archive:
                    present = torch_archive.stored_tensors(file, archive.content)
                    values = archive.read({key: present[key] for key in wanted if key in present})
            if absent := [key for key in wanted if key not in values]:
                raise CheckpointError(
                    f"checkpoint {index} says that {name} holds {absent[0]!r}, which it does not; copy the files again."
                )
            state.update(values)
        return _named(index, state, strip_prefix, trainer_state(index.parent))


def _named(
    path: Path,
    present: Mapping[str, Any],
    strip_prefix: str | None,
    content: object = None,
    read: Callable[[dict[str, Any]], Mapping[str, NDArray[Any]]] = dict,
    framework: str = "torch",
) -> ForeignCheckpoint:
    """Returns tensors under the plain network's names; ``read`` gets those of them that are not left out."""
    # What a ModelCheckpoint saves besides the weights (optimizer state and the like) is not part of the network.
    wanted = [name for name in present if not name.startswith(RESERVED_PREFIX)]
    of_lightning = isinstance(content, Mapping) and "pytorch-lightning_version" in content
    found = plain_names(str(path), wanted, strip_prefix=strip_prefix, of_lightning=of_lightning)
    if not found.held and isinstance(content, Mapping) and "encryption" in content:
        raise CheckpointError(
            f"checkpoint {path} is encrypted ({content['encryption']}). Put its weights into a network, "
            "load_checkpoint(path, dec_key).load_into(network), and save that with save_checkpoint(network, path)."
        )
    if not found.held:
        raise CheckpointError(f"checkpoint {path} holds no tensors.")
    check_not_adapters_alone(str(path), found.held)
    arrays = read({held: present[held] for held in found.held.values()})
    tensors = {name: arrays[held] for name, held in found.held.items()}
    return ForeignCheckpoint(tensors, _counters(content), found.said, found.left_out, framework)


def _counters(content: object) -> dict[str, int]:
    """Returns how far a training was: what stands under usual keys, also in a dictionary "meta" (OpenMMLab)."""
    found: dict[str, int] = {}
    meta = content.get("meta") if isinstance(content, Mapping) else None
    for place in (content, meta, _of_model_checkpoint(content)):
        for key, kind in _COUNTERS.items():
            value = place.get(key) if isinstance(place, Mapping) else None
            # The metadata of safetensors are texts.
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _LONGEST_COUNTER:
                value = int(value)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if type(value) is int and 0 <= value < 2**62:
                found.setdefault(kind, value)
    return found


def _of_model_checkpoint(content: object) -> dict[str, Any]:
    """Returns the counters that a file of ``ModelCheckpoint`` has with its training's state or its information."""
    if isinstance(content, Mapping) and content.get("format") == STATE_FORMAT:
        # Whatever is no such description has no counters.
        with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
            parts = json.loads(content["contents"])
            info, training = dict(parts["info"]["dict"]), dict((parts["training"] or {"dict": ()})["dict"])
            counters = {"epoch": info.get("epoch_num"), "step": info.get("step_num"), **training}
            return {name: counters[name] for name in ("epoch", "step")}
    return {}


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


def refuse_lone_part(path: AnyPath) -> None:
    """Checks that a file is not one of several that are a checkpoint together."""
    match = _PART.fullmatch(path.name)
    if match is None or int(match[3]) < 2 or path.is_dir():
        return
    index = path.parent / f"{match[1]}{match[4]}{_INDEX_ENDING}"
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
