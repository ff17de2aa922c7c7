"""TrainingContext: the run context of a training, which knows its place in the data and its whole state."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..callbacks.callback import RunContext
from ..callbacks.callback_manager import callbacks_with_state, restore_callbacks
from ..errors import CheckpointError
from ..networks.weight_space import State, is_extra_state
from ..process_rank import is_first_rank
from ..validation import check_instance
from .archive import TrainingState
from .checkpoint_file import Checkpoint, load_checkpoint, load_weights

if TYPE_CHECKING:
    import torch


class PendingUpdate(Protocol):
    """Gradients that wait for an optimizer step, as ``model.update.OptimizerUpdate`` keeps them."""

    @property
    def pending(self) -> bool: ...
    @property
    def is_moving(self) -> bool: ...  # whether an optimizer step has begun and not ended
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Moment:
    """What an unfinished step leaves changed, as it was after the step before; gradients as in ``PendingUpdate``."""

    step: int
    random: dict[str, Any]
    gradients: dict[str, Any]


class TrainingContext(RunContext):
    """A run context that says where training is (as ``TrainingState``), hands out its state, and goes on from one."""

    def __init__(
        self, original_args: dict[str, Any], update: PendingUpdate, resumption: Resumption | None = None
    ) -> None:
        super().__init__(original_args)
        self.update = update
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
        return self.update.pending

    def after_hooks(self, function: Callable[[], None]) -> None:
        self._deferred.append(function)

    def run_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for function in deferred:
            function()

    def before_begin(self) -> None:
        """Restores what callbacks may look at in their first hook."""
        if self._resumption is not None:
            self._resumption.restore_objects(self.original_args(), self.update)

    def after_begin(self) -> None:
        """Goes on from the end of an epoch, where the checkpoint was saved at one."""
        if self._resumption is not None and self._resumption.state.epoch_complete:
            self._restore(self._resumption)

    def batches(self) -> Iterator[Any]:
        """Returns the batches of the epoch that begins, those that are done left out."""
        from .random_state import capture_random_state, restore_random_state

        params = self.original_args()
        dataset = params["train_dataset"]
        self.epoch, self.epoch_steps, self.epoch_complete = params["cur_epoch_num"], 0, False
        self.exhausted = False
        if self._resumption is None:
            self._epoch_random = capture_random_state(dataset)
            return iter(dataset)
        state = self._resumption.state
        # From the epoch's first draw on, the batches that were done are drawn once more and dropped: the rest comes in
        # the same order. What the draws, and the hooks of the beginning, change is then set to what was saved.
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
        self.epoch_steps += 1
        self.step += 1

    def end_epoch(self) -> None:
        """Notes that the epoch's hooks are done; an epoch that was stopped early stays incomplete."""
        self.epoch_complete = self.exhausted

    def capture(self, moment: Moment | None = None) -> TrainingState:
        """Returns the training's state without the weights, now or as of ``moment``, after the last whole step."""
        params = self.original_args()
        scaler = params.get("loss_scale_manager")
        optimizer = params["optimizer"]
        now = self.capture_random() if moment is None else moment.random
        # Without any now, an optimizer step has used them since that moment.
        gradients = self.update.state_dict() if moment is None or not self.update.pending else moment.gradients
        return TrainingState(
            epoch=self.epoch,
            epoch_steps=self.epoch_steps,
            epoch_complete=self.epoch_complete,
            step=self.step,
            batch_num=params["batch_num"],
            optimizer={"class": type(optimizer).__name__, "state": optimizer.state_dict()},
            scaler={} if scaler is None else scaler.state_dict(),
            gradients=gradients,
            loss_fn=_loss_state(params["loss_fn"]),
            callbacks=[
                [name, callback.state_dict(), bool(getattr(callback, "state_is_needed", True))]
                for name, callback in callbacks_with_state(params.get("list_callback", ()))
            ],
            random=now,
            epoch_random=now if self._epoch_random is None else self._epoch_random,
            net_outputs=params.get("net_outputs"),
        )

    def capture_moment(self) -> Moment:
        """Returns a copy of what the next step changes before it is finished."""
        return Moment(self.step, self.capture_random(), copy.deepcopy(self.update.state_dict()))

    def capture_random(self) -> dict[str, Any]:
        from .random_state import capture_random_state

        return capture_random_state(self.original_args()["train_dataset"])

    def _restore(self, resumption: Resumption) -> None:
        from .random_state import restore_random_state

        params = self.original_args()
        resumption.restore_objects(params, self.update)
        resumption.restore_callbacks(params)
        state = resumption.state
        if state.net_outputs is not None:
            params["net_outputs"] = state.net_outputs
        # The saved state is rank 0's; if all ranks restored it, all would draw the same. If no batch of the epoch was
        # done, the generators are right already: a failed attempt at the first batch does not count.
        if is_first_rank() and (state.epoch_complete or state.epoch_steps):
            restore_random_state(state.random, params["train_dataset"])
        self._resumption = None


@dataclass(frozen=True)
class Resumption:
    """What a training goes on with: weights and extra states of the network that trains, and the rest of its state."""

    where: str
    weights: State
    extra_states: Mapping[str, Any]
    state: TrainingState

    @classmethod
    def from_checkpoint(cls, resume_from: Any) -> Resumption:
        if isinstance(resume_from, str | os.PathLike):
            resume_from = load_checkpoint(resume_from)
        check_instance("resume_from", resume_from, Checkpoint, "a Checkpoint, its path or None")
        state = resume_from.training_state
        if state is None:
            raise CheckpointError(
                f"resume_from is {resume_from.path}, which holds weights alone and no training state. Load them with "
                "load_into(network) and train anew, or save with CheckpointConfig(training_state=True)."
            )
        weights, extra_states = resume_from.weights, resume_from.extra_states
        if state.network is not None:
            weights = {name: array for name, array in state.network.items() if not is_extra_state(name)}
            extra_states = {name: tree for name, tree in state.network.items() if is_extra_state(name)}
        return cls(str(resume_from.path), weights, extra_states, state)

    def check(self, epoch: int, batch_num: int | None) -> None:
        state = self.state
        if state.epochs_done >= epoch:
            raise ValueError(
                f"epoch must be more than the {state.epochs_done} epochs that resume_from has done, but got {epoch}. "
                "It is the total number."
            )
        if not state.epoch_complete and None not in (batch_num, state.batch_num) and batch_num != state.batch_num:
            raise another_dataset(batch_num, state.batch_num)

    def restore_objects(self, params: Any, update: PendingUpdate) -> None:
        state, loss_fn = self.state, params["loss_fn"]
        load_weights(params["network"], self.weights, self.extra_states, self.where)
        restore_optimizer(params["optimizer"], state.optimizer)
        try:
            if state.scaler and params["loss_scale_manager"] is not None:
                params["loss_scale_manager"].load_state_dict(state.scaler)
            update.load_state_dict(state.gradients)
            if state.loss_fn or _loss_state(loss_fn):
                loss_fn.load_state_dict(state.loss_fn)
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"{self.where} does not fit this Model: {error}. Resume with a Model that is built like the one that "
                "was trained."
            ) from error

    def restore_callbacks(self, params: Any) -> None:
        """Loads the callbacks' states; the i-th of a class gets what the i-th of that class had."""
        left_over = restore_callbacks(params.get("list_callback", ()), self.state.callbacks)
        unused = [name for name, _, needed in left_over if needed]
        if unused:
            warnings.warn(
                f"resume_from holds states of the callbacks {unused}, but callbacks has none for them; those states "
                "are dropped. Pass the callbacks that the training had.",
                UserWarning,
                stacklevel=2,
            )
        if getattr(params["train_dataset"], "persistent_workers", False):
            warnings.warn(
                "train_dataset has persistent_workers=True, whose random generators no checkpoint can hold; the "
                "resumed training may differ from an undisturbed one. Use persistent_workers=False for equal bits.",
                UserWarning,
                stacklevel=2,
            )


def restore_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    import torch

    name = type(optimizer).__name__
    try:
        if saved["class"] != name:
            raise ValueError(f"it is of {saved['class']}, not of {name}")
        state = saved["state"]
        optimizer.load_state_dict(state)
        # PyTorch casts to the parameter's element type and makes all contiguous; both can change later bits.
        for group, saved_group in zip(optimizer.param_groups, state["param_groups"], strict=True):
            for parameter, key in zip(group["params"], saved_group["params"], strict=True):
                for entry, value in state["state"].get(key, {}).items():
                    if isinstance(value, torch.Tensor):
                        present = optimizer.state[parameter][entry]
                        like = parameter if value.shape == parameter.shape else present
                        exact = torch.empty_like(like, dtype=value.dtype, device=present.device, requires_grad=False)
                        optimizer.state[parameter][entry] = exact.copy_(value)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint's optimizer state does not fit the optimizer {name}: {error}. Resume with the optimizer "
            "that was trained with, built alike."
        ) from error


def _loss_state(loss_fn: Any) -> dict[str, Any]:
    return dict(loss_fn.state_dict()) if hasattr(loss_fn, "state_dict") else {}


def another_dataset(found: int | None, expected: int | None) -> ValueError:
    return ValueError(
        f"train_dataset must be the one that resume_from was saved with ({expected} batches), but it has {found}. "
        "Resume with the same data and batch size."
    )
