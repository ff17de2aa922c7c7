"""Going on with a training: puts everything back to where a checkpoint left it."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .checkpoint_loading import Checkpoint, load_checkpoint, load_weights
from .errors import CheckpointError
from .network_state import State
from .training_state import TrainingState, loss_state, participants
from .validation import wrong_type

if TYPE_CHECKING:
    import torch

    from .model_update import OptimizerUpdate


@dataclass(frozen=True)
class Resumption:
    """What a training goes on with.

    Attributes:
        where: the checkpoint's name, for an error's text.
        weights: of the network that trains.
        state: everything else.
    """

    where: str
    weights: State
    state: TrainingState

    @classmethod
    def from_checkpoint(cls, resume_from: Any) -> Resumption:
        """Returns what a checkpoint holds to go on with.

        Args:
            resume_from: a checkpoint or its path.

        Raises:
            TypeError: it is neither.
            CheckpointError: it cannot be read, or holds no training state.
        """
        if isinstance(resume_from, str | os.PathLike):
            resume_from = load_checkpoint(resume_from)
        if not isinstance(resume_from, Checkpoint):
            raise wrong_type("resume_from", "a Checkpoint, its path or None", resume_from)
        state = resume_from.training_state
        if state is None:
            raise CheckpointError(
                f"resume_from is {resume_from.path}, which holds weights alone and no training state. Load them with "
                "load_into(network) and train anew, or save with CheckpointConfig(training_state=True)."
            )
        weights = resume_from.weights if state.network is None else state.network
        return cls(str(resume_from.path), weights, state)

    def check(self, epoch: int, batch_num: int | None) -> None:
        """Checks that a training can go on.

        Args:
            epoch: the total number of epochs asked for.
            batch_num: how many batches an epoch has, where that is known.

        Raises:
            ValueError: all epochs are done, or the epoch that is to be completed has another length.
        """
        state = self.state
        if state.epochs_done >= epoch:
            raise ValueError(
                f"epoch must be more than the {state.epochs_done} epochs that resume_from has done, but got {epoch}. "
                "It is the total number."
            )
        if not state.epoch_complete and None not in (batch_num, state.batch_num) and batch_num != state.batch_num:
            raise another_dataset(batch_num, state.batch_num)

    def restore_objects(self, params: Any, update: OptimizerUpdate) -> None:
        """Loads network, optimizer, gradient scaler, unused gradients and loss function.

        Raises:
            CheckpointError: one of them is not what was saved.
        """
        state, loss_fn = self.state, params["loss_fn"]
        load_weights(params["network"], self.weights, self.where)
        restore_optimizer(params["optimizer"], state.optimizer)
        try:
            if state.scaler and params["loss_scale_manager"] is not None:
                params["loss_scale_manager"].load_state_dict(state.scaler)
            update.load_state_dict(state.gradients)
            if state.loss_fn or loss_state(loss_fn):
                loss_fn.load_state_dict(state.loss_fn)
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"{self.where} does not fit this Model: {error}. Resume with a Model that is built like the one that "
                "was trained."
            ) from error

    def restore_callbacks(self, params: Any) -> None:
        """Loads the callbacks' states; the i-th of a class gets what the i-th of that class had."""
        present = list(participants(params))
        unused = []
        for name, saved, needed in self.state.callbacks:
            index = next((index for index, (other, _) in enumerate(present) if other == name), None)
            if index is not None:
                present.pop(index)[1].load_state_dict(saved)
            elif needed:
                unused.append(name)
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
    """Loads an optimizer's state bit by bit.

    Raises:
        CheckpointError: it is another optimizer's.
    """
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


def another_dataset(found: int | None, expected: int | None) -> ValueError:
    """Returns the error for a data set that cannot be the one that was trained on."""
    return ValueError(
        f"train_dataset must be the one that resume_from was saved with ({expected} batches), but it has {found}. "
        "Resume with the same data and batch size."
    )
