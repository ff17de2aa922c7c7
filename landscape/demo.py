"""The whole way on real data: train with a collector attached, measure two landscapes, draw them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from collectors import Model, SummaryCollector
from collectors.errors import RunDirectoryError
from collectors.run_directory.directory import CHECKPOINT_FOLDER, METADATA_NAME
from collectors.run_directory.metadata import RunMetadata

from .facts import distance_text, explained_variance_text, value_range
from .figures import save_figure
from .landscape import Landscape
from .summary_landscape import SummaryLandscape

EPOCHS = 20
SEED = 0
SAMPLES = 1024
SIZE = 40
HELD_OUT = 360


def digits() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Returns scikit-learn's handwritten digits at their native 8 x 8, as training and as held-out samples."""
    data = load_digits()
    order = np.random.default_rng(SEED).permutation(len(data.target))
    images = torch.from_numpy(data.images[order]).float().unsqueeze(1) / 16
    targets = torch.from_numpy(data.target[order]).long()
    return (images[HELD_OUT:], targets[HELD_OUT:]), (images[:HELD_OUT], targets[:HELD_OUT])


def digits_network() -> nn.Module:
    class DigitsNetwork(nn.Sequential):
        """The class's name is what files and pictures call the network."""

    return DigitsNetwork(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs.argmax(1) == targets).float().mean()


def callback_fn() -> tuple[Any, nn.Module, Any, dict[str, Any]]:
    return nn.CrossEntropyLoss(), digits_network(), digits()[0], {"accuracy": accuracy}


def digits_model() -> Model:
    network = digits_network()
    return Model(
        network, nn.CrossEntropyLoss(), torch.optim.Adam(network.parameters(), lr=3e-3), {"accuracy": accuracy}
    )


def digits_batches() -> DataLoader[tuple[torch.Tensor, ...]]:
    shuffling = torch.Generator().manual_seed(SEED)
    return DataLoader(TensorDataset(*digits()[0]), batch_size=64, shuffle=True, generator=shuffling)


def train(run_directory: Path) -> float:
    """Trains the network with a SummaryCollector attached, and returns its accuracy, 0 to 1, on held-out samples."""
    torch.manual_seed(SEED)
    # A network this small gains nothing from more threads, and loses much when another program wants the cores.
    torch.set_num_threads(1)
    model = digits_model()
    collected = {"unit": "epoch", "intervals": [range(EPOCHS + 1)], "num_samples": SAMPLES, "landscape_size": SIZE}
    collector = SummaryCollector(run_directory, collect_landscape=collected, existing="overwrite")
    model.train(EPOCHS, digits_batches(), callbacks=[collector])
    return float(model.eval(DataLoader(TensorDataset(*digits()[1]), batch_size=HELD_OUT))["accuracy"])


def run_demo(output: Path) -> list[Landscape]:
    start = time.perf_counter()
    known = output / CHECKPOINT_FOLDER / METADATA_NAME
    if known.exists() and (name := RunMetadata.load(known).network.get("name")) != type(digits_network()).__name__:
        raise RunDirectoryError(
            f"{output} holds a run of {name}, which is no demo's, and was left as it is. Give another directory."
        )
    print(f"1. Training a small convolutional network on handwritten digits for {EPOCHS} epochs ...", flush=True)
    held_out = train(output)
    print(f"   accuracy on {HELD_OUT} held-out digits: {100 * held_out:.1f} %  ({_seconds(start)})")
    print("2. Measuring two landscapes on two workers (one for each half of the cores) ...", flush=True)
    landscapes = SummaryLandscape(output).gen_landscapes_with_multi_process(
        callback_fn, device_ids=[0, 1], overwrite=True
    )
    print("3. Drawing ...", flush=True)
    files = []
    for landscape in landscapes:
        assert isinstance(landscape.path, Path)
        files.append(landscape.path)
        for kind, draw in (("contour", landscape.plot_contour), ("surface", landscape.plot_surface)):
            picture = landscape.path.with_name(f"{landscape.path.stem}_{kind}.png")
            save_figure(draw(), picture)
            files.append(picture)
    print(f"\n{landscape_table(landscapes)}\n")
    for file in files:
        print(f"  {file}")
    print(f"\nDone in {_seconds(start)}.")
    sys.stdout.flush()
    return landscapes


def _seconds(start: float) -> str:
    return f"{time.perf_counter() - start:.1f} s"


def landscape_table(landscapes: Sequence[Landscape]) -> str:
    rows = [
        ("landscape", "loss range", "explained variance", "largest distance from plane", "points/s", "seconds"),
        *(
            (
                str(landscape.attributes.get("decomposition")),
                value_range(landscape.loss),
                explained_variance_text(landscape) or "-",
                distance_text(landscape) or "-",
                f"{landscape.report.points_per_second:.0f}" if landscape.report else "-",
                f"{landscape.report.seconds:.1f}" if landscape.report else "-",
            )
            for landscape in landscapes
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
