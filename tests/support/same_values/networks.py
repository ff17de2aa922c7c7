"""Small networks, their data and trainings for the calls, from PyTorch alone, so that no commit changes them."""

import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 3


def features(count=40, seed=1, dtype=torch.float32):
    """Returns (inputs, targets): six features, and a class of three that they decide with some noise."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 6, generator=generator)
    targets = (inputs[:, :CLASSES] + torch.randn(count, CLASSES, generator=generator)).argmax(1)
    return inputs.to(dtype), targets


def images(count=36, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, 6, 6, generator=generator), torch.randint(0, CLASSES, (count,), generator=generator)


def sentences(count=21, length=9, seed=3):
    """Returns (tokens, next tokens) of unequal lengths; padding is token 0, and -100 in the targets."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, 11, (count, length + 1))
    padding = np.arange(length + 1) >= generator.integers(4, length + 2, count)[:, None]
    tokens[padding] = 0
    targets = np.where(tokens[:, 1:] == 0, -100, tokens[:, 1:])
    return torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(targets)


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def seeded(build, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def perceptron(seed=0, dtype=torch.float32):
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES)), seed).to(dtype)


def normalized(seed=0):
    """Returns a perceptron with BatchNorm, whose statistics belong to it."""
    network = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, CLASSES)), seed)
    network[1].running_mean += 0.3 * seed
    network[1].running_var *= 1 + 0.2 * seed
    return network


def rectified(seed=0):
    return seeded(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, CLASSES)), seed
    )


def convolutions(seed=0):
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(80, CLASSES)
        ),
        seed,
    )


class LanguageModel(nn.Module):
    """A transformer whose output layer is its embedding."""

    def __init__(self, tokens=11, width=8):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        return self.head(self.encoder(self.embedding(tokens), mask=mask)).transpose(1, 2)


def train(network, data, epochs=4, seed=0, after_step=None, after_epoch=None):
    """Trains by SGD with momentum, in batches of ten."""
    inputs, targets = data
    optimizer = torch.optim.SGD(network.parameters(), lr=0.2, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), generator=generator).split(10):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            if after_step is not None:
                after_step(loss)
        if after_epoch is not None:
            after_epoch()
    return network


def path(build=perceptron, seed=0, epochs=4):
    """Returns a network before and after each epoch of its training."""
    network = build(seed)
    found = [copy.deepcopy(network)]
    train(network, features(), epochs, seed, after_epoch=lambda: found.append(copy.deepcopy(network)))
    return found


def trained(seed=0, build=perceptron):
    return path(build, seed)[-1]


def collect(folder, build=perceptron, seed=0, **settings):
    """Trains under the watch of a collector, which keeps the weights of every epoch; returns the folder."""
    from collectors import SummaryCollector

    network = build(seed)
    collected = {"landscape_size": 5, "unit": "epoch", "intervals": [range(5)], "num_samples": 40, **settings}
    with SummaryCollector(folder, keep_default_action=False, collect_landscape=collected).watch(network) as run:
        train(network, features(), 4, seed, after_step=run.step, after_epoch=run.end_epoch)
    return folder


def interrupted(function):
    """Calls a function that the user interrupts."""
    try:
        function()
    except KeyboardInterrupt:
        return
    raise AssertionError("the call came to its end before it was interrupted")


def plain():
    return nn.CrossEntropyLoss(), perceptron(), features(), {"accuracy": accuracy}


def batch_norm():
    return nn.CrossEntropyLoss(), normalized(), DataLoader(TensorDataset(*features()), 16), {}


def convolutional():
    return nn.CrossEntropyLoss(), convolutions(), images(), {"accuracy": accuracy}


def language():
    return nn.CrossEntropyLoss(), seeded(LanguageModel), sentences(), {}


def regression():
    inputs, _ = features()
    return nn.MSELoss(), perceptron(), (inputs, inputs[:, :CLASSES].square()), {}


def double():
    return nn.CrossEntropyLoss(), perceptron(dtype=torch.float64), features(dtype=torch.float64), {}


def half():
    return nn.CrossEntropyLoss(), perceptron(dtype=torch.bfloat16), features(dtype=torch.bfloat16), {}


def rectified_loss():
    return nn.CrossEntropyLoss(), rectified(), features(), {}


def two_sets():
    sets = {"train": features(), "test": DataLoader(TensorDataset(*features(23, seed=7)), 8)}
    return nn.CrossEntropyLoss(), perceptron(), sets, {"accuracy": accuracy}


def weighted(outputs, targets):
    """A weighted mean that no attribute of a loss gives away, and that belongs to its batch."""
    weights = torch.tensor([0.2, 1.0, 3.0])[targets]
    return (nn.functional.cross_entropy(outputs, targets, reduction="none") * weights).sum() / weights.sum()


def loss_of_batches():
    return weighted, perceptron(), DataLoader(TensorDataset(*features()), 9), {}


def noisy(outputs, targets):
    return nn.functional.cross_entropy(outputs + 0.1 * torch.randn_like(outputs), targets)


def random_loss():
    return noisy, perceptron(), DataLoader(TensorDataset(*features()), 16), {}


def steep(outputs, targets):
    """A loss that is infinite, and then no number, where outputs are large."""
    return nn.functional.cross_entropy(outputs.exp().exp(), targets)


def not_finite():
    return steep, perceptron(), features(), {}


def of_network():
    """A loss that the user computes from network and batch."""
    from workers import OwnLoss

    def step(network, batch):
        outputs = network(batch["inputs"])
        return nn.functional.cross_entropy(outputs, batch["targets"]), outputs

    inputs, targets = features()
    rows = [{"inputs": one, "targets": other} for one, other in zip(inputs, targets, strict=True)]
    return OwnLoss(step), perceptron(), DataLoader(rows, 16), {}


ARRAYS = {"slope": np.linspace(-1, 1, 5), "intercept": np.array([0.5])}


def bowl(weights):
    return {
        "loss": float((weights["slope"] ** 2 * np.arange(1, 6)).sum() + weights["intercept"][0] ** 4),
        "largest": float(np.abs(weights["slope"]).max()),
    }


def function(measure=bowl):
    from workers import FunctionEvaluator

    return FunctionEvaluator(measure, ARRAYS, num_samples=5)
