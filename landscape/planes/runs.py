"""Which run each checkpoint belongs to: from what the user says, from run directories, or from the files' folders."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from collectors.files.places import is_url, with_slashes
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory
from collectors.validation import check_int, wrong_type, wrong_value
from collectors.weights.aligned import Weights, as_reader
from collectors.weights.foreign_checkpoint import CHECKPOINT_SUFFIXES
from collectors.weights.safetensors_file import StateReader

from ..roles import check_name

# Such as Hugging Face's: one folder for each checkpoint of a run.
_CHECKPOINT_FOLDER = re.compile(r"(checkpoint|ckpt|epoch|step|global_step|iter)[-_]?\d+", re.IGNORECASE)
_EXPECTED = "a list of checkpoints, a RunDirectory, or a dict from a run's name to either"


@dataclass(frozen=True)
class Run:
    """The checkpoints of one run.

    Attributes:
        name: may be "" for a single run.
        readers: in the order of training.
        numbers: one for each.
        finished: whether the last one holds the weights with which training ended.
    """

    name: str
    readers: tuple[StateReader, ...]
    numbers: tuple[int, ...]
    finished: bool = False


def is_weights_file(place: object) -> bool:
    """Returns whether a path is of a file of weights, or of a folder that is one checkpoint, rather than of a run."""
    path = str(place)
    if not is_url(path):
        if Path(path).is_file():
            return True
        if (Path(path) / CHECKPOINT_FOLDER).is_dir():
            return False
    return path.lower().endswith(CHECKPOINT_SUFFIXES)


def find_runs(checkpoints: object, numbers: object, *, label: str = "checkpoints") -> dict[str, Any]:
    """Returns a list of weights or a RunDirectory by the run's name, of what ``pca_plane`` takes as checkpoints."""
    if isinstance(checkpoints, Mapping):
        if not checkpoints:
            raise wrong_value(label, "at least one run", {})
        for name, item in checkpoints.items():
            if not _is_list(item) and not isinstance(item, RunDirectory):
                raise wrong_type(f"{label}[{name!r}]", "a list of checkpoints or a RunDirectory", item)
        needed = len(checkpoints) > 1
        return {check_name(f"a key of {label}", name, needed=needed): item for name, item in checkpoints.items()}
    if isinstance(checkpoints, RunDirectory):
        return {"": checkpoints}
    if not _is_list(checkpoints):
        raise wrong_type("checkpoints", _EXPECTED, checkpoints)
    assert isinstance(checkpoints, Sequence)
    if any(isinstance(item, RunDirectory) for item in checkpoints):
        return _directories(checkpoints)
    folders = [_run_folder(item) for item in checkpoints]
    if len({folder for folder in folders if folder is not None}) < 2:
        return {"": list(checkpoints)}
    return _by_folder(checkpoints, folders, numbers)


def check_numbers(found: Mapping[str, Any], numbers: object) -> dict[str, Any]:
    """Returns the numbers of each run's checkpoints, None where the user leaves them out."""
    if isinstance(numbers, Mapping):
        if unknown := [name for name in numbers if name not in found]:
            raise wrong_value("numbers", f"a dict with the names of runs, {list(found)} (not {unknown})", list(numbers))
        return {name: numbers.get(name) for name in found}
    if numbers is not None and len(found) > 1:
        raise wrong_type("numbers", "a dict from the runs' names to their numbers, as there are several runs", numbers)
    return dict.fromkeys(found, numbers)


def read_run(name: str, checkpoints: Any, numbers: object, space: WeightSpace, argument: str = "checkpoints") -> Run:
    """Opens the checkpoints of a run; numbers that are None count from 0, or are all that the directory has."""
    label = f"numbers[{name!r}]" if name else "numbers"
    given = None
    if numbers is not None:
        if isinstance(numbers, str | bytes) or not isinstance(numbers, Sequence | np.ndarray):
            raise wrong_type(label, "a list of numbers", numbers)
        given = [check_int(f"{label}[{index}]", number) for index, number in enumerate(numbers)]
    if isinstance(checkpoints, RunDirectory):
        chosen = sorted(checkpoints.metadata.files) if given is None else given
        readers = tuple(checkpoints.checkpoint(number, space) for number in chosen)
        return Run(name, readers, tuple(chosen), finished=chosen[-1:] == [checkpoints.metadata.final_number])
    chosen = list(range(len(checkpoints))) if given is None else given
    if len(chosen) != len(checkpoints):
        raise wrong_value(label, f"a list with one number for each of the {len(checkpoints)} checkpoints", chosen)
    prefix = f"{argument}[{name!r}]" if name else argument
    readers = tuple(as_reader(f"{prefix}[{index}]", item) for index, item in enumerate(checkpoints))
    return Run(name, readers, tuple(chosen))


def _directories(checkpoints: Sequence[Any]) -> dict[str, Any]:
    for index, item in enumerate(checkpoints):
        if not isinstance(item, RunDirectory):
            raise wrong_type(f"checkpoints[{index}]", "a RunDirectory, as others of the list are", item)
    folders = [PurePosixPath(with_slashes(item.path)) for item in checkpoints]
    if len(set(folders)) < len(folders):
        raise wrong_value("checkpoints", "different run directories", [str(folder) for folder in folders])
    return dict(zip(names_of_folders(folders), checkpoints, strict=True))


def _by_folder(
    checkpoints: Sequence[Weights], folders: Sequence[PurePosixPath | None], numbers: object
) -> dict[str, list[Weights]]:
    if None in folders:
        raise ValueError(
            "checkpoints must say which run each of them belongs to: some are files of several folders, and others "
            "lie in memory. Pass a dict from the run's name to its checkpoints."
        )
    if numbers is not None:
        raise ValueError(
            "numbers must be left out for files of several folders, which are several runs; pass a dict from the run's "
            "name to its checkpoints, and one from the name to their numbers."
        )
    found = {folder: [] for folder in folders if folder is not None}  # type: dict[PurePosixPath, list[Weights]]
    for item, folder in zip(checkpoints, folders, strict=True):
        assert folder is not None
        found[folder].append(item)
    runs = dict(zip(names_of_folders(list(found)), found.values(), strict=True))
    if all(len(items) == 1 for items in runs.values()):
        warnings.warn(
            f"the {len(runs)} checkpoints lie in as many folders, so each is a run of its own, and no path joins them. "
            "If they are one run's, say so with a dict: {'name of the run': [...]}.",
            UserWarning,
            stacklevel=4,
        )
    return runs


def _run_folder(weights: Weights) -> PurePosixPath | None:
    """Returns the folder of the run that a file belongs to; None for weights in memory."""
    if isinstance(weights, str | os.PathLike):
        text = str(Path(weights).absolute()) if "://" not in os.fspath(weights) else str(weights)
    elif str(getattr(weights, "label", "")).lower().endswith(CHECKPOINT_SUFFIXES):
        text = str(weights.label)
    else:
        return None
    folder = PurePosixPath(with_slashes(text)).parent
    return folder.parent if folder.name == CHECKPOINT_FOLDER or _CHECKPOINT_FOLDER.fullmatch(folder.name) else folder


def name_of_folder(weights: Weights) -> str | None:
    """Returns the name of the folder of the run that weights come from; None for weights that were in memory."""
    folder = _run_folder(weights)
    return None if folder is None or not folder.name else names_of_folders([folder])[0]


def names_of_folders(folders: Sequence[PurePosixPath]) -> list[str]:
    """Returns the folders' names, with as many of those above them as tell them apart."""
    depth = 1
    while len({folder.parts[-depth:] for folder in folders}) < len(folders):
        depth += 1
    return [check_name("a run's folder", "/".join(folder.parts[-depth:])[-100:]) for folder in folders]


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
