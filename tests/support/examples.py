"""Networks, data and callback functions that several tests measure; each is built anew, with its seeds set."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def images(count=96, seed=1):
    """Returns (inputs, targets): images of shape (count, 1, 8, 8) and classes 0 to 9."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 8, 8, generator=generator), torch.randint(0, 10, (count,), generator=generator)


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


class BatchNormNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6 * 36, 10)

    def forward(self, inputs):
        return self.head(functional.relu(self.norm(self.convolution(inputs))).flatten(1))


class DropoutNetwork(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 10))


class TiedNetwork(nn.Module):
    """A tiny language model whose output layer is its embedding."""

    def __init__(self, tokens=17, width=8):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.block = nn.Linear(width, width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.block(self.embedding(tokens)))).transpose(1, 2)


class PaddedTransformer(nn.Module):
    """Token classes from a small transformer encoder; token 0 is padding."""

    def __init__(self, tokens=17, width=16):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens):
        hidden = self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == 0)
        return self.head(hidden).transpose(1, 2)


def sentences(count=40, length=12, seed=2):
    """Returns (inputs, targets): padded tokens, the padding marked with -100 in the targets."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, 17, (count, length))
    lengths = generator.integers(3, length + 1, count)
    padding = np.arange(length) >= lengths[:, None]
    tokens[padding] = 0
    targets = np.roll(tokens, -1, axis=1)
    targets[padding | (targets == 0)] = -100
    return torch.from_numpy(tokens), torch.from_numpy(targets)


def _built(network_class, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return network_class().to(dtype)


def batch_norm():
    network = _built(BatchNormNetwork)
    network.train()
    with torch.no_grad():
        for _ in range(3):
            network(images()[0])
    return nn.CrossEntropyLoss(), network, DataLoader(TensorDataset(*images()), batch_size=32), {"accuracy": accuracy}


def dropout():
    return nn.CrossEntropyLoss(), _built(DropoutNetwork), images(), {}


def partly_frozen():
    loss_function, network, data, metrics = dropout()
    network[1].weight.requires_grad_(False)
    return loss_function, network, data, metrics


def tied():
    return nn.CrossEntropyLoss(), _built(TiedNetwork), sentences(), {}


def transformer():
    return nn.CrossEntropyLoss(), _built(PaddedTransformer), sentences(), {}


def _of_type(dtype):
    inputs, targets = images()
    return nn.CrossEntropyLoss(), _built(DropoutNetwork, dtype), (inputs.to(dtype), targets), {}


def bfloat16():
    return _of_type(torch.bfloat16)


def float64():
    return _of_type(torch.float64)


def regression():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 3))
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(50, 5, generator=generator)
    return nn.MSELoss(), network, (inputs, inputs[:, :3].square()), {}


ALL = {
    function.__name__: function for function in (batch_norm, dropout, tied, transformer, bfloat16, float64, regression)
}


class Bowl(nn.Module):
    """Outputs its own weights for every sample, so that with a squared error the loss is a quadratic bowl."""

    def __init__(self, values):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(values, dtype=torch.float64))

    def forward(self, inputs):
        return self.weight.reshape(1, -1).expand(len(inputs), -1)


BOWL_ORIGIN = [0.5, -1.0, 2.0, 0.25]
BOWL_TARGET = [1.0, 1.0, -0.5, 0.0]
BOWL_SCALES = [1.0, 3.0, 0.5, 2.0]


def bowl():
    scales = torch.tensor(BOWL_SCALES, dtype=torch.float64)

    def loss(outputs, targets):
        return (scales * (outputs - targets).square()).sum(1).mean()

    inputs = torch.zeros(6, 1, dtype=torch.float64)
    return loss, Bowl(BOWL_ORIGIN), (inputs, torch.tensor([BOWL_TARGET] * 6, dtype=torch.float64)), {}


FIRST, SECOND = [1.0, 0.5, 0.0, 0.0], [0.0, 0.0, -2.0, 1.0]


def bowl_plane(first=FIRST, second=SECOND):
    from landscape.planes import custom_plane

    return custom_plane(bowl()[1], [{"weight": np.array(axis)} for axis in (first, second)])


def bowl_loss(x, y, first=FIRST, second=SECOND):
    """Returns the bowl's loss at a point of a plane, in closed form."""
    weights = np.array(BOWL_ORIGIN) + x * np.array(first) + y * np.array(second)
    return float(np.sum(np.array(BOWL_SCALES) * (weights - np.array(BOWL_TARGET)) ** 2))


def train_run(folder, callback=batch_norm, *, epochs=4, **settings):
    from collectors import SummaryCollector

    loss_function, network, dataset, _ = callback()
    loader = dataset if isinstance(dataset, DataLoader) else DataLoader(TensorDataset(*dataset), batch_size=32)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.5)
    collector = SummaryCollector(
        folder,
        collect_landscape={
            "unit": "epoch",
            "intervals": [range(epochs + 1)],
            "landscape_size": 5,
            "num_samples": 64,
            **settings,
        },
    )
    torch.manual_seed(0)
    with collector.watch(network) as run:
        for _ in range(epochs):
            network.train()
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = loss_function(network(inputs), targets)
                loss.backward()
                optimizer.step()
                run.step(loss)
            run.end_epoch()
    return network
