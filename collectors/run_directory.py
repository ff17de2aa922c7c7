"""A run directory, read: its settings and its checkpoints (contract 1)."""

from __future__ import annotations

import os
from pathlib import Path

from .checkpoint_file import CheckpointFile, StateReader
from .errors import CheckpointError, RunDirectoryError
from .network_state import WeightSpace
from .run_metadata import RunMetadata
from .settings import LandscapeSettings
from .validation import check_path

CHECKPOINT_FOLDER = "ckpt_dir"
METADATA_NAME = "train_metadata.json"


class RunDirectory:
    """What a training run left behind. Reading it never changes it.

    Args:
        path: the ``summary_dir`` of the run.

    Raises:
        RunDirectoryError: the directory is missing, holds no run, or its metadata is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_path("summary_dir", path)
        if not self.path.is_dir():
            kind = "is not a directory" if self.path.exists() else "does not exist"
            raise RunDirectoryError(
                f"summary_dir {self.path} {kind}; give the directory that a SummaryCollector wrote."
            )
        metadata = self.path / CHECKPOINT_FOLDER / METADATA_NAME
        if metadata.is_file() and not _lies_in(metadata.parent, metadata):
            raise RunDirectoryError(f"{metadata} links out of the run directory; copy the file itself there.")
        self.metadata = RunMetadata.load(metadata)

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

    def checkpoint(self, number: int, space: WeightSpace | None = None) -> StateReader:
        """Opens one checkpoint: a safetensors file, or a ``.ckpt`` file that MindSpore wrote.

        Args:
            number: its step or epoch.
            space: the network that it must fit, where that is known.

        Raises:
            CheckpointError: it is not in the directory, truncated, of a format that cannot be read here, of another
                network (names and shapes are listed), or not the file that training wrote.
            ImportError: it is MindSpore's, which is not installed.
        """
        path = self.checkpoint_path(number)
        file: StateReader
        if path.suffix == ".safetensors":
            file = CheckpointFile(path)
        elif path.suffix == ".ckpt":
            from .mindspore_checkpoint import MindSporeCheckpoint

            file = MindSporeCheckpoint(path, space)
        else:
            raise CheckpointError(
                f"checkpoint {path} is a {path.suffix or 'file without a suffix'}, only .safetensors can be read here, "
                "and MindSpore's .ckpt; convert it with `landscape import-checkpoints`."
            )
        if space is not None:
            space.check_state(file.label, file.shapes)
        expected = self.metadata.sha256.get(number)
        if expected is not None and file.sha256() != expected:
            raise CheckpointError(
                f"checkpoint {path} is not the file that training wrote (its SHA-256 differs from the metadata's); "
                "restore it from a copy, or import the changed checkpoints with `landscape import-checkpoints`."
            )
        return file

    def checkpoint_path(self, number: int) -> Path:
        """Returns where a checkpoint lies, always inside ``ckpt_dir``.

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
        folder = self.path / CHECKPOINT_FOLDER
        path = folder / name
        if not self._has(number):
            raise CheckpointError(
                f"checkpoint {path} of {unit} {number} is missing; restore it or leave the number out."
            )
        if not _lies_in(folder, path):
            raise CheckpointError(f"checkpoint {path} links out of the run directory; copy the file itself there.")
        return path

    def _has(self, number: int) -> bool:
        name = self.metadata.files.get(number)
        try:
            return name is not None and (self.path / CHECKPOINT_FOLDER / name).is_file()
        except OSError:
            return False


def _lies_in(folder: Path, path: Path) -> bool:
    return path.resolve().parent == folder.resolve()
