"""What ``check`` finds: each planted mistake in the sentence that names it, and nothing in runs that are right."""

import copy
import functools
import json
import math
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from marked_cases import marked
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

from collectors import Model, SummaryCollector, import_checkpoints
from landscape import SummaryLandscape
from workers import FunctionEvaluator, OwnLoss
from workers.pools.first_call import other_random_numbers

CLASSES, FEATURES, BATCH = 4, 12, 32


def samples(count=256, seed=0):
    """Returns (inputs, targets): points between 0 and 1 around the centres of four classes, with some wrong labels."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, CLASSES, (count,), generator=generator)
    centres = torch.rand(CLASSES, FEATURES, generator=torch.Generator().manual_seed(7))
    inputs = centres[targets] + 0.25 * torch.randn(count, FEATURES, generator=generator)
    return inputs.clamp(0, 1), torch.where(torch.rand(count, generator=generator) < 0.05, 0, targets)


class Plain(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, CLASSES))


def dropping():
    return nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Dropout(0.5), nn.Linear(24, CLASSES))


def normalized(momentum=0.1):
    norm = nn.BatchNorm1d(24, momentum=momentum)
    return nn.Sequential(nn.Linear(FEATURES, 24), norm, nn.ReLU(), nn.Linear(24, CLASSES))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Linear(FEATURES, FEATURES) for _ in range(2))
        self.second.weight = self.first.weight
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs):
        return self.head(torch.relu(self.second(torch.relu(self.first(inputs)))))


def collector_of(folder, epochs, collect_freq, collect, **landscape):
    wanted = {"unit": "epoch", "intervals": [range(epochs + 1)], "num_samples": 512, **landscape}
    return SummaryCollector(folder, collect_freq, collect, keep_default_action=False, collect_landscape=wanted)


def train(folder, network=Plain, loss=nn.CrossEntropyLoss, data=samples, epochs=8, rate=0.02, **how):
    """Trains with Adam, every batch loss logged; returns the run."""
    torch.manual_seed(1)
    trained = network()
    optimizer = torch.optim.Adam(trained.parameters(), rate, weight_decay=how.pop("decay", 0.0))
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(TensorDataset(*data()), BATCH, shuffle=True, generator=generator)
    collect = how.pop("collect", {"collect_metric": True, "collect_train_lineage": True})
    collector = collector_of(folder, epochs, how.pop("collect_freq", 1), collect, **how)
    Model(trained, loss(), optimizer, {}).train(epochs, loader, callbacks=[collector])
    return SummaryLandscape(folder)


def returns(loss=nn.CrossEntropyLoss, network=Plain, data=samples):
    """Returns a callback_fn."""
    return lambda: (loss(), network(), data(), {})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("check") / "run")


@pytest.fixture
def damaged(run, tmp_path):
    """A run whose last checkpoint changed after the training."""
    shutil.copytree(run._path, tmp_path / "run")
    path = tmp_path / "run/ckpt_dir/Plain_8_epoch.safetensors"
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[-1] ^= 64
    path.write_bytes(content)
    return SummaryLandscape(tmp_path / "run")


class Forced(Plain):
    def forward(self, inputs):
        return functional.dropout(super().forward(inputs), 0.5, training=True)


class Bent(Plain):
    def forward(self, inputs):
        return self[2](torch.relu(self[0](inputs)) / 3)


def wide():
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CLASSES))


class Frozen(Plain):
    def __init__(self):
        super().__init__()
        self[0].requires_grad_(False)


class Augmented(Dataset):
    """Adds noise to samples, from a number on."""

    def __init__(self, first):
        self.inputs, self.targets = samples()
        self.first = first

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        noise = 0.1 * torch.randn(FEATURES) if index >= self.first else 0.0
        return self.inputs[index] + noise, self.targets[index]


def with_nan():
    inputs, targets = samples()
    inputs[7] = float("nan")
    return inputs, targets


def scaled(factor, middle=0.0):
    inputs, targets = samples()
    return (inputs - middle) * factor, targets


def permuted():
    inputs, targets = samples()
    return inputs, targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(2))]


def held_out():
    inputs, targets = samples(150, 3)
    wrong = torch.rand(150, generator=torch.Generator().manual_seed(4)) < 0.2
    return inputs, torch.where(wrong, (targets + 1) % CLASSES, targets)


def wrong_ones_first():
    """Returns the samples, those in front whose class is not that of the nearest centre."""
    inputs, targets = samples()
    centres = torch.stack([inputs[targets == label].mean(0) for label in range(CLASSES)])
    nearest = torch.cdist(inputs, centres).argmin(1)
    order = torch.argsort((nearest == targets).int(), stable=True)
    return inputs[order], targets[order]


def split():
    part, _ = random_split(TensorDataset(*samples()), [200, 56])
    return DataLoader(part, BATCH)


class Counted:
    """Returns another loss at each call."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return nn.CrossEntropyLoss(label_smoothing=0.01 * self.calls), Plain(), samples(), {}


smoothed = functools.partial(nn.CrossEntropyLoss, label_smoothing=0.3)
summed = functools.partial(nn.CrossEntropyLoss, reduction="sum")
weighted = functools.partial(nn.CrossEntropyLoss, torch.tensor([30.0, 1.0, 1.0, 1.0]))


def unnamed():
    return lambda outputs, targets: functional.cross_entropy(outputs, targets)


def four_times():
    return lambda outputs, targets: 4 * functional.cross_entropy(outputs, targets)


def squared():
    return lambda outputs, targets: functional.mse_loss(outputs, functional.one_hot(targets, CLASSES).float())


def raises():
    raise KeyError("no such file")


PLANTED = {
    "dropout that its forward leaves on": (
        returns(network=Forced),
        "loss", "measured twice with the same weights and samples, but loss is", r"functional\.dropout",
    ),
    "augmentation": (
        returns(data=functools.partial(Augmented, 0)),
        "samples", "sample 0 changed between two reads", "switch shuffling and random augmentation off",
    ),
    "augmentation of later samples": (
        returns(data=functools.partial(Augmented, 100)),
        "samples", "two passes over the data set of one call of callback_fn gave different", "augmentation",
    ),
    "a split without a seed": (
        returns(data=split), "callback_fn", "two calls of callback_fn returned different samples", "manual_seed",
    ),
    "a stream that is another one in each call": (
        returns(data=lambda: (batch for batch in split())),
        "callback_fn", "two calls of callback_fn returned different samples", "manual_seed",
    ),
    "another loss at each call": (
        Counted(), "loss", "epoch 8 was measured twice .* with the network and the loss of another call", "switch off",
    ),
    "inputs that training had divided": (
        returns(data=functools.partial(scaled, 16)),
        "samples", "with inputs scaled to lie between 0 and 1 the losses fit", "the transforms of the training",
    ),
    "labels in another order": (
        returns(data=permuted),
        "samples", r"the measured loss does not fall \([\d.]+ to [\d.]+\), but the logged one does", "same order",
    ),
    "other samples": (
        returns(data=held_out),
        "samples", "Training had 256 samples, callback_fn's data set has 150", "the samples of the training",
    ),
    "a sum in place of a mean": (
        returns(summed),
        "loss", "callback_fn's loss is a sum over samples, but training logged a mean", 'reduction="mean"',
    ),
    "smoothed labels": (
        returns(smoothed),
        "loss", r"CrossEntropyLoss\(label_smoothing=0.3\); with label_smoothing=0.0 the losses fit", "without label",
    ),
    "smoothed labels of a function": (
        returns(lambda: functools.partial(functional.cross_entropy, label_smoothing=0.3)),
        "loss", r"cross_entropy\(label_smoothing=0.3\); with label_smoothing=0.0 the losses fit", "without label",
    ),
    "batches that are sparse": (
        returns(data=lambda: [(inputs.to_sparse(), targets) for inputs, targets in [samples()]]),
        "samples", "dataset must give dense tensors with values, but gave a sparse one", "mend callback_fn's data set",
    ),
    "what ends the program": (sys.exit, "callback_fn", "callback_fn raised SystemExit", "mend callback_fn"),
    "a training that divides its loss": (
        returns(four_times),
        "loss", r"higher .* Divided by (4|3\.[89]|4\.[12]), it fits at all of them", "look whether training divides",
    ),
    "a sample that is NaN": (
        returns(data=with_nan), "loss", r"NaN or infinite at epoch 0; training logged 1\.\d+ there", "samples that are",
    ),
    "the loss of something else": (
        returns(functools.partial(nn.MultiMarginLoss, margin=0.2)),
        "loss", "less than a fifth .* Training had the loss CrossEntropyLoss, callback_fn has MultiMargin", "return",
    ),
    "a small loss that stays small with inputs near zero": (
        returns(squared), "samples", r"the measured loss does not fall \([\d.]+ to [\d.]+\)", "the loss and the",
    ),
    "another network": (
        returns(network=wide),
        "checkpoint", r"0\.weight: the network has \(32, 12\), found \(24, 12\)", "the network that was trained",
    ),
    "another forward": (
        returns(network=Bent),
        "loss", "Training had the network Plain, callback_fn has Bent", "cannot tell which of them differs",
    ),
    "layers that are frozen": (
        returns(network=Frozen),
        "network", r"'0\.weight', '0\.bias' are frozen in callback_fn, but training moved them", "requires_grad",
    ),
    "what raises": (raises, "callback_fn", "callback_fn raised KeyError: 'no such file'", "mend callback_fn"),
    "what is no callback_fn": (
        lambda: (nn.CrossEntropyLoss(), Plain()),
        "callback_fn", "must return .* but returned a tuple of 2", "mend callback_fn",
    ),
}  # fmt: skip


def expect(found, about, seen, remedy):
    (finding,) = found.findings
    assert finding.about == about
    assert re.search(seen, finding.seen, re.DOTALL)
    assert re.search(remedy, finding.remedy, re.DOTALL)
    assert finding.expected
    assert not found
    assert " ".join(str(finding).split()) in " ".join(str(found).split())


@pytest.mark.parametrize(
    ("callback_fn", "about", "seen", "remedy"), marked(PLANTED.values(), pytest.mark.slow), ids=PLANTED
)
def test_a_planted_mistake_is_named_with_its_remedy(run, callback_fn, about, seen, remedy):
    expect(run.check(callback_fn), about, seen, remedy)


def test_a_damaged_checkpoint_is_named(damaged):
    seen = r"Plain_8_epoch\.safetensors is not the file"
    expect(damaged.check(returns()), "checkpoint", seen, "restore what is damaged")


def test_first_samples_that_are_unlike_the_others(run):
    found = run.check(returns(data=wrong_ones_first), num_samples=48)
    expect(found, "samples", "with as many samples that are drawn at random the losses fit", 'pass samples="random"')
    assert run.check(returns(data=wrong_ones_first), num_samples=48, samples="random")


def test_statistics_that_do_not_follow_the_weights(tmp_path):
    slow, data = functools.partial(normalized, 1e-4), functools.partial(scaled, 20.0)
    run, callback_fn = train(tmp_path, slow, rate=0.05, data=data), returns(network=slow, data=data)
    found = run.check(callback_fn)
    # Scaled inputs would hide it, too.
    expect(found, "samples", "statistics of its normalization layers computed anew the losses fit", 'buffers="recal')
    assert run.check(callback_fn, buffers="recalibrate")


class LaggingBatchNorm(nn.BatchNorm1d):
    """Collects means that differ from those of its inputs, as when weights move fast; variances fit."""

    def forward(self, inputs):
        outputs = super().forward(inputs)
        if self.training:
            self.running_mean.data += 0.09 * self.running_var.sqrt()
        return outputs


def lagging():
    return nn.Sequential(nn.Linear(FEATURES, 24), LaggingBatchNorm(24), nn.ReLU(), nn.Linear(24, CLASSES))


def test_statistics_that_lag_behind_the_weights_are_a_fact(tmp_path):
    found = train(tmp_path, lagging, rate=0.005).check(returns(network=lagging))
    assert found.findings == ()
    assert any("Running statistics lag behind weights that move fast" in fact.text for fact in found.facts)


class Tripled(nn.Sequential):
    def forward(self, inputs):
        return super().forward(3 * inputs)


@pytest.mark.slow
def test_statistics_of_another_forward_are_named(tmp_path):
    run = train(tmp_path, normalized, epochs=12)
    seen = r"variance that reaches layer '1' is \d[\d.]+ times off .* statistics of its normalization layers computed"
    expect(run.check(returns(network=lambda: Tripled(*normalized()))), "network", seen, "^look first whether")


def test_a_mean_where_training_had_a_sum(tmp_path):
    run = train(tmp_path, loss=summed)
    expect(run.check(returns()), "loss", "is a mean over samples, but training logged a sum", 'reduction="sum"')


def test_weights_that_nobody_moved(tmp_path):
    collector = SummaryCollector(tmp_path, collect_landscape={"unit": "step", "intervals": [range(4)]})
    with collector.watch(Plain()) as watched:
        for _ in range(3):
            watched.step()
    sentence = "steps 0 and 3 hold the same weights", "the very network that the optimizer moves"
    expect(SummaryLandscape(tmp_path).check(returns()), "checkpoint", *sentence)


def test_the_generators_of_the_process_stay_where_they_are():
    torch.manual_seed(3)
    expected = [torch.rand(1) for _ in range(3)]
    np.random.seed(3)  # noqa: NPY002
    numbers = np.random.random(2).tolist()  # noqa: NPY002
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    with other_random_numbers(5):
        other = torch.rand(1), np.random.random(2).tolist()  # noqa: NPY002
    assert [torch.rand(1) for _ in range(3)] == expected
    assert np.random.random(2).tolist() == numbers  # noqa: NPY002
    assert other[0] != expected[0]
    assert other[1] != numbers


def test_too_few_checkpoints(damaged):
    for number in range(1, 8):
        (damaged._path / f"ckpt_dir/Plain_{number}_epoch.safetensors").unlink()
    found = damaged.check(returns())
    expect(found, "run", "there are 2 checkpoints", "train longer")
    assert " has 2 checkpoints; looked at: epochs 0, 8." in " ".join(found.facts[0].text.split())


def test_frozen_layers_do_not_make_checkpoints_the_same(run):
    found = run.check(returns(network=lambda: Plain().requires_grad_(False)))
    assert [item.about for item in found.findings] == ["network", "network"]


def test_layers_that_training_froze(tmp_path):
    run = train(tmp_path, Frozen)
    seen = "are trainable in callback_fn, but were frozen in training"
    expect(run.check(returns()), "network", seen, "requires_grad")


def loader(count=256):
    return DataLoader(TensorDataset(*samples(count)), BATCH)


class Loader:
    """Gives batches, and says how many."""

    def __len__(self):
        return 8

    def __iter__(self):
        return iter(loader())


RIGHT = {
    "plain": ({}, returns()),
    "batch normalization": ({"network": normalized, "epochs": 12}, returns(network=normalized)),
    "dropout": ({"network": dropping}, returns(network=dropping)),
    "weight decay": ({"decay": 0.1}, returns()),
    "a sum on both sides": ({"loss": summed}, returns(summed)),
    "smoothed labels on both sides": ({"loss": smoothed}, returns(smoothed)),
    "class weights on both sides": ({"loss": weighted}, returns(weighted)),
    "a loader that shuffles": ({}, returns(data=lambda: DataLoader(TensorDataset(*samples()), BATCH, shuffle=True))),
    "two data sets": ({}, returns(data=lambda: {"test": held_out(), "train": samples()})),
    "shared weights": ({"network": Tied}, returns(network=Tied)),
    "no logged losses": ({"collect": {}}, returns()),
    "few logged losses": ({"collect_freq": 100}, returns()),
    "few samples": ({"num_samples": 8}, returns()),
    "a diverged run": ({"rate": 30.0, "epochs": 6}, returns()),
    "layers that are frozen on both sides": ({"network": Frozen}, returns(network=Frozen)),
    "dropout, and the same loss of another name": ({"network": dropping}, returns(unnamed, dropping)),
    "the same loss of another name": ({}, returns(nn.NLLLoss, lambda: nn.Sequential(*Plain(), nn.LogSoftmax(1)))),
    "a loss of our own": ({}, returns(unnamed)),
    "a metric of batches": (
        {},
        lambda: (nn.CrossEntropyLoss(), Plain(), loader(), {"spread": lambda out, _: out.std()}),
    ),
}


@pytest.mark.parametrize(("how", "callback_fn"), marked(RIGHT.values(), pytest.mark.slow), ids=RIGHT)
def test_nothing_is_found_in_a_run_that_is_right(how, callback_fn, run, tmp_path):
    run = train(tmp_path / "run", **how) if how else run
    before = sorted(run._path.rglob("*"))
    found = run.check(callback_fn)
    assert found.findings == ()
    assert found
    assert str(found).startswith("Nothing was found that is wrong.\n")
    assert json.loads(json.dumps(found.to_json()))["ok"] is True
    assert sorted(run._path.rglob("*")) == before


def by_numpy(scale=1.0):
    """Returns a callback_fn of what is no network: the same loss, computed with NumPy."""

    def callback_fn():
        inputs, targets = (tensor.numpy() for tensor in samples())

        def loss(weights):
            hidden = np.maximum(0, inputs @ weights["0.weight"].T + weights["0.bias"])
            outputs = scale * (hidden @ weights["2.weight"].T + weights["2.bias"])
            shifted = outputs - outputs.max(1, keepdims=True)
            losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(targets)), targets]
            return {"loss": losses.mean(), "loss_stderr": losses.std() / np.sqrt(len(losses))}

        arrays = {name: tensor.detach().numpy() for name, tensor in Plain().named_parameters()}
        return FunctionEvaluator(loss, arrays, num_samples=len(targets), samples=(inputs, targets))

    return callback_fn


def test_an_evaluator_of_ones_own_is_checked_too(run):
    assert run.check(by_numpy())
    expect(run.check(by_numpy(0.2)), "loss", "higher than training logged", "cannot tell which of them differs")


def failing(weights):
    """Returns another metric at weights that are no ones."""
    return {"loss": 1.0, "ones" if all((array == 1).all() for array in weights.values()) else "others": 1.0}


def only_ones(weights):
    return {"ones": 1.0}["ones" if all((array == 1).all() for array in weights.values()) else "no ones"]


class LoadsNothing(FunctionEvaluator):
    def load(self, *arguments, **options):
        return {}["no such plane"]


@pytest.mark.parametrize(
    ("kind", "function", "text"),
    [
        (FunctionEvaluator, failing, r"must return the same names .* returned \['loss', 'others'\]"),
        (FunctionEvaluator, only_ones, "what callback_fn returned raised KeyError: 'no ones'"),
        (LoadsNothing, only_ones, "what callback_fn returned raised KeyError: 'no such plane'"),
    ],
)
def test_what_an_evaluator_raises_is_a_finding(run, kind, function, text):
    arrays = {name: tensor.detach().numpy() for name, tensor in Plain().named_parameters()}
    expect(run.check(lambda: kind(function, arrays)), "callback_fn", text, "mend callback_fn")


def halves():
    inputs, targets = samples()
    return {"a": inputs[:, :6], "b": inputs[:, 6:]}, targets


def last_ones():
    return DataLoader(loader().dataset, BATCH, sampler=range(200, 256))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (halves, "256 of 256 are read, which are all."),
        (lambda: DataLoader([*loader()], batch_size=None), "256 are read."),
        (Loader, "256 are read."),
        (last_ones, "56 of 256 are read (those that its loader visits)."),
        (lambda: loader(600), "512 of 600 are read (the first in the data set's order)."),
    ],
)
def test_facts_say_how_many_samples_there_are(run, data, text):
    class Joined(Plain):
        def forward(self, inputs=None, a=None, b=None):
            return super().forward(torch.cat([a, b], 1) if inputs is None else inputs)

    facts = run.check(returns(network=Joined, data=data)).facts
    assert f"samples: {text}" in map(str, facts)


def test_a_sum_that_is_read_in_passes_is_a_sum(tmp_path):
    run = train(tmp_path, loss=summed)
    found = run.check(returns(summed, data=loader), sample_memory=4000)
    assert "read anew for each group of points" in str(found)
    assert found.findings == ()
    assert "loss: a sum over the samples" in str(found)


def test_a_metric_of_batches_is_no_loss_of_batches(run):
    found = run.check(RIGHT["a metric of batches"][1])
    assert "loss: a mean over the samples, all count alike." in map(str, found.facts)


@pytest.mark.slow
def test_a_network_that_each_call_returns_is_left_as_it_was(run):
    network = Plain()
    before = copy.deepcopy(network.state_dict())
    inputs, targets = scaled(16)
    assert not run.check(lambda: (nn.CrossEntropyLoss(), network, (inputs, targets), {}))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network._forward_pre_hooks


def test_facts_say_which_samples_weights_and_buffers_there_are(tmp_path):
    ours = functools.partial(nn.CrossEntropyLoss, ignore_index=3)
    tied = returns(ours, Tied, lambda: {"train": samples(), "test": samples(64, 3)})
    options = {"num_samples": {"train": 100, "test": None}, "samples": "random", "seed": 3}
    found = train(tmp_path, Tied, loss=ours).check(tied, **options)
    said = [str(fact) for fact in found.facts]
    assert "samples: 'train': 100 of 256 are read (random, seed 3). It is the main data set." in said
    assert "samples: 'test': 64 of 64 are read, which are all." in said
    assert "loss: a mean over the samples, which count from 0 to 1 each." in said
    assert "network: shared weights, which move as one: first.weight = second.weight." in said
    found = train(tmp_path / "sum", normalized, summed).check(returns(summed, normalized))
    summed_up = [str(fact) for fact in found.facts]
    assert "loss: a sum over the samples, so that it is larger the more of them are read." in summed_up
    assert any(text.startswith("network: buffers: '1.running_mean'") for text in summed_up)


@pytest.mark.slow
def test_what_cannot_be_compared_is_said(tmp_path, run):
    unlogged = train(tmp_path / "unlogged", collect={}).check(returns())
    few = train(tmp_path / "few", collect_freq=100).check(returns())
    other = run.check(returns(data=split))
    lower = train(tmp_path / "lower", loss=smoothed).check(returns())
    for found, text in (
        (unlogged, "the measured losses were compared with nothing"),
        (few, "1 were logged, which is too few"),
        (other, "not compared before the samples are always the same"),
        (lower, "check cannot tell which it is"),
    ):
        assert any(text in fact.text for fact in found.facts)
    assert lower


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_samples": 0}, ValueError, "^num_samples must be an int of at least 1, but got 0"),
        ({"size": 4}, TypeError, r"^SummaryLandscape.check\(\) got an unexpected keyword argument 'size'"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_an_error_and_no_finding(run, options, error, text):
    with pytest.raises(TypeError, match=r"^callback_fn must be a function without arguments"):
        run.check(3)
    with pytest.raises(error, match=text):
        run.check(returns(), **options)


def by_hand(folder, loss, factor=1, network=Plain, rate=0.02, **how):
    """Trains in a loop of its own, of which nothing but ``factor`` times the losses is recorded; returns the run."""
    torch.manual_seed(1)
    network, (inputs, targets) = network(), how.get("data", samples)()
    epochs, ordered = how.get("epochs", 8), "data" in how
    optimizer = torch.optim.Adam(network.parameters(), rate)
    collector = collector_of(folder, epochs, how.get("collect_freq", 1), {"collect_metric": True})
    with collector.watch(network) as watched:
        for _ in range(epochs):
            order = torch.arange(len(inputs)) if ordered else torch.randperm(len(inputs))
            for batch in order.split(BATCH):
                optimizer.zero_grad()
                value = loss(network(inputs[batch]), targets[batch])
                value.backward()
                optimizer.step()
                watched.step(factor * value)
            watched.end_epoch()
    return SummaryLandscape(folder)


def test_sums_of_batches_whose_size_nobody_recorded(tmp_path):
    found = by_hand(tmp_path / "mean", nn.CrossEntropyLoss()).check(returns(summed))
    (finding,) = found.findings
    assert "is a sum over samples, but training logged a mean: that of a sample fits" in finding.seen
    assert 'reduction="mean"' in finding.remedy
    right = by_hand(tmp_path / "sum", summed()).check(returns(summed))
    assert right.findings == ()
    assert "are sums over batches whose size nobody recorded" in right.facts[-1].text


def test_losses_that_a_scaler_multiplied(tmp_path):
    found = by_hand(tmp_path, nn.CrossEntropyLoss(), 1024).check(returns())
    expect(found, "loss", r"training logged about (9\d\d|1,[01]\d\d) times the measured loss", "by a gradient scaler")


@pytest.mark.slow
def test_losses_of_the_same_batch_of_each_epoch_are_named(tmp_path):
    how = {"epochs": 20, "data": wrong_ones_first, "collect_freq": 8}
    found = by_hand(tmp_path, nn.CrossEntropyLoss(), **how).check(returns(data=wrong_ones_first))
    assert found.findings == ()
    assert any("the same one or two batches of each epoch" in fact.text for fact in found.facts)
    how |= {"factor": 0.1}
    found = by_hand(tmp_path / "less", nn.CrossEntropyLoss(), **how).check(returns(data=wrong_ones_first))
    expect(found, "loss", "the same one or two batches of each epoch", "^look first whether training shuffles")


def test_outputs_of_one_column_against_targets_of_none(tmp_path):
    def column():
        return nn.Sequential(nn.Linear(FEATURES, 1))

    def columns():
        inputs, _ = samples()
        return inputs, inputs.sum(1, keepdim=True)

    def flat():
        inputs, targets = columns()
        return inputs, targets[:, 0]

    run = train(tmp_path, column, nn.MSELoss, columns)
    found = run.check(returns(nn.MSELoss, column, flat))
    (shapes, *_) = [finding for finding in found.findings if finding.about == "callback_fn"]
    assert re.search(r"outputs of shape \[\d+, 1\] with targets of shape \[\d+\]", shapes.seen)
    assert not any(fact.about == "warning" for fact in found.facts)
    assert run.check(returns(nn.MSELoss, column, columns))


def test_a_loss_that_is_higher_by_another_factor_each_time_is_not_divided(run):
    (finding,) = run.check(returns(network=Bent)).findings
    assert finding.seen.startswith("at ")
    assert "Divided" not in finding.seen


def test_a_loss_of_larger_batches_names_their_size(tmp_path):
    def step(network, batch):
        return functional.cross_entropy(network(batch[0]), batch[1], reduction="sum")

    def callback_fn():
        return OwnLoss(step), Plain(), DataLoader(TensorDataset(*samples()), 4 * BATCH), {}

    found = by_hand(tmp_path, summed()).check(callback_fn)
    expect(found, "loss", r"Divided by (4|3\.[89]|4\.[12]), it fits", "^give callback_fn's loader the batch size")


def test_checkpoints_that_were_imported_do_not_say_what_was_frozen(run, tmp_path):
    files = sorted((run._path / "ckpt_dir").glob("Plain_*_epoch.safetensors"))
    imported = import_checkpoints(tmp_path / "imported", files)
    found = SummaryLandscape(imported.path).check(returns())
    assert found.findings == ()
    assert "Training had the network" not in str(found)


def lost_from(run, folder, first):
    """Returns a copy of a run whose weights are NaN from an epoch on."""
    shutil.copytree(run._path / "ckpt_dir", folder / "weights")
    files = sorted((folder / "weights").glob("Plain_*_epoch.safetensors"))
    for number, path in enumerate(files):
        if number >= first:
            save_file({name: tensor.fill_(math.nan) for name, tensor in load_file(path).items()}, path)
    imported = import_checkpoints(folder / "run", files)
    return SummaryLandscape(imported.path)


def test_weights_that_are_not_finite(run, tmp_path):
    (tmp_path / "some").mkdir()
    (tmp_path / "all").mkdir()
    found = lost_from(run, tmp_path / "some", 3).check(returns())
    expect(found, "checkpoint", r"the weights are not finite at epochs 4, 6, 8\.", "leave them out")
    found = lost_from(run, tmp_path / "all", 0).check(returns())
    expect(found, "checkpoint", "none of the checkpoints .* has finite weights", "where it diverged")
