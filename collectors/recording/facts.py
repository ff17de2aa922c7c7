"""Facts for the records of a run: from its ``cb_params``, and from its data sets, whatever they are."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..callbacks.callback import step_loss
from ..networks.batches import length_of, sample_count
from ..networks.readers import framework_of
from ..networks.weight_space import canonical_name
from ..summary.graph import is_torch_network
from ..summary.lineage import EvalLineage, TrainLineage
from ..summary.values import IMAGE_CHANNELS

FIRST_PARAMETERS = 5
MOST_IMAGES = 64
# Where data sets keep the folder or the file that they read; torchvision's call it root.
_PLACES = ("root", "root_dir", "data_dir", "data_path", "directory", "path", "file_path", "filename")
_LOADER_FACTS = ("batch_size", "drop_last", "num_workers", "pin_memory", "prefetch_factor", "timeout")
_SAMPLER_FACTS = ("num_samples", "replacement", "num_replicas", "rank", "shuffle", "seed", "batch_size", "drop_last")
_DEEPEST = 16
_LONGEST_TEXT = 200


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


def dataset_path(dataset: Any) -> str | None:
    return next(filter(None, map(_place, _parts(dataset))), None)


def dataset_size(dataset: Any) -> int | None:
    """Returns the exact number of samples, or None if only an epoch can show it."""
    if isinstance(dataset, list | tuple):
        counts = [samples_of(batch) for batch in dataset]
        return None if None in counts else sum(count or 0 for count in counts)
    # Without a batch sampler the items of the inner data set are whole batches.
    if getattr(dataset, "batch_sampler", dataset) is None:
        return None
    return length_of(getattr(dataset, "dataset", None))


def dataset_batch_size(dataset: Any, element: Any) -> int | None:
    """Returns the samples per batch: the loader's setting, else the size of the given batch."""
    size = getattr(dataset, "batch_size", None)
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    return samples_of(element)


def samples_of(element: Any) -> int | None:
    """Returns how many samples a batch (inputs, targets) has, or None if it is not such a pair."""
    return sample_count(*element) if isinstance(element, tuple | list) and len(element) == 2 else None


class EpochSamples:
    """Counts the samples of the first whole epoch, for data sets that do not know their size."""

    def __init__(self, counts: bool) -> None:
        self._counts, self._batches, self._samples = counts, 0, 0
        self.total: int | None = None

    def add(self, element: Any) -> None:
        if self._counts:
            self._batches += 1
            self._samples += samples_of(element) or 0

    def end_epoch(self, batches: int | None) -> None:
        """Notes the end of an epoch of so many batches; one of which we did not see all does not count."""
        if self._counts and self._samples and self._batches == batches:
            self.total, self._counts = self._samples, False
        self._batches = self._samples = 0


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


def dataset_graph(part: Any, depth: int = 0) -> dict[str, Any]:
    """Returns the pipeline as nested dicts: ``op_type``, ``parameters``, ``operations``, ``sampler``, ``children``."""
    # The outermost is what yields batches; children are what it reads from.
    sampler = getattr(part, "sampler", None)
    facts = _facts(part, _LOADER_FACTS)
    length, place = length_of(part), _place(part)
    if length is not None:
        facts["batches" if sampler is not None else "samples"] = length
    if place is not None:
        facts["path"] = place
    return {
        "op_type": type(part).__name__,
        "parameters": facts,
        "operations": list(_operations(part)),
        "sampler": None
        if sampler is None
        else {"op_type": type(sampler).__name__, "parameters": _facts(sampler, _SAMPLER_FACTS)},
        "children": [dataset_graph(child, depth + 1) for child in _children(part)] if depth < _DEEPEST else [],
    }


def _facts(owner: Any, names: tuple[str, ...]) -> dict[str, Any]:
    facts = {name: getattr(owner, name, None) for name in names}
    return {name: fact for name, fact in facts.items() if isinstance(fact, bool | int | float | str)}


def _operations(part: Any) -> Iterator[dict[str, Any]]:
    for name in ("transform", "target_transform"):
        transform = getattr(part, name, None)
        steps = getattr(transform, "transforms", None)
        for step in steps if isinstance(steps, list | tuple) else [] if transform is None else [transform]:
            yield {"operation": _name(step), "applied_to": name, "parameters": {"text": _text(step)}}


def _text(value: Any) -> str:
    try:
        return repr(value)[:_LONGEST_TEXT]
    except Exception:
        # A user's object may raise anything in its repr; the training must go on.
        return type(value).__name__


def _children(part: Any) -> list[Any]:
    several = getattr(part, "datasets", None)
    if isinstance(several, list | tuple):
        return list(several)
    child = getattr(part, "dataset", None)
    return [] if child is None or child is part else [child]


def _parts(part: Any, depth: int = 0) -> Iterator[Any]:
    yield part
    if depth < _DEEPEST:
        for child in _children(part):
            yield from _parts(child, depth + 1)


def _place(part: Any) -> str | None:
    for name in _PLACES:
        value = getattr(part, name, None)
        if not isinstance(value, str | os.PathLike):
            continue
        text = os.fspath(value)
        if isinstance(text, str) and text and "\0" not in text and os.path.exists(text):  # noqa: PTH110
            path = Path(text).absolute()
            return str(path if path.is_dir() else path.parent)
    return None
