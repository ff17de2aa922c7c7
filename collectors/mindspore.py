"""MindSpore: its SummaryCollector, and our callbacks inside ``mindspore.train.Model``."""

from __future__ import annotations

from typing import Any, Self

from .callbacks.callback import (
    EVAL_HOOKS,
    TRAIN_HOOKS,
    Callback,
    CallbackParameters,
    RunContext,
    add_hooks,
    begin_evaluation,
)
from .callbacks.callback_manager import HostedCallbacks
from .recording.summary_collector import SummaryCollector as _SummaryCollector
from .recording.trainer_collector import TrainerCollector

try:
    import mindspore
except ImportError as error:
    raise ImportError(
        "collectors.mindspore needs MindSpore; install it with pip install 'summary-landscape[mindspore]'."
    ) from error


class SummaryCollector(TrainerCollector, mindspore.train.Callback):  # type: ignore[misc]
    """Records a training for TensorBoard, and saves checkpoints from which landscapes are drawn later.

    Example::

        collector = SummaryCollector("run", collect_landscape={"intervals": [range(1, 6)], "unit": "epoch"})
        model.train(5, dataset, callbacks=[collector], dataset_sink_mode=False)

    It takes the arguments of ``collectors.SummaryCollector``. Steps and epochs are counted from the beginning of the
    training, also where it starts at an ``initial_epoch``. MindSpore's own SummaryCollector accepts no other callback
    of that name; beside it, use ``InMindSpore(collectors.SummaryCollector(...))``.
    In sink mode under graph mode MindSpore shows callbacks no single steps: one step of the summaries is one sink.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
        ImportError: summaries are asked for explicitly, and TensorBoard is not installed.
    """

    _depth = 0

    def __enter__(self) -> Self:
        # In fit, MindSpore enters and leaves the callbacks again around each evaluation.
        self._depth += 1
        return self

    def __exit__(self, error_type: object, error: BaseException | None, traceback: object) -> None:
        self._depth -= 1
        if not self._depth:
            super().__exit__(error_type, error, traceback)

    def begin(self, run_context: Any) -> None:
        """Raises ValueError if there is another SummaryCollector, or single steps are asked for and cannot be seen."""
        parameters = run_context.original_args()
        if parameters.get("mode") == "eval":
            self._collector.begin(run_context)
            return
        if sum(isinstance(item, SummaryCollector) for item in parameters.get("list_callback") or ()) > 1:
            raise ValueError("callbacks must hold at most one SummaryCollector; remove the others.")
        _check_steps(self._collector.counts_steps, parameters)

    def epoch_begin(self, run_context: Any) -> None:
        """Opens the run directory in the first epoch; only then it is known where the training starts."""
        parameters = run_context.original_args()
        if self._run is not None or parameters.get("mode") == "eval":
            return
        epochs_done, steps_done = _done_before(parameters)
        # MindSpore has no hook for exceptions, but it leaves every callback's context.
        self._open(
            parameters.network,
            steps_per_epoch=_batches_of_epoch(parameters),
            start_epoch=epochs_done,
            start_step=steps_done,
            epochs=epochs_done + parameters.epoch_num,
        )

    def step_end(self, run_context: Any) -> None:
        parameters = run_context.original_args()
        if self._run is not None and parameters.get("mode") != "eval":
            self._run.step(parameters.net_outputs)

    def epoch_end(self, run_context: Any) -> None:
        """Saves a checkpoint if one is due; an epoch that was cut short does not count."""
        parameters = run_context.original_args()
        # fit tells callbacks of this name nothing of its evaluations but their results, before the epoch's end.
        if self._run is not None and parameters.get("eval_results"):
            self._collector.record_evaluation(parameters)
        if self._run is not None and parameters.get("mode") != "eval" and _epoch_is_whole(parameters):
            self._run.end_epoch()

    def end(self, run_context: Any) -> None:
        """Waits until a training's checkpoints are on the disk, or records how an evaluation ended."""
        if run_context.original_args().get("mode") == "eval":
            self._collector.end(run_context)
        else:
            self._leave(None)


class InMindSpore(HostedCallbacks, mindspore.train.Callback):  # type: ignore[misc]
    """Lets callbacks of this library run inside MindSpore's ``Model``.

    Example::

        history = History()
        model.fit(5, dataset, valid_dataset, callbacks=[InMindSpore(history, LossMonitor())])

    All hooks run as in our ``Model``, with a run context that these callbacks share, in a training and its evaluations.
    ``cb_params`` has the keys that MindSpore's has, with three differences that make it what it is in ``Model``:
    ``epoch_num`` is the total, ``cur_step_num`` goes on after an ``initial_epoch``, and a key that is missing is an
    AttributeError. Tensors are MindSpore's. A stop that a callback asks for, in an evaluation too, stops the training.
    ``begin`` runs with the first epoch, because only then MindSpore tells where a training starts. When anything
    raises, ``on_exception`` runs, and the callbacks are left.

    MindSpore's own collector may be in the list as well: ``[mindspore.SummaryCollector(...), InMindSpore(
    collectors.SummaryCollector(...))]``. ``ModelCheckpoint`` saves the weights, without the state of the training;
    ``LearningRateScheduler`` needs an optimizer of PyTorch.

    Args:
        callbacks: the callbacks, in their order.

    Raises:
        TypeError: one of them is not a callback of this library.
        ValueError: there is none; when training begins, single steps are to be collected and cannot be seen.
    """

    def __init__(self, *callbacks: Callback) -> None:
        super().__init__(
            callbacks,
            mindspore.train.Callback,
            "mindspore.train.Callback, which Model takes as it is: Model.train(..., callbacks=[callback, "
            "InMindSpore(...)]). Of the collectors, give collectors.SummaryCollector.",
        )
        self._depth = self._steps_before = self._epochs_before = 0

    def __enter__(self) -> Self:
        if not self._depth:
            self._manager.__enter__()
        self._depth += 1
        return self

    def __exit__(self, error_type: Any, error: BaseException | None, traceback: Any) -> None:
        self._depth -= 1
        if not self._depth:
            self._end_run(error)

    def on_train_begin(self, run_context: Any) -> None:
        """Checks that what is asked for can be seen; our callbacks begin with the first epoch."""
        self._context, self._audience = None, self._manager
        counts_steps = any(
            isinstance(callback, _SummaryCollector) and callback.counts_steps for callback in self._manager.callbacks
        )
        _check_steps(counts_steps, run_context.original_args())

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Begins an epoch, and before the first one the run."""
        if self._context is None:
            given = run_context.original_args()
            self._epochs_before, steps_done = _done_before(given)
            self._steps_before = steps_done - given.cur_step_num
            self._context = RunContext(CallbackParameters())
            self._update(run_context)
            self._params.update(cur_epoch_num=self._epochs_before, initial_step=steps_done)
            self._manager.on_train_begin(self._context)
        self._call("on_train_epoch_begin", run_context)

    def on_eval_begin(self, run_context: Any) -> None:
        if self._context is None:
            self._context = RunContext(CallbackParameters())
        elif "train_network" in self._params:
            self._audience = self._manager.for_fit_evaluation()
            given = run_context.original_args()
            self._training = begin_evaluation(self._params, given.eval_network, given.valid_dataset, given.batch_num)
        self._call("on_eval_begin", run_context)

    def on_eval_end(self, run_context: Any) -> None:
        """Ends an evaluation; its metrics are there."""
        self._call("on_eval_end", run_context)
        self._audience, self._training = self._manager, None

    def _call(self, hook: str, run_context: Any) -> None:
        if self._context is None:
            raise RuntimeError(f"InMindSpore got {hook} of a run whose beginning it did not see; hand on all hooks.")
        self._update(run_context)
        getattr(self._audience, hook)(self._context)
        if self._context.get_stop_requested():
            run_context.request_stop()

    def _update(self, run_context: Any) -> None:
        given = run_context.original_args()
        params = self._params
        # After an epoch's end hook MindSpore takes the results of its evaluation out.
        for name in ("metrics", "eval_results"):
            params.pop(name, None)
        # MindSpore's own are always None.
        filled = ("initial_step", "last_save_ckpt_step", "latest_ckpt_file")
        kept = {name: params[name] for name in filled if name in params}
        params.update(given)
        params.update(kept)
        params.list_callback = self._manager.callbacks
        for name in ("train_dataset_element", "eval_dataset_element"):
            if isinstance(params.get(name), list):
                params[name] = tuple(params[name])
        if "loss_scale_mananger" in given:
            params.loss_scale_manager = given["loss_scale_mananger"]
        if given.get("mode") == "train":
            params.epoch_num = self._epochs_before + given["epoch_num"]
            params.cur_step_num = self._steps_before + given["cur_step_num"]
            params.batch_num = _batches_of_epoch(given)
            self._context.exhausted = _epoch_is_whole(given)


add_hooks(InMindSpore, InMindSpore._call, {*TRAIN_HOOKS, *EVAL_HOOKS} - set(vars(InMindSpore)))


def _done_before(parameters: Any) -> tuple[int, int]:
    """Returns how many epochs and steps came before a training, in its first epoch's first hook."""
    epochs_done = parameters.cur_epoch_num - 1
    # MindSpore counts steps from zero again after ``initial_epoch``.
    return epochs_done, parameters.cur_step_num or epochs_done * _batches_of_epoch(parameters)


def _epoch_is_whole(parameters: Any) -> bool:
    return bool(parameters.cur_step_num % _batches_of_epoch(parameters) == 0)


def _batches_of_epoch(parameters: Any) -> int:
    # Without a sink, as on a CPU, epochs are whole, but batch_num is still the sink_size that was asked for.
    sinks = parameters.dataset_sink_mode
    return int(parameters.batch_num if sinks else parameters.train_dataset.get_dataset_size())


def _check_steps(are_counted: bool, parameters: Any) -> None:
    in_graph = mindspore.get_context("mode") == mindspore.GRAPH_MODE
    if are_counted and parameters.dataset_sink_mode and in_graph and parameters.get("sink_size") != 1:
        raise ValueError(
            'collect_landscape has unit="step", but with dataset_sink_mode=True MindSpore shows callbacks no single '
            'steps; train with dataset_sink_mode=False, or collect with unit="epoch".'
        )
