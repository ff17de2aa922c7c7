"""Facts read from the ``cb_params`` of a run: lineage, learning rates, parameters for histograms, input images."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..callbacks.callback import step_loss
from ..networks.readers import framework_of
from ..networks.weight_space import canonical_name
from ..summary.graph import is_torch_network
from ..summary.lineage import EvalLineage, TrainLineage
from ..summary.values import IMAGE_CHANNELS
from .dataset_facts import dataset_path, dataset_size

FIRST_PARAMETERS = 5
MOST_IMAGES = 64


def train_lineage(
    params: Mapping[str, Any], learning_rate: float | None, batch_size: int | None, counted: int | None
) -> TrainLineage:
    """Returns the facts of a training that has ended; ``counted`` samples where the data set knows no size."""
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
    if net_outputs is None:
        return None
    try:
        return float(step_loss(net_outputs))
    except TypeError:
        return None


def learning_rates(optimizer: Any) -> list[Any]:
    """Returns the present learning rate of each parameter group, a float or a copied tensor; empty without any."""
    groups = getattr(optimizer, "param_groups", None)
    rates = [group["lr"] for group in groups if "lr" in group] if isinstance(groups, list) else []
    # A tensor stays on its device, so that looking at it does not make the training wait.
    return [rate.detach().clone() if hasattr(rate, "detach") else float(rate) for rate in rates]


def histogram_parameters(network: Any, optimizer: Any, pattern: re.Pattern[str] | None) -> dict[str, Any]:
    """Returns the parameters to draw histograms of, by name: those moved, or trained, that match, or the first five."""
    if not is_torch_network(network):
        return {}
    groups = getattr(optimizer, "param_groups", None)
    moved = {id(item) for group in groups for item in group["params"]} if isinstance(groups, list) else None
    found = {
        name: parameter
        for name, parameter in _named_parameters(network)
        if (parameter.requires_grad if moved is None else id(parameter) in moved) and not parameter.is_complex()
    }
    if pattern is not None:
        return {name: parameter for name, parameter in found.items() if pattern.match(name)}
    return dict(list(found.items())[:FIRST_PARAMETERS])


def input_images(element: Any) -> Any:
    """Returns the images that a batch begins with, at most 64 of them, or None if it begins with something else."""
    first = element
    while isinstance(first, tuple | list | Mapping) and len(first):
        first = next(iter(first.values())) if isinstance(first, Mapping) else first[0]
    shape = tuple(getattr(first, "shape", ()))
    if len(shape) != 4 or 0 in shape or not {shape[1], shape[3]} & set(IMAGE_CHANNELS):
        return None
    return first[:MOST_IMAGES]


def _named_parameters(network: Any) -> list[tuple[str, Any]]:
    """Returns the parameters of a network that is a PyTorch module, under the names that they have in checkpoints."""
    if framework_of(network) == "keras":
        from ..networks.keras_network import named_variables

        return [(info.name, item.value) for info, item in named_variables(network) if info.role == "parameter"]
    return [(canonical_name(name), parameter) for name, parameter in network.named_parameters()]


def _name(thing: Any) -> str | None:
    if thing is None:
        return None
    # A function is known by its own name; functools.partial and objects by their class.
    return getattr(thing, "__name__", None) or type(thing).__name__


def _network_name(network: Any) -> str | None:
    if is_torch_network(network):
        from ..networks.torch_network import unwrap

        network = unwrap(network)
    return None if network is None else type(network).__name__


def _model(callbacks: Any) -> tuple[str, int | None]:
    path: str | None = None
    for callback in callbacks if isinstance(callbacks, list | tuple) else ():
        path = getattr(callback, "latest_ckpt_file_name", path)
    file = Path(path) if path else None
    return json.dumps({"ckpt": path}), file.stat().st_size if file is not None and file.is_file() else None
