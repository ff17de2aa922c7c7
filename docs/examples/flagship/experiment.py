"""Trains one network and measures the loss around it; each step that is done stays done."""

from __future__ import annotations

import functools
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from residual_networks import ResidualNetwork, digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from collectors import LearningRateScheduler, Model, SummaryCollector
from collectors.run_directory import RunDirectory
from landscape import evaluate, random_plane
from landscape.functions import measure_points
from landscape.planes import random_line
from workers.measurement_plan import MeasurementPlan

PLANE_SEED = 0
"""Of the two directions of every plane. The lines have seeds 1, 2, ..."""
WARM_UP = 0.1
"""Share of the steps in which the learning rate rises."""
_BATCH = 256
"""Samples in a forward pass of the measurements."""


@dataclass(frozen=True)
class Settings:
    """What is the same for all networks.

    Attributes:
        depths: layers of the shallow and of the deep networks.
        seeds: networks of each recipe.
        epochs: of training.
        channels: of the networks' first stage.
        learning_rate: the highest one.
        batch: training samples in a step.
        weight_decay: of all weights.
        size: points along each axis of a plane, from -1 to 1.
        lines: random lines through each network.
        line_size: points of each line, from -1 to 1.
        samples: training samples that each loss is the mean of; None takes all.
    """

    depths: tuple[int, int] = (20, 56)
    seeds: int = 3
    epochs: int = 80
    channels: int = 8
    learning_rate: float = 0.02
    batch: int = 128
    weight_decay: float = 5e-4
    size: int = 25
    lines: int = 5
    line_size: int = 41
    samples: int | None = 512


@dataclass(frozen=True)
class Recipe:
    """How a network is built.

    Attributes:
        layers: its depth.
        skips: whether it has skips.
    """

    layers: int
    skips: bool

    @property
    def title(self) -> str:
        """What pictures call it."""
        return f"{self.layers} layers, {'with' if self.skips else 'without'} skips"

    @property
    def name(self) -> str:
        """What folders are called after."""
        return f"{self.layers}_{'skips' if self.skips else 'plain'}"


def recipes(settings: Settings) -> list[Recipe]:
    """Returns the four recipes in the order of the pictures: a row for each depth, without skips on the left."""
    return [Recipe(layers, skips) for layers in settings.depths for skips in (False, True)]


def folder_of(output: Path, recipe: Recipe, seed: int) -> Path:
    """Returns where everything of one network lies."""
    return output / f"{recipe.name}_seed{seed}"


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the share of samples whose largest output is the target."""
    return (outputs.argmax(1) == targets).float().mean()


def callback_fn(recipe: Recipe, channels: int, *, test: bool = False) -> tuple[Any, nn.Module, Any, dict[str, Any]]:
    """Returns what is measured: the loss on training samples; with ``test`` also on those held out, and accuracies."""
    training, held_out = digits()
    network = ResidualNetwork(recipe.layers, skips=recipe.skips, channels=channels)
    if not test:
        return nn.CrossEntropyLoss(), network, training, {}
    data = {"train": training, "test": held_out}
    batches = {name: DataLoader(TensorDataset(*samples), batch_size=_BATCH) for name, samples in data.items()}
    return nn.CrossEntropyLoss(), network, batches, {"accuracy": accuracy}


def run_one(settings: Settings, recipe: Recipe, seed: int, output: Path) -> str:
    """Trains a network unless that is done, and measures what is not measured yet around it.

    Returns:
        A line that says what the network is like.
    """
    folder = folder_of(output, recipe, seed)
    _check_settings(settings, folder)
    torch.set_num_threads(1)
    if not (folder / "trained").exists():
        train(settings, recipe, seed, folder)
        (folder / "trained").touch()
    weights = RunDirectory(folder / "run").checkpoint(settings.epochs)
    network = ResidualNetwork(recipe.layers, skips=recipe.skips, channels=settings.channels)
    measured = functools.partial(callback_fn, recipe, settings.channels)
    # One plan for all: nothing is timed, so that a machine that is busy measures the same values.
    options: dict[str, Any] = {"plan": MeasurementPlan(batch_size=_BATCH), "compile": False, "device_ids": [0]}
    plane = random_plane(weights, network=network, seed=PLANE_SEED, name="trained")
    if not (folder / "origin.json").exists():
        with warnings.catch_warnings():
            # The accuracy of a well trained network is 100 % in each batch; batches stay as they are in any case.
            warnings.filterwarnings("ignore", "metric 'accuracy' hardly differs between batches")
            both = measure_points(plane, functools.partial(measured, test=True), [[0.0, 0.0]], **options)
        _write_whole(folder / "origin.json", json.dumps({name: float(value[0]) for name, value in both.items()}))
    options |= {"num_samples": settings.samples, "progress": False}
    axis = axis_to_one(settings.size)
    evaluate(plane, measured, x=axis, y=axis, output=folder / "plane.h5", **options)
    for line in range(1, settings.lines + 1):
        direction = random_line(weights, network=network, seed=line, name="trained")
        evaluate(direction, measured, x=axis_to_one(settings.line_size), output=folder / f"line_{line}.h5", **options)
    origin = json.loads((folder / "origin.json").read_text())
    return f"{recipe.title}, seed {seed}: loss {origin['loss']:.3g}, test accuracy {origin['accuracy@test']:.1%}"


def train(settings: Settings, recipe: Recipe, seed: int, folder: Path) -> None:
    """Trains a network from its beginning, with a SummaryCollector that keeps ten checkpoints and the last one."""
    torch.manual_seed(seed)
    network = ResidualNetwork(recipe.layers, skips=recipe.skips, channels=settings.channels)
    training, _ = digits()
    loader = DataLoader(TensorDataset(*training), batch_size=settings.batch, shuffle=True, drop_last=True)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=settings.weight_decay
    )
    kept = sorted({settings.epochs * part // 10 for part in range(11)})
    collector = SummaryCollector(
        folder / "run", collect_landscape={"unit": "epoch", "intervals": [kept]}, keep_default_action=False,
        existing="overwrite",
    )  # fmt: skip
    rate = LearningRateScheduler(_rate(settings, settings.epochs * len(loader)), before_first_step=True)
    Model(network, nn.CrossEntropyLoss(), optimizer).train(settings.epochs, loader, callbacks=[rate, collector])


def axis_to_one(size: int) -> np.ndarray:
    """Returns an axis from -1 to 1 of an odd number of points, with exactly 0 in the middle."""
    if size % 2 == 0:
        raise ValueError(f"size must be odd, so that the network itself is a point of the grid, but got {size}.")
    half = size // 2
    return np.arange(-half, half + 1) / half


def _rate(settings: Settings, steps: int) -> Callable[[float, int], float]:
    """Returns the schedule: up in a straight line over the first tenth of all steps, then down along a cosine."""

    def rate(_: float, done: int) -> float:
        share = min(done / steps, 1.0)
        if share < WARM_UP:
            return settings.learning_rate * (share + 1 / steps) / (WARM_UP + 1 / steps)
        return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * (share - WARM_UP) / (1 - WARM_UP)))

    return rate


def _check_settings(settings: Settings, folder: Path) -> None:
    """Lets a folder be continued only with the settings that it was begun with."""
    folder.mkdir(parents=True, exist_ok=True)
    file, now = folder / "settings.json", json.dumps(asdict(settings) | {"seeds": None})
    if not file.exists():
        _write_whole(file, now)
    elif file.read_text() != now:
        raise ValueError(
            f"{folder} was begun with other settings: {file.read_text()}, but now they are {now}. Remove the folder, "
            "or choose another one with --output."
        )


def _write_whole(file: Path, text: str) -> None:
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.replace(file)
