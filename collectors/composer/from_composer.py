"""FromComposer: a callback of Composer inside our Model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import composer
import torch
from composer import ComposerModel, State, Time, Timestamp
from composer.loggers import LoggerDestination
from composer.utils import get_device
from torch import nn

from ..callbacks.callback import STEP_EVENTS, CallbackParameters, RunContext, StepListener, add_hooks
from ..callbacks.callback_manager import restore_callbacks, states_of
from ..networks.batches import call_network, sample_count
from ..validation import check_instance

TRAIN_LABEL, EVAL_LABEL = "train", "eval"
_DEVICES = {"cuda": "gpu", "mps": "mps"}

HOOK_EVENTS: Mapping[str, tuple[str, ...]] = {
    "begin": ("init", "before_load", "after_load"),
    "on_train_begin": ("fit_start",),
    "first epoch": ("iteration_start",),
    "on_train_epoch_begin": ("epoch_start",),
    "on_train_step_begin": ("batch_start",),
    "on_train_step_end": ("batch_end", "batch_checkpoint"),
    "epoch done": ("epoch_end",),
    "on_train_epoch_end": ("epoch_checkpoint",),
    "on_train_end": ("fit_end",),
    "evaluations begin in fit": ("eval_before_all",),
    "evaluations begin": ("eval_standalone_start",),
    "on_eval_begin": ("eval_start",),
    "on_eval_step_begin": ("eval_batch_start",),
    "on_eval_step_end": ("eval_batch_end",),
    "on_eval_end": ("eval_end",),
    "evaluations end in fit": ("eval_after_all",),
    "evaluations end": ("eval_standalone_end",),
    "inside steps": STEP_EVENTS,
}
"""Which of Composer's events come with which of our hooks."""

EVENTS = frozenset(event for events in HOOK_EVENTS.values() for event in events)
"""The events of Composer that exist in our Model."""


class FromComposer(StepListener):
    """Lets a callback of Composer run inside our ``Model``.

    Example::

        stopper = EarlyStopper("accuracy", "eval", patience=2)
        model.fit(20, loader, valid_loader, callbacks=[FromComposer(stopper)])

    The callback gets the events of ``EVENTS``, in Composer's order and through its ``run_event``, with a real
    ``composer.State`` and ``composer.Logger``. Each ``train``, ``fit`` or ``eval`` is what a Trainer is there: it
    begins with ``init``, ``before_load`` and ``after_load``, and ends, whatever happens, with ``close`` and
    ``post_close``. ``state.stop_training()``, or any ``max_duration`` that is over, stops our training after the
    present step or epoch. The callback's state goes into our checkpoints and comes back after ``fit_start``.

    In ``state``, ``model`` is a ComposerModel around the network, the data loaders are called "train" and "eval",
    metrics are those of the Model, "eval_loss" included. Within a step, a batch is Composer's only microbatch. Events
    of ``predict`` (``Model.predict`` has no callbacks) and of the end of iterations (which Composer has only where an
    iteration is given a length) do not exist in Model; a callback that reacts to them gets a warning when it is given.

    Args:
        callback: the callback.
        loggers: Composer's loggers, to which ``logger.log_metrics`` goes, the training loss and the metrics as well.

    Raises:
        TypeError: ``callback`` is not a callback of Composer, or one of ``loggers`` is not a logger.
    """

    def __init__(self, callback: composer.Callback, *, loggers: Sequence[LoggerDestination] = ()) -> None:
        check_instance("callback", callback, composer.Callback, "a composer.Callback (an object, not its class)")
        for index, logger in enumerate(loggers):
            check_instance(f"loggers[{index}]", logger, LoggerDestination, "a composer LoggerDestination")
        self._callback = callback
        self._loggers = list(loggers)
        self._state: State | None = None
        self._logger: Any = None
        self._evaluates_alone = self._epoch_is_open = False
        self._seen_at = self._eval_began_at = 0.0
        _warn_of_missing_events(callback)

    def on_train_begin(self, run_context: RunContext) -> None:
        params = run_context.original_args()
        use_data(self._begin(run_context), params.train_dataset, TRAIN_LABEL, params)
        self._run("on_train_begin", run_context)

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        timestamp = self._now.timestamp
        self._epoch_is_open = True
        if int(timestamp.batch_in_epoch):
            return  # A training that goes on in the middle of an epoch does not begin it again.
        if not int(timestamp.epoch_in_iteration):
            self._run("first epoch", run_context)
        self._run("on_train_epoch_begin", run_context)

    def inside_step(self, event: str, run_context: RunContext, **values: Any) -> None:
        params, state = run_context.original_args(), self._now
        if params.mode == "train":
            state.batch = params.train_dataset_element
        for name, value in values.items():
            setattr(state, name, value)
        self._run(event, run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        params, state, now = run_context.original_args(), self._now, perf_counter()
        state.loss = torch.as_tensor(params.net_outputs)
        state.previous_timestamp = state.timestamp
        state.timestamp = state.timestamp.to_next_batch(
            samples=sample_count(*params.train_dataset_element), duration=timedelta(seconds=now - self._seen_at)
        )
        self._seen_at = now
        if self._loggers:
            self._logger.log_metrics({"loss/train/total": float(params.net_outputs)})
        self._run("on_train_step_end", run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Runs ``epoch_end``, where no evaluation came before, and ``epoch_checkpoint``; neither for a part."""
        self._end_epoch(run_context)
        if _epoch_is_whole(run_context):
            self._run("on_train_epoch_end", run_context)

    def on_eval_begin(self, run_context: RunContext) -> None:
        """Runs ``eval_start`` and what comes before: ``epoch_end`` and ``eval_before_all`` in training."""
        self._evaluates_alone = self._state is None
        params, state = run_context.original_args(), self._state or self._begin(run_context)
        self._end_epoch(run_context)
        self._run("evaluations begin" if self._evaluates_alone else "evaluations begin in fit", run_context)
        state.eval_timestamp = Timestamp()
        use_data(state, params.valid_dataset, EVAL_LABEL, params)
        self._eval_began_at = perf_counter()
        self._run("on_eval_begin", run_context)

    def on_eval_step_begin(self, run_context: RunContext) -> None:
        self._now.batch = run_context.original_args().eval_dataset_element
        self._run("on_eval_step_begin", run_context)

    def on_eval_step_end(self, run_context: RunContext) -> None:
        params, state = run_context.original_args(), self._now
        (inputs, targets), outputs = params.eval_dataset_element, params.net_outputs
        if isinstance(outputs, tuple) and len(outputs) == 3 and outputs[2] is targets:
            state.loss, outputs, _ = outputs
        state.outputs = outputs
        elapsed = perf_counter() - self._eval_began_at - state.eval_timestamp.total_wct.total_seconds()
        state.eval_timestamp = state.eval_timestamp.to_next_batch(
            samples=sample_count(inputs, targets), duration=timedelta(seconds=max(elapsed, 0.0))
        )
        self._run("on_eval_step_end", run_context)

    def on_eval_end(self, run_context: RunContext) -> None:
        """Runs ``eval_end`` and ``eval_after_all``, or ``eval_standalone_end`` outside of training."""
        params, state = run_context.original_args(), self._now
        results = {**params.metrics, **params.get("eval_results", {})}
        state.eval_metrics = {
            EVAL_LABEL: {name: SimpleNamespace(compute=partial(torch.as_tensor, results[name])) for name in results}
        }
        state.eval_metric_values = dict(results)
        self._logger.log_metrics({f"metrics/{EVAL_LABEL}/{name}": value for name, value in results.items()})
        self._run("on_eval_end", run_context)
        # Back in the training around the evaluation, whose time does not count as the training's.
        self._seen_at += perf_counter() - self._eval_began_at
        if "train_dataset" in params:
            state.set_dataloader(params.train_dataset, TRAIN_LABEL)
        self._run("evaluations end" if self._evaluates_alone else "evaluations end in fit", run_context)

    def state_dict(self) -> dict[str, Any]:
        """Returns the callback's and the loggers' states, and the training's time in Composer's units."""
        time = None if self._state is None else self._state.timestamp.state_dict()
        if time is not None:
            time |= {name: value.total_seconds() for name, value in time.items() if isinstance(value, timedelta)}
        return {"callbacks": [list(item) for item in states_of(self._everyone)], "timestamp": time}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        restore_callbacks(self._everyone, state["callbacks"])
        saved = state["timestamp"]
        if self._state is not None and saved is not None:
            times = {name: timedelta(seconds=saved[name]) for name in saved if name.endswith("_wct")}
            self._state.timestamp = Timestamp()
            self._state.timestamp.load_state_dict({**saved, **times})
            self._seen_at = perf_counter()

    def __exit__(self, *_: object) -> None:
        state, self._state = self._state, None
        if state is None:
            return
        closed, errors = [], []
        for callback in self._everyone:
            try:
                callback.close(state, self._logger)
                closed.append(callback)
            except Exception as error:
                errors.append(error)
        for callback in closed:
            try:
                callback.post_close()
            except Exception as error:
                errors.append(error)
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"Another callback could not be closed either: {other!r}")
            raise errors[0]

    @property
    def _everyone(self) -> list[Any]:
        return [self._callback, *self._loggers]

    @property
    def _now(self) -> State:
        if self._state is None:
            raise RuntimeError("FromComposer got a hook before on_train_begin or on_eval_begin; hand on all hooks.")
        return self._state

    def _begin(self, run_context: RunContext) -> State:
        params = run_context.original_args()
        network, epochs = params.network, params.get("epoch_num")
        parameter = next(network.parameters(), None)
        is_model = isinstance(network, ComposerModel)
        self._state = State(
            model=network if is_model else NetworkAsComposerModel(network, params.get("loss_fn")),
            rank_zero_seed=torch.initial_seed(),
            run_name=type(network).__name__,
            device=get_device("cpu" if parameter is None else _DEVICES.get(parameter.device.type, "cpu")),
            max_duration=None if epochs is None else Time(epochs, "ep"),
            train_dataloader=params.get("train_dataset"),
            optimizers=params.get("optimizer"),
            scaler=params.get("loss_scale_manager"),
            callbacks=self._everyone,
        )
        # A training may go on in the middle of an epoch.
        steps = {"batch": params.get("cur_step_num", 0), "batch_in_epoch": getattr(run_context, "epoch_steps", 0)}
        self._state.timestamp = Timestamp(epoch=params.get("cur_epoch_num", 0), **steps)
        self._duration = self._state.max_duration
        self._seen_at = self._eval_began_at = perf_counter()
        self._logger = composer.Logger(self._state, destinations=self._loggers)
        self._epoch_is_open = False
        self._run("begin", run_context)
        return self._state

    def _end_epoch(self, run_context: RunContext) -> None:
        if self._epoch_is_open and _epoch_is_whole(run_context):
            state = self._now
            state.previous_timestamp = state.timestamp
            state.timestamp = state.timestamp.to_next_epoch()
            self._run("epoch done", run_context)
        self._epoch_is_open = False

    def _run(self, hook: str, run_context: RunContext) -> None:
        """Runs the events of a hook, or of a name in ``HOOK_EVENTS`` that stands for one; others are events."""
        state = self._now
        for name in HOOK_EVENTS.get(hook, (hook,)):
            event = composer.Event(name)
            # Loggers are there before anybody logs, and flush after everybody has.
            order = [*self._loggers, self._callback] if event is composer.Event.INIT else self._everyone
            for callback in order:
                callback.run_event(event, state, self._logger)
        duration = state.max_duration
        # A callback ended the duration, and it is over. Not `==`: durations of different units cannot be compared.
        if duration is not None and duration is not self._duration and state.timestamp >= duration:
            run_context.request_stop()


add_hooks(FromComposer, FromComposer._run, ("on_train_step_begin", "on_train_end"))


def _epoch_is_whole(run_context: RunContext) -> bool:
    return bool(getattr(run_context, "exhausted", True))


def _warn_of_missing_events(callback: composer.Callback) -> None:
    kind = type(callback)
    if kind.run_event is not composer.Callback.run_event or isinstance(callback, LoggerDestination):
        return  # It takes what comes.
    names = [event.value for event in composer.Event]
    heard = [name for name in names if getattr(kind, name) is not getattr(composer.Callback, name)]
    missing = [name for name in heard if name not in EVENTS]
    if not missing:
        return
    if set(heard) <= {*missing, *HOOK_EVENTS["begin"]}:
        text = f"{kind.__name__} will do nothing in Model, because it waits for the events {missing}"
    else:
        text = f"{kind.__name__} will miss the events {missing}"
    warnings.warn(
        f"{text}, which do not exist there. Model has {sorted(EVENTS)}; for the others, train with composer.Trainer.",
        UserWarning,
        stacklevel=3,
    )


class NetworkAsComposerModel(ComposerModel):  # type: ignore[misc]
    """A network and its loss function (None: it returns its loss) as a ComposerModel of (inputs, targets) batches."""

    def __init__(self, network: nn.Module, loss_fn: Callable[..., Any] | None) -> None:
        super().__init__()
        self.module = network
        # In a tuple, because the parameters of a loss function are none of the network's.
        self._loss_fn = (loss_fn,)

    def forward(self, batch: Any) -> Any:
        return call_network(self.module, batch[0])

    def loss(self, outputs: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        (loss_fn,) = self._loss_fn
        return outputs if loss_fn is None else loss_fn(outputs, batch[1])


def use_data(state: State, dataset: Any, label: str, params: CallbackParameters) -> None:
    """Begins to go through a data set, of which ``params`` may know the number of batches."""
    steps = params.get("batch_num")
    state.set_dataloader(dataset, label, -1 if steps is None else steps)
