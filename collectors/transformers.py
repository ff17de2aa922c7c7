"""Transformers' callback: collects what a loss landscape is drawn from while a ``Trainer`` trains."""

from __future__ import annotations

import math
from typing import Any

from .networks.batches import length_of
from .recording.trainer_collector import TrainerCollector

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "collectors.transformers needs Transformers, which is not installed: pip install "
        "'summary-landscape[transformers]'"
    ) from error


class SummaryCollector(TrainerCollector, TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Collects checkpoints and summaries as a callback of Transformers' ``Trainer``.

    Takes the arguments of ``collectors.SummaryCollector``. A step is an optimizer step, however many batches it
    accumulates. The learning rate is recorded, the loss is not, because the Trainer does not tell it to callbacks (it
    logs it itself: ``report_to="tensorboard"``). In a distributed training rank 0 writes; with FSDP 2 and DeepSpeed the
    weights are gathered there (FSDP 1 hides them from callbacks and is an error). A training that resumes from the
    Trainer's own checkpoint (``resume_from_checkpoint=``) continues the numbering; pass ``existing="resume"`` then.

    Nor does the Trainer tell callbacks that training failed. Everything is then on disk after about a second, or when
    the process ends, the trainer is garbage-collected or trains again; inside ``with collector:``, as soon as the block
    is left.

    Example::

        from collectors.transformers import SummaryCollector

        collector = SummaryCollector("run", collect_landscape={"unit": "epoch", "intervals": [range(0, 11)]})
        Trainer(model, arguments, train_dataset=dataset, callbacks=[collector]).train()

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        steps = _steps_per_epoch(args, kwargs.get("train_dataloader"))
        self._open(
            kwargs["model"],
            steps_per_epoch=steps,
            # The Trainer itself resumes at this epoch; its state's own number is a fraction.
            start_epoch=state.global_step // steps if steps else math.floor(state.epoch or 0),
            start_step=state.global_step,
            optimizer=kwargs.get("optimizer"),
            epochs=state.num_train_epochs or None,
        )

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Counts a step, before the scheduler sets the learning rate of the next."""
        if self._run is not None:
            self._run.step()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Counts an epoch; one that max_steps cut short does not count."""
        # Of data without a length, the Trainer takes max_steps for one epoch.
        has_length = length_of(kwargs.get("train_dataloader")) is not None
        is_whole = has_length and abs(state.epoch - round(state.epoch)) < 1e-6
        if self._run is not None and (is_whole or not control.should_training_stop):
            self._run.end_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._leave(None)


def _steps_per_epoch(args: Any, loader: Any) -> int | None:
    batches = length_of(loader)
    return None if batches is None else max(1, math.ceil(batches / int(args.gradient_accumulation_steps)))
