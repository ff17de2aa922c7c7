"""The folder that a training writes its checkpoints into: on this machine, or behind a URL."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import RunDirectoryError, reporting
from ..files.background import retry
from ..files.local_files import TemporaryFolder, remove_stale_temporaries, write_text
from ..files.locks import WITHOUT_LOCKS, LockHeldError, Marker, ProcessLock, WriteLock, holder
from ..files.places import AnyPath
from ..files.remote_path import RemotePath
from ..networks.weight_space import State
from ..weights.safetensors_file import write_checkpoint
from .directory import CHECKPOINT_FOLDER, METADATA_NAME, check_lies_in_run

LOCK_NAME = f".{METADATA_NAME}.lock"
MARKER_NAME = ".landscape-writer"
# A blip of the network must not end a night's training; file systems try again on their own as well, in between.
PAUSES_SECONDS = (1.0, 5.0, 20.0, 60.0, 120.0)
_OUR_FILES = re.compile(r"[\w.-]+_(?:[0-9]+_(?:step|epoch)|frozen)\.safetensors|train_metadata\.json")


class LocalCheckpointFolder:
    """A folder of this machine; ``least_interval``: seconds between two writes of the metadata."""

    least_interval = 0.0
    remedy = "free some space or choose another summary_dir"

    def __init__(self, run: Path) -> None:
        self.path = run / CHECKPOINT_FOLDER

    def prepare(self) -> None:
        check_lies_in_run(self.path)
        remedy = "Choose a directory in which you may write."
        with reporting(f"run directory {self.path.parent} cannot be made", remedy):
            self.path.mkdir(parents=True, exist_ok=True)

    def lock(self) -> WriteLock:
        """Takes the right to write into the folder; the system frees it when this process dies."""
        file = self.path / LOCK_NAME
        try:
            return ProcessLock(file)
        except LockHeldError as error:
            remedy = (
                "An earlier training of this program has not ended: leave its collector's `with` block, or restart the "
                "program or notebook"
                if holder(file) == os.getpid()
                else "Wait for it or end it"
            )
            raise _is_held(self.path.parent, error, remedy) from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise RunDirectoryError(
                    f"run directory {self.path.parent} cannot be locked for writing ({file}: {error.strerror}). Choose "
                    "a directory in which you may write."
                ) from error
            warnings.warn(
                f"the file system of {self.path.parent} has no locks, so nothing keeps a second training from writing "
                "there; start only one at a time.",
                RuntimeWarning,
                stacklevel=2,
            )
            return WriteLock()

    def files(self) -> Sequence[AnyPath]:
        """Returns the folder's files by name, without links."""
        return [path for path in sorted(self.path.iterdir()) if path.is_file() and not path.is_symlink()]

    def write_checkpoint(self, name: str, state: State, information: Mapping[str, str]) -> str:
        return write_checkpoint(self.path / name, state, information)

    def write_metadata(self, text: str) -> None:
        write_text(self.path / METADATA_NAME, text)

    def remove(self, names: Iterable[str]) -> None:
        """Removes checkpoints by their names; links rather than what they point to, and nothing else."""
        for name in filter(_is_checkpoint, names):
            path = self.path / name
            if path.is_file() or path.is_symlink():
                path.unlink()

    def remove_leftovers(self) -> None:
        remove_stale_temporaries(self.path, _OUR_FILES)


class RemoteCheckpointFolder:
    """A ``LocalCheckpointFolder`` behind a URL: a checkpoint is written on this machine, uploaded, and removed here."""

    # Google's store takes one write per second of the same name.
    least_interval = 5.0

    def __init__(self, run: RemotePath) -> None:
        self._run = run
        self.path = run / CHECKPOINT_FOLDER
        self.remedy = f"see that {run} can be reached and written, and that the temporary folder (TMPDIR) has room"
        # A failed upload is tried again after growing pauses; once all attempts have failed, later ones get only one.
        self._pauses: tuple[float, ...] = PAUSES_SECONDS

    def prepare(self) -> None:
        self._run.check_writable("summary_dir")
        self.path.make_folder()

    def lock(self) -> WriteLock:
        """Takes the right to write into the folder, by a marker; a dead process's one is taken over within a minute."""
        marker = self.path / MARKER_NAME
        try:
            return Marker(marker)
        except LockHeldError as error:
            raise _is_held(self._run, error, "Wait for it or end it") from error
        except OSError as error:
            raise RunDirectoryError(
                f"run directory {self._run} cannot be marked as being written ({marker}: {error.strerror}). Check your "
                "right to read and to write there."
            ) from error

    def files(self) -> Sequence[AnyPath]:
        return self.path.files()

    def write_checkpoint(self, name: str, state: State, information: Mapping[str, str]) -> str:
        """Writes a state into the temporary folder and uploads it from there; returns the file's SHA-256."""
        local = TemporaryFolder("landscape-upload-")
        try:
            file = local.path / name
            digest = write_checkpoint(file, state, information)
            self._persist(lambda: (self.path / name).upload(file))
        finally:
            local.remove()
        return digest

    def write_metadata(self, text: str) -> None:
        self._persist(lambda: (self.path / METADATA_NAME).write_bytes(text.encode("utf-8")))

    def remove(self, names: Iterable[str]) -> None:
        """Removes those files that a listing shows; nothing outside of the folder can be among them."""
        wanted = set(filter(_is_checkpoint, names))
        for file in self.path.files():
            if file.name in wanted:
                file.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Removes what file systems with folders keep of a stopped upload; object stores keep nothing."""
        self.path.remove_unfinished()

    def _persist(self, upload: Callable[[], None]) -> None:
        try:
            retry(upload, self._pauses)
        except OSError:
            self._pauses = ()
            raise


CheckpointFolder = LocalCheckpointFolder | RemoteCheckpointFolder


def checkpoint_folder(run: AnyPath) -> CheckpointFolder:
    """Returns the folder of a run directory's checkpoints; each file in it is whole or absent."""
    return RemoteCheckpointFolder(run) if isinstance(run, RemotePath) else LocalCheckpointFolder(run)


def _is_held(run: AnyPath, error: LockHeldError, remedy: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"run directory {run} is being written by {error}. {remedy}, or choose another summary_dir: two trainings in "
        "one directory would mix their checkpoints."
    )


def _is_checkpoint(name: str) -> bool:
    # A damaged or foreign file map may name anything.
    return name.endswith((".safetensors", ".ckpt"))
