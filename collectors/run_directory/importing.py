"""Builds a run directory from checkpoints that people already have."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import CheckpointError, RunDirectoryError, reporting
from ..files.file_kinds import ENOUGH_BYTES, begins_as_pytorch
from ..files.places import AnyPath, check_directory
from ..files.remote_path import RemotePath
from ..networks.weight_space import TensorInfo, WeightSpace, state_sha256
from ..validation import check_choice, check_instance, wrong_type
from ..weights.foreign_checkpoint import (
    ADAPTER_FILES,
    AMBIGUOUS_SUFFIXES,
    CHECKPOINT_SUFFIXES,
    WEIGHT_FILES,
    is_beside,
    read_checkpoint,
)
from ..weights.jax_file import find_orbax
from ..weights.keras_file import KERAS_ENDINGS, check_keras_network
from ..weights.sharded_folder import METADATA, find_sharded_folder, find_zero_folder
from .directory import CHECKPOINT_FOLDER, METADATA_NAME, RunDirectory
from .existing_run import EXISTING
from .metadata import RunMetadata
from .numbering import SeenCheckpoint, Unit, import_order, natural_key
from .settings import UNITS, LandscapeSettings, check_interval
from .writer import RunWriter

_PATTERN = re.compile(r"[*?\[]")


def import_checkpoints(
    run_directory: str | os.PathLike[str],
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    numbers: Sequence[int] | None = None,
    unit: str | None = None,
    strip_prefix: str | None = None,
    landscape_size: int = 40,
    num_samples: int = 2048,
    network: object = None,
    network_name: str = "network",
    existing: str = "error",
    report: Callable[[str], object] | None = None,
) -> RunDirectory:
    """Builds a run directory from checkpoints, which stay as they are.

    Args:
        run_directory: where to build it: a folder, or an fsspec URL such as ``s3://bucket/run``.
        paths: at least three checkpoints: a folder of them, a pattern such as ``"checkpoints/ep_*.pt"``, or a list of
            files, folders and patterns; URLs, too. A checkpoint is a safetensors file, a PyTorch state dict, also a
            nested one ({"state_dict": ...}, {"model": ...}), a folder of ``save_pretrained`` or of a Transformers
            ``Trainer`` (``checkpoint-500``), the index of one in parts (``model.safetensors.index.json``), or a folder
            of ``torch.distributed.checkpoint`` (FSDP, with Lightning or accelerate too) or of DeepSpeed's ZeRO, from
            any number of processes; Flax's msgpack, folders of Orbax and NumPy's archives of JAX' parameters; with
            ``network`` Keras' files of weights (``.weights.h5``, ``.keras``, ``.h5``, TensorFlow's ``.index``). What
            wrappers add to names is removed ("module.", "_orig_mod.", Lightning's "model.", "n_averaged" of an
            ``AveragedModel``). No code from a file ever runs, and none takes more memory than its size allows (of
            Orbax, which compresses, 1,024 elements for each byte).
        numbers: the step or epoch of each file, in the order of the files. None takes the one number that differs in
            their names, or the epoch or step inside them, and sorts by it.
        unit: what the numbers count, "step" or "epoch"; None takes what the names or the files say, else "epoch".
        strip_prefix: what the names of the wanted tensors begin with, such as "model."; it is removed, and all other
            tensors are left out.
        landscape_size: grid points per axis, a default for phase 2.
        num_samples: samples to average the loss over, a default for phase 2.
        network: a built ``keras.Model``, for Keras' files: Keras reads their weights into it, and it gets its own
            back. Nothing but weights is read, so that no layer, lambda or custom object of a file is ever made.
        network_name: what to call the network in file names and titles.
        existing: what to do when the directory already holds a run: "error" or "overwrite".
        report: called with a table of numbers and files, and what was removed from names or left out, before anything
            is written; ``print`` shows it.

    Returns:
        The run directory, ready for ``SummaryLandscape``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: fewer than three files, numbers that do not fit them, files that do not say which epoch or step they
            are of, or a file inside the run directory.
        CheckpointError: a file cannot be read, is only a part of a checkpoint, or holds another network than the first
            one.
        CheckpointWriteError: a checkpoint could not be written; what was written is removed again.
        RunDirectoryError: the directory already holds a run.
    """
    target = check_directory("run_directory", run_directory)
    places = _find_checkpoints(paths)
    if len(places) < 3:
        names = f": {', '.join(map(str, places))}" if places else ""
        raise ValueError(
            f"paths must hold at least three files (a plane needs three checkpoints), but got {len(places)}{names}."
        )
    given = _check_numbers(numbers, len(places))
    if unit is not None:
        check_choice("import_checkpoints['unit']", unit, UNITS)
    check_instance("strip_prefix", strip_prefix, (str, type(None)), "a str")
    shared = {"landscape_size": landscape_size, "num_samples": num_samples}
    # Before the files are read, which may take minutes.
    _settings([1, 2, 3], "epoch", shared)
    check_keras_network(network)
    check_instance("network_name", network_name, str, "a str")
    check_choice("existing", existing, tuple(choice for choice in EXISTING if choice != "resume"))
    created = _check_target(target, places, existing)
    # All files are checked before the first is written, so that a bad one leaves nothing behind.
    read = functools.partial(read_checkpoint, strip_prefix=strip_prefix, network=network)
    found = [SeenCheckpoint(place, read(place)) for place in places]
    for item in found[1:]:
        _check_equal(found[0], item)
    chosen_unit = cast("Unit | None", unit)
    order = import_order(found, lambda item: state_sha256(read(item.place).tensors), numbers=given, unit=chosen_unit)
    settings = _settings([number for number, _ in order.chosen], order.unit, shared)
    if report is not None:
        report(order.table())
    space = WeightSpace(
        found[0].framework,
        network_name,
        tuple(TensorInfo(name, shape, found[0].dtypes[name], "parameter") for name, shape in found[0].shapes.items()),
    )
    writer = RunWriter(target, settings, space, existing=existing, imported=True)
    try:
        for number, item in order.chosen:
            writer.save(number, dict(read(item.place).tensors))
        writer.close()
    except BaseException:
        writer.discard()
        with contextlib.suppress(OSError):
            for path in created:
                path.rmdir()
        raise
    return RunDirectory(target)


def _find_checkpoints(paths: object) -> list[AnyPath]:
    """Returns the checkpoints that paths name, in order; those of a folder or a pattern are sorted as people count."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if isinstance(paths, bytes) or not isinstance(paths, Sequence):
        raise wrong_type("paths", "a list of paths, or the path of a folder", paths)
    found: list[AnyPath] = []
    for index, item in enumerate(paths):
        place = check_directory(f"paths[{index}]", item)
        with reporting(f"checkpoint {place} cannot be read", kind=CheckpointError):
            found += _found_at(place, is_alone=len(paths) == 1)
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
                f"{place} is a folder without checkpoints: no file there ends with "
                f"{', '.join((*CHECKPOINT_SUFFIXES, *KERAS_ENDINGS))}, "
                f"no PyTorch file with {', '.join(AMBIGUOUS_SUFFIXES)}, and no folder there is a checkpoint of "
                "Transformers, torch.distributed.checkpoint, DeepSpeed or Orbax."
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
        return suffix in CHECKPOINT_SUFFIXES or file.name.lower().endswith(KERAS_ENDINGS)
    with file.open("rb") as content:
        return begins_as_pytorch(content.read(ENOUGH_BYTES))


def _is_checkpoint(folder: AnyPath) -> bool:
    names = {*WEIGHT_FILES, *ADAPTER_FILES, METADATA}
    if isinstance(folder, RemotePath):
        return any(file.name in names or file.name.endswith("_model_states.pt") for file in folder.files())
    with contextlib.suppress(OSError):
        finders = (find_zero_folder, find_sharded_folder, find_orbax)
        is_divided = any(find(folder) is not None for find in finders)
        return is_divided or any((folder / name).is_file() for name in names)
    return False


def _folders(place: AnyPath) -> list[AnyPath]:
    return [*place.folders()] if isinstance(place, RemotePath) else [item for item in place.iterdir() if item.is_dir()]


def _files(place: AnyPath) -> list[AnyPath]:
    return [*place.files()] if isinstance(place, RemotePath) else [item for item in place.iterdir() if item.is_file()]


def _sorted(places: Sequence[AnyPath]) -> list[AnyPath]:
    return sorted(places, key=lambda place: natural_key(str(place)))


def _settings(numbers: Sequence[int], unit: str, shared: Mapping[str, int]) -> LandscapeSettings:
    return LandscapeSettings.from_dict({"intervals": [numbers], "unit": unit, **shared}, "import_checkpoints")


def _check_numbers(numbers: Any, count: int) -> tuple[int, ...] | None:
    """Returns one number for each file, in any order."""
    if numbers is None:
        return None
    given = numbers.tolist() if isinstance(numbers, np.ndarray) else numbers
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    # What is no list of ints is refused as it is.
    in_order = sorted(given) if is_list and all(isinstance(item, int | np.integer) for item in given) else given
    check_interval("numbers", in_order)
    chosen = tuple(int(item) for item in given)
    if len(chosen) != count:
        raise ValueError(f"numbers must have one entry for each of the {count} files, but got {list(chosen)}.")
    return chosen


def _check_target(target: AnyPath, places: Sequence[AnyPath], existing: str) -> list[Path]:
    """Checks that the directory may be built, and returns the folders that it takes."""
    folder = target / CHECKPOINT_FOLDER
    for file in places:
        if isinstance(folder, Path) and isinstance(file, Path):
            # realpath, because resolve() fails for links in a circle.
            around = (Path(os.path.realpath(file)).parent, Path(os.path.realpath(file.parent)))
            is_inside = Path(os.path.realpath(folder)) in around
        else:
            is_inside = str(folder) == str(file.parent)
        if is_inside:
            raise ValueError(
                f"paths must lie outside the run directory that is built, but {file} is inside it and could be "
                "replaced; import into another directory."
            )
    above = (folder, *folder.parents) if isinstance(folder, Path) else ()
    with reporting(f"run directory {target} cannot be read", "Choose a directory that can be written."):
        created = [path for path in above if not path.exists()]
        holds_a_run = (folder / METADATA_NAME).exists()
    if existing == "error" and holds_a_run:
        raise RunDirectoryError(
            f"{target} already holds a run ({folder / METADATA_NAME} exists). Choose another run directory, or replace "
            'that run with existing="overwrite".'
        )
    if holds_a_run and not RunMetadata.load(folder / METADATA_NAME).imported:
        raise RunDirectoryError(
            f'{target} holds a run that no import wrote, and was left as it is: existing="overwrite" replaces only an '
            "imported run. Choose another run directory, or remove this one."
        )
    return created


def _check_equal(first: SeenCheckpoint, other: SeenCheckpoint) -> None:
    expected, found = first.shapes, other.shapes
    lines = [
        f"  {name}: {expected.get(name, 'absent')} in {first.place.name}, {found.get(name, 'absent')} here"
        for name in dict.fromkeys((*expected, *found))
        if expected.get(name) != found.get(name)
    ]
    if lines:
        raise CheckpointError(
            f"checkpoint {other.place} holds another network than {first.place}:\n"
            + "\n".join(lines[:40])
            + "\nImport one run at a time."
        )
