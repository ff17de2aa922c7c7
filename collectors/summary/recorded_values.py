"""Reads back what a training recorded, from TensorBoard's event files."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..files.places import AnyPath

_RATE = "learning_rate/auto"
_LINEAGE = "_hparams_/session_start_info"
# Class names of PyTorch, Keras and MindSpore whose step is the learning rate times a gradient, or a mean of gradients.
_GRADIENT_DESCENT = ("SGD", "Momentum")


def gradient_descent_rates(directory: AnyPath, steps: Sequence[int]) -> list[float | None] | None:
    """Returns gradient descent's rate at each step, None before the first record; None if the optimizer is another."""
    found: dict[int, float] = {}
    optimizer = ""
    for step, value in _values(directory) if isinstance(directory, Path) and directory.is_dir() else ():
        if value.tag == _RATE:
            # Where a resumed training went over a step again, the later one counts.
            found[step] = _number(value)
        elif value.tag == _LINEAGE:
            optimizer = _optimizer(value)
    # The optimizer is recorded when training ends. Nothing is read behind a URL, or without TensorBoard.
    if not found or optimizer not in _GRADIENT_DESCENT:
        return None
    recorded = sorted(found)
    # Between recorded steps the last one counts, and at step 0, before training, the first.
    places = [bisect.bisect_right(recorded, step) for step in steps]
    first = found[recorded[0]]
    return [
        found[recorded[place - 1]] if place else (first if step == 0 else None)
        for step, place in zip(steps, places, strict=True)
    ]


def _values(directory: Path) -> Iterator[tuple[int, Any]]:
    """Yields the step and the value of everything recorded, file by file."""
    files = sorted(path for path in directory.iterdir() if "tfevents" in path.name and path.is_file())
    if not files:
        return
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        return
    for path in files:
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value if event.WhichOneof("what") == "summary" else ():
                yield event.step, value


def _number(value: Any) -> float:
    from tensorboard.util.tensor_util import make_ndarray

    # The loader turns each plain number into a tensor.
    return float(make_ndarray(value.tensor))


def _optimizer(value: Any) -> str:
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    content = HParamsPluginData.FromString(value.metadata.plugin_data.content)
    return str(content.session_start_info.hparams["optimizer"].string_value)
