"""The loops over epochs and batches: which hook runs when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch

from ..callbacks.callback import RunContext, begin_evaluation
from ..callbacks.callback_manager import CallbackManager, Tell
from ..model_checkpoint.resuming import TrainingContext
from ..networks.batches import length_of, sample_count
from ..progress_bar import progress_bar
from .forward import Forward, announce_epoch, empty_dataset
from .metrics import MetricTotals
from .update import OptimizerUpdate


@dataclass(frozen=True)
class FitEvaluation:
    """The evaluations inside a training; ``due`` says of an epoch (the first is 1) whether it ends with one."""

    dataset: Iterable[Any]
    metrics: Mapping[str, Any]
    due: Callable[[int], bool]


@contextmanager
def run(manager: CallbackManager, run_context: RunContext) -> Iterator[None]:
    """Enters the callbacks, tells them of an error, and leaves them."""
    with manager:
        run_context.original_args().list_callback = manager.callbacks
        try:
            yield
        except BaseException as error:
            manager.on_exception(run_context, error)
            raise


def train_epochs(
    forward: Forward,
    update: OptimizerUpdate,
    evaluation: FitEvaluation | None,
    manager: CallbackManager,
    run_context: TrainingContext,
    progress: bool,
) -> None:
    """Trains the epochs after ``cur_epoch_num`` up to ``epoch_num``; the first may go on in its middle."""
    params = run_context.original_args()
    first = params.cur_epoch_num + 1
    steps = None if params.batch_num is None else (params.epoch_num - params.cur_epoch_num) * params.batch_num
    steps = None if steps is None else steps - run_context.epoch_steps
    with progress_bar(steps, "step") if progress else nullcontext() as bar:
        forward.network.train()
        run_context.before_begin()
        manager.on_train_begin(run_context)
        run_context.after_begin()
        for number in range(first, params.epoch_num + 1):
            params.cur_epoch_num = number
            manager.on_train_epoch_begin(run_context)
            _train_epoch(forward, update, manager, run_context, bar)
            if evaluation is not None and evaluation.due(number):
                audience = manager.for_fit_evaluation()
                evaluate(forward, evaluation.dataset, evaluation.metrics, audience, run_context, inside_fit=True)
            manager.on_train_epoch_end(run_context)
            run_context.end_epoch()
            params.pop("metrics", None)
            params.pop("eval_results", None)
            if run_context.get_stop_requested():
                break
        manager.on_train_end(run_context)
        run_context.run_deferred()


def evaluate(
    forward: Forward,
    dataset: Iterable[Any],
    metrics: Mapping[str, Any],
    manager: CallbackManager,
    run_context: RunContext,
    inside_fit: bool = False,
) -> dict[str, Any]:
    """Returns the metrics over a data set, by name; ``cb_params`` gets them just before the end hook."""
    params = run_context.original_args()
    training = begin_evaluation(params, forward.network, dataset, length_of(dataset))
    # A stop that training asked for earlier shortens the epoch, not the evaluation that closes it.
    stopped_before = run_context.get_stop_requested()
    totals = MetricTotals(metrics, forward.device)
    tell = manager.telling(run_context)
    index = -1
    try:
        with forward.eval_mode():
            manager.on_eval_begin(run_context)
            manager.on_eval_epoch_begin(run_context)
            for index, batch in enumerate(dataset):
                params.cur_step_num += 1
                inputs, targets = forward.place("valid_dataset", batch, index)
                params.eval_dataset_element = (inputs, targets)
                manager.on_eval_step_begin(run_context)
                with torch.no_grad():
                    loss, outputs = forward(inputs, targets, tell)
                params.net_outputs = outputs if loss is None else (loss, outputs, targets)
                manager.on_eval_step_end(run_context)
                samples = sample_count(inputs, targets)
                value = None if loss is None else float(loss) / (samples if forward.loss_is_sum else 1)
                with torch.no_grad():
                    totals.update(outputs, targets, samples, value)
                if run_context.get_stop_requested() and not stopped_before:
                    break
            if index < 0:
                raise empty_dataset("valid_dataset")
            manager.on_eval_epoch_end(run_context)
            params.metrics = totals.compute()
            if inside_fit:
                loss_entry = {} if forward.loss_fn is None else {"eval_loss": totals.mean_loss.compute()}
                params.eval_results = {**params.metrics, **loss_entry}
            manager.on_eval_end(run_context)
    finally:
        params.update(training)
    return cast(dict[str, Any], params.metrics)


def _train_epoch(
    forward: Forward,
    update: OptimizerUpdate,
    manager: CallbackManager,
    run_context: TrainingContext,
    bar: Any,
) -> None:
    params = run_context.original_args()
    tell = manager.telling(run_context)
    announce_epoch(params.train_dataset, params.cur_epoch_num - 1)
    for batch in _announced(run_context.batches(), tell):
        params.cur_step_num += 1
        inputs, targets = forward.place("train_dataset", batch, run_context.epoch_steps)
        params.train_dataset_element = (inputs, targets)
        tell("after_dataloader")
        manager.on_train_step_begin(run_context)
        tell("before_train_batch")
        loss = forward.training_loss(inputs, targets, tell)
        tell("before_backward")
        update.backward(loss, sample_count(inputs, targets))
        tell("after_backward")
        tell("after_train_batch")
        if update.complete or (update.pending and run_context.epoch_steps + 1 == params.batch_num):
            update.step()
        params.net_outputs = loss.detach()
        run_context.end_step()
        manager.on_train_step_end(run_context)
        run_context.run_deferred()
        if bar is not None:
            bar.set_description(f"epoch {params.cur_epoch_num}/{params.epoch_num}", refresh=False)
            bar.update()
        if run_context.get_stop_requested():
            break
    else:
        run_context.exhausted = True
        if params.batch_num is None:
            params.batch_num = run_context.epoch_steps
    if run_context.epoch_steps == 0:
        raise empty_dataset("train_dataset")
    if update.pending:
        update.step()


def _announced(batches: Iterator[Any], tell: Tell) -> Iterator[Any]:
    """Yields the batches, and tells before each one, and before it shows that there is none, that it is fetched."""
    while True:
        tell("before_dataloader")
        try:
            batch = next(batches)
        except StopIteration:
            return
        yield batch
