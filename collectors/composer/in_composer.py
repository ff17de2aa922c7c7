"""InComposer, callbacks of this library inside a Composer trainer, of which its SummaryCollector is one."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import composer
import torch

from ..callbacks.callback import Callback, CallbackParameters, RunContext, begin_evaluation, training_parameters
from ..callbacks.callback_manager import HostedCallbacks, restore_callbacks, states_of
from ..networks.torch_network import unwrap
from ..recording.summary_collector import SummaryCollector as _SummaryCollector
from ..recording.trainer_collector import HasCollector, takes_arguments_of

if TYPE_CHECKING:
    from composer import Logger, State

EVENT_HOOKS: Mapping[str, tuple[str, ...]] = {
    "fit_start": ("on_train_begin",),
    "epoch_start": ("on_train_epoch_begin",),
    "batch_start": ("on_train_step_begin",),
    "batch_end": ("on_train_step_end",),
    # Not epoch_end, which comes before the epoch's evaluation.
    "epoch_checkpoint": ("on_train_epoch_end",),
    "fit_end": ("on_train_end",),
    "eval_start": ("on_eval_begin", "on_eval_epoch_begin"),
    "eval_batch_start": ("on_eval_step_begin",),
    "eval_batch_end": ("on_eval_step_end",),
    "eval_end": ("on_eval_epoch_end", "on_eval_end"),
}
"""Which of our hooks run at which of Composer's events; all other events mean nothing to our callbacks."""


def _in_a_run(handle: Callable[[InComposer, State, Logger], None]) -> Callable[[InComposer, State, Logger], None]:
    """Makes a method for an event end the run where it raises, and do nothing outside of any run, by hand."""

    @functools.wraps(handle)
    def handle_in_a_run(self: InComposer, state: State, logger: Logger) -> None:
        if self._context is not None:
            with self._noticing_errors():
                handle(self, state, logger)
        elif not self._has_begun and int(state.timestamp.batch):
            raise RuntimeError(
                f"{type(self).__name__} got an event of a training whose fit_start it did not see. Where run_event is "
                "overridden, hand on all events: super().run_event(event, state, logger)."
            )

    return handle_in_a_run


class InComposer(HostedCallbacks, composer.Callback):  # type: ignore[misc]
    """Lets callbacks of this library run inside a Composer trainer.

    Example::

        history = History()
        trainer = composer.Trainer(model=model, ..., callbacks=[InComposer(history, TimeMonitor())])

    The hooks run at the events of ``EVENT_HOOKS``, with a run context that all these callbacks share. A step is a
    batch, however many microbatches it is made of. ``cb_params`` has the keys that it has in ``Model``: ``network`` is
    the ComposerModel, ``net_outputs`` the batch's loss over its microbatches and all ranks, or, in an evaluation, where
    Composer computes no loss, ``state.outputs``; ``epoch_num`` is None where the duration is neither in epochs nor in
    batches. An epoch that ends early (the duration is over, or a stop was asked for) ends with ``on_train_epoch_end``
    as in ``Model``. A stop that a callback asks for becomes ``state.stop_training()``, at the first batch or later.

    Each ``Trainer.fit``, and each evaluation outside of one, is a run of its own: callbacks are entered when it begins
    and left when it ends. So is the evaluation that Composer makes at the end of a ``fit`` that stops within an epoch,
    after ``on_train_end``. Evaluations are for those callbacks that take part in evaluations inside ``Model.fit``,
    which LossMonitor and History do not. When a callback raises, ``on_exception`` of all runs at once, and they are
    left. Composer does not tell its callbacks when anything else raises: their ``on_exception`` runs when the trainer
    is closed, at the latest when Python exits. So close it, in ``finally`` or with ``contextlib.closing(trainer)``.
    They get the error if it is still propagating, otherwise a RuntimeError in its place.

    Events that are run by hand outside of a training, ``trainer.engine.run_event(Event.EPOCH_START)``, belong to no
    run, so no hook runs.

    States of the callbacks go into Composer's checkpoints, and come back after ``on_train_begin``, as in ``Model``.
    Composer keeps one state for each class, so give all callbacks to one ``InComposer``.

    Args:
        callbacks: the callbacks, in their order.

    Raises:
        TypeError: one of them is not a callback of this library.
        ValueError: there is none; in ``Trainer.fit``, the trainer has another ``InComposer``.
    """

    ends_partial_epochs = True
    """Whether ``on_train_epoch_end`` runs for an epoch that ends early."""

    def __init__(self, *callbacks: Callback) -> None:
        advice = "composer.Callback, which the trainer takes as it is: Trainer(callbacks=[callback, InComposer(...)])."
        super().__init__(callbacks, composer.Callback, advice)
        self._in_epoch = False
        self._stop_passed_on = self._has_begun = False
        self._saved: list[Any] | None = None

    def fit_start(self, state: State, logger: Logger) -> None:
        others = [item for item in state.callbacks if type(item) is type(self) and item is not self]
        if others and type(self) is InComposer:
            raise ValueError(
                f"callbacks has {len(others) + 1} InComposer, but Composer keeps one state for each class; give all "
                "callbacks to one: InComposer(first, second)."
            )
        self._give_up()
        with self._noticing_errors():
            self._begin_run(_training_parameters(state))
            self._call("fit_start", state)
            if not int(state.timestamp.batch_in_epoch):
                self._restore()

    @_in_a_run
    def epoch_start(self, state: State, logger: Logger) -> None:
        self._params.cur_epoch_num = int(state.timestamp.epoch) + 1
        self._in_epoch = True
        self._call("epoch_start", state)

    @_in_a_run
    def batch_start(self, state: State, logger: Logger) -> None:
        if not self._in_epoch:
            # Going on in the middle of an epoch, Composer does not begin it again.
            self.epoch_start(state, logger)
        self._restore()
        self._params.update(train_dataset_element=state.batch, cur_step_num=int(state.timestamp.batch) + 1)
        self._call("batch_start", state)

    @_in_a_run
    def batch_end(self, state: State, logger: Logger) -> None:
        # The loss over all microbatches and all ranks: the trainer's total is an all-reduced number under this name;
        # state.loss is the last microbatch's, scaled.
        self._params.net_outputs = state.total_loss_dict.get("loss/train/total", state.loss)
        self._call("batch_end", state)

    @_in_a_run
    def epoch_checkpoint(self, state: State, logger: Logger) -> None:
        """Ends an epoch, after its evaluation."""
        self._end_epoch(state)

    @_in_a_run
    def fit_end(self, state: State, logger: Logger) -> None:
        if self._in_epoch and self.ends_partial_epochs:
            self._end_epoch(state)
        params = self._params
        if params.epoch_num is None:
            params.epoch_num = params.cur_epoch_num
        self._call("fit_end", state)
        self._end_run()

    def eval_start(self, state: State, logger: Logger) -> None:
        with self._noticing_errors():
            if self._context is None:
                self._begin_run(CallbackParameters(mode="eval", network=unwrap(state.model)))
            self._audience = self._manager.for_fit_evaluation()
            self._training = begin_evaluation(self._params, state.model, state.dataloader, _batches_of(state))
            self._call("eval_start", state)

    @_in_a_run
    def eval_batch_start(self, state: State, logger: Logger) -> None:
        self._params.update(eval_dataset_element=state.batch, cur_step_num=int(state.eval_timestamp.batch) + 1)
        self._call("eval_batch_start", state)

    @_in_a_run
    def eval_batch_end(self, state: State, logger: Logger) -> None:
        self._params.net_outputs = state.outputs
        self._call("eval_batch_end", state)

    @_in_a_run
    def eval_end(self, state: State, logger: Logger) -> None:
        params, training = self._params, self._training or {}
        before_metrics, after_metrics = EVENT_HOOKS["eval_end"]
        self._call_hook(before_metrics)
        params.metrics = _evaluation_results(state)
        in_training = training.get("mode") == "train"
        if in_training:
            several = len(state.evaluators) > 1
            named = {f"{state.dataloader_label}/{key}": value for key, value in params.metrics.items()}
            params.eval_results = {**params.get("eval_results", {}), **(named if several else params.metrics)}
        self._call_hook(after_metrics)
        self._audience, self._training = self._manager, None
        if in_training:
            params.update(training)
            self._pass_stop_on(state)
        else:
            self._end_run()

    def close(self, state: State, logger: Logger) -> None:
        """Tells the callbacks of a run that did not end that it failed, and leaves them."""
        self._give_up()

    def state_dict(self) -> dict[str, Any]:
        return {"callbacks": states_of(self._manager.callbacks)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keeps the states until the next run has begun."""
        self._saved = state["callbacks"]

    def _begin_run(self, params: CallbackParameters) -> None:
        self._manager.__enter__()
        self._context, self._has_begun = RunContext(params), True
        params.list_callback = self._manager.callbacks
        self._in_epoch = self._stop_passed_on = False

    def _end_epoch(self, state: State) -> None:
        self._in_epoch = False
        self._call("epoch_checkpoint", state)
        self._params.pop("metrics", None)
        self._params.pop("eval_results", None)

    def _restore(self) -> None:
        saved, self._saved = self._saved, None
        if saved is not None:
            restore_callbacks(self._manager.callbacks, saved)

    def _call(self, event: str, state: State) -> None:
        for hook in EVENT_HOOKS[event]:
            self._call_hook(hook)
        # As in Model, a stop that is asked for at once takes effect after one step.
        if event != "fit_start":
            self._pass_stop_on(state)

    def _call_hook(self, hook: str) -> None:
        getattr(self._audience, hook)(self._context)

    def _pass_stop_on(self, state: State) -> None:
        context = self._context
        if context is None or context.original_args().get("mode") != "train" or self._stop_passed_on:
            return
        # Composer sets the duration to the time so far; of no batches at all, its schedulers cannot take shares.
        if int(state.timestamp.batch) > 0 and context.get_stop_requested():
            self._stop_passed_on = True
            state.stop_training()

    @contextmanager
    def _noticing_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if self._context is not None:
                self._end_run(error)
            raise

    def _give_up(self) -> None:
        """Ends a run that failed without Composer saying how."""
        if self._context is None:
            return
        on_its_way = sys.exception()
        error = on_its_way or RuntimeError(
            "the training did not reach its end: it failed or was abandoned, and Composer does not tell its callbacks."
        )
        self._end_run(error)
        if on_its_way is None and getattr(error, "__notes__", None):
            # Otherwise what the callbacks raised would be lost; Composer logs it.
            raise error


class SummaryCollector(HasCollector, InComposer):
    """Records a Composer training for TensorBoard, and saves checkpoints from which landscapes are drawn later.

    A ``composer.Callback`` for ``composer.Trainer(callbacks=[...])`` that collects what
    ``collectors.SummaryCollector`` collects, with the same arguments. What is saved is the ComposerModel that the
    trainer was given, without what the trainer wraps around it, so ``callback_fn`` returns a ComposerModel built alike
    (see ``workers.composer_loss``). A step is a batch, however many microbatches it is made of. The numbers are
    those of Composer's ``state.timestamp``: an epoch that ends early because the duration is over does not count.

    A training that resumes from a checkpoint of Composer (``load_path``, or a second ``Trainer.fit``) continues the
    numbering; pass ``existing="resume"`` to continue the directory of the first part, which a second ``Trainer.fit``
    does by itself. Close the trainer when training fails: Composer does not tell its callbacks of errors. Until then
    the directory lacks at most the checkpoints that are being written.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value; when training begins, the weights are sharded (FSDP).
        ImportError: summaries are asked for explicitly, and TensorBoard is not installed.
    """

    ends_partial_epochs = False

    @takes_arguments_of(_SummaryCollector.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._collector = _SummaryCollector(*arguments, **options)
        super().__init__(self._collector)
        self._has_run, self._existing = False, self._collector._existing

    def fit_start(self, state: State, logger: Logger) -> None:
        if state.fsdp_enabled:
            raise ValueError(
                "parallelism_config must not shard the weights (FSDP), because no process has all of them then; train "
                "with DDP, or without the SummaryCollector."
            )
        goes_on = self._has_run and int(state.timestamp.batch)
        self._collector._existing = "resume" if goes_on else self._existing
        super().fit_start(state, logger)
        self._has_run = True


def _training_parameters(state: State) -> CallbackParameters:
    network = unwrap(state.model)
    batch_num = _batches_of(state)
    return training_parameters(
        int(state.timestamp.batch),
        state.scaler,
        network=network,
        train_network=state.model,
        loss_fn=getattr(network, "loss", None),
        optimizer=state.optimizers[0] if state.optimizers else None,
        train_dataset=state.dataloader,
        epoch_num=_epochs(state, batch_num),
        cur_epoch_num=int(state.timestamp.epoch),
        batch_num=batch_num,
    )


def _evaluation_results(state: State) -> dict[str, Any]:
    metrics = state.eval_metrics.get(state.dataloader_label, {})
    values = {name: state.eval_metric_values[name] for name in metrics if name in state.eval_metric_values}
    return {
        name: float(value) if isinstance(value, torch.Tensor) and value.numel() == 1 else value
        for name, value in values.items()
    }


def _batches_of(state: State) -> int | None:
    return None if state.dataloader_len is None else int(state.dataloader_len)


def _epochs(state: State, batch_num: int | None) -> int | None:
    duration = state.max_duration
    if duration is None:
        return None
    if duration.unit.value == "ep":
        return int(duration)
    return math.ceil(int(duration) / batch_num) if duration.unit.value == "ba" and batch_num else None
