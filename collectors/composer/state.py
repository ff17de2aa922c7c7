"""What Composer's callbacks read in ``state``, kept up to date from our ``cb_params``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from composer import ComposerModel, State, Time, Timestamp
from composer.utils import get_device
from torch import nn

from ..networks.batches import call_network, sample_count

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


class ModelState:
    """Composer's ``State`` of a run of our Model, which begins with ``epoch_steps`` batches of its epoch done."""

    def __init__(self, params: CallbackParameters, epoch_steps: int, callbacks: list[Any]) -> None:
        network = params.network
        parameter = next(network.parameters(), None)
        device = "cpu" if parameter is None else _DEVICES.get(parameter.device.type, "cpu")
        is_model = isinstance(network, ComposerModel)
        optimizer = params.get("optimizer")
        epochs = params.get("epoch_num")
        self.state = State(
            model=network if is_model else NetworkAsComposerModel(network, params.get("loss_fn")),
            rank_zero_seed=torch.initial_seed(),
            run_name=type(network).__name__,
            device=get_device(device),
            max_duration=None if epochs is None else Time(epochs, "ep"),
            train_dataloader=params.get("train_dataset"),
            optimizers=optimizer,
            scaler=params.get("loss_scale_manager"),
            callbacks=callbacks,
        )
        self._duration = self.state.max_duration
        self.state.timestamp = Timestamp(
            epoch=params.get("cur_epoch_num", 0), batch=params.get("cur_step_num", 0), batch_in_epoch=epoch_steps
        )
        self._seen_at = self._eval_began_at = perf_counter()

    @property
    def stop_requested(self) -> bool:
        """Whether a callback ended the duration, and it is over."""
        duration = self.state.max_duration
        # Not `==`: durations of different units cannot be compared.
        return duration is not None and duration is not self._duration and bool(self.state.timestamp >= duration)

    def begin_training_batches(self, params: CallbackParameters) -> None:
        steps = params.get("batch_num")
        self.state.set_dataloader(params.train_dataset, TRAIN_LABEL, -1 if steps is None else steps)

    def end_step(self, params: CallbackParameters) -> None:
        state = self.state
        state.loss = torch.as_tensor(params.net_outputs)
        now = perf_counter()
        state.previous_timestamp = state.timestamp
        state.timestamp = state.timestamp.to_next_batch(
            samples=sample_count(*params.train_dataset_element), duration=timedelta(seconds=now - self._seen_at)
        )
        self._seen_at = now

    def end_epoch(self) -> None:
        self.state.previous_timestamp = self.state.timestamp
        self.state.timestamp = self.state.timestamp.to_next_epoch()

    def begin_evaluation(self, params: CallbackParameters) -> None:
        steps = params.get("batch_num")
        self.state.eval_timestamp = Timestamp()
        self.state.set_dataloader(params.valid_dataset, EVAL_LABEL, -1 if steps is None else steps)
        self._eval_began_at = perf_counter()

    def end_evaluation_step(self, params: CallbackParameters) -> None:
        state, outputs = self.state, params.net_outputs
        inputs, targets = params.eval_dataset_element
        if isinstance(outputs, tuple) and len(outputs) == 3 and outputs[2] is targets:
            state.loss, outputs, _ = outputs
        state.outputs = outputs
        elapsed = perf_counter() - self._eval_began_at - state.eval_timestamp.total_wct.total_seconds()
        state.eval_timestamp = state.eval_timestamp.to_next_batch(
            samples=sample_count(inputs, targets), duration=timedelta(seconds=max(elapsed, 0.0))
        )

    def end_evaluation(self, params: CallbackParameters) -> dict[str, Any]:
        results = {**params.metrics, **params.get("eval_results", {})}
        self.state.eval_metrics = {EVAL_LABEL: {name: _Result(value) for name, value in results.items()}}
        self.state.eval_metric_values = dict(results)
        return results

    def leave_evaluation(self, params: CallbackParameters) -> None:
        """Goes back to the training around the evaluation; its time does not count as the training's."""
        self._seen_at += perf_counter() - self._eval_began_at
        if "train_dataset" in params:
            self.state.set_dataloader(params.train_dataset, TRAIN_LABEL)

    def state_dict(self) -> dict[str, Any]:
        values = self.state.timestamp.state_dict()
        return {
            name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in values.items()
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        timestamp = Timestamp()
        timestamp.load_state_dict(
            {name: timedelta(seconds=value) if name.endswith("_wct") else value for name, value in values.items()}
        )
        self.state.timestamp = timestamp
        self._seen_at = perf_counter()


class _Result:
    def __init__(self, value: Any) -> None:
        self._value = value

    def compute(self) -> torch.Tensor:
        return torch.as_tensor(self._value)
