"""Reports of other projects on samples: which are measured, how they count, and what reading them leaves behind."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from landscape import evaluate, random_plane
from workers import OwnLoss
from workers.errors import CallbackFunctionError, SamplesError

pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
INPUTS = torch.randn(31, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(31) % 3
DATA = TensorDataset(INPUTS[:30], TARGETS[:30])
CLASSES = nn.CrossEntropyLoss()


def measured(loader, network=None, loss=CLASSES, metrics=(), **more):
    """Returns a landscape and the network at its centre."""
    torch.manual_seed(0)
    network = network or nn.Linear(4, 3)
    data = lambda: (loss, network, loader, dict(metrics))  # noqa: E731
    return evaluate(random_plane(network), data, size=3, device_ids=[0], progress=False, **more), network


def assert_rows(found, network, rows):
    with torch.no_grad():
        expected = nn.functional.cross_entropy(network.double()(INPUTS[rows].double()), TARGETS[rows]).item()
    assert found.loss[1, 1] == pytest.approx(expected, rel=1e-6)
    assert found.attributes["num_samples"] == len(rows)


class WithoutTheLastClass(DataLoader):
    def __iter__(self):
        for inputs, targets in super().__iter__():
            yield inputs[targets < 2], targets[targets < 2]


LOADERS = {
    # drop_last leaves samples out of an evaluation, so that two evaluations are of other samples.
    "ai2cm/ace#647": (DataLoader(DATA, 8, drop_last=True), range(24)),
    # A subclass of DataLoader was replaced by a plain one, which gives other samples.
    "pytorch/ignite#812": (WithoutTheLastClass(DATA, 7, shuffle=True), [n for n in range(30) if n % 3 < 2]),
    # What a DistributedSampler gives a process is another set than all samples; of 31, the third process has those that
    # fill its share up from the beginning.
    "pytorch/pytorch#25162": (
        DataLoader(data := TensorDataset(INPUTS, TARGETS), 4, sampler=DistributedSampler(data, 3, 2, shuffle=False)),
        [*range(2, 31, 3), 1],
    ),
}


@pytest.mark.parametrize("case", LOADERS)
def test_what_the_loader_gives_is_what_is_measured(case):
    loader, rows = LOADERS[case]
    assert_rows(*measured(loader), list(rows))


RANDOM = {
    # A WeightedRandomSampler was ignored without a word, and the whole data set was visited.
    "fastai/fastai#2638": (
        DataLoader(DATA, 4, sampler=WeightedRandomSampler([0.0] * 20 + [1.0] * 10, 5)),
        "WeightedRandomSampler draws 5 at random by their weights.*all 10 samples",
        range(20, 30),
    ),
    # A random sampler gave each validation other samples.
    "NVIDIA/NeMo-Aligner#112": (
        DataLoader(DATA, 4, sampler=RandomSampler(DATA, num_samples=7)),
        "RandomSampler draws 7 at random.*all 30 samples that it chooses from",
        range(30),
    ),
    # A loader that shuffles and drops the rest evaluates other samples each time.
    "ultralytics/ultralytics#25734": (
        DataLoader(DATA, 8, shuffle=True, drop_last=True),
        "visits other samples each time, but a landscape needs a fixed set: all 30",
        range(30),
    ),
}


@pytest.mark.parametrize("case", RANDOM)
def test_it_is_said_and_noted_and_what_can_be_chosen_is_measured(case, tmp_path):
    loader, text, rows = RANDOM[case]
    with pytest.warns(UserWarning, match=text):
        found, network = measured(loader, output=tmp_path / "a.h5")
    assert_rows(found, network, list(rows))
    assert any(re.search(text, note) for note in found.attributes["notes"])


class Endless(IterableDataset):
    def __iter__(self):
        return itertools.repeat((torch.zeros(1).expand(3_000_000, 1), torch.zeros(1).expand(3_000_000, 4)))


def test_an_endless_stream_ends_in_an_error_that_names_num_samples():
    """PrimeIntellect-ai/OpenDiloco#42: an evaluation on a stream without an end never ended."""
    with pytest.raises(SamplesError, match=r"more than 10,000,000 samples.*num_samples="):
        measured(DataLoader(Endless(), batch_size=None), nn.Linear(1, 4), nn.MSELoss())


class Rows(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return torch.ones(4), {"a": 0, "b": 1}[["a", "b", "c"][index]]


def test_an_error_of_the_data_set_is_one_sentence_with_its_line():
    """pytorch/pytorch#16647: what a data set raised could not be read in the error that arrived."""
    line = Rows.__getitem__.__code__.co_firstlineno + 1
    text = rf"what callback_fn returned raised KeyError: 'c' \({re.escape(__file__)}, line {line}\)$"
    with pytest.raises(CallbackFunctionError, match=text):
        measured(Rows())


class Numbers(IterableDataset):
    def __iter__(self):
        return iter([(torch.ones(4) * number, torch.ones(2)) for number in range(12)])


def with_noise(items):
    inputs, targets = zip(*items, strict=True)
    drawn()
    return torch.stack(inputs), torch.stack(targets)


def drawn():
    return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002


def seed():
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)


@pytest.mark.parametrize(
    ("loader", "loss", "outputs"),
    [
        # pytorch/pytorch#122697: reading a data set of which no order is random moves the process's random numbers.
        (DataLoader(Numbers(), 4), nn.MSELoss(), 2),
        # pytorch/pytorch#12935: going through a data set that is only measured changed what was drawn after it.
        (DataLoader(DATA, 4, collate_fn=with_noise), CLASSES, 3),
    ],
)
def test_random_numbers_go_on_as_if_nothing_was_measured(loader, loss, outputs):
    network = nn.Linear(4, outputs)
    plane = random_plane(network)
    seed()
    expected = drawn()
    seed()
    evaluate(plane, lambda: (loss, network, loader, {}), size=3, device_ids=[0], progress=False)
    assert drawn() == expected


def unexplained(network, batch):
    inputs, targets = batch
    return (network(inputs) - targets).square().sum() / (targets - targets.mean()).square().sum()


@pytest.mark.filterwarnings("ignore:loss depends on how samples are batched")
def test_it_is_said_that_a_share_is_a_mean_of_batches_and_what_to_do():
    """Mohamedelrefaie/DrivAerNet#27: a share of explained variance was averaged over batches."""
    inputs, targets = INPUTS[:12, :2], INPUTS[:12, 2:3]
    several, one = (
        measured(DataLoader(TensorDataset(inputs, targets), size), nn.Linear(2, 1), OwnLoss(unexplained))
        for size in (4, 12)
    )
    notes = " ".join(several[0].attributes["notes"])
    assert "the mean over these batches" in notes
    assert "let one batch hold them all" in notes
    with torch.no_grad():
        expected = unexplained(one[1].double(), (inputs.double(), targets.double())).item()
    assert one[0].loss[1, 1] == pytest.approx(expected, rel=1e-5)


own_batches = pytest.mark.filterwarnings(
    "ignore:.*which leaves open whether it depends on how samples are batched",
    "ignore:.*depends? on how samples are batched",
)
GENERATOR = torch.Generator().manual_seed(0)
SEQUENCES = [(torch.randn(5, 3, generator=GENERATOR), number % 2) for number in range(5)]


def time_first(items):
    inputs, targets = zip(*items, strict=True)
    return torch.stack(inputs, dim=1), torch.tensor(targets)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent, self.head = nn.RNN(3, 4), nn.Linear(4, 2)

    def forward(self, inputs):
        return self.head(self.recurrent(inputs)[0][-1])


def loss_of_sequences(network, batch):
    return nn.functional.cross_entropy(network(batch[0]), batch[1])


@own_batches
def test_sequences_count_alike():
    """inferno-pytorch/inferno#101: batches were counted by their first axis, which is time for sequences."""
    loader = DataLoader(SEQUENCES, batch_size=4, collate_fn=time_first)
    found, network = measured(loader, Reader(), OwnLoss(loss_of_sequences))
    inputs, targets = time_first(SEQUENCES)
    with torch.no_grad():
        expected = loss_of_sequences(network.double(), (inputs.double(), targets)).item()
    assert found.origin.metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert found.attributes["num_samples"] == 5


BAGS = [([0], 0), ([1, 1, 1, 1, 1, 1], 1), ([2], 0)]


def bags_together(bags):
    tokens = torch.tensor([token for bag, _ in bags for token in bag])
    starts = torch.tensor([0, *(len(bag) for bag, _ in bags)]).cumsum(0)[:-1]
    return tokens, starts, torch.tensor([target for _, target in bags])


def loss_of_bags(network, batch):
    tokens, starts, targets = batch
    outputs = network(tokens, starts)
    return nn.functional.cross_entropy(outputs, targets), outputs


def right(outputs, batch):
    return (outputs.argmax(1) == batch[2]).float().mean()


@own_batches
def test_the_metric_is_that_of_all_bags():
    """Lightning-AI/pytorch-lightning#6889: a metric of graphs was wrong where the last batch is smaller."""
    network = nn.EmbeddingBag(3, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0.0]] * 3))
    loader = DataLoader(BAGS, batch_size=2, collate_fn=bags_together)
    found, _ = measured(loader, network, OwnLoss(loss_of_bags), {"right": right})
    assert found.origin.metrics["right"] == pytest.approx(2 / 3)


# Graphs as plain tensors: the features of their nodes, and what they are.
GRAPHS = [(torch.full((nodes, 1), float(value)), float(value)) for nodes, value in ((1, 1), (9, 5), (2, 2), (4, 3))]


def graphs_together(graphs):
    nodes = torch.cat([features for features, _ in graphs])
    owner = torch.cat([torch.full((len(features),), place) for place, (features, _) in enumerate(graphs)])
    return nodes, owner, torch.tensor([[target] for _, target in graphs])


def loss_of_graphs(network, batch):
    nodes, owner, targets = batch
    sums = torch.zeros(len(targets), 1).index_add(0, owner, network(nodes))
    counts = torch.bincount(owner, minlength=len(targets))[:, None]
    return nn.functional.mse_loss(sums / counts, targets)


@own_batches
@pytest.mark.parametrize("batch_size", [1, 3])
def test_graphs_count_alike(batch_size):
    """pyg-team/pytorch_geometric#9829: the mean over batches of graphs was weighed by their nodes."""
    loader = DataLoader(GRAPHS, batch_size=batch_size, collate_fn=graphs_together)
    found, network = measured(loader, nn.Sequential(nn.Linear(1, 3), nn.Linear(3, 1)), OwnLoss(loss_of_graphs))
    wide = network.double()
    expected = sum((wide(torch.tensor([[value]], dtype=torch.float64)).item() - value) ** 2 for _, value in GRAPHS) / 4
    assert found.origin.metrics["loss"] == pytest.approx(expected, rel=1e-5)
