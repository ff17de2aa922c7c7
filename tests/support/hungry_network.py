"""A network whose forward pass needs much memory for each sample, under a real limit of the address space."""

import contextlib
import resource
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# What a batch takes is more than a process may have freed and kept (32 MB), which no limit of new memory counts.
MEGABYTES_PER_SAMPLE = 2
LIMIT_MEGABYTES = 40


class HungryNetwork(nn.Sequential):
    """Widens every sample to 2 MB of float32.

    After ``free`` forward passes, each may use 40 MB more than the process has.
    """

    def __init__(self, free=10**9):
        super().__init__(nn.Linear(4, 2))
        with torch.no_grad():
            self[0].weight.copy_(torch.arange(8.0).reshape(2, 4) / 8 - 0.4)
            self[0].bias.zero_()
        self.free = free

    def forward(self, inputs):
        self.free -= 1
        with memory_limit(LIMIT_MEGABYTES) if self.free < 0 else contextlib.nullcontext():
            wide = inputs.repeat(1, MEGABYTES_PER_SAMPLE * 2**20 // 16)
            return super().forward(wide[:, :4] + wide[:, -4:])


@contextlib.contextmanager
def memory_limit(megabytes):
    """Limits the address space of this process to what it has and a little more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def loader(batch_size=8, count=64):
    generator = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(count, 4, generator=generator), torch.randint(0, 2, (count,), generator=generator)
    return DataLoader(TensorDataset(inputs, targets), batch_size)


def batch_loss(outputs, targets):
    """Does not split into samples: it depends on the largest of a batch."""
    return outputs.max() - outputs[:, 0].mean()


def hungry(free, batch_size=8):
    return nn.CrossEntropyLoss(), HungryNetwork(free), loader(batch_size), {}


unlimited = partial(hungry, 10**9)
hungry_from_the_start = partial(hungry, 0)
hungry_at_the_origin = partial(hungry, 70)
hungry_after_some_points = partial(hungry, 80)
hungry_in_large_batches = partial(hungry, 0, 64)


def hungry_and_not_to_be_cut():
    return batch_loss, HungryNetwork(free=40), loader(32), {}


def wide():
    """A network of 16 MB and few samples."""
    return nn.MSELoss(), nn.Linear(2000, 2000), (torch.ones(2, 2000), torch.ones(2, 2000)), {}
