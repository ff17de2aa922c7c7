"""A run directory (contract 1), read: its settings and its checkpoints; and the folder that a training writes into."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import CheckpointError, LandscapeError, RunDirectoryError, reporting
from ..files.background import retry
from ..files.local_files import TemporaryFolder, remove_stale_temporaries
from ..files.locks import WITHOUT_LOCKS, LockHeldError, Marker, ProcessLock, WriteLock, holder
from ..files.places import AnyPath, LocalCopies, check_directory, lost_slashes_hint, removable_files, write_to
from ..files.remote_path import RemotePath
from ..networks.weight_space import State, WeightSpace, some_names
from ..weights.aligned import CompletedState, align
from ..weights.safetensors_file import CheckpointFile, StateReader, write_checkpoint
from .metadata import RunMetadata
from .settings import LandscapeSettings

CHECKPOINT_FOLDER = "ckpt_dir"
METADATA_NAME = "train_metadata.json"
LOCK_NAME = f".{METADATA_NAME}.lock"
MARKER_NAME = ".landscape-writer"
# A blip of the network must not end a night's training; file systems try again on their own as well, in between.
PAUSES_SECONDS = (1.0, 5.0, 20.0, 60.0, 120.0)
# Google's store takes one write per second of the same name.
REMOTE_INTERVAL_SECONDS = 5.0
_OUR_FILES = re.compile(r"[\w.-]+_(?:[0-9]+_(?:step|epoch)|frozen)\.safetensors|train_metadata\.json")


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
        self.digests: dict[int, str] = {}
        """SHA-256 of checkpoint files, by number, that other processes have computed."""

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
        file: CheckpointFile
        if path.suffix == ".safetensors":
            file = CheckpointFile(near, str(path), path, self.digests.get(number))
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
        file.copies = self._copies
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
            file.copies = self._copies
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
            there = some_names(sorted(self.metadata.files))
            raise CheckpointError(
                f"{self.path} has no checkpoint of {unit} {number}; it has [{there}]. Choose one of these, or train "
                "until that number is reached."
            )
        path = self._folder / name
        if not self._has(number):
            raise CheckpointError(
                f"checkpoint {path} of {unit} {number} is missing; restore it or leave the number out."
            )
        check_lies_in_folder(path, CheckpointError, f"checkpoint {path}")
        return path

    def safetensors_files(self, numbers: Iterable[int]) -> dict[int, Path]:
        """Returns the files of checkpoints, by number; none if not all are safetensors files on this machine."""
        found = {number: self.checkpoint_path(number) for number in numbers}
        files = {number: path for number, path in found.items() if isinstance(path, Path)}
        usual = len(files) == len(found) and {path.suffix for path in files.values()} <= {".safetensors"}
        return files if usual else {}

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


class CheckpointFolder:
    """A run directory's folder of whole checkpoints; ``least_interval``: seconds between its metadata."""

    def __init__(self, run: AnyPath) -> None:
        self.path = run / CHECKPOINT_FOLDER
        self.least_interval, self.remedy = 0.0, "free some space or choose another summary_dir"
        # A failed upload is tried again after growing pauses; once all attempts have failed, later ones get only one.
        self._pauses: tuple[float, ...] = ()
        if isinstance(run, RemotePath):
            self.least_interval, self._pauses = REMOTE_INTERVAL_SECONDS, PAUSES_SECONDS
            self.remedy = f"see that {run} can be reached and written, and that the temporary folder (TMPDIR) has room"

    def prepare(self) -> None:
        if isinstance(self.path, RemotePath):
            self.path.parent.check_writable("summary_dir")
            self.path.make_folder()
            return
        check_lies_in_run(self.path)
        remedy = "Choose a directory in which you may write."
        with reporting(f"run directory {self.path.parent} cannot be made", remedy):
            self.path.mkdir(parents=True, exist_ok=True)

    def lock(self) -> WriteLock:
        """Takes the right to write into the folder; a dead process's is free, behind a URL within a minute."""
        run, file = self.path.parent, self.path / (MARKER_NAME if isinstance(self.path, RemotePath) else LOCK_NAME)
        try:
            return Marker(file) if isinstance(file, RemotePath) else ProcessLock(file)
        except LockHeldError as error:
            remedy = (
                "An earlier training of this program has not ended: leave its collector's `with` block, or restart the "
                "program or notebook"
                if isinstance(file, Path) and holder(file) == os.getpid()
                else "Wait for it or end it"
            )
            raise RunDirectoryError(
                f"run directory {run} is being written by {error}. {remedy}, or choose another summary_dir: two "
                "trainings in one directory would mix their checkpoints."
            ) from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                what, remedy = "locked for writing", "Choose a directory in which you may write"
                if isinstance(file, RemotePath):
                    what, remedy = "marked as being written", "Check your right to read and to write there"
                raise RunDirectoryError(
                    f"run directory {run} cannot be {what} ({file}: {error.strerror}). {remedy}."
                ) from error
            warnings.warn(
                f"the file system of {run} has no locks, so nothing keeps a second training from writing there; start "
                "only one at a time.",
                RuntimeWarning,
                stacklevel=2,
            )
            return WriteLock()

    def files(self) -> Sequence[AnyPath]:
        """Returns the folder's files by name, without links."""
        if isinstance(self.path, RemotePath):
            return self.path.files()
        return [path for path in sorted(self.path.iterdir()) if path.is_file() and not path.is_symlink()]

    def write_checkpoint(self, name: str, state: State, information: Mapping[str, str]) -> str:
        """Writes a state into a file, behind a URL by way of one on this machine; returns its SHA-256."""
        target = self.path / name
        if isinstance(target, Path):
            return write_checkpoint(target, state, information)
        local = TemporaryFolder("landscape-upload-")
        try:
            file = local.path / name
            digest = write_checkpoint(file, state, information)
            self._persist(lambda: target.upload(file))
        finally:
            local.remove()
        return digest

    def write_metadata(self, text: str) -> None:
        self._persist(lambda: write_to(self.path / METADATA_NAME, text.encode("utf-8")))

    def remove(self, names: Iterable[str]) -> None:
        """Removes checkpoints by their names; links rather than what they point to, and nothing else."""
        # A damaged or foreign file map may name anything.
        wanted = {name for name in names if name.endswith((".safetensors", ".ckpt"))}
        for file in removable_files(self.path):
            if file.name in wanted:
                file.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Removes what killed writers left; object stores keep nothing of a stopped upload."""
        if isinstance(self.path, RemotePath):
            self.path.remove_unfinished()
        else:
            remove_stale_temporaries(self.path, _OUR_FILES)

    def _persist(self, write: Callable[[], None]) -> None:
        try:
            retry(write, self._pauses)
        except OSError:
            self._pauses = ()
            raise


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
