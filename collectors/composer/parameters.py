"""What our callbacks read in ``cb_params``, taken from the state of a Composer trainer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from ..callbacks.callback import CallbackParameters
from ..callbacks.callback_manager import callbacks_with_state
from ..networks.torch_network import unwrap
from ..process_rank import parallel_parameters

if TYPE_CHECKING:
    from composer import State


_FROM_TRAINING = ("mode", "cur_step_num", "batch_num", "net_outputs")


def composer_missing(error: ImportError) -> ImportError:
    return ImportError(
        f"Composer cannot be imported ({error}); install it with pip install 'summary-landscape[composer]'."
    )


def training_parameters(state: State) -> CallbackParameters:
    network = unwrap(state.model)
    batch_num = batches_of(state)
    step = int(state.timestamp.batch)
    return CallbackParameters(
        mode="train",
        network=network,
        train_network=state.model,
        loss_fn=getattr(network, "loss", None),
        optimizer=state.optimizers[0] if state.optimizers else None,
        train_dataset=state.dataloader,
        train_dataset_element=None,
        epoch_num=_epochs(state, batch_num),
        cur_epoch_num=int(state.timestamp.epoch),
        batch_num=batch_num,
        cur_step_num=step,
        initial_step=step,
        **parallel_parameters(),
        dataset_sink_mode=False,
        loss_scale_manager=state.scaler,
        # The reference's spelling, for callbacks that were written against it.
        loss_scale_mananger=state.scaler,
        last_save_ckpt_step=None,
        latest_ckpt_file=None,
    )


def begin_evaluation(params: CallbackParameters, state: State) -> dict[str, Any]:
    """Sets the parameters for an evaluation and returns those of the training around it."""
    training = {key: params[key] for key in _FROM_TRAINING if key in params}
    params.update(
        mode="eval",
        eval_network=state.model,
        valid_dataset=state.dataloader,
        batch_num=batches_of(state),
        cur_step_num=0,
        dataset_sink_mode=False,
    )
    return training


def step_loss(state: State) -> Any:
    """Returns the loss of the batch that is done: over all its microbatches and all ranks."""
    # The trainer's total is an all-reduced number under this name; state.loss is the last microbatch's, scaled.
    return state.total_loss_dict.get("loss/train/total", state.loss)


def evaluation_results(state: State) -> dict[str, Any]:
    label = state.dataloader_label
    metrics = state.eval_metrics.get(label, {}) if label is not None else {}
    return {name: _number(state.eval_metric_values[name]) for name in metrics if name in state.eval_metric_values}


def batches_of(state: State) -> int | None:
    return None if state.dataloader_len is None else int(state.dataloader_len)


def states_of(callbacks: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, callback.state_dict()) for name, callback in callbacks_with_state(callbacks)]


def _epochs(state: State, batch_num: int | None) -> int | None:
    duration = state.max_duration
    if duration is None:
        return None
    if duration.unit.value == "ep":
        return int(duration)
    return math.ceil(int(duration) / batch_num) if duration.unit.value == "ba" and batch_num else None


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, torch.Tensor) and value.numel() == 1 else value
