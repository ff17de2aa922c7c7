"""Transformers' callback: collects what a loss landscape is drawn from while a ``Trainer`` trains."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import Any, Self

from . import summary_collector
from .watched_training import WatchedTraining

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "collectors.transformers needs Transformers, which is not installed: pip install "
        "'summary-landscape[transformers]'"
    ) from error


class SummaryCollector(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Collects checkpoints and summaries as a callback of Transformers' ``Trainer``.

    Takes the arguments of ``collectors.SummaryCollector``. A step is an optimizer step, however many batches it
    accumulates. The learning rate is recorded, the loss is not, because the Trainer does not tell it to callbacks (it
    logs it itself: ``report_to="tensorboard"``). In a distributed training rank 0 writes. A training that goes on from
    the Trainer's own checkpoint (``resume_from_checkpoint=``) goes on numbering; give it ``existing="resume"``.

    The Trainer does not tell callbacks either that training failed. Everything is then on disk when the process ends,
    the trainer is garbage or trains again, and, apart from that, after about a second; inside ``with collector:`` it is
    as soon as the block is left.

    Example::

        from collectors.transformers import SummaryCollector

        collector = SummaryCollector("run", collect_landscape={"unit": "epoch", "intervals": [range(0, 11)]})
        Trainer(model, arguments, train_dataset=dataset, callbacks=[collector]).train()

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value, or, when training begins, parameters are divided among processes.
    """

    def __init__(
        self,
        summary_dir: str | PathLike[str],
        collect_freq: int = 10,
        collect_specified_data: Mapping[str, Any] | None = None,
        keep_default_action: bool = True,
        custom_lineage_data: Mapping[str, int | float | str] | None = None,
        collect_tensor_freq: int | None = None,
        max_file_size: int | None = None,
        export_options: Mapping[str, str | None] | None = None,
        *,
        collect_landscape: Mapping[str, Any] | None = None,
        existing: str = "error",
    ) -> None:
        self._collector = summary_collector.SummaryCollector(
            summary_dir,
            collect_freq,
            collect_specified_data,
            keep_default_action,
            custom_lineage_data,
            collect_tensor_freq,
            max_file_size,
            export_options,
            collect_landscape=collect_landscape,
            existing=existing,
        )
        self._run: WatchedTraining | None = None
        self._finalizer: Any = None

    @property
    def summary_dir(self) -> str:
        """The run directory."""
        return self._collector.summary_dir

    def capture(self, plugin: str, name: str, value: Any) -> None:
        """Takes a value from inside a training forward pass; see ``collectors.SummaryCollector.capture``."""
        self._collector.capture(plugin, name, value)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Opens the run directory."""
        self._leave(_TrainingFailedError("the training before this one did not end"))
        _check_whole(args)
        steps = _steps_per_epoch(args, kwargs.get("train_dataloader"))
        run = self._collector.watch(
            kwargs["model"],
            steps_per_epoch=steps,
            # The Trainer itself resumes at this epoch; its state's own number is a fraction.
            start_epoch=state.global_step // steps if steps else math.floor(state.epoch or 0),
            start_step=state.global_step,
            optimizer=kwargs.get("optimizer"),
            epochs=state.num_train_epochs or None,
        )
        self._run = run.__enter__()
        # No hook tells of an exception. The run does not refer to this callback, so it does not keep it alive.
        self._finalizer = weakref.finalize(self, _abandon, self._run)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Counts a step, before the scheduler sets the learning rate of the next."""
        if self._run is not None:
            self._run.step()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Counts an epoch; one that max_steps has cut short is none."""
        is_whole = abs(state.epoch - round(state.epoch)) < 1e-6
        if self._run is not None and (is_whole or not control.should_training_stop):
            self._run.end_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Waits until everything is on disk."""
        self._leave(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._finalizer.detach()
            run.__exit__(None if error is None else type(error), error, None)


class _TrainingFailedError(Exception):
    """Stands for an exception that nobody told us."""


def _abandon(run: WatchedTraining) -> None:
    run.__exit__(_TrainingFailedError, _TrainingFailedError("training did not end"), None)


def _check_whole(args: Any) -> None:
    sharded = "fsdp" if getattr(args, "fsdp", None) else "deepspeed" if getattr(args, "deepspeed", None) else None
    if sharded is not None:
        raise ValueError(
            f"{sharded} must be off, because it divides the parameters among processes, so that no process could save "
            "the network; use one device or DistributedDataParallel."
        )


def _steps_per_epoch(args: Any, loader: Any) -> int | None:
    try:
        batches = len(loader)
    except TypeError:
        return None  # a stream
    return max(1, math.ceil(batches / int(args.gradient_accumulation_steps)))
