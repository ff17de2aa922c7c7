"""Writes a run directory while a network trains, at the steps or epochs asked for, or from named arrays.

Checkpoints are written in the background, and the metadata after them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointWriteError, reason_of, reporting
from ..files.background import WritingThread
from ..files.locks import LockHeldError, WriteLock
from ..files.places import AnyPath
from ..networks.readers import describe_network, repeated_reader, sharded_reader
from ..networks.weight_space import WeightSpace, describe_arrays, some_names
from ..process_rank import is_first_rank, on_first_rank
from ..validation import check_int, wrong_type
from ..weights.aligned import FrozenParameters, as_array, frozen_state
from ..weights.safetensors_file import STORABLE_DTYPES, MemoryState
from .directory import CheckpointFolder
from .existing_run import checkpoint_name, remove_run, take_over
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
        self._folder = CheckpointFolder(summary_dir)
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

    @property
    def step_per_epoch(self) -> int | None:
        """That of this training or, after a resume, of its first part; None where it is not known."""
        return self._metadata.step_per_epoch

    def set_step_per_epoch(self, steps: int) -> None:
        if self._metadata.step_per_epoch is None:
            self._metadata.step_per_epoch = steps
            # Before the next checkpoint: a training that is killed then goes on at the step that its epoch stands for.
            self._jobs.submit(self._write_metadata)

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
                f"training ended at {settings.unit} {reached} without saving [{some_names(missing)}] of "
                "collect_landscape's intervals; landscapes are drawn from the checkpoints that exist, at least three "
                "for each interval.",
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
        if self._metadata.sha256.pop(number, None) is not None:
            # The digest of the file that is replaced: a kill before the new one is listed must not leave it.
            self._write_metadata()
        name = checkpoint_name(self._space.network, f"{number}_{self._metadata.settings.unit}")
        information = {"network": self._space.network, "number": str(number)}
        digest = self._folder.write_checkpoint(name, self._frozen.moved_or_trained(state), information)
        self._metadata.files[number] = name
        self._metadata.sha256[number] = digest


class TrajectoryRecorder:
    """Counts steps and epochs, and saves a checkpoint whenever the count is in an interval; begins as ``cb_params``."""

    def __init__(
        self, summary_dir: AnyPath, settings: LandscapeSettings, existing: str, parameters: Mapping[str, Any]
    ) -> None:
        self._settings, self._numbers = settings, settings.numbers
        network = parameters["network"]
        # A data set without a length has none until its first epoch has ended.
        step_per_epoch: int | None = parameters.get("batch_num")
        self._epoch, self._step = int(parameters.get("cur_epoch_num", 0)), int(parameters.get("cur_step_num", 0))
        self._steps_in_epoch = 0
        # Whether the weights are others than those with which the last epoch ended.
        self._moves_later = False
        self._is_inside_epoch = self._is_after_steps(step_per_epoch)
        # After a resume in the middle of an epoch, the first epoch's end would teach a wrong number of steps.
        self._epoch_is_whole = self._step == 0
        self._writer: RunWriter | None = None
        self._read: Callable[[], dict[str, NDArray[Any]]]
        # Where parameters are divided among processes, all make the same calls: weights are gathered to rank 0, and
        # what fails there is raised on every rank, so that none waits for ever.
        self._shards = sharded_reader(network, keeps=is_first_rank())
        self._on_first_rank: Callable[[Callable[[], Any]], Any] = (
            on_first_rank if self.is_sharded else lambda action: action()
        )
        if self._shards is not None:
            self._read, space = self._shards, self._shards.describe()
        elif is_first_rank():
            self._read, space = repeated_reader(network), describe_network(network)
        else:
            return

        def open_directory() -> int | None:
            self._writer = RunWriter(
                summary_dir, settings, space, existing=existing, start=self._number, step_per_epoch=step_per_epoch
            )
            return self._writer.step_per_epoch

        self._is_inside_epoch = self._is_after_steps(self._on_first_rank(open_directory))
        try:
            if settings.unit == "step" or not self._is_inside_epoch:
                self._save_if_asked(settings.unit)
        except BaseException as error:
            self.finish(error)
            raise

    @property
    def is_sharded(self) -> bool:
        """Whether the parameters are divided among processes, which then wait for each other."""
        return self._shards is not None

    def _is_after_steps(self, step_per_epoch: int | None) -> bool:
        """Returns whether steps were made since the last epoch ended; False where nobody knows."""
        # Of the first epoch that is known without its length.
        return self._step != self._epoch * step_per_epoch if step_per_epoch else self._step > self._epoch == 0

    @property
    def _number(self) -> int:
        return self._step if self._settings.unit == "step" else self._epoch

    def step(self, *, moves_later: bool = False) -> None:
        """Notes that one optimizer step is done; ``moves_later``: gradients wait, and may still move the network."""
        self._moves_later = moves_later
        self._step += 1
        self._steps_in_epoch += 1
        self._is_inside_epoch = True
        self._save_if_asked("step")

    def end_epoch(self) -> None:
        self._epoch += 1
        if self._writer is not None and self._epoch_is_whole and self._steps_in_epoch:
            self._writer.set_step_per_epoch(self._steps_in_epoch)
        self._steps_in_epoch, self._epoch_is_whole, self._is_inside_epoch = 0, True, False
        self._save_if_asked("epoch")

    def finish(self, error: BaseException | None = None, *, ended: bool = False) -> None:
        """Waits until everything is on disk; a failed write becomes a note on ``error``, which ended the training."""
        writer, self._writer = self._writer, None

        def close() -> None:
            if writer is not None:
                # A number stands for the weights at the end of its epoch or step.
                is_exact = not (self._moves_later if self._settings.unit == "step" else self._is_inside_epoch)
                known = ended and error is None and is_exact
                writer.finish(self._number, error, trained_to=self._number if known else None)

        if self.is_sharded and error is None:
            on_first_rank(close)
        else:
            # An error may be one process's own, so that the others would not answer.
            close()

    def _save_if_asked(self, unit: str) -> None:
        is_due = unit == self._settings.unit and self._number in self._numbers
        # Where parameters are divided, every rank knows without a message whether a number is due, so nobody waits.
        if not is_due if self.is_sharded else self._writer is None:
            return
        self._on_first_rank(self._prepare)
        if is_due:
            self._on_first_rank(functools.partial(self._save, self._read()))

    def _prepare(self) -> None:
        if self._writer is not None:
            self._writer.check()
        if self._shards is not None:
            self._shards.make_room()

    def _save(self, state: dict[str, NDArray[Any]]) -> None:
        if self._writer is not None:
            self._writer.save(self._number, state)


class Snapshots:
    """Saves named arrays whose number is in an interval; the run directory is made with the first ones."""

    def __init__(self, directory: AnyPath, settings: LandscapeSettings, existing: str, network: str) -> None:
        self._directory, self._settings, self._existing, self._network = directory, settings, existing, network
        self._space: WeightSpace | None = None
        self._writer: RunWriter | None = None
        self._last: int | None = None

    def add(self, number: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        check_int("number", number, minimum=0)
        if not isinstance(arrays, Mapping) or not arrays:
            raise wrong_type("arrays", "a mapping from name to array with at least one entry", arrays)
        if self._last is not None and number <= self._last:
            raise ValueError(
                f"number must grow from snapshot to snapshot, but {number} follows {self._last}; count "
                f"{self._settings.unit}s from the beginning of the training."
            )
        state = {str(name): _copied(f"arrays[{name!r}]", array) for name, array in arrays.items()}
        space = describe_arrays(state, self._network)
        if self._space is not None and space != self._space:
            lines = "\n  ".join(self._space.differences(space)[:20])
            raise ValueError(f"arrays must keep their names, shapes and element types, but now differ:\n  {lines}")
        self._space, self._last = space, number
        if not is_first_rank():
            return
        if self._writer is None:
            start = max(0, number - 1)
            self._writer = RunWriter(self._directory, self._settings, space, existing=self._existing, start=start)
        self._writer.check()
        if number in self._settings.numbers:
            self._writer.save(number, state)

    def finish(self, error: BaseException | None = None) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # Nobody says whether the model went on training behind the last snapshot, so no number is the last.
            writer.finish(self._last or 0, error)


def _copied(label: str, value: object) -> NDArray[Any]:
    """Returns a copy of an array, of a tensor of PyTorch, or of numbers, which a checkpoint can hold."""
    try:
        array = (
            as_array(label, value)
            if isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))
            else np.array(value)
        )
    except ValueError:  # lists of several lengths
        array = np.array(None)
    if array.dtype.name not in STORABLE_DTYPES:
        kind = array.dtype if isinstance(value, np.ndarray) else type(value).__name__
        kinds = sorted(STORABLE_DTYPES)
        raise TypeError(
            f"{label} must be an array of numbers, but is {kind}, which checkpoints cannot hold; give {kinds}."
        )
    return array
