"""Small networks with everything that THOR treats, and batches for them."""

import torch
from torch import nn


class Mixed(nn.Module):
    """Convolution, BatchNorm, LayerNorm, in-place ReLU, Linear on images; an embedding beside them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.first = nn.Linear(64, 12)
        self.norm = nn.LayerNorm(12)
        self.words = nn.Embedding(9, 12)
        self.last = nn.Linear(12, 10)

    def forward(self, image, word):
        hidden = self.norm(self.first(self.act(self.conv(image)).flatten(1))) + self.words(word)
        return self.last(torch.tanh(hidden))


def mixed(seed=0, dtype=torch.float32):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Mixed().to(dtype)


def batches(count, size=16, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)

    def batch():
        images = torch.rand(size, 1, 8, 8, generator=generator, dtype=dtype)
        words = torch.randint(0, 9, (size,), generator=generator)
        return (images, words), torch.randint(0, 10, (size,), generator=generator)

    return [batch() for _ in range(count)]


def differentiate(network, optimizer, batch, scale=1.0):
    """One forward and backward pass; returns the loss."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(*batch[0]), batch[1])
    (loss * scale).backward()
    return float(loss.detach())


def train(network, optimizer, data):
    for batch in data:
        differentiate(network, optimizer, batch)
        optimizer.step()
    return network


def weights(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def assert_same_bits(first, second):
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


class Refreshes:
    """Notes the optimizer steps, from 0, that changed a layer's inverses; ``look`` is called after every batch."""

    def __init__(self, optimizer, weight):
        self.steps = []
        self._optimizer, self._weight, self._last = optimizer, weight, torch.zeros(1)

    def look(self, *_):
        present = self._optimizer.state[self._weight].get("a_inverse", self._last)
        if not torch.equal(present, self._last):
            self.steps.append(self._optimizer.param_groups[0]["step"] - 1)
        self._last = present.clone()
