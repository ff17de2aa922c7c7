"""One training watched by a SummaryCollector: its checkpoints and records, and the context for hand-written loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..files.places import AnyPath
from ..networks.readers import is_sharded
from ..process_rank import is_first_rank, on_first_rank, parallel_parameters
from ..run_directory.recorders import TrajectoryRecorder
from ..run_directory.settings import LandscapeSettings
from .plan import Parameters, SummaryPlan, remove_own_records

if TYPE_CHECKING:
    from .records import SummaryCollection


class CollectedRun:
    """Saves checkpoints and records summaries on rank 0; where parameters are divided, all ranks must call alike."""

    def __init__(
        self,
        directory: AnyPath,
        existing: str,
        landscape: LandscapeSettings | None,
        plan: SummaryPlan | None,
        parameters: Parameters,
    ) -> None:
        self._recorder: TrajectoryRecorder | None = None
        self.collection: SummaryCollection | None = None
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
            if plan is not None and self._recorder is not None and self._recorder.is_sharded:
                on_first_rank(lambda: self._begin_collection(directory, existing, plan, parameters))
            elif plan is not None and is_first_rank():
                self._begin_collection(directory, existing, plan, parameters)
        except BaseException as error:
            self.finish(error)
            raise

    def _begin_collection(self, directory: AnyPath, existing: str, plan: SummaryPlan, parameters: Parameters) -> None:
        if existing == "overwrite":
            remove_own_records(directory)
        if is_sharded(parameters.get("network")):
            plan = plan.without_parameters()
        # Imported here, because only a training with records needs it.
        from .records import SummaryCollection

        self.collection = SummaryCollection(directory, plan, int(parameters.get("cur_step_num", 0)))
        self.collection.begin_training(parameters)

    def begin_step(self, parameters: Parameters) -> None:
        if self.collection is not None:
            self.collection.begin_step(parameters)

    def end_step(self, parameters: Parameters, *, moves_later: bool = False) -> None:
        """Saves and records a step that is due; ``moves_later``: gradients wait, and may still move the network."""
        if self._recorder is not None:
            self._recorder.step(moves_later=moves_later)
        if self.collection is not None:
            self.collection.end_step(parameters)

    def end_epoch(self, parameters: Parameters) -> None:
        """Saves the epoch where its number asks for it."""
        if self._recorder is not None:
            self._recorder.end_epoch()
        if self.collection is not None:
            self.collection.end_epoch(parameters)

    def end_training(self, parameters: Parameters) -> None:
        """Waits until every checkpoint is on disk; the lineage is recorded by ``finish``."""
        # In ``finish`` all other callbacks have ended, too, so that the lineage names a ModelCheckpoint's last file.
        self._ended = parameters
        self._finish_recorder(None, ended=True)

    def finish(self, error: BaseException | None = None) -> None:
        """Waits until everything is on disk; ``error`` ended the training. A second call does nothing."""
        try:
            self._finish_recorder(error)
        finally:
            collection, self.collection = self.collection, None
            if collection is not None:
                try:
                    if error is None and self._ended is not None:
                        collection.end_training(self._ended)
                finally:
                    collection.close(error)

    def _finish_recorder(self, error: BaseException | None, *, ended: bool = False) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish(error, ended=ended)


class WatchedTraining:
    """A hand-written training loop that is watched; made by ``SummaryCollector.watch``."""

    def __init__(
        self,
        begin: Callable[[Parameters], CollectedRun | None],
        finish: Callable[[BaseException | None], None],
        parameters: dict[str, Any],
    ) -> None:
        self._begin, self._finish, self._start = begin, finish, parameters
        self._parameters: dict[str, Any] = {}  # of the training; empty outside the context
        self._run: CollectedRun | None = None
        self._step_has_begun = False

    def begin_step(self) -> None:
        """Call it before an optimizer step only where ``step`` comes after a scheduler has set the next learning rate.

        Raises:
            RuntimeError: the context was not entered, or is left.
        """
        self._check_entered()
        if self._run is not None:
            self._run.begin_step({**self._parameters, "cur_step_num": self._parameters["cur_step_num"] + 1})
            self._step_has_begun = True

    def step(self, loss: object = None) -> None:
        """Call it after every optimizer step, and before a scheduler sets the learning rate of the next.

        Args:
            loss: the step's loss, which is recorded where the step is; None records none.

        Raises:
            RuntimeError: the context was not entered, or is left.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        self._check_entered()
        self._parameters["cur_step_num"] += 1
        # Without its history, which would keep the whole forward pass alive.
        self._parameters["net_outputs"] = loss.detach() if hasattr(loss, "detach") else loss
        if self._run is not None:
            if not self._step_has_begun:
                self._run.begin_step(self._parameters)
            self._step_has_begun = False
            self._run.end_step(self._parameters)

    def end_epoch(self) -> None:
        """Call it after every epoch.

        Raises:
            RuntimeError: the context was not entered, or is left.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        self._check_entered()
        self._parameters["cur_epoch_num"] += 1
        if self._run is not None:
            self._run.end_epoch(self._parameters)

    def __enter__(self) -> WatchedTraining:
        parameters = {**self._start, **parallel_parameters()}
        self._run = self._begin(parameters)
        self._parameters = parameters
        return self

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        run, self._run = self._run, None
        parameters, self._parameters = self._parameters, {}
        try:
            if run is not None and error is None:
                epochs = parameters["epoch_num"] or parameters["cur_epoch_num"] or None
                run.end_training({**parameters, "epoch_num": epochs})
        finally:
            self._finish(error)

    def _check_entered(self) -> None:
        if not self._parameters:
            raise RuntimeError(
                "a watched training must be inside its context, or nothing is saved; write "
                "`with collector.watch(network) as run:` around the loop."
            )
