"""What a training does with the run that it finds in its directory: refuse, go on with it, or replace it."""

from __future__ import annotations

import contextlib
import re
import reprlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from ..errors import CheckpointError, RunDirectoryError, reporting
from ..files.file_kinds import ENOUGH_BYTES
from ..files.local_files import begins_as_ours
from ..files.places import AnyPath, removable_files
from ..networks.weight_space import WeightSpace, some_names
from ..weights.aligned import FrozenParameters
from ..weights.safetensors_file import CheckpointFile, StateReader
from .directory import METADATA_NAME, CheckpointFolder, RunDirectory, check_lies_in_folder
from .metadata import NamedFile, RunMetadata
from .settings import LandscapeSettings

EXISTING = ("error", "resume", "overwrite")
_LONGEST_NETWORK_NAME = 40
_ENDING = re.compile(r".+_((?P<number>0|[1-9][0-9]{0,17})_(?P<unit>step|epoch)|frozen)\.safetensors", re.DOTALL)
# The suffix that distinguishes a collector's files from those of other records in the directory.
FILE_SUFFIX = "_collector_MS"
_OWN_FILE = re.compile(
    rf"events\.out\.tfevents\.summary\.(\d{{10,}})\..+\.\d+\.([0-9a-f]{{12}})\.\d{{5,}}{FILE_SUFFIX}(_lineage)?"
)


def checkpoint_name(network: str, ending: str) -> str:
    """Returns the name of a checkpoint's file; the ending is ``<number>_<unit>``, or ``frozen``."""
    # File systems take 255 bytes, the suffix of the temporary file included; \w may be up to four bytes.
    stem = re.sub(r"[^\w.-]", "_", network)[:_LONGEST_NETWORK_NAME]
    return f"{stem}_{ending}.safetensors"


def take_over(
    folder: CheckpointFolder, new: RunMetadata, space: WeightSpace, existing: str, start: int
) -> FrozenParameters | None:
    """Prepares a locked folder for a training, adds a resumed run's files to ``new``; returns its frozen parameters."""
    path = folder.path / METADATA_NAME
    if path.exists() and existing == "error":
        raise RunDirectoryError(
            f"{folder.path.parent} already holds a run ({path} exists). Choose another summary_dir, continue that run "
            'with existing="resume" and the step or epoch that training goes on from (like watch\'s start_epoch), or '
            'replace it with existing="overwrite".'
        )
    old = RunMetadata.load(path) if path.exists() else None
    frozen = None
    if existing == "resume" and old is not None:
        frozen = _resume(folder, old, new, space, start)
    else:
        strays = _strays(folder, [new] if old is None else [old, new])
        known = {stray.name for stray in strays} | (set() if old is None else old.file_names)
        _check_names(folder, new, known, broken_off=existing == "overwrite")
        if strays and (existing == "error" or (existing == "resume" and start)):
            raise RunDirectoryError(
                f"{folder.path} holds {len(strays)} checkpoints of {space.network}, such as {strays[0].name}, but no "
                f"{METADATA_NAME} that says of which run. Choose another summary_dir, keep them elsewhere, or replace "
                'them with existing="overwrite".'
            )
        # What stayed here could later pass for a checkpoint of the new run.
        if old is not None:
            remove_run(folder, old)
        folder.remove(stray.name for stray in strays)
        # Those beside imported checkpoints may be of their very training.
        if existing == "overwrite" and not new.imported:
            remove_own_records(folder.path.parent)
    folder.remove_leftovers()
    return frozen


def remove_run(folder: CheckpointFolder, run: RunMetadata) -> None:
    # The metadata goes first: it must never name files that are gone.
    (folder.path / METADATA_NAME).unlink(missing_ok=True)
    folder.remove(run.file_names)


def remove_own_records(directory: AnyPath) -> None:
    """Removes what earlier collectors recorded in a directory; what others recorded there stays."""
    remedy = "Correct its permissions, or choose another summary_dir."
    with reporting(f"the records of the run in {directory} cannot be removed", remedy):
        for file in removable_files(directory):
            match = _OWN_FILE.fullmatch(file.name)
            if match is not None:
                file.unlink(missing_ok=True)
                _remove_exports(directory / f"export_{int(match[1])}_{match[2]}" / "tensor")


def _remove_exports(folder: AnyPath) -> None:
    if isinstance(folder, Path) and (folder.parent.is_symlink() or folder.is_symlink() or not folder.is_dir()):
        return
    for file in removable_files(folder):
        if file.suffix == ".npy":
            file.unlink(missing_ok=True)
    for emptied in (folder, folder.parent) if isinstance(folder, Path) else ():
        if not any(emptied.iterdir()):
            emptied.rmdir()


@dataclass(frozen=True)
class _Stray:
    """A whole file of a run that its metadata does not list; ``number`` is None for the frozen parameters."""

    name: str
    number: int | None
    unit: str | None
    file: CheckpointFile


# The metadata is written at most once a second, so a killed training leaves checkpoints that it does not list. Their
# header tells: it has the network and the number of which the file's name is made.
def _strays(folder: CheckpointFolder, runs: Iterable[RunMetadata]) -> list[_Stray]:
    """Returns whole files of the runs' networks which the runs' metadata do not list."""
    listed = {name for run in runs for name in run.file_names}
    networks = {str(run.network.get("name")) for run in runs}
    found = []
    for path in folder.files():
        match = _ENDING.fullmatch(path.name)
        if match is None or path.name in listed:
            continue
        try:
            file = CheckpointFile(path)
        except CheckpointError as error:
            if isinstance(error.__cause__, OSError):
                # It may well be one of the run's, which would then be lost, or mixed with others later.
                raise RunDirectoryError(f"run directory {folder.path.parent} cannot be used: {error}") from error
            continue
        network, number = file.metadata.get("network", ""), match["number"]
        is_ours = path.name == checkpoint_name(network, match[1]) and file.metadata.get("number") == number
        if is_ours and network in networks:
            found.append(_Stray(path.name, None if number is None else int(number), match["unit"], file))
    return found


def _check_names(
    folder: CheckpointFolder, new: RunMetadata, known: set[str], *, broken_off: bool, start: int = 0
) -> None:
    """Checks that no file but one that is ``broken_off`` has the name of a checkpoint that the run will write."""
    network = str(new.network.get("name"))
    for path in folder.files():
        match = _ENDING.fullmatch(path.name)
        if match is None or path.name in known or path.name != checkpoint_name(network, match[1]):
            continue
        if match["number"] and (
            match["unit"] != new.settings.unit
            or int(match["number"]) < start
            or int(match["number"]) not in new.settings.numbers
        ):
            continue
        try:
            CheckpointFile(path)
            is_broken_off = False
        except CheckpointError:
            with path.open("rb") as file:
                is_broken_off = begins_as_ours(path.name, file.read(ENOUGH_BYTES))
        if not (is_broken_off and broken_off):
            raise RunDirectoryError(
                f"{path} has the name of a checkpoint that this run writes, but is none, and was left as it is. Move "
                "it elsewhere, or choose another summary_dir."
            )


def _differing(settings: LandscapeSettings, other: LandscapeSettings) -> str:
    names = (item.name for item in fields(settings) if getattr(settings, item.name) != getattr(other, item.name))
    return f"LandscapeSettings({', '.join(f'{name}={reprlib.repr(getattr(settings, name))}' for name in names)})"


def _resume(
    folder: CheckpointFolder, old: RunMetadata, new: RunMetadata, space: WeightSpace, start: int
) -> FrozenParameters | None:
    run, settings = folder.path.parent, new.settings
    if old.settings != settings:
        raise RunDirectoryError(
            f"{run} cannot be resumed: it was collected with {_differing(old.settings, settings)}, now it is "
            f"{_differing(settings, old.settings)}. Use equal settings or another summary_dir."
        )
    if old.network != new.network or old.framework != new.framework:
        raise RunDirectoryError(
            f"{run} cannot be resumed: it holds the network {_in_words(old, new)}, now it is {_in_words(new, old)}. "
            "Use the same network, with the same parameters frozen, or another summary_dir."
        )
    found_beside = _strays(folder, [old])
    # A power cut may leave a file of this very run broken off.
    _check_names(folder, new, old.file_names | {stray.name for stray in found_beside}, broken_off=True, start=start)
    strays = [stray for stray in found_beside if _is_of(stray, old)]
    files = {number: name for number, name in old.files.items() if number <= start}
    # Kept until the end: a remote run's copies on this machine live as long as it.
    opened = RunDirectory(run)
    try:
        if opened.metadata.frozen is None:
            found = (NamedFile(stray.name, stray.file.sha256()) for stray in strays if stray.number is None)
            opened.metadata.frozen = next(found, None)
        frozen = opened.frozen_parameters()
        if files:
            # Names and sizes of the metadata may agree where shapes do not; the last checkpoint knows.
            path = folder.path / files[max(files)]
            check_lies_in_folder(path, CheckpointError, f"checkpoint {path}")
            _check_fits(space, CheckpointFile(path), frozen)
    except CheckpointError as error:
        raise RunDirectoryError(
            f"{run} cannot be resumed, because its last checkpoint does not fit the network: {error}"
        ) from error
    new.files = files
    new.sha256 = {number: digest for number, digest in old.sha256.items() if number in files}
    new.factors = {number: named for number, named in old.factors.items() if number in files}
    fitting = []
    for stray in strays:
        with contextlib.suppress(CheckpointError):
            if stray.number is not None:
                _check_fits(space, stray.file, frozen)
            fitting.append(stray)
    for stray in fitting:
        if stray.number is not None and stray.number <= start:
            new.files[stray.number] = stray.name
            new.sha256[stray.number] = stray.file.sha256()
    if new.files:
        new.frozen = opened.metadata.frozen
    if new.step_per_epoch is None:
        new.step_per_epoch = old.step_per_epoch
    completed = FrozenParameters(frozen) if frozen is not None and new.files else None
    if not start and any(old.files):
        warnings.warn(
            f'existing="resume", but training begins at {settings.unit} 0: the later checkpoints in {run} are removed. '
            "Where training goes on is said by watch's start_epoch and start_step, or by the trainer.",
            stacklevel=2,
        )
    folder.write_metadata(new.to_json())
    folder.remove((old.file_names | {stray.name for stray in fitting}) - new.file_names)
    return completed


def _in_words(run: RunMetadata, other: RunMetadata) -> str:
    """Returns what a run's network is, and what is trainable in it but not in the other's."""
    known, ours, theirs = run.network, run.network.get("trainable"), other.network.get("trainable")
    only = [name for name in ours if name not in theirs] if isinstance(ours, list) and isinstance(theirs, list) else []
    framework = "" if run.framework == other.framework else f" of {run.framework}"
    trained = f" (trained there alone: {some_names(only)})" if only else ""
    return f"{known.get('name')!r}{framework} with {known.get('parameters')} parameters{trained}"


def _is_of(stray: _Stray, run: RunMetadata) -> bool:
    """Returns whether a run itself writes such a file, and has not listed it under another name."""
    if stray.number is None:
        return run.frozen is None
    is_wanted = stray.unit == run.settings.unit and stray.number in run.settings.numbers
    return is_wanted and stray.number not in run.files


def _check_fits(space: WeightSpace, file: StateReader, frozen: StateReader | None) -> None:
    space.check_state(file.label, {**({} if frozen is None else frozen.shapes), **file.shapes})
