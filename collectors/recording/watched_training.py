"""How a SummaryCollector follows a training: by a trainer's hooks, which a context calls for hand-written loops."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from ..callbacks.callback import BuiltInCallback, CallbackParameters, RunContext, in_evaluation, parameters_of
from ..files.places import AnyPath
from ..networks.readers import is_sharded
from ..process_rank import is_first_rank, on_first_rank, parallel_parameters
from ..run_directory.existing_run import remove_own_records
from ..run_directory.settings import LandscapeSettings
from ..run_directory.writer import Snapshots, TrajectoryRecorder
from .plan import Parameters, SummaryPlan

if TYPE_CHECKING:
    from .records import SummaryCollection


class CollectingCallback(BuiltInCallback):
    """Saves checkpoints and records summaries on rank 0; where parameters are divided, all ranks must call alike."""

    # Evaluations inside fit have a lineage, too.
    called_in_fit_evaluation = True

    _summary_dir: AnyPath
    _landscape: LandscapeSettings | None
    _plan: SummaryPlan | None
    _existing: str
    _at_end: Callable[[str], object] | None

    def __init__(self) -> None:
        super().__init__()
        self._is_open = False
        self._entered: list[bool] = []  # of each context that is open, whether a training was open before
        self._recorder: TrajectoryRecorder | None = None
        self._records: SummaryCollection | None = None
        self._snapshots: Snapshots | None = None
        self._ended: Parameters | None = None

    def __enter__(self) -> Self:
        self._entered.append(self._is_open or self._snapshots is not None)
        return self

    def begin(self, run_context: RunContext) -> None:
        """Opens the run directory and saves the state before the first step if that is asked for."""
        parameters = parameters_of(run_context)
        callbacks = parameters.get("list_callback")
        if isinstance(callbacks, list | tuple) and sum(isinstance(item, CollectingCallback) for item in callbacks) > 1:
            raise ValueError("callbacks must hold at most one SummaryCollector; remove the others.")
        if not in_evaluation(run_context):
            self._begin(parameters)
        elif self._records is not None:
            self._records.begin_evaluation()

    def step_begin(self, run_context: RunContext) -> None:
        if self._follows(run_context) and self._records is not None:
            self._records.begin_step(parameters_of(run_context))

    def step_end(self, run_context: RunContext) -> None:
        if self._follows(run_context):
            if self._recorder is not None:
                # Where an epoch stops short, Model uses the gradients that wait only after this hook.
                self._recorder.step(moves_later=bool(getattr(run_context, "has_unused_gradients", False)))
            if self._records is not None:
                self._records.end_step(parameters_of(run_context))

    def epoch_end(self, run_context: RunContext) -> None:
        """Saves a checkpoint where the epoch's number asks for it; an epoch that was stopped early is none."""
        follows, parameters = self._follows(run_context), parameters_of(run_context)
        # As far as its trainer says, the epoch went through all its batches.
        done, known = getattr(run_context, "epoch_steps", None), parameters.get("batch_num")
        is_whole = getattr(run_context, "exhausted", True) or (known is not None and done == known)
        if follows and is_whole:
            if self._recorder is not None:
                self._recorder.end_epoch()
            if self._records is not None:
                self._records.end_epoch(parameters)

    def end(self, run_context: RunContext) -> None:
        """Waits until every checkpoint is on disk; the lineage follows when the callback is left."""
        if in_evaluation(run_context):
            self.record_evaluation(parameters_of(run_context))
        elif self._is_open:
            self._end_training(parameters_of(run_context))
            if not self._entered:
                self._finish(None)

    def on_exception(self, run_context: RunContext, error: BaseException) -> None:
        """Leaves a directory behind that can be analysed as far as training came."""
        if in_evaluation(run_context) and self._entered and self._entered[-1]:
            # The training around an evaluation that failed may go on.
            if self._records is not None:
                self._records.abandon_evaluation()
        else:
            self._finish(error)

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        # An evaluation inside a training, which enters its callbacks too, does not end that.
        if not self._entered.pop():
            self._finish(error)

    def _begin(self, parameters: Parameters) -> None:
        if self._is_open:
            raise RuntimeError("this SummaryCollector already watches a training; make another one for another run.")
        self._ended, plan = None, self._plan
        try:
            if self._landscape is not None:
                self._recorder = TrajectoryRecorder(self._summary_dir, self._landscape, self._existing, parameters)
            if plan is not None and self._recorder is not None and self._recorder.is_sharded:
                on_first_rank(lambda: self._begin_records(plan, parameters))
            elif plan is not None and is_first_rank():
                self._begin_records(plan, parameters)
        except BaseException as error:
            self._close(error)
            raise
        self._is_open = self._landscape is not None or plan is not None

    def _end_training(self, parameters: Parameters) -> None:
        """Waits until every checkpoint is on disk; the lineage is recorded by ``_finish``."""
        # In ``_finish`` all other callbacks have ended, too, so that the lineage names a ModelCheckpoint's last file.
        self._ended = parameters
        self._finish_recorder(None, ended=True)

    def _finish(self, error: BaseException | None) -> None:
        """Waits until everything is on disk; ``error`` ended the training. A second call does nothing."""
        was_open, self._is_open = self._is_open, False
        snapshots, self._snapshots = self._snapshots, None
        if snapshots is not None:
            snapshots.finish(error)
        if was_open:
            self._close(error)
        if self._at_end is not None and error is None and (was_open or snapshots) and is_first_rank():
            try:
                self._at_end(str(self._summary_dir))
            except Exception as failed:
                warnings.warn(
                    f"the training ended well, and everything that it recorded is in {self._summary_dir}, but at_end "
                    f"failed: {type(failed).__name__}: {failed}",
                    stacklevel=2,
                )

    def _follows(self, run_context: RunContext) -> bool:
        """Returns whether a hook belongs to the training: False in an evaluation, and where nothing is collected."""
        if in_evaluation(run_context):
            return False
        if not self._is_open and (self._landscape is not None or self._plan is not None):
            raise RuntimeError(
                "SummaryCollector got a hook of a training that did not begin; call its begin(run_context) before the "
                "first step, or use `with collector.watch(network) as run:`."
            )
        return self._is_open

    def _begin_records(self, plan: SummaryPlan, parameters: Parameters) -> None:
        # Imported here, because only a training with records needs it.
        from .records import SummaryCollection

        if self._existing == "overwrite" and self._landscape is None:
            remove_own_records(self._summary_dir)
        if is_sharded(parameters.get("network")):
            plan = plan.without_parameters()
        self._records = SummaryCollection(self._summary_dir, plan, parameters)

    def record_evaluation(self, parameters: Parameters) -> None:
        """Records how an evaluation ended, where that is collected; without a training, in files of its own."""
        if self._records is not None:
            self._records.end_evaluation(parameters)
        elif self._plan is not None and "collect_eval_lineage" in self._plan.items and is_first_rank():
            from .records import SummaryCollection

            collection = SummaryCollection(self._summary_dir, self._plan, {})
            try:
                collection.end_evaluation(parameters)
            finally:
                collection.close()

    def _close(self, error: BaseException | None) -> None:
        try:
            self._finish_recorder(error)
        finally:
            records, self._records = self._records, None
            if records is not None:
                try:
                    if error is None and self._ended is not None:
                        records.end_training(self._ended)
                finally:
                    records.close(error)

    def _finish_recorder(self, error: BaseException | None, *, ended: bool = False) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish(error, ended=ended)


class WatchedTraining:
    """A hand-written training loop that is watched; made by ``SummaryCollector.watch``."""

    def __init__(self, collector: CollectingCallback, parameters: dict[str, Any]) -> None:
        self._collector, self._start = collector, parameters
        self._context = RunContext({})  # that of the training; empty outside of it
        self._step_has_begun = False

    def begin_step(self) -> None:
        """Call it before an optimizer step only where ``step`` comes after a scheduler has set the next learning rate.

        Raises:
            RuntimeError: the context was not entered, or is left.
        """
        parameters = self._present_parameters()
        next_step = {**parameters, "cur_step_num": parameters["cur_step_num"] + 1}
        self._call(self._collector.step_begin, RunContext(next_step))
        self._step_has_begun = True

    def step(self, loss: object = None) -> None:
        """Call it after every optimizer step, and before a scheduler sets the learning rate of the next.

        Args:
            loss: the step's loss, which is recorded where the step is; None records none.

        Raises:
            RuntimeError: the context was not entered, or is left.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        parameters = self._present_parameters()
        parameters["cur_step_num"] += 1
        # Without its history, which would keep the whole forward pass alive.
        parameters["net_outputs"] = loss.detach() if hasattr(loss, "detach") else loss
        if not self._step_has_begun:
            self._call(self._collector.step_begin, self._context)
        self._step_has_begun = False
        self._call(self._collector.step_end, self._context)

    def end_epoch(self) -> None:
        """Call it after every epoch.

        Raises:
            RuntimeError: the context was not entered, or is left.
            CheckpointWriteError: an earlier checkpoint could not be written.
        """
        self._present_parameters()["cur_epoch_num"] += 1
        self._call(self._collector.epoch_end, self._context)

    def __enter__(self) -> WatchedTraining:
        parameters = CallbackParameters(self._start, **parallel_parameters())
        self._collector._begin(parameters)
        self._context = RunContext(parameters)
        return self

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        parameters, self._context = self._context.original_args(), RunContext({})
        try:
            if parameters and error is None:
                epochs = parameters["epoch_num"] or parameters["cur_epoch_num"] or None
                self._collector._end_training({**parameters, "epoch_num": epochs})
        except BaseException as failure:
            self._collector._finish(failure)
            raise
        self._collector._finish(error)

    def _call(self, hook: Callable[[RunContext], None], context: RunContext) -> None:
        # A loop may go on after its collector was closed.
        if self._collector._is_open:
            hook(context)

    def _present_parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = self._context.original_args()
        if not parameters:
            raise RuntimeError(
                "a watched training must be inside its context, or nothing is saved; write "
                "`with collector.watch(network) as run:` around the loop."
            )
        return parameters
