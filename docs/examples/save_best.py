"""Callbacks of your own: save the network when its loss is low, and when its accuracy is the best so far.

Run it with ``python docs/examples/save_best.py``: it trains on handwritten digits and leaves its files in
``checkpoints``.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from collectors import Callback, LossMonitor, Model, RunContext
from collectors.networks.readers import read_network
from collectors.weights.safetensors_file import write_checkpoint


class SaveBelowLoss(Callback):
    """Saves the network after every step whose loss is under a threshold, as ``<epoch>_<step>.safetensors``.

    Args:
        threshold: the loss to stay under.
        folder: where to save.

    Attributes:
        saved: the files of this run.
    """

    def __init__(self, threshold: float, folder: str | os.PathLike[str]) -> None:
        self.threshold = threshold
        self.folder = Path(folder)
        self.saved: list[Path] = []

    def on_train_begin(self, run_context: RunContext) -> None:
        """Makes the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.saved = []

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Saves the network when the loss of this step is low enough."""
        cb_params = run_context.original_args()
        if float(cb_params.net_outputs) < self.threshold:
            path = self.folder / f"{cb_params.cur_epoch_num}_{cb_params.cur_step_num}.safetensors"
            write_checkpoint(path, read_network(cb_params.network))
            self.saved.append(path)


class SaveBestAccuracy(Callback):
    """Keeps the network with the best accuracy so far in ``best_accuracy.safetensors``; for ``Model.fit``.

    Args:
        folder: where to save.

    Attributes:
        best: the best accuracy so far.
        best_epoch: the epoch that gave it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / "best_accuracy.safetensors"
        self.best = -math.inf
        self.best_epoch: int | None = None

    def on_train_begin(self, run_context: RunContext) -> None:
        """Makes the folder, and forgets the run before."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.best, self.best_epoch = -math.inf, None

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Saves the network when this epoch was evaluated and beats the others."""
        cb_params = run_context.original_args()
        accuracy = cb_params.get("metrics", {}).get("accuracy", -math.inf)
        if accuracy > self.best:
            self.best, self.best_epoch = accuracy, cb_params.cur_epoch_num
            write_checkpoint(self.path, read_network(cb_params.network))


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the share of samples that are put into the right class."""
    return (outputs.argmax(1) == targets).double().mean()


def main(folder: str | os.PathLike[str] = "checkpoints", epochs: int = 10) -> tuple[SaveBelowLoss, SaveBestAccuracy]:
    """Trains for some epochs and returns the callbacks."""
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    train_dataset = DataLoader(TensorDataset(inputs[:1500], targets[:1500]), batch_size=64, shuffle=True)
    valid_dataset = DataLoader(TensorDataset(inputs[1500:], targets[1500:]), batch_size=256)
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    model = Model(network, nn.CrossEntropyLoss(), optimizer, {"accuracy": accuracy})
    below_loss, best_accuracy = SaveBelowLoss(0.05, folder), SaveBestAccuracy(folder)
    model.fit(epochs, train_dataset, valid_dataset, callbacks=[LossMonitor(100), below_loss, best_accuracy])
    return below_loss, best_accuracy


if __name__ == "__main__":
    main()
