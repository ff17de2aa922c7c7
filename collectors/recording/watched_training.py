"""CollectedRun: one training under watch of a SummaryCollector, its checkpoints and its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .process_rank import is_first_rank
from .run_files import AnyPath, RemotePath
from .settings import LandscapeSettings
from .summary_plan import SummaryPlan, remove_own_records
from .trajectory_recorder import TrajectoryRecorder

if TYPE_CHECKING:
    from .summary_collection import SummaryCollection

Parameters = Mapping[str, Any]


class CollectedRun:
    """Saves checkpoints and records summaries of one training; in a distributed one, only rank 0 does.

    Args:
        directory: the run directory, on this machine or behind a URL.
        existing: what to do with a run that is already there: "error", "resume" or "overwrite".
        landscape: which checkpoints to save, or None.
        plan: what to record, or None.
        parameters: the training's ``cb_params``.

    Raises:
        RunDirectoryError: the directory already holds a run that may not be touched.
        OSError: the directory cannot be written.
    """

    def __init__(
        self,
        directory: AnyPath,
        existing: str,
        landscape: LandscapeSettings | None,
        plan: SummaryPlan | None,
        parameters: Parameters,
    ) -> None:
        self._recorder: TrajectoryRecorder | None = None
        self._collection: SummaryCollection | None = None
        self._ended: Parameters | None = None
        start_step = int(parameters.get("cur_step_num", 0))
        try:
            if landscape is not None:
                self._recorder = TrajectoryRecorder(
                    directory,
                    landscape,
                    existing,
                    parameters["network"],
                    # A data set without a length has none until its first epoch has ended.
                    step_per_epoch=parameters.get("batch_num"),
                    start_epoch=int(parameters.get("cur_epoch_num", 0)),
                    start_step=start_step,
                )
            if plan is not None and is_first_rank():
                if existing == "overwrite":
                    remove_own_records(directory)
                self._collection = open_collection(directory, plan, start_step)
                self._collection.begin_training(parameters)
        except BaseException as error:
            self.finish(error)
            raise

    def begin_step(self, parameters: Parameters) -> None:
        """Looks at the learning rate of a step that will be recorded."""
        if self._collection is not None:
            self._collection.begin_step(parameters)

    def end_step(self, parameters: Parameters) -> None:
        """Saves and records the step where its number asks for it."""
        if self._recorder is not None:
            self._recorder.step()
        if self._collection is not None:
            self._collection.end_step(parameters)

    def end_epoch(self, parameters: Parameters) -> None:
        """Saves the epoch where its number asks for it."""
        if self._recorder is not None:
            self._recorder.end_epoch()
        if self._collection is not None:
            self._collection.end_epoch(parameters)

    def begin_evaluation(self) -> None:
        """Leaves out what networks capture while they are evaluated."""
        if self._collection is not None:
            self._collection.begin_evaluation()

    def end_evaluation(self, parameters: Parameters) -> None:
        """Records how an evaluation inside the training ended."""
        if self._collection is not None:
            self._collection.end_evaluation(parameters)

    def capture(self, plugin: str, name: str, value: Any) -> None:
        """Takes a value from inside a forward pass, where its step is recorded."""
        if self._collection is not None:
            self._collection.capture(plugin, name, value)

    def end_training(self, parameters: Parameters) -> None:
        """Waits until every checkpoint is on disk; the lineage is recorded by ``finish``.

        By then all other callbacks have ended as well, so that it finds the last file of a ModelCheckpoint.
        """
        self._ended = parameters
        self._finish_recorder(None)

    def finish(self, error: BaseException | None = None) -> None:
        """Waits until everything is on disk; a second call does nothing.

        Args:
            error: what ended the training, if it did not end well.
        """
        try:
            self._finish_recorder(error)
        finally:
            collection, self._collection = self._collection, None
            if collection is not None:
                try:
                    if error is None and self._ended is not None:
                        collection.end_training(self._ended)
                finally:
                    collection.close(error)

    def _finish_recorder(self, error: BaseException | None) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish(error)


def open_collection(directory: AnyPath, plan: SummaryPlan, start_step: int = 0) -> SummaryCollection:
    """Returns an open record of a training or an evaluation."""
    # What only a training with records needs is imported here.
    if isinstance(directory, RemotePath):
        from .remote_collection import RemoteCollection

        return RemoteCollection(directory, plan, start_step)
    from .summary_collection import SummaryCollection

    return SummaryCollection(directory, plan, start_step)
