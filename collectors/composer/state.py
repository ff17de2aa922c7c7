"""What Composer's callbacks read in ``state``, made of our ``cb_params``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from composer import ComposerModel, State, Time, Timestamp
from composer.utils import get_device
from torch import nn

from ..networks.batches import call_network

if TYPE_CHECKING:
    from ..callbacks.callback import CallbackParameters

TRAIN_LABEL, EVAL_LABEL = "train", "eval"
_DEVICES = {"cuda": "gpu", "mps": "mps"}


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


def state_of_run(params: CallbackParameters, epoch_steps: int, callbacks: list[Any]) -> State:
    """Returns Composer's state of a run of our Model, which begins with ``epoch_steps`` batches of its epoch done."""
    network = params.network
    parameter = next(network.parameters(), None)
    device = "cpu" if parameter is None else _DEVICES.get(parameter.device.type, "cpu")
    is_model = isinstance(network, ComposerModel)
    epochs = params.get("epoch_num")
    state = State(
        model=network if is_model else NetworkAsComposerModel(network, params.get("loss_fn")),
        rank_zero_seed=torch.initial_seed(),
        run_name=type(network).__name__,
        device=get_device(device),
        max_duration=None if epochs is None else Time(epochs, "ep"),
        train_dataloader=params.get("train_dataset"),
        optimizers=params.get("optimizer"),
        scaler=params.get("loss_scale_manager"),
        callbacks=callbacks,
    )
    state.timestamp = Timestamp(
        epoch=params.get("cur_epoch_num", 0), batch=params.get("cur_step_num", 0), batch_in_epoch=epoch_steps
    )
    return state


def use_data(state: State, dataset: Any, label: str, params: CallbackParameters) -> None:
    """Begins to go through a data set, of which ``params`` may know the number of batches."""
    steps = params.get("batch_num")
    state.set_dataloader(dataset, label, -1 if steps is None else steps)


def save_timestamp(timestamp: Timestamp) -> dict[str, Any]:
    values = timestamp.state_dict()
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in values.items()}


def load_timestamp(values: dict[str, Any]) -> Timestamp:
    timestamp = Timestamp()
    timestamp.load_state_dict(
        {name: timedelta(seconds=value) if name.endswith("_wct") else value for name, value in values.items()}
    )
    return timestamp


def as_metrics(results: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _Result(value) for name, value in results.items()}


class _Result:
    def __init__(self, value: Any) -> None:
        self._value = value

    def compute(self) -> torch.Tensor:
        return torch.as_tensor(self._value)
