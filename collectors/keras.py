"""SummaryCollector for Keras 3: a callback of ``Model.fit``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

try:
    import keras
except ImportError as error:
    raise ImportError("collectors.keras needs Keras 3; pip install 'summary-landscape[keras]'.") from error

from .networks.keras_network import synchronize, to_array
from .recording.trainer_collector import TrainerCollector, TrainingFailedError, takes_arguments_of


class SummaryCollector(TrainerCollector, keras.callbacks.Callback):  # type: ignore[misc]
    """Collects, while a Keras model trains, its summary and what its loss landscape is drawn from.

    Give it to ``fit`` among the callbacks. It takes the arguments of ``collectors.SummaryCollector``. Epochs count from
    1 and go on behind ``initial_epoch`` (``BackupAndRestore`` included); steps are the optimizer's ``iterations`` and
    go on behind those of a loaded model. The recorded loss is Keras' own number for a batch: the mean over the epoch
    so far.

    Keras tells its callbacks nothing when ``fit`` fails. What was collected until then is on disk about a second later,
    or when the process ends. To have it there at once, and the writing thread gone, train inside ``with collector:``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument has a wrong value; when training begins, steps are asked for that Keras does not show.
        ImportError: summaries are asked for explicitly, and TensorBoard is not installed.
        RunDirectoryError: when training begins, the directory already holds a run that may not be touched.
        CheckpointWriteError: in training, a checkpoint could not be written.
    """

    @takes_arguments_of(TrainerCollector.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._updates_every = 1
        # Batches whose gradients the optimizer has used, or keeps until there are enough of them.
        self._used = self._used_before_epoch = self._batches_in_epoch = 0
        self._batches_of_whole_epoch = math.inf

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Ends what a failed ``fit`` left open, and checks that the requested steps are visible."""
        self._leave(TrainingFailedError("the training before this one did not end"))
        hidden = self.model.steps_per_execution
        if hidden > 1 and self._collector.counts_steps:
            raise ValueError(
                f"collect_landscape counts steps, but the model was compiled with steps_per_execution={hidden}, and "
                f"Keras shows its weights only after each {hidden} steps; compile it with steps_per_execution=1, or "
                'use unit="epoch".'
            )

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        # Only now is the first epoch's number known, which another callback may have restored.
        if self._run is None:
            self._begin(epoch)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Reads the learning rate, which a schedule sets anew for each step."""
        if self._run is not None:
            self._run.begin_step()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        # At the end of an epoch one execution may make fewer steps than Keras counts.
        self._batches_in_epoch = min(batch + 1, self.params.get("steps") or batch + 1)
        before, self._used = self._used, self._used_before_epoch + self._batches_in_epoch
        inner = _inner(self.model.optimizer)
        if inner is not self.model.optimizer:
            # A LossScaleOptimizer leaves out batches whose gradients are not finite.
            synchronize(self.model)
            self._used = int(to_array(inner._iterations))
        steps = self._used // self._updates_every - before // self._updates_every
        for hidden in range(steps - 1, -1, -1):
            self._call("step", None if hidden else (logs or {}).get("loss"))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves a checkpoint if one is due; an epoch that was cut short does not count."""
        batches, self._batches_in_epoch = self._batches_in_epoch, 0
        self._used_before_epoch = self._used
        if not self.model.stop_training:
            self._batches_of_whole_epoch = batches
        if batches >= self._batches_of_whole_epoch:
            self._call("end_epoch")

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self._leave(None)

    def _begin(self, epoch: int) -> None:
        optimizer = self.model.optimizer
        step = int(to_array(optimizer.iterations))
        if epoch and not step and self._collector.counts_steps:
            raise ValueError(
                f"collect_landscape counts steps, but fit goes on at initial_epoch={epoch} with an optimizer that has "
                "made none; load the whole model (keras.models.load_model), which brings its optimizer along, or use "
                'unit="epoch".'
            )
        inner = _inner(optimizer)
        every = self._updates_every = int(inner.gradient_accumulation_steps or 1)
        steps = self.params.get("steps")
        if steps and not self._collector.counts_steps and (not step or self._collector._existing != "resume"):
            # Epochs are numbered by fit alone; the optimizer may be new, or may have trained something else before.
            step = epoch * steps // every
        self._used = self._used_before_epoch = int(to_array(inner._iterations))
        self._batches_in_epoch, self._batches_of_whole_epoch = 0, steps or math.inf
        self._open(
            self.model,
            # Where the optimizer waits for several batches, epochs may differ by a step.
            steps_per_epoch=steps if every == 1 else None,
            start_epoch=epoch,
            start_step=step,
            optimizer=_OptimizerView(self.model),
            epochs=self.params.get("epochs"),
        )

    def _call(self, method: str, *arguments: object) -> None:
        if self._run is None:
            return
        try:
            getattr(self._run, method)(*arguments)
        except BaseException as error:
            self._leave(error)
            raise


def _inner(optimizer: Any) -> Any:
    """Returns the optimizer that moves the weights: that inside a ``LossScaleOptimizer``, or the given one."""
    return getattr(optimizer, "inner_optimizer", optimizer)


class _OptimizerView:
    """The part of a Keras optimizer that a summary reads."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.__name__ = type(model.optimizer).__name__

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        synchronize(self._model)
        inner = _inner(self._model.optimizer)
        # A MultiOptimizer has no learning rate of its own.
        rates = [float(to_array(item.learning_rate)) for item in getattr(inner, "optimizers", [inner])]
        parameters = [variable.value for variable in self._model.trainable_variables]
        return [{"params": parameters}, *({"params": [], "lr": rate} for rate in rates)]
