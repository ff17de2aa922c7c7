"""Many small networks of handwritten digits, trained all at once: two recipes, as many seeds as wanted."""

import torch
from sklearn.datasets import load_digits
from torch import nn

DIGITS = load_digits()
INPUTS, TARGETS = torch.tensor(DIGITS.data / 16, dtype=torch.float32), torch.tensor(DIGITS.target)
SAMPLES, TRAINED = 256, 1200
HIDDEN = 8
BATCHES = {"small": 16, "large": 256}


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 10))


def perceptron():
    return nn.CrossEntropyLoss(), network(), (INPUTS[:SAMPLES], TARGETS[:SAMPLES]), {}


def other_samples():
    return nn.CrossEntropyLoss(), network(), (INPUTS[1:SAMPLES], TARGETS[1:SAMPLES]), {}


def without_single_losses():
    loss = nn.CrossEntropyLoss()
    return lambda outputs, targets: loss(outputs, targets).sqrt(), network(), (INPUTS[:64], TARGETS[:64]), {}


def train(recipe, count, *, first=0, steps=150):
    """Returns the state dicts of networks with the seeds ``first``, ``first + 1``, ..."""
    seeds = range(first, first + count)
    generators = [torch.Generator().manual_seed(1000 * BATCHES[recipe] + seed) for seed in seeds]
    shapes = {"0.weight": (HIDDEN, 64), "0.bias": (HIDDEN,), "2.weight": (10, HIDDEN), "2.bias": (10,)}
    weights = {
        name: torch.stack(
            [(torch.rand(shape, generator=own) * 2 - 1) * (0.125 if name[0] == "0" else 0.35) for own in generators]
        ).requires_grad_()
        for name, shape in shapes.items()
    }
    optimizer = torch.optim.SGD(list(weights.values()), lr=0.2, momentum=0.9)
    for _ in range(steps):
        chosen = torch.stack([torch.randint(0, TRAINED, (BATCHES[recipe],), generator=own) for own in generators])
        hidden = torch.tanh(INPUTS[chosen] @ weights["0.weight"].mT + weights["0.bias"][:, None])
        outputs = hidden @ weights["2.weight"].mT + weights["2.bias"][:, None]
        losses = nn.functional.cross_entropy(outputs.flatten(0, 1), TARGETS[chosen].flatten(), reduction="sum")
        optimizer.zero_grad()
        (losses / BATCHES[recipe]).backward()
        optimizer.step()
    return [{name: value[place].detach().numpy().copy() for name, value in weights.items()} for place in range(count)]
