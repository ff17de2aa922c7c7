"""Networks that learn handwritten digits: how many steps, and CPU seconds, an optimizer needs to a training loss."""

import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from networks import LeNet5, ResNet20
from networks import digits as digits_with_margin

SAMPLES, BATCH = 1024, 64


class Transformer(nn.Module):
    """Two encoder layers over the 8 rows of an image; 68,810 weights."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.rows = nn.Linear(8, 64)
        self.places = nn.Parameter(torch.randn(8, 64) * 0.02)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(64), enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        return self.head(self.encoder(self.rows(images[:, 0]) + self.places).mean(1))


def digits(network):
    """Returns images of shape (N, 1, 8, 8), for convolutions with a black margin that makes them 32 x 32; classes."""
    images, classes = digits_with_margin()
    return images[:, :, 12:20, 12:20] if network is Transformer else images, classes


# Seconds of this process: for the benchmarks alone, no test looks at them.
_CPU_SECONDS = time.process_time  # time: the benchmarks' clock


def steps_to(loss, build, seed, most, network=LeNet5, samples=SAMPLES, clock=_CPU_SECONDS):
    """Trains until the loss over all samples, looked at after every 8th step, is at most ``loss`` or over 10.

    Returns the steps (None if the loss was not reached), the CPU seconds of all of them, and the last loss.
    """
    images, targets = (part[:samples] for part in digits(network))
    torch.manual_seed(seed)
    net = network()
    optimizer = build(net)
    order, rows, seconds, reached = torch.Generator().manual_seed(seed), [], 0.0, float("nan")
    for step in range(1, most + 1):
        rows = rows or list(torch.randperm(samples, generator=order).split(BATCH))
        batch = rows.pop(0)
        before = clock()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images[batch]), targets[batch]).backward()
        optimizer.step()
        seconds += clock() - before
        if step % 8 == 0:
            net.eval()
            with torch.no_grad():
                reached = float(nn.functional.cross_entropy(net(images), targets))
            net.train()
            if reached <= loss:
                return step, seconds, reached
            if not reached < 10:
                break
    return None, seconds, reached


NETWORKS = {"LeNet-5": LeNet5, "transformer": Transformer, "ResNet-20": ResNet20}
