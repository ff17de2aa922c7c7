"""Saves checkpoints at the steps or epochs asked for: of a network that trains, or of named arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files.places import AnyPath
from ..networks.readers import describe_network, repeated_reader, sharded_reader
from ..networks.weight_space import WeightSpace, describe_arrays
from ..process_rank import is_first_rank, on_first_rank
from ..validation import check_int, wrong_type
from .settings import LandscapeSettings
from .writer import RunWriter


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
        self._is_inside_epoch = bool(step_per_epoch) and self._step != self._epoch * (step_per_epoch or 0)
        # After a resume in the middle of an epoch, the first epoch's end would teach a wrong number of steps.
        self._epoch_is_whole = self._step == 0
        self._writer: RunWriter | None = None
        self._read: Callable[[], dict[str, NDArray[Any]]]
        # Where parameters are divided among processes, all make the same calls: weights are gathered to rank 0, and
        # what fails there is raised on every rank, so that none waits for ever.
        self._shards = sharded_reader(network, keeps=is_first_rank())
        self._on_first_rank: Callable[[Callable[[], None]], object] = (
            on_first_rank if self.is_sharded else lambda action: action()
        )
        if self._shards is not None:
            self._read, space = self._shards, self._shards.describe()
        elif is_first_rank():
            self._read, space = repeated_reader(network), describe_network(network)
        else:
            return

        def open_directory() -> None:
            self._writer = RunWriter(
                summary_dir, settings, space, existing=existing, start=self._number, step_per_epoch=step_per_epoch
            )

        self._on_first_rank(open_directory)
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
        state = {str(name): np.array(array) for name, array in arrays.items()}
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
