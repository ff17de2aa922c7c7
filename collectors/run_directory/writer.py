"""Writes a run directory while the network trains: checkpoints in the background, and the metadata after them."""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any

from numpy.typing import NDArray

from ..errors import CheckpointWriteError, reason_of, reporting
from ..files.background import WritingThread
from ..files.locks import LockHeldError, WriteLock
from ..files.places import AnyPath
from ..networks.weight_space import WeightSpace, some_names
from ..weights.aligned import FrozenParameters, frozen_state
from ..weights.safetensors_file import STORABLE_DTYPES, MemoryState
from .existing_run import checkpoint_name, remove_run, take_over
from .folder import checkpoint_folder
from .metadata import NamedFile, RunMetadata
from .settings import LandscapeSettings

METADATA_INTERVAL_SECONDS = 1.0
# One is being written, two wait.
_MOST_STATES = 3


class RunWriter:
    """The writing side of a run directory (contract 1); training goes on from number ``start``, 0 in a new run."""

    def __init__(
        self,
        summary_dir: AnyPath,
        settings: LandscapeSettings,
        space: WeightSpace,
        *,
        existing: str = "error",
        start: int = 0,
        step_per_epoch: int | None = None,
        imported: bool = False,
    ) -> None:
        for tensor in space.tensors:
            if tensor.dtype not in STORABLE_DTYPES:
                raise TypeError(
                    f"network's {tensor.name!r} is {tensor.dtype}, which checkpoints cannot hold; convert the network "
                    f"to one of {sorted(STORABLE_DTYPES)}."
                )
        self._folder = checkpoint_folder(summary_dir)
        self._space = space
        self._metadata = RunMetadata(
            settings=settings,
            step_per_epoch=step_per_epoch,
            framework=space.framework,
            network={
                "name": space.network,
                "parameters": sum(tensor.size for tensor in space.parameters),
                "trainable": [tensor.name for tensor in space.trainable],
            },
            imported=imported,
        )
        self._has_changed = False
        self._lock: WriteLock = WriteLock()
        remedy = f"Choose a directory that can be written, or {self._folder.remedy}."
        with reporting(f"run directory {summary_dir} cannot be written", remedy):
            try:
                self._folder.prepare()
                self._lock = self._folder.lock()
                self._frozen = take_over(self._folder, self._metadata, space, existing, start)
                self._write_metadata()
            except BaseException:
                self._lock.release()
                raise
        self._jobs = WritingThread(
            "checkpoint-writer",
            _MOST_STATES,
            save=self._write_metadata,
            interval=max(METADATA_INTERVAL_SECONDS, self._folder.least_interval),
            last=self._write_metadata,
            explain=self._explain,
        )

    def save(self, number: int, state: dict[str, NDArray[Any]]) -> None:
        """Takes over a state, all parameters and buffers by name; it is on disk at the latest after ``close``."""
        self._warn_of_change(number, state)
        self._jobs.submit(functools.partial(self._write_checkpoint, number, state))

    def set_step_per_epoch(self, steps: int) -> None:
        if self._metadata.step_per_epoch is None:
            self._metadata.step_per_epoch = steps
            self._jobs.touch()

    def check(self) -> None:
        self._jobs.check()
        try:
            self._lock.check()
        except LockHeldError as error:
            raise self._explain(error) from error

    def close(self) -> None:
        try:
            self._jobs.close()
        finally:
            self._lock.release()

    def finish(self, reached: int, error: BaseException | None, *, trained_to: int | None = None) -> None:
        """Closes at the end of a training and warns of missing checkpoints; a failure becomes a note on ``error``."""
        try:
            # None where training ended with the weights of no number, or where that is not known.
            if trained_to is not None and self._jobs.is_open:
                self._metadata.trained_to = trained_to
                # An error of the writing thread is raised by close, which waits for the thread as well.
                with contextlib.suppress(CheckpointWriteError):
                    self._jobs.touch()
            self.close()
        except Exception as failure:
            if error is None:
                raise
            if error is not failure:
                error.add_note(f"The landscape collector failed as well: {failure}")
            return
        settings = self._metadata.settings
        missing = sorted(settings.numbers.difference(self._metadata.files))
        if missing and error is None:
            warnings.warn(
                f"training ended at {settings.unit} {reached} without saving {missing} of collect_landscape's "
                "intervals; landscapes are drawn from the checkpoints that exist, at least three for each interval.",
                stacklevel=4,
            )

    def discard(self) -> None:
        """Closes, and removes what was written, whether that succeeded or not; other files stay."""
        try:
            with contextlib.suppress(CheckpointWriteError):
                self._jobs.close()
            # Where another one has taken the directory over, the files are no longer ours.
            with contextlib.suppress(LockHeldError):
                self._lock.check()
                remove_run(self._folder, self._metadata)
        finally:
            self._lock.release()

    def _warn_of_change(self, number: int, state: dict[str, NDArray[Any]]) -> None:
        before = {tensor.name: tensor.shape for tensor in self._space.tensors}
        now = {name: array.shape for name, array in state.items()}
        if self._has_changed or now == before:
            return
        self._has_changed = True
        changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        unit = self._metadata.settings.unit
        warnings.warn(
            f"network has other tensors at {unit} {number} than when collecting began ({some_names(changed)}): no "
            "landscape can be drawn through checkpoints of before and after. Collect each part of the training in a "
            "summary_dir of its own.",
            stacklevel=9,
        )

    def _write_metadata(self) -> None:
        # Another training's metadata must not be replaced by ours.
        self._lock.check()
        self._folder.write_metadata(self._metadata.to_json())

    def _explain(self, error: BaseException) -> CheckpointWriteError:
        if isinstance(error, LockHeldError):
            return CheckpointWriteError(
                f"run directory {self._folder.path.parent} has been taken over by {error}. This training stops, "
                "because two in one directory would mix their checkpoints; let one of them write elsewhere."
            )
        return CheckpointWriteError(
            f"a checkpoint could not be written to {self._folder.path}: {reason_of(error)}. Training stops, because "
            f'the trajectory would have a hole; {self._folder.remedy}, then resume with existing="resume".'
        )

    def _write_checkpoint(self, number: int, state: dict[str, NDArray[Any]]) -> None:
        if self._frozen is None:
            parameters = frozen_state(self._space, state)
            if parameters:
                name = checkpoint_name(self._space.network, "frozen")
                digest = self._folder.write_checkpoint(name, parameters, {"network": self._space.network})
                self._metadata.frozen = NamedFile(name, digest)
            self._frozen = FrozenParameters(MemoryState(parameters))
        name = checkpoint_name(self._space.network, f"{number}_{self._metadata.settings.unit}")
        information = {"network": self._space.network, "number": str(number)}
        digest = self._folder.write_checkpoint(name, self._frozen.moved_or_trained(state), information)
        self._metadata.files[number] = name
        self._metadata.sha256[number] = digest
