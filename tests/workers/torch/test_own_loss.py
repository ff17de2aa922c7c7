"""Networks that compute their own loss: batches reach them as they are, and batch size changes nothing."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from examples import accuracy
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import (
    Sentences,
    TinyTransformer,
    at_point,
    classes,
    evaluator_of,
    features,
    labelled,
    mlp,
    plane_of,
    seeded,
    sentence_loader,
    step,
    values_at,
)

from workers import OwnLoss
from workers.errors import CallbackFunctionError, SamplesError
from workers.samples.batches import as_whole_batch, cut
from workers.samples.store import SampleWriter

POINT = (0.2, -0.3)
LONGEST = 12


class WithLoss(nn.Module):
    """Takes a whole batch and returns its loss, as networks of Transformers do."""

    def __init__(self, shift=0):
        super().__init__()
        self.inner = TinyTransformer()
        self.shift = shift

    def forward(self, input_ids, labels=None):
        outputs = self.inner(input_ids)
        if labels is None:
            return {"logits": outputs}
        length = outputs.shape[-1] - self.shift
        # A batch of padding alone gives NaN, as torch's mean does.
        return {"loss": functional.cross_entropy(outputs[..., :length], labels[:, self.shift :]), "logits": outputs}


def padded(shift, pad_to=LONGEST):
    """Returns a collate_fn; without pad_to each batch has its own length."""

    def collate(samples):
        sequences = [torch.cat([inputs, targets[-1:]]) for inputs, targets in samples]
        length = pad_to or max(map(len, sequences))
        ids = torch.zeros(len(samples), length, dtype=torch.long)
        labels = torch.full((len(samples), length), -100)
        for row, sequence in enumerate(sequences):
            ids[row, : len(sequence)] = sequence
            labels[row, : len(sequence) - 1 + shift] = sequence[1 - shift :]
        return {"input_ids": ids, "labels": labels}

    return collate


def moved(network):
    plane = plane_of(network)
    return at_point(network.double(), plane, POINT)


def mean_of_sentences(loss, weight=lambda targets: 1):
    """Returns the mean of a loss of network, inputs and targets over single sentences."""
    network = moved(seeded(TinyTransformer))
    with torch.no_grad():
        losses = [loss(network, inputs[None], targets[None]).item() for inputs, targets in Sentences()]
    return np.average(losses, weights=[weight(targets) for _, targets in Sentences()])


def expected_of(batch, shift=0):
    with torch.no_grad():
        return moved(seeded(lambda: WithLoss(shift)))(**batch)["loss"].item()


def measured(model, network, dataset, metrics=None, **choices):
    return values_at(evaluator_of(model, network, dataset, metrics, **choices), network, POINT)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("pad_to", [LONGEST, None])
def test_the_mean_is_over_labels_that_count(shift, pad_to):
    network = seeded(lambda: WithLoss(shift))
    expected = expected_of(padded(shift)([*Sentences()]), shift)
    for batch_size in (1, 3, 7):
        loader = DataLoader(Sentences(), batch_size=batch_size, collate_fn=padded(shift, pad_to), shuffle=True)
        values, description = measured(None, network, loader)
        assert values == {"loss": pytest.approx(expected, rel=1e-6)}
        assert not description.partition_dependent
        assert description.num_samples == len(Sentences())


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("shift", [0, 1])
def test_a_function_of_outputs_and_targets_is_a_mean_over_labels_too(shift, batch_size):
    def loss(outputs, targets):
        return functional.cross_entropy(outputs[..., : outputs.shape[-1] - shift], targets[:, shift:])

    values, description = measured(loss, seeded(TinyTransformer), sentence_loader(batch_size))
    expected = mean_of_sentences(
        lambda network, inputs, targets: loss(network(inputs), targets), lambda targets: len(targets) - shift
    )
    assert values["loss"] == pytest.approx(expected, rel=1e-6)
    assert not description.partition_dependent


def test_labels_that_are_never_ignored_tell_nothing_and_the_note_says_how_batches_are_weighed():
    def loss(outputs, targets):
        return functional.cross_entropy(outputs, targets.clamp_min(0))

    network = seeded(TinyTransformer)
    evaluator = evaluator_of(loss, network, sentence_loader(1))
    text = "which leaves open .* weighted by how many samples each holds. .* OwnLoss"
    with pytest.warns(UserWarning, match=text):
        evaluator.load(*plane_of(network), far_points=[(1.0, 1.0)])
    (value,) = evaluator.measure(np.array([POINT]))["loss"]
    assert evaluator.description.partition_dependent
    evaluator.close()
    expected = mean_of_sentences(lambda network, inputs, targets: loss(network(inputs), targets))
    assert value == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore:loss is measured in batches of one sample")
def test_what_the_user_says_of_samples_goes_before_labels():
    network = seeded(TinyTransformer)
    values, _ = measured(OwnLoss(step, samples=lambda batch: 1), network, sentence_loader(1))
    expected = mean_of_sentences(lambda network, *sentence: step(network, sentence)[0])
    assert values["loss"] == pytest.approx(expected, rel=1e-6)


def test_a_batch_of_padding_counts_nothing():
    batch = padded(0)([Sentences()[index] for index in range(12)])
    batch["labels"][6:] = -100
    batches = [{key: item[start : start + 3] for key, item in batch.items()} for start in range(0, 12, 3)]
    values, description = measured(None, seeded(WithLoss), batches)
    assert values["loss"] == pytest.approx(expected_of(batch), rel=1e-6)
    assert not description.partition_dependent


def test_no_label_that_counts_is_an_error():
    batch = padded(0)([Sentences()[index] for index in range(6)])
    batch["labels"][:] = -100
    with pytest.raises(SamplesError, match="at least one target that counts"):
        measured(None, seeded(WithLoss), [batch])


def test_a_step_sees_the_batch_and_metrics_see_what_it_returns():
    of_batch = {"accuracy": lambda outputs, batch: accuracy(outputs, batch[1])}
    values, description = measured(OwnLoss(step), mlp(), DataLoader(labelled(), 9), of_batch)
    reference, _ = measured(nn.CrossEntropyLoss(), mlp(), labelled(), {"accuracy": accuracy})
    for name in ("loss", "accuracy"):
        assert values[name] == pytest.approx(reference[name], rel=1e-6)
    assert description.metrics == ("loss", "accuracy")


def normalized():
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)))


@pytest.mark.parametrize(("build", "options"), [(mlp, {}), (normalized, {"buffers": "recalibrate"})])
def test_a_pair_with_ignored_classes_and_statistics_that_the_step_recalibrates(build, options):
    targets = classes()
    targets[::3] = -100
    dataset = TensorDataset(features(), targets)
    values, description = measured(OwnLoss(step), build(), DataLoader(dataset, 7), **options)
    reference, _ = measured(nn.CrossEntropyLoss(), build(), dataset, **options)
    assert values["loss"] == pytest.approx(reference["loss"], rel=1e-6)
    assert not description.partition_dependent


def test_a_loss_that_belongs_to_its_batches_keeps_them():
    def centred(network, batch):
        outputs = network(batch[0])
        return (outputs - outputs.mean(0)).square().mean()

    with pytest.warns(UserWarning, match="loss depends on how samples are batched"):
        values, description = measured(OwnLoss(centred), mlp(), DataLoader(labelled(), 10))
    assert description.partition_dependent
    assert description.plan.batch_size is None
    network = moved(mlp())
    with torch.no_grad():
        expected = np.mean([centred(network, (part.double(), None)).item() for part in features().split(10)])
    assert values["loss"] == pytest.approx(expected, rel=1e-6)


class Pair(NamedTuple):
    inputs: torch.Tensor
    targets: torch.Tensor


def test_named_tuples_stay_named():
    batch = as_whole_batch(Pair(features(), classes()))
    assert cut(batch, 0, 7).inputs[0].inputs.shape == (7, 6)
    writer = SampleWriter()
    for part in (cut(batch, 0, 7), cut(batch, 7, 50)):
        writer.add(part)
    (joined,) = writer.finish(without_batches=True).own_batches
    torch.testing.assert_close(joined.inputs[0].targets, classes())
    own = OwnLoss(lambda network, batch: functional.cross_entropy(network(batch.inputs), batch.targets))
    values, _ = measured(own, mlp(), [Pair(features(), classes())])
    assert np.isfinite(values["loss"])


@pytest.mark.parametrize(
    ("model", "dataset", "error", "text"),
    [
        (None, labelled(), CallbackFunctionError, "first item .* is None.* gives no dict"),
        (None, [{"input": features()}], CallbackFunctionError, "its output has no loss .Tensor.*Give dictionaries"),
        (None, [{"name": "a"}], SamplesError, "must give batches that are or hold tensors"),
        (OwnLoss(lambda network, batch: network(batch[0])), [(features(),)], CallbackFunctionError, "a single number"),
        (OwnLoss(lambda network, batch: 1 / 0), [features()], CallbackFunctionError, "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_measured(model, dataset, error, text):
    with pytest.raises(error, match=text):
        evaluator_of(model, mlp(), dataset)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"step": "loss"}, r"step must be a function of \(network, batch\) .* but got str"),
        ({"samples": 4}, "samples must be a function of a batch .* but got int"),
    ],
)
def test_what_it_is_made_of_must_be_functions(wrong, text):
    with pytest.raises(TypeError, match=text):
        OwnLoss(**wrong)
