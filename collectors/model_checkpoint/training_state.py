"""Everything beside the weights that a training needs to go on as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints


@dataclass(frozen=True)
class TrainingState:
    """Where a training was, and the state of what takes part in it.

    Attributes:
        epoch: the number (the first is 1) of the epoch that the training was in.
        epoch_steps: how many batches of that epoch were done.
        epoch_complete: whether the epoch's evaluation and end hooks were done, too.
        step: how many batches of all epochs were done.
        batch_num: how many batches an epoch has, None where that was not known.
        optimizer: its class's name and its state dict.
        scaler: the gradient scaler's state dict, empty without one.
        gradients: the gradients that no optimizer step had used, and their counters; mostly empty.
        loss_fn: the loss function's state dict, empty where it has none.
        callbacks: of each callback that has a state, in order: its class's name, its state dict, and whether going
            on without it would lose something.
        random: the random generators' states.
        epoch_random: their states when the epoch's first batch was about to be drawn.
        net_outputs: the last step's, None before the first; hooks of an epoch's end may ask for it.
        network: weights and extra states of the network that trained, where the checkpoint's own are another one's.
    """

    epoch: int
    epoch_steps: int
    epoch_complete: bool
    step: int
    batch_num: int | None
    optimizer: dict[str, Any]
    scaler: dict[str, Any]
    gradients: dict[str, Any]
    loss_fn: dict[str, Any]
    callbacks: list[Any]
    random: dict[str, Any]
    epoch_random: dict[str, Any]
    net_outputs: Any = None
    network: dict[str, Any] | None = None

    @property
    def epochs_done(self) -> int:
        """How many whole epochs were done."""
        return self.epoch if self.epoch_complete else self.epoch - 1

    @classmethod
    def from_tree(cls, tree: Any) -> TrainingState:
        """Returns the state whose attributes a dict holds by name."""
        expected = {name: getattr(hint, "__origin__", hint) for name, hint in get_type_hints(cls, localns={}).items()}
        wrong = [
            name
            for name, kind in expected.items()
            if not isinstance(tree, dict)
            or name not in tree
            or (kind in (int, bool, dict, list) and type(tree[name]) is not kind)
        ]
        if wrong or set(tree) != set(expected):
            wrong = wrong or sorted(set(tree) - set(expected))
            raise ValueError(f"of the training state, {wrong} are missing, wrong or unknown")
        return cls(**tree)


def loss_state(loss_fn: Any) -> dict[str, Any]:
    """Returns the state dict of a loss function; empty for plain functions."""
    return dict(loss_fn.state_dict()) if hasattr(loss_fn, "state_dict") else {}
