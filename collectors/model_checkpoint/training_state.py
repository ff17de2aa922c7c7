"""Everything beside the weights that a training needs to go on as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints


@dataclass(frozen=True)
class TrainingState:
    """Where a training was, and the state of what takes part in it."""

    epoch: int  # the number (the first is 1) of the epoch that the training was in
    epoch_steps: int  # how many batches of that epoch were done
    epoch_complete: bool  # whether the epoch's evaluation and end hooks were done, too
    step: int  # how many batches of all epochs were done
    batch_num: int | None  # how many batches an epoch has, None where that was not known
    optimizer: dict[str, Any]  # its class's name and its state dict
    scaler: dict[str, Any]
    gradients: dict[str, Any]  # the gradients that no optimizer step had used, and their counters; mostly empty
    loss_fn: dict[str, Any]
    callbacks: list[Any]  # of each with a state: class name, state dict, whether it is needed
    random: dict[str, Any]
    epoch_random: dict[str, Any]  # their states when the epoch's first batch was about to be drawn
    net_outputs: Any = None  # the last step's, None before the first; hooks of an epoch's end may ask for it
    network: dict[str, Any] | None = None  # of the network that trained, where the checkpoint's weights are another's

    @property
    def epochs_done(self) -> int:
        return self.epoch if self.epoch_complete else self.epoch - 1

    @classmethod
    def from_tree(cls, tree: Any) -> TrainingState:
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
    return dict(loss_fn.state_dict()) if hasattr(loss_fn, "state_dict") else {}
