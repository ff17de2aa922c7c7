"""Residual networks of any depth with and without skips, and the handwritten digits that they learn."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

HELD_OUT = 360
_BLOCKS_PER_STAGE = "layers must be 6 n + 2, such as 8, 20 or 56"


class Block(nn.Module):
    """Two convolutions; with a skip, what came in is added to what they give.

    The skip has no parameters (option A of He et al.): where the block halves the image it takes every second pixel,
    and new channels begin at zero. So a block has the same weights with and without it.
    """

    def __init__(self, channels_in: int, channels: int, stride: int, *, skip: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.stride, self.skip, self.new_channels = stride, skip, channels - channels_in

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns features of shape (samples, channels, height, width)."""
        found = functional.relu(self.first_norm(self.first(images)))
        found = self.second_norm(self.second(found))
        if self.skip:
            passed = images[:, :, :: self.stride, :: self.stride]
            found = found + functional.pad(passed, (0, 0, 0, 0, 0, self.new_channels))
        return functional.relu(found)


class ResidualNetwork(nn.Module):
    """The residual network for small images, or the same layers without skips.

    Args:
        layers: convolutions and the last linear layer together, 6 n + 2.
        skips: whether each block adds its input to its output.
        channels: of the first of the three stages; each stage has twice as many as the one before.

    Source: He, Zhang, Ren, Sun 2015 (section 4.2), here narrower.
    """

    def __init__(self, layers: int, *, skips: bool, channels: int = 8) -> None:
        super().__init__()
        if layers < 8 or (layers - 2) % 6:
            raise ValueError(f"{_BLOCKS_PER_STAGE}, but got {layers}.")
        self.stem = nn.Conv2d(1, channels, 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(channels)
        blocks, before = [], channels
        for stage in range(3):
            after = channels * 2**stage
            for place in range((layers - 2) // 6):
                blocks.append(Block(before, after, 2 if stage and not place else 1, skip=skips))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, 10)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the outputs for ten classes of images of shape (samples, 1, 8, 8)."""
        found = functional.relu(self.stem_norm(self.stem(images)))
        return self.head(self.blocks(found).mean((2, 3)))


def digits() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Returns scikit-learn's 1,797 digits of 8 x 8 pixels in a random order: 1,437 to train on, 360 to test on."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = torch.from_numpy(data.images[order]).float().unsqueeze(1)
    targets = torch.from_numpy(data.target[order]).long()
    training = images[HELD_OUT:]
    images = (images - training.mean()) / training.std()
    return (images[HELD_OUT:], targets[HELD_OUT:]), (images[:HELD_OUT], targets[:HELD_OUT])
