"""The work that all contenders share: networks, samples and directions, prepared once and read from one file.

Needs nothing but PyTorch to read it, so that every contender's start-up is its own.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut without parameters (He et al. 2016, option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        shortcut = images
        if self.added:
            before = self.added // 2
            shortcut = functional.pad(
                images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.added - before)
            )
        hidden = functional.relu(self.first_norm(self.first(images)))
        return functional.relu(self.second_norm(self.second(hidden)) + shortcut)


class ResNet20(nn.Module):
    """ResNet-20 for 1 x 32 x 32 images (He et al. 2016, section 4.2)."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [
            BasicBlock(inputs if index == 0 else outputs, outputs, stride if index == 0 else 1)
            for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
            for index in range(3)
        ]
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


class LeNet5(nn.Sequential):
    """LeNet-5 for 1 x 32 x 32 images (LeCun et al. 1998)."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)),
            *(nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
        )


class Perceptron(nn.Sequential):
    """Three fully connected layers for 1 x 32 x 32 images."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        )


class Transformer(nn.Module):
    """Two encoder layers over the eight rows of a digit in the middle of 1 x 32 x 32 images (Vaswani et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, 64)
        self.places = nn.Parameter(0.1 * torch.randn(8, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = self.embedding(images[:, 0, 12:20, 12:20]) + self.places
        return self.head(self.norm(self.encoder(rows)).mean(1))


NETWORKS = {"LeNet-5": LeNet5, "ResNet-20": ResNet20, "perceptron": Perceptron, "transformer": Transformer}


def read_work(path: str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """Returns the trained network, in eval mode, and what ``prepare_work`` wrote beside it."""
    work = torch.load(path, weights_only=True)
    network = NETWORKS[work["network"]]()
    network.load_state_dict(work["state"])
    return network.eval(), work


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns scikit-learn's digits in the middle of 32 x 32 pixels, and their classes."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = functional.pad(torch.from_numpy(data.images).float()[:, None] / 16, (12, 12, 12, 12))
    return images, torch.from_numpy(data.target).long()


def prepare_work(path: Path, name: str, samples: int, epochs: int) -> None:
    """Trains a network on scikit-learn's digits and writes it with samples and two directions."""
    from landscape import random_plane

    images, targets = digits()
    torch.manual_seed(0)
    network = NETWORKS[name]()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    for _ in range(epochs):
        for batch in torch.randperm(samples).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(network(images[batch]), targets[batch]).backward()
            optimizer.step()
    directions = [
        {key: torch.from_numpy(array) for key, array in direction.items()}
        for direction in random_plane(network, seed=0).directions
    ]
    torch.save(
        {
            "network": name,
            "state": network.state_dict(),
            "inputs": images[:samples].clone(),
            "targets": targets[:samples].clone(),
            "directions": directions,
        },
        path,
    )
