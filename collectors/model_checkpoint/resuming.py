"""TrainingContext: the run context of a training, which knows its place in the data and its whole state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .callback import RunContext
from .process_rank import is_first_rank
from .resumption import Resumption, another_dataset
from .training_state import TrainingState, loss_state, participants

if TYPE_CHECKING:
    from .model_update import OptimizerUpdate


class TrainingContext(RunContext):
    """A run context that can say where training is, hand out its state, and go on from one.

    To go on in the middle of an epoch, the random generators are set to what they were when that epoch began,
    the batches that were done are drawn once more and dropped, and then everything is set to what it was when
    the checkpoint was saved. So the rest of the epoch comes in the same order, from the same draws. The hooks
    of the training's and the epoch's beginning run again; what they change is overwritten.

    Args:
        original_args: the run's parameters.
        update: makes the optimizer steps.
        resumption: what to go on with, or None for a new training.

    Attributes:
        epoch: the number (the first is 1) of the epoch that was begun last.
        epoch_steps: how many of its batches are done.
        exhausted: whether it has no more batches.
        epoch_complete: whether its evaluation and end hooks are done, too.
        step: how many batches of all epochs are done.
    """

    def __init__(
        self,
        original_args: dict[str, Any],
        update: OptimizerUpdate,
        resumption: Resumption | None = None,
    ) -> None:
        super().__init__(original_args)
        self._update = update
        self._resumption = resumption
        self._deferred: list[Callable[[], None]] = []
        self._epoch_random: dict[str, Any] | None = None
        self.epoch = original_args["cur_epoch_num"]
        self.epoch_steps = 0
        self.epoch_complete = True
        self.exhausted = False
        self.step = original_args["cur_step_num"]
        if resumption is not None and not resumption.state.epoch_complete:
            self.epoch, self.epoch_steps, self.epoch_complete = self.epoch + 1, resumption.state.epoch_steps, False

    @property
    def has_unused_gradients(self) -> bool:
        """Whether there are gradients that no optimizer step has used."""
        return self._update.pending

    def after_hooks(self, function: Callable[[], None]) -> None:
        """Has a function called when all callbacks have had their turn with the present hook."""
        self._deferred.append(function)

    def run_deferred(self) -> None:
        """Calls the functions that wait for the hooks' end."""
        deferred, self._deferred = self._deferred, []
        for function in deferred:
            function()

    def before_begin(self) -> None:
        """Restores what callbacks may look at in their first hook.

        Raises:
            CheckpointError: the checkpoint is of another network, optimizer or loss function.
        """
        if self._resumption is not None:
            self._resumption.restore_objects(self.original_args(), self._update)

    def after_begin(self) -> None:
        """Goes on from the end of an epoch, where the checkpoint was saved at one."""
        if self._resumption is not None and self._resumption.state.epoch_complete:
            self._restore(self._resumption)

    def batches(self) -> Iterator[Any]:
        """Returns the batches of the epoch that begins, those that are done left out.

        Raises:
            ValueError: the data set has another length than the one that the checkpoint was saved with.
            CheckpointError: the checkpoint does not fit.
        """
        from .random_state import capture_random_state, restore_random_state

        params = self.original_args()
        dataset = params["train_dataset"]
        self.epoch, self.epoch_steps, self.epoch_complete = params["cur_epoch_num"], 0, False
        self.exhausted = False
        if self._resumption is None:
            self._epoch_random = capture_random_state(dataset)
            return iter(dataset)
        state = self._resumption.state
        self._epoch_random = state.epoch_random
        if is_first_rank():
            restore_random_state(state.epoch_random, dataset)
        batches: Iterator[Any] = iter(dataset)
        for index in range(state.epoch_steps):
            if next(batches, self) is self:
                raise another_dataset(index, state.epoch_steps)
        self.epoch_steps = state.epoch_steps
        self._restore(self._resumption)
        return batches

    def end_step(self) -> None:
        """Notes that one more batch is done."""
        self.epoch_steps += 1
        self.step += 1

    def end_epoch(self) -> None:
        """Notes that the epoch's hooks are done; an epoch that was stopped early stays incomplete."""
        self.epoch_complete = self.exhausted

    def capture(self, random: dict[str, Any] | None = None) -> TrainingState:
        """Returns the state of the training, weights apart.

        Args:
            random: the random generators' states to take instead of the present ones.
        """
        params = self.original_args()
        scaler = params.get("loss_scale_manager")
        optimizer = params["optimizer"]
        now = self.capture_random() if random is None else random
        return TrainingState(
            epoch=self.epoch,
            epoch_steps=self.epoch_steps,
            epoch_complete=self.epoch_complete,
            step=self.step,
            batch_num=params["batch_num"],
            optimizer={"class": type(optimizer).__name__, "state": optimizer.state_dict()},
            scaler={} if scaler is None else scaler.state_dict(),
            gradients=self._update.state_dict(),
            loss_fn=loss_state(params["loss_fn"]),
            callbacks=[
                [name, callback.state_dict(), bool(getattr(callback, "state_is_needed", True))]
                for name, callback in participants(params)
            ],
            random=now,
            epoch_random=now if self._epoch_random is None else self._epoch_random,
            net_outputs=params.get("net_outputs"),
        )

    def capture_random(self) -> dict[str, Any]:
        """Returns the random generators' present states."""
        from .random_state import capture_random_state

        return capture_random_state(self.original_args()["train_dataset"])

    def _restore(self, resumption: Resumption) -> None:
        from .random_state import restore_random_state

        params = self.original_args()
        resumption.restore_objects(params, self._update)
        resumption.restore_callbacks(params)
        state = resumption.state
        if state.net_outputs is not None:
            params["net_outputs"] = state.net_outputs
        # What is saved is rank 0's; with it, all ranks would draw the same. Where no batch of the epoch was done,
        # the generators are where they belong: an attempt at the first batch that failed does not count.
        if is_first_rank() and (state.epoch_complete or state.epoch_steps):
            restore_random_state(state.random, params["train_dataset"])
        self._resumption = None
