"""Whether a loss splits into samples is found out on the plane, where samples differ, not at callback_fn's weights."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import classes, features, mlp, seeded, step, weighted_mean

from landscape import evaluate, random_plane
from workers import OwnLoss
from workers.measurement_plan import MeasurementPlan

COUNT, WORDS, LENGTH = 23, 7, 9
WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.6])
pytestmark = pytest.mark.filterwarnings("ignore:the two random directions have a cosine")
AXES = {"x": [-0.8, 0.8], "y": [-0.6, 1.0]}


class Language(nn.Module):
    """A small causal language model with a loss of its own, as those of Transformers have."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 12)
        self.mix = nn.GRU(12, 12, batch_first=True)
        self.head = nn.Linear(12, WORDS)

    def forward(self, input_ids, labels=None):
        logits = self.head(torch.tanh(self.mix(self.embedding(input_ids))[0]))
        if labels is None:
            return logits
        return {"loss": functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())}


def sentences():
    """Returns token sequences with padding, and their labels, padding marked by -100."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(0, WORDS, (COUNT, LENGTH), generator=generator)
    # Each token is often followed by the next one, so that there is something to learn.
    for place in range(1, LENGTH):
        follows = torch.rand(COUNT, generator=generator) < 0.8
        ids[follows, place] = (ids[follows, place - 1] + 1) % WORDS
    lengths = torch.randint(2, LENGTH + 1, (COUNT,), generator=generator)
    labels = ids.clone()
    labels[torch.arange(LENGTH) >= lengths[:, None]] = -100
    return ids, labels


def ignored():
    targets = classes(COUNT)
    targets[::3] = -100
    targets[:20:2] = -100
    return targets


def flat_tokens(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


class Weighted(nn.Module):
    """A class of the user's own that gives ``reduction`` another meaning."""

    reduction = "mean"

    def forward(self, outputs, targets):
        each = functional.cross_entropy(outputs, targets, reduction="none")
        if self.reduction == "none":
            return each
        return weighted_mean(outputs, targets)


ids, labels = sentences()
LANGUAGE = {"input_ids": ids, "labels": labels}
LOSSES = {
    "own mean": (OwnLoss(step), (features(COUNT), classes(COUNT))),
    "own ignoring": (OwnLoss(step), (features(COUNT), ignored())),
    "mean": (lambda outputs, targets: functional.cross_entropy(outputs, targets), (features(COUNT), classes(COUNT))),
    "class weights": (nn.CrossEntropyLoss(weight=WEIGHTS), (features(COUNT), classes(COUNT))),
    "weighted function": (weighted_mean, (features(COUNT), classes(COUNT))),
    "weighted class": (Weighted(), (features(COUNT), classes(COUNT))),
    "padded causal model": (None, LANGUAGE),
    "ignore_index": (nn.CrossEntropyLoss(), (features(COUNT), ignored())),
    "ignoring function": (
        lambda outputs, targets: functional.cross_entropy(outputs, targets),
        (features(COUNT), ignored()),
    ),
    "flat tokens": (flat_tokens, (ids, labels)),
}
BELONG_TO_BATCHES = {"weighted function", "weighted class"}
IN_BOTH_TYPES = ("padded causal model", "weighted class")


def cases(main, other):
    """All losses in one type, and some in the other: what is close has the same bounds in both."""
    pairs = [*((name, main) for name in LOSSES), *((name, other) for name in IN_BOTH_TYPES)]
    return pytest.mark.parametrize(("name", "dtype"), pairs)


def head_of(network):
    return list(network.children())[-1].parameters()


def batch_value(loss, network, batch):
    """The user's own loss of one batch, as the user calls it."""
    if loss is None:
        return network(**batch)["loss"]
    if isinstance(loss, OwnLoss):
        return step(network, batch)[0]
    return loss(network(batch[0]), batch[1])


def of_each(change, batch):
    """Returns a batch whose tensors are changed."""
    if isinstance(batch, dict):
        return {key: change(item) for key, item in batch.items()}
    return tuple(map(change, batch))


def cut(batch, part):
    return of_each(lambda item: item[part], batch)


def is_text(dataset):
    return isinstance(dataset, dict) or not dataset[0].is_floating_point()


def trained(loss, dataset, dtype, steps):
    """Returns a network after some steps of training."""
    network = (seeded(Language) if is_text(dataset) else mlp()).to(dtype)
    batch = wide(dataset, dtype)
    optimizer = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        batch_value(as_type(loss, dtype), network, batch).backward()
        optimizer.step()
    return network


def as_type(loss, dtype):
    return copy.deepcopy(loss).to(dtype) if isinstance(loss, nn.Module) else loss


def wide(batch, dtype):
    return of_each(lambda item: item.to(dtype) if item.is_floating_point() else item, batch)


def learnable(name):
    """Returns loss and data; targets follow from the inputs, so that the loss can become tiny."""
    loss, dataset = LOSSES[name]
    if is_text(dataset):
        start = torch.arange(COUNT) % WORDS
        tokens = (start[:, None] + torch.arange(LENGTH)) % WORDS
        marked = torch.where(labels == -100, labels, tokens)
        if dataset is LANGUAGE:
            return loss, {"input_ids": tokens, "labels": marked}
        dataset = (tokens, marked.roll(-1, 1))
        dataset[1][:, -1] = -100
    else:
        inputs, targets = dataset
        rule = (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()
        dataset = (inputs, torch.where(targets == -100, targets, rule))
    return loss, dataset


def loader_of(dataset, batch_size, dtype):
    batch = wide(dataset, dtype)
    if isinstance(batch, dict):
        return [cut(batch, part) for part in batches_of(batch_size)]
    return DataLoader(TensorDataset(*batch), batch_size)


def measured(loss, start, plane, dataset, batch_size, dtype):
    """Returns the landscape; the plan asks for one batch size, the data set's own is another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return evaluate(
            plane,
            lambda: (as_type(loss, dtype), copy.deepcopy(start), loader_of(dataset, 9, dtype), {}),
            plan=MeasurementPlan(batch_size),
            progress=False,
            **AXES,
        )


def reference(loss, network, dataset, plane, parts=(slice(None),)):
    """The user's loss in float64: of all samples at once, or the mean over batches."""
    network, surface = copy.deepcopy(network).double(), np.empty((2, 2))
    batch = wide(dataset, torch.float64)
    loss = as_type(loss, torch.float64)
    first, second = plane.directions
    for row, y in enumerate(AXES["y"]):
        for column, x in enumerate(AXES["x"]):
            with torch.no_grad():
                for name, tensor in network.named_parameters():
                    shift = x * first[name].astype(np.float64) + y * second[name].astype(np.float64)
                    tensor.copy_(torch.from_numpy(plane.origin[name].astype(np.float64) + shift))
                values = [batch_value(loss, network, cut(batch, part)).item() for part in parts]
            sizes = [len(range(*part.indices(len(next(iter(batch)))))) for part in parts]
            surface[row, column] = np.average(values, weights=sizes)
    return surface


def batches_of(size, count=COUNT):
    return [slice(start, start + size) for start in range(0, count, size)]


def check(name, loss, start, network, dataset, dtype, normalization="filter"):
    """Compares surfaces around a network with float64; callback_fn gives the start."""
    plane = random_plane(network, seed=2, normalization=normalization)
    belongs = name in BELONG_TO_BATCHES
    expected = reference(loss, network, dataset, plane, batches_of(9) if belongs else (slice(None),))
    # Rounding of float32 shows in losses that are tiny differences of large numbers.
    rounding = 0 if dtype is torch.float64 else 2e-7 * expected.max()
    for batch_size in (1, 7, 16, None):
        found = measured(loss, start, plane, dataset, batch_size, dtype)
        assert found.attributes["partition_dependent"] == belongs
        if belongs:
            (note,) = found.attributes["notes"]
            assert note.startswith("loss depends on how samples are batched, so the data set's own batches are kept")
            assert "It is the mean over these batches" in note
        else:
            assert found.attributes["notes"] == []
        np.testing.assert_allclose(found.loss, expected, rtol=1e-5, atol=rounding)


@pytest.mark.slow
@cases(torch.float64, torch.float32)
def test_a_head_of_zeros_decides_nothing(name, dtype):
    """All samples have equal losses where callback_fn's network starts, and every partition agrees there."""
    loss, dataset = LOSSES[name]
    network = trained(loss, dataset, dtype, steps=10)
    start = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in head_of(start):
            parameter.zero_()
    check(name, loss, start, network, dataset, dtype)
    if dtype is torch.float64:
        check(name, loss, start, start, dataset, dtype, normalization="none")


@pytest.mark.slow
@cases(torch.float32, torch.float64)
def test_a_network_that_has_converged_decides_nothing(name, dtype):
    """Tiny losses are equal within whatever is a rounding error of others."""
    loss, dataset = learnable(name)
    network = trained(loss, dataset, dtype, steps=150)
    with torch.no_grad():
        for parameter in head_of(network):
            parameter.mul_(4)  # surer of what it knows
        assert batch_value(as_type(loss, dtype), network, wide(dataset, dtype)) < 1e-4
    check(name, loss, network, network, dataset, dtype)


MANY = features(300), classes(300)


def pair_surface(loss, dataset):
    network = mlp()
    plane = random_plane(network, seed=4)
    return evaluate(plane, lambda: (loss, network, dataset, {}), progress=False, **AXES), plane


@pytest.mark.filterwarnings("ignore:the samples take more memory")
@pytest.mark.parametrize("memory", ["auto", "1 kB"])
def test_a_loss_that_raises_far_away_fails_at_those_points_only(memory):
    network, inputs, targets = seeded(mlp), features(60), classes(60)
    largest = float(network(inputs).detach().abs().max()) * 1.3

    def picky(outputs, targets):
        if outputs.abs().max() > largest:
            raise ArithmeticError("too far")
        return functional.cross_entropy(outputs, targets)

    def callback_fn():
        return picky, seeded(mlp), DataLoader(TensorDataset(inputs, targets), 20), {}

    plane, axis = random_plane(network, seed=1), np.linspace(-3, 3, 3)
    with pytest.warns(UserWarning, match="points failed"):
        found = evaluate(plane, callback_fn, x=axis, y=axis, device_ids=[0], progress=False, sample_memory=memory)
    assert np.isfinite(found.loss).tolist() == [[False] * 3, [False, True, False], [False] * 3]


class TestDataWithoutBatches:
    """A batch size that nobody asked for must not decide a result."""

    @pytest.mark.parametrize("kind", ["pair", "data set"])
    def test_all_samples_are_one_batch(self, kind):
        with pytest.warns(UserWarning, match="all 300 samples are one batch .the data set gives no batch size."):
            found, plane = pair_surface(weighted_mean, MANY if kind == "pair" else TensorDataset(*MANY))
        expected = reference(weighted_mean, mlp(), MANY, plane)
        np.testing.assert_allclose(found.loss, expected, rtol=1e-5)
        (note,) = found.attributes["notes"]
        assert note.startswith("loss depends on how samples are batched, so all 300 samples are one batch")
        assert "mean over these batches" not in note
        assert found.attributes["measurement_plan"]["batch_size"] is None

    def test_memory_may_forbid_it(self):
        def limited(outputs, targets):
            if len(outputs) > 200:
                raise MemoryError("out of memory")
            return weighted_mean(outputs, targets)

        with pytest.warns(UserWarning, match="batches of 128, which are our choice, are kept .memory does not"):
            found, plane = pair_surface(limited, MANY)
        expected = reference(limited, mlp(), MANY, plane, batches_of(128, 300))
        np.testing.assert_allclose(found.loss, expected, rtol=1e-5)
