"""A run directory, read: its settings and its checkpoints (contract 1)."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import CheckpointError, LandscapeError, RunDirectoryError, reporting
from ..files.places import AnyPath, LocalCopies, check_directory, lost_slashes_hint
from ..files.remote_path import RemotePath
from ..networks.weight_space import WeightSpace
from ..weights.aligned import CompletedState, align
from ..weights.safetensors_file import CheckpointFile, StateReader
from .metadata import RunMetadata
from .settings import LandscapeSettings

CHECKPOINT_FOLDER = "ckpt_dir"
METADATA_NAME = "train_metadata.json"


class RunDirectory:
    """What a training run left behind. Reading it never changes it.

    Args:
        path: the ``summary_dir`` of the run: a folder, or an fsspec URL such as ``s3://bucket/run``.

    Raises:
        ImportError: it is a URL, and a package that reads its kind is missing.
        RunDirectoryError: the directory is missing, cannot be reached, holds no run, its metadata is damaged, or its
            ``ckpt_dir`` is a link to somewhere else.
    """

    def __init__(self, path: str | os.PathLike[str] | RemotePath) -> None:
        self.path = find_run(path)
        self._copies = LocalCopies() if isinstance(self.path, RemotePath) else None
        self._folder = self.path / CHECKPOINT_FOLDER
        check_lies_in_run(self._folder)
        metadata = self._folder / METADATA_NAME
        check_lies_in_folder(metadata, RunDirectoryError, str(metadata))
        self.metadata = RunMetadata.load(metadata)
        self._frozen: CheckpointFile | None = None

    @property
    def settings(self) -> LandscapeSettings:
        """What was collected, and how it was meant to be drawn."""
        return self.metadata.settings

    def missing(self, interval: tuple[int, ...]) -> list[int]:
        """Returns the numbers of an interval that have no checkpoint on disk."""
        return [number for number in interval if not self._has(number)]

    def present(self, interval: tuple[int, ...]) -> list[int]:
        """Returns the numbers of an interval that have a checkpoint on disk."""
        return [number for number in interval if self._has(number)]

    @property
    def present_numbers(self) -> list[int]:
        """The numbers of all checkpoints on disk, in order."""
        return self.present(tuple(sorted(self.metadata.files)))

    def checkpoint(self, number: int, space: WeightSpace | None = None) -> StateReader:
        """Opens one checkpoint: a safetensors file, or a ``.ckpt`` file that MindSpore wrote.

        Args:
            number: its step or epoch.
            space: the network that it must fit, if that is known; it is then read under that network's names.

        Raises:
            CheckpointError: it is not in the directory, truncated, of a format that cannot be read here, of another
                network (names and shapes are listed), or not the file that training wrote.
            ImportError: it is MindSpore's, which is not installed.
        """
        path = self.checkpoint_path(number)
        near = self._nearby(path)
        file: StateReader
        if path.suffix == ".safetensors":
            file = CheckpointFile(near, str(path), path)
        elif path.suffix == ".ckpt":
            from ..weights.mindspore_file import MindSporeCheckpoint

            if not isinstance(near, Path):
                raise CheckpointError(
                    f"checkpoint {path} is MindSpore's, which is read as a whole, and the temporary folder has no room "
                    "for a copy; free some space there, or set TMPDIR to a larger folder."
                )
            file = MindSporeCheckpoint(near, space, str(path))
        else:
            raise CheckpointError(
                f"checkpoint {path} is a {path.suffix or 'file without a suffix'}, only .safetensors can be read here, "
                "and MindSpore's .ckpt; convert it with `landscape convert --from checkpoints`."
            )
        frozen = self.frozen_parameters()
        whole: StateReader = file if frozen is None else CompletedState(file, frozen)
        if space is not None:
            whole = align(whole, space)
        _check_unchanged(path, file, self.metadata.sha256.get(number))
        return whole

    def frozen_parameters(self) -> StateReader | None:
        """Opens the file of the frozen parameters; None where every checkpoint holds all parameters.

        Raises:
            CheckpointError: it is not in the directory, truncated, or not the file that training wrote.
        """
        named = self.metadata.frozen
        if named is not None and self._frozen is None:
            path = self._folder / named.file
            check_lies_in_folder(path, CheckpointError, f"checkpoint {path}")
            file = CheckpointFile(self._nearby(path), str(path), path)
            _check_unchanged(path, file, named.sha256)
            self._frozen = file
        return self._frozen

    def checkpoint_path(self, number: int) -> AnyPath:
        """Returns the path of a checkpoint, always inside ``ckpt_dir``.

        Raises:
            CheckpointError: the run has no such checkpoint, or its file is gone or links to somewhere else.
        """
        name = self.metadata.files.get(number)
        unit = self.settings.unit
        if name is None:
            raise CheckpointError(
                f"{self.path} has no checkpoint of {unit} {number}; it has {sorted(self.metadata.files)}. Choose one "
                "of these, or train until that number is reached."
            )
        path = self._folder / name
        if not self._has(number):
            raise CheckpointError(
                f"checkpoint {path} of {unit} {number} is missing; restore it or leave the number out."
            )
        check_lies_in_folder(path, CheckpointError, f"checkpoint {path}")
        return path

    def _has(self, number: int) -> bool:
        name = self.metadata.files.get(number)
        try:
            return name is not None and (self._folder / name).is_file()
        except OSError:
            return False

    def _nearby(self, path: AnyPath) -> AnyPath:
        if not isinstance(path, RemotePath) or self._copies is None:
            return path
        with reporting(f"checkpoint {path} cannot be read", kind=CheckpointError):
            return self._copies.copy_of(path) or path


def find_run(path: str | os.PathLike[str] | RemotePath, label: str = "summary_dir") -> AnyPath:
    """Returns where a run directory is, on this machine or behind a URL; it must exist."""
    found = check_directory(label, path)
    with reporting(f"{label} {found} cannot be read", "Check the address and your right to read there."):
        if found.is_dir():
            return found
        kind = "is not a directory" if found.exists() else "does not exist"
    raise RunDirectoryError(
        f"{label} {found} {kind}; give the directory that a SummaryCollector wrote.{lost_slashes_hint(path)}"
    )


def check_lies_in_run(folder: AnyPath) -> None:
    """Checks that the folder of the checkpoints is no link to a folder elsewhere; it need not exist."""
    if isinstance(folder, Path) and _links_out(folder):
        raise RunDirectoryError(
            f"{folder} links out of the run directory, where nothing is read or written. Remove the link; if the "
            "checkpoints must lie on another disk, make the whole run directory there and link to it."
        )


def check_lies_in_folder(path: AnyPath, error: type[LandscapeError], label: str) -> None:
    """Checks that a file is no link to a file in another folder."""
    # What is remote has no links; its names are checked when they are joined.
    if isinstance(path, Path) and _links_out(path):
        raise error(f"{label} links out of the run directory; copy the file itself there.")


def _links_out(path: Path) -> bool:
    # realpath, because resolve() fails for links in a circle.
    return Path(os.path.realpath(path)).parent != Path(os.path.realpath(path.parent))


def _check_unchanged(path: AnyPath, file: StateReader, sha256: str | None) -> None:
    if sha256 is not None and file.sha256() != sha256:
        raise CheckpointError(
            f"checkpoint {path} is not the file that training wrote (its SHA-256 differs from the metadata's); "
            "restore it from a copy, or import the changed checkpoints with `landscape convert --from checkpoints`."
        )
