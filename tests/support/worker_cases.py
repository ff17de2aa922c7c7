"""Networks, data and plain float64 computations for the tests of the workers.

The Ray tests send their callback_fn from here, because workers find modules where the driver finds them.
"""

import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from collectors.networks.torch_network import named_tensors, to_array
from collectors.networks.weight_space import direction_dtype
from workers.evaluator import MeasurementSetup, SampleMemory
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.torch.evaluator import TorchEvaluator


class ConvNet(nn.Module):
    """Batch normalization, dropout, and a layer in channels-last memory."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4)
        )
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4 * 4 * 4, 5)

    def forward(self, images):
        return self.head(self.dropout(torch.tanh(self.features(images)).flatten(1)))


class TinyTransformer(nn.Module):
    """A causal language model with tied embeddings, a non-persistent mask and padding."""

    def __init__(self, words=11, width=8, length=12):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.position = nn.Parameter(torch.randn(length, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("mask", torch.triu(torch.full((length, length), -torch.inf), 1), persistent=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        hidden = self.embedding(tokens) + self.position[:length]
        hidden = self.encoder(hidden, mask=self.mask[:length, :length])
        return self.head(hidden).transpose(1, 2)


class Skips(nn.Module):
    """Uses its input again after the first layer, whose weight it uses again as well."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(70, 70), nn.Linear(70, 4)

    def forward(self, inputs):
        hidden = inputs.flatten(1)
        hidden = hidden + self.first(hidden).tanh_()
        return self.head(nn.functional.linear(hidden, self.first.weight.T))


def seeded(build, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = build()
        for name, buffer in network.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_()
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2)
    return network


def mlp(inputs=6, outputs=4, dtype=torch.float32):
    return seeded(lambda: nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))).to(dtype)


def features(count=50, inputs=6, seed=1, dtype=torch.float32):
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def classes(count=50, number=4, seed=2):
    return torch.randint(0, number, (count,), generator=torch.Generator().manual_seed(seed))


def images(count=40, channels=3, size=6):
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(3))


class Made(Dataset):
    """Makes each sample when it is asked for."""

    def __init__(self, make, count):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.make(index)


class Sentences(Dataset):
    """Token sequences of unequal length and the next token at each place."""

    def __init__(self, count=23, words=11, longest=12):
        generator = np.random.default_rng(4)
        self.items = [
            torch.from_numpy(generator.integers(1, words, generator.integers(3, longest + 1))) for _ in range(count)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index][:-1], self.items[index][1:]


def pad_batch(samples):
    """Pads each batch to its own longest sequence; targets with the ignored class."""
    inputs, targets = zip(*samples, strict=True)
    pad = nn.utils.rnn.pad_sequence
    return pad(list(inputs), batch_first=True), pad(list(targets), batch_first=True, padding_value=-100)


def sentence_loader(batch_size=5):
    return DataLoader(Sentences(), batch_size=batch_size, collate_fn=pad_batch)


def step(network, batch):
    """The loss of a network that computes its own, and its outputs."""
    outputs = network(batch[0])
    return nn.functional.cross_entropy(outputs, batch[1]), outputs


def weighted_mean(outputs, targets):
    """A weighted mean that no attribute of a loss gives away."""
    weights = torch.tensor([0.2, 1.0, 3.0, 0.6], dtype=outputs.dtype)[targets]
    return (nn.functional.cross_entropy(outputs, targets, reduction="none") * weights).sum() / weights.sum()


def weighted_from_zeros():
    """A callback_fn whose network has a head of zeros, where all samples have the same loss."""
    network = mlp()
    nn.init.zeros_(network[2].weight)
    nn.init.zeros_(network[2].bias)
    return weighted_mean, network, DataLoader(TensorDataset(features(), classes()), 9), {}


def labelled(count=50, dtype=torch.float32):
    return TensorDataset(features(count, dtype=dtype), classes(count))


def case(name):
    """Returns loss, network, data set of a named case."""
    cross_entropy = nn.CrossEntropyLoss()
    if name == "batchnorm":
        network = seeded(ConvNet)
        network.features[3].to(memory_format=torch.channels_last)
        return cross_entropy, network, TensorDataset(images(), classes(40, 5))
    if name == "transformer":
        return cross_entropy, seeded(TinyTransformer), sentence_loader()
    if name == "regression":
        return nn.MSELoss(), mlp(outputs=3), TensorDataset(features(), features(inputs=3, seed=5))
    if name == "frozen layer":
        network = mlp()
        network[0].requires_grad_(False)
        return cross_entropy, network, labelled()
    dtype = {"float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}.get(name, torch.float32)
    return cross_entropy, mlp(dtype=dtype), labelled(dtype=dtype)


CASES = ("plain", "batchnorm", "transformer", "regression", "frozen layer", "float64", "bfloat16", "float16")


def state_of(network):
    entries = named_tensors(network)
    parameters = {info.name: to_array(tensor) for info, tensor in entries if info.role == "parameter"}
    buffers = {info.name: to_array(tensor) for info, tensor in entries if info.role == "buffer"}
    return parameters, buffers


def plane_of(network, axes=2, seed=0, scale=0.5, origin_seed=None):
    """Returns origin, directions and buffers; the origin is the network's own state, or a shifted one."""
    generator = np.random.default_rng(seed)
    origin, buffers = state_of(network)
    infos = [info for info, _ in named_tensors(network) if info.trainable]
    if origin_seed is not None:
        shift = np.random.default_rng(origin_seed)
        for info in infos:
            array = origin[info.name]
            origin[info.name] = (array + 0.1 * shift.standard_normal(info.shape)).astype(array.dtype)

    def direction():
        drawn = {info.name: scale * generator.standard_normal(info.shape) for info in infos}
        return {info.name: drawn[info.name].astype(direction_dtype(info.dtype)) for info in infos}

    return origin, [direction() for _ in range(axes)], buffers


def at_point(network, plane, coordinates):
    """Returns a fresh copy of the network at a point, computed in float64 NumPy."""
    origin, directions, buffers = plane
    moved = copy.deepcopy(network).eval()
    for info, tensor in named_tensors(moved):
        value = (origin if info.role == "parameter" else buffers)[info.name].astype(np.float64)
        if info.trainable:
            for coordinate, direction in zip(coordinates, directions, strict=True):
                value = value + coordinate * direction[info.name].astype(np.float64)
        tensor.data = torch.from_numpy(np.asarray(value)).to(tensor.dtype)
    return moved


def direct_loss(loss, network, dataset):
    """The loss over all samples at once, in float64 where the network is in float32."""
    if isinstance(dataset, DataLoader):
        return direct_token_loss(network, dataset)
    low = next(network.parameters()).dtype in (torch.bfloat16, torch.float16)
    network = network if low else copy.deepcopy(network).double()
    inputs, targets = (torch.stack(list(part)) for part in zip(*dataset, strict=True))
    inputs = inputs if low else inputs.double()
    with torch.no_grad():
        outputs = network(inputs).double()
        return float(loss(outputs, targets.double() if targets.is_floating_point() else targets))


def direct_losses(loss, network, plane, points, dataset):
    return [direct_loss(loss, at_point(network, plane, point), dataset) for point in points]


def direct_token_loss(network, loader):
    """One sentence after the other, no padding: the mean over all tokens."""
    network = copy.deepcopy(network).double()
    total, count = 0.0, 0
    with torch.no_grad():
        for inputs, targets in loader.dataset:
            outputs = network(inputs[None])
            total += float(nn.functional.cross_entropy(outputs, targets[None], reduction="sum"))
            count += len(targets)
    return total / count


def evaluator_of(
    loss, network, dataset, metrics=None, *, batch_size=None, plan=None, workload=None, memory=None, **choices
):
    """Returns an evaluator with a plan; where only a workload is given, it chooses one itself."""
    if workload is None and plan is None:
        plan = MeasurementPlan(batch_size=batch_size)
    options, memory = MeasurementOptions(**choices), memory or SampleMemory()
    setup = MeasurementSetup(options, plan=plan, workload=workload, memory=memory)
    return TorchEvaluator(loss, network, dataset, metrics or {}, setup)


def classifier(network=None, count=50, **choices):
    """Returns an evaluator of the cross entropy of labelled samples."""
    return evaluator_of(nn.CrossEntropyLoss(), network or mlp(), labelled(count), **choices)


def values_at(evaluator, network, point):
    """Returns the values at a point of the network's plane, and what the evaluator says of itself."""
    evaluator.load(*plane_of(network))
    values = {name: float(value[0]) for name, value in evaluator.measure(np.array([point])).items()}
    evaluator.close()
    return values, evaluator.description


def found(network):
    """Everything of a network that must be as it was."""
    tensors = [*network.named_parameters(remove_duplicate=False), *network.named_buffers(remove_duplicate=False)]
    return {
        "values": {name: _bits(tensor) for name, tensor in tensors},
        "places": {name: (tensor.data_ptr(), tensor.stride(), tensor.dtype, id(tensor)) for name, tensor in tensors},
        "requires_grad": {name: tensor.requires_grad for name, tensor in tensors},
        "gradients": {
            name: None if tensor.grad is None else (id(tensor.grad), _bits(tensor.grad)) for name, tensor in tensors
        },
        "training": {name: layer.training for name, layer in network.named_modules()},
    }


def _bits(tensor):
    return tensor.detach().clone().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def values(results):
    """Results by key; each key once, none failed, and floats that compare bit for bit."""
    results = list(results)
    assert [result.error for result in results] == [None] * len(results)
    found = {result.key: {name: value.hex() for name, value in result.values.items()} for result in results}
    assert len(found) == len(results)
    return found
