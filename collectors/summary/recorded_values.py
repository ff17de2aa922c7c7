"""Reads back what a training recorded, from TensorBoard's event files."""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files.places import AnyPath

_LINEAGE = "_hparams_/session_start_info"
# Class names of PyTorch, Keras and MindSpore whose step is the learning rate times a gradient, or a mean of gradients.
_GRADIENT_DESCENT = ("SGD", "Momentum")


def gradient_descent_rates(directory: AnyPath, steps: Sequence[int]) -> list[float | None] | None:
    """Returns gradient descent's rate at each step, None before the first record; None if the optimizer is another."""
    found, lineages = _recorded(directory, "learning_rate/auto")
    # The optimizer is recorded when training ends. Nothing is read behind a URL, or without TensorBoard.
    optimizers = [str(facts["optimizer"]) for facts in lineages if "optimizer" in facts]  # an evaluation has none
    if not found or not optimizers or optimizers[-1] not in _GRADIENT_DESCENT:
        return None
    recorded = list(found)
    # Between recorded steps the last one counts, and at step 0, before training, the first.
    places = [bisect.bisect_right(recorded, step) for step in steps]
    first = found[recorded[0]]
    return [
        found[recorded[place - 1]] if place else (first if step == 0 else None)
        for step, place in zip(steps, places, strict=True)
    ]


@dataclass(frozen=True)
class RecordedTraining:
    """What a training recorded of its loss; what is not known is empty or None."""

    losses: Mapping[int, float] = field(default_factory=dict)  # of batches, by step, in the order of the steps
    loss_function: str = ""  # its name
    batch_size: int | None = None
    samples: int | None = None  # of its data set


def recorded_training(directory: AnyPath) -> RecordedTraining:
    """Returns what a training recorded of its loss; nothing is read behind a URL, or without TensorBoard."""
    losses, lineages = _recorded(directory, "loss/auto")
    # An evaluation's have neither.
    of_trainings = [facts for facts in lineages if {"loss_function", "batch_size"} & facts.keys()]
    facts = of_trainings[-1] if of_trainings else {}
    batch_size, samples = (int(facts[name]) if name in facts else None for name in ("batch_size", "train_dataset_size"))
    return RecordedTraining(losses, str(facts.get("loss_function", "")), batch_size, samples)


def _recorded(directory: AnyPath, tag: str) -> tuple[dict[int, float], list[dict[str, Any]]]:
    """Returns the numbers under a tag, in the order of the steps, and the facts of trainings and evaluations."""
    numbers: dict[int, float] = {}
    lineages = []
    last: Path | None = None
    for path, step, value in _values(directory) if isinstance(directory, Path) and directory.is_dir() else ():
        if value.tag == tag:
            from tensorboard.util.tensor_util import make_ndarray

            # A file goes on with the one before, or it is a resumed training's, and what was abandoned does not count.
            if path != last:
                last, numbers = path, {known: number for known, number in numbers.items() if known < step}
            # The loader turns each plain number into a tensor.
            numbers[step] = float(make_ndarray(value.tensor))
        elif value.tag == _LINEAGE:
            from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

            content = HParamsPluginData.FromString(value.metadata.plugin_data.content)
            facts = content.session_start_info.hparams
            lineages.append(
                {name: getattr(fact, fact.WhichOneof("kind") or "string_value") for name, fact in facts.items()}
            )
    return dict(sorted(numbers.items())), lineages


def _values(directory: Path) -> Iterator[tuple[Path, int, Any]]:
    """Yields the file, the step and the value of everything recorded, file by file."""
    files = sorted(path for path in directory.iterdir() if "tfevents" in path.name and path.is_file())
    if not files:
        return
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError:
        return

    def events(path: Path) -> Iterator[Any]:
        # A damaged record ends a file, as one whose checksum is wrong.
        with contextlib.suppress(DecodeError):
            yield from EventFileLoader(str(path)).Load()

    def begun(path: Path) -> float:
        # Names tell the second alone.
        return next((event.wall_time for event in events(path)), 0.0)

    for path in sorted(files, key=begun):
        for event in events(path):
            for value in event.summary.value if event.WhichOneof("what") == "summary" else ():
                yield path, event.step, value
