"""Lineage: the facts about a run (what was trained, on what, how well) that a summary keeps beside its curves."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..validation import check_instance, check_int, check_keys, wrong_type, wrong_value

LINEAGE_KINDS = ("train_lineage", "eval_lineage", "custom_lineage_data")
HYPER_CONFIG = "MINDINSIGHT_HYPER_CONFIG"
LONGEST_HYPER_CONFIG = 100_000
_DEEPEST = 64


@dataclass(frozen=True)
class TrainLineage:
    """What a training was; None where something is not known.

    Attributes:
        network: class name of the network.
        loss: the last loss; NaN stays NaN.
        optimizer: class name of the optimizer.
        learning_rate: the first learning rate, or None when a schedule sets it.
        loss_function: class name of the loss function.
        epoch: how many epochs were asked for.
        parallel_mode: how the training was spread over devices.
        device_num: on how many devices.
        batch_size: samples per step.
        train_dataset_path: folder of the training data.
        train_dataset_size: samples in the training data.
        model_path: the last checkpoint, as the reference writes it: ``{"ckpt": "<path>"}``.
        model_size: its size in bytes.
    """

    network: str | None = None
    loss: float | None = None
    optimizer: str | None = None
    learning_rate: float | None = None
    loss_function: str | None = None
    epoch: int | None = None
    parallel_mode: str | None = None
    device_num: int | None = None
    batch_size: int | None = None
    train_dataset_path: str | None = None
    train_dataset_size: int | None = None
    model_path: str | None = None
    model_size: int | None = None


@dataclass(frozen=True)
class EvalLineage:
    """How well a network did.

    Attributes:
        metrics: metric name to value.
        valid_dataset_path: folder of the data.
        valid_dataset_size: samples in the data.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    valid_dataset_path: str | None = None
    valid_dataset_size: int | None = None


_NUMBERS = ("loss", "learning_rate")
_COUNTS = ("epoch", "device_num", "batch_size", "train_dataset_size", "valid_dataset_size", "model_size")


def check_lineage(name: str, value: Any, kind: type[TrainLineage] | type[EvalLineage]) -> dict[str, Any]:
    if isinstance(value, kind):
        given = asdict(value)
    else:
        check_instance(name, value, Mapping, f"a {kind.__name__} or a dict with its fields")
        given = check_keys(name, value, kind.__dataclass_fields__)
    if kind is EvalLineage:
        given = {"metrics": {}, **given}
    return {key: _fact(f"{name}[{key!r}]", key, item) for key, item in given.items()}


def check_custom_lineage(name: str, value: Any) -> dict[str, int | float | str]:
    check_instance(name, value, Mapping, "a dict from str to int, float or str")
    facts: dict[str, int | float | str] = {}
    for key, item in value.items():
        check_instance(f"a key of {name}", key, str, "a str")
        fact = item.item() if isinstance(item, np.integer | np.floating) else item
        if isinstance(fact, bool) or not isinstance(fact, int | float | str):
            raise wrong_type(f"{name}[{key!r}]", "an int, a float or a str", item)
        facts[key] = fact
    return facts


def check_dataset_graph(name: str, value: Any) -> dict[str, Any]:
    """Returns a data pipeline as nested dictionaries (``op_type``, ``parameters``, ``children``, ...)."""
    check_instance(name, value, Mapping, "a dict that describes the data pipeline")
    return dict(_plain(name, value, 0))


def custom_lineage_with_environment(custom: Mapping[str, int | float | str]) -> dict[str, int | float | str]:
    """Returns a user's facts with those of a tuner in ``MINDINSIGHT_HYPER_CONFIG`` (JSON); the user's value stays."""
    text = os.environ.get(HYPER_CONFIG)
    if not text:
        return dict(custom)
    try:
        if len(text) > LONGEST_HYPER_CONFIG:
            raise wrong_value(HYPER_CONFIG, f"at most {LONGEST_HYPER_CONFIG} characters long", f"{len(text)}")
        config = check_instance(HYPER_CONFIG, json.loads(text), Mapping, "a JSON object")
        found = check_custom_lineage("custom_lineage_data", config.get("custom_lineage_data") or {})
    except (ValueError, TypeError, RecursionError) as error:
        warnings.warn(f"{HYPER_CONFIG} is left out of the lineage: {error}", UserWarning, stacklevel=2)
        return dict(custom)
    return {**found, **custom}


def hyperparameters(facts: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Returns facts as TensorBoard's hyperparameters: numbers, str and bool; what is None or nested is left out."""
    result: dict[str, bool | float | str] = {}
    for key, item in facts.items():
        if isinstance(item, bool | float | str):
            result[key] = item
        elif isinstance(item, int):
            # TensorBoard keeps a double: an integer that does not fit stays exact as text.
            result[key] = item if abs(item) <= 2**53 else str(item)
    return result


def _fact(name: str, key: str, value: Any) -> Any:
    if key == "metrics":
        for metric in check_instance(name, value, Mapping, "a dict from name to number"):
            check_instance(f"a key of {name}", metric, str, "a str")
        return {metric: _number(f"{name}[{metric!r}]", item) for metric, item in value.items()}
    if value is None:
        return None
    if key in _NUMBERS:
        return _number(name, value)
    if key in _COUNTS:
        return check_int(name, value, minimum=0)
    return check_instance(name, os.fspath(value) if isinstance(value, os.PathLike) else value, str, "a str or None")


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise wrong_type(name, "a number", value)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _plain(name: str, value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(
            f"{name} must be nested at most {_DEEPEST} deep, but it is deeper or holds itself; flatten it."
        )
    if isinstance(value, Mapping):
        for key in value:
            check_instance(f"a key of {name}", key, str, "a str")
        return {key: _plain(f"{name}[{key!r}]", item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{name}[{index}]", item, depth + 1) for index, item in enumerate(value)]
    value = value.item() if isinstance(value, np.generic) else value
    return check_instance(name, value, (str, int, float, type(None)), "a dict, a list, a number, a str or None")
