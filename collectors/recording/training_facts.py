"""What a training or an evaluation was, put together from its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .collected_values import is_torch_network
from .dataset_description import dataset_path, dataset_size
from .lineage import EvalLineage, TrainLineage
from .step_loss import step_loss


def train_lineage(
    params: Mapping[str, Any], learning_rate: float | None, batch_size: int | None, counted: int | None
) -> TrainLineage:
    """Returns the facts of a training that has ended.

    Args:
        params: its ``cb_params``.
        learning_rate: the first learning rate, None where it changed.
        batch_size: samples per batch.
        counted: samples of an epoch, for a data set that does not know.
    """
    dataset = params.get("train_dataset")
    model_path, model_size = _model(params.get("list_callback"))
    return TrainLineage(
        network=_network_name(params.get("network")),
        loss=last_loss(params.get("net_outputs")),
        optimizer=_name(params.get("optimizer")),
        learning_rate=learning_rate,
        loss_function=_name(params.get("loss_fn")),
        epoch=params.get("epoch_num"),
        parallel_mode=params.get("parallel_mode"),
        device_num=params.get("device_number"),
        batch_size=batch_size,
        train_dataset_path=dataset_path(dataset),
        train_dataset_size=counted if (size := dataset_size(dataset)) is None else size,
        model_path=model_path,
        model_size=model_size,
    )


def eval_lineage(params: Mapping[str, Any]) -> EvalLineage:
    """Returns the facts of an evaluation that has ended; of a metric with several values each is ``<name>/<index>``."""
    metrics: dict[str, float] = {}
    for name, value in (params.get("eval_results") or params.get("metrics") or {}).items():
        numbers = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        if numbers.dtype.kind not in "biuf":
            continue
        flat = numbers.reshape(-1).astype(np.float64).tolist()
        metrics.update({name: flat[0]} if numbers.size == 1 else {f"{name}/{i}": x for i, x in enumerate(flat)})
    dataset = params.get("valid_dataset")
    return EvalLineage(metrics, dataset_path(dataset), dataset_size(dataset))


def last_loss(net_outputs: Any) -> float | None:
    """Returns the loss as a number, or None where there is none."""
    if net_outputs is None:
        return None
    try:
        return float(step_loss(net_outputs))
    except TypeError:
        return None


def _name(thing: Any) -> str | None:
    if thing is None:
        return None
    # A function is known by its own name; functools.partial and objects by their class.
    return getattr(thing, "__name__", None) or type(thing).__name__


def _network_name(network: Any) -> str | None:
    if is_torch_network(network):
        from .torch_state import unwrap

        network = unwrap(network)
    return None if network is None else type(network).__name__


def _model(callbacks: Any) -> tuple[str, int | None]:
    path: str | None = None
    for callback in callbacks if isinstance(callbacks, list | tuple) else ():
        path = getattr(callback, "latest_ckpt_file_name", path)
    file = Path(path) if path else None
    return json.dumps({"ckpt": path}), file.stat().st_size if file is not None and file.is_file() else None
