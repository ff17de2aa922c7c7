"""Snapshots: checkpoints of a training that is known by its named arrays alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .network_state import Array, WeightSpace, describe_arrays
from .process_rank import is_first_rank
from .run_files import AnyPath
from .run_writer import RunWriter
from .settings import LandscapeSettings
from .validation import check_int, wrong_type


class Snapshots:
    """Saves named arrays whose number is in an interval.

    Args:
        directory: the run directory, on this machine or behind a URL; it is created with the first snapshot.
        settings: what to collect.
        existing: what to do with a run that is already there: "error", "resume" or "overwrite".
        network: a name for what the arrays belong to.
    """

    def __init__(self, directory: AnyPath, settings: LandscapeSettings, existing: str, network: str) -> None:
        self._directory, self._settings, self._existing = directory, settings, existing
        self._network = network
        self._space: WeightSpace | None = None
        self._writer: RunWriter | None = None
        self._last: int | None = None

    def add(self, number: int, arrays: Mapping[str, Array]) -> None:
        """Saves a copy of the arrays where the number is asked for.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: numbers do not increase, or the arrays are others than before.
            RunDirectoryError: the directory already holds a run that may not be touched.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
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
        """Waits until everything is on disk; a second call does nothing.

        Args:
            error: what ended the training, if it did not end well.

        Raises:
            CheckpointWriteError: a checkpoint could not be written.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.finish(self._last or 0, error)
