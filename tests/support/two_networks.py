"""Two small networks that were trained alike from other weights, and what lies between them by plain PyTorch."""

import copy
import functools

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

DIGITS = load_digits()
INPUTS = torch.tensor(DIGITS.data[:300], dtype=torch.float32) / 16
TARGETS = torch.tensor(DIGITS.target[:300])


def build(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10))


def fit(network, inputs, targets, epochs, seed):
    """Trains a network with Adam on batches of 64, and returns it in eval mode."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), generator=generator).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    return network.eval()


@functools.cache
def trained(seed, epochs=40):
    """Returns a network after Adam on 300 digits; it must not be changed."""
    return fit(build(seed), INPUTS, TARGETS, epochs, seed)


def save_both(folder):
    """Writes two trained networks as a.pt and b.pt, and returns the folder."""
    for name, seed in (("a", 0), ("b", 1)):
        torch.save(trained(seed).state_dict(), folder / f"{name}.pt")
    return folder


def callback_fn():
    return nn.CrossEntropyLoss(), build(7), (INPUTS, TARGETS), {}


def outputs_between(a, b, t):
    """Returns the outputs at a + t (b - a) in float64, shape (samples, classes)."""
    network = copy.deepcopy(a).double()
    with torch.no_grad():
        for target, one, other in zip(network.parameters(), a.parameters(), b.parameters(), strict=True):
            target.copy_(one.double() + t * (other.double() - one.double()))
        return network(INPUTS.double())


def losses_between(a, b, t):
    """Returns the loss of each sample at a + t (b - a), computed in float64, shape (samples,)."""
    return nn.functional.cross_entropy(outputs_between(a, b, t), TARGETS, reduction="none").numpy()


def barrier_between(a, b, points):
    """Returns height, place and paired standard error of the barrier, from the losses of single samples."""
    times = np.linspace(0, 1, points)
    each = np.stack([losses_between(a, b, t) for t in times])
    rises = each - (1 - times)[:, None] * each[0] - times[:, None] * each[-1]
    place = int(rises.mean(1).argmax())
    return rises[place].mean(), times[place], rises[place].std(ddof=1) / np.sqrt(len(rises[place]))
