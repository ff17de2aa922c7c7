"""The loss of each class: sums of the same samples' losses, so that together they are the loss of all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from examples import accuracy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import at_point, case, classes, evaluator_of, features, mlp, plane_of, sentence_loader, weighted_mean

from workers import FunctionEvaluator, OwnLoss
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError, SampleMemoryError, SamplesError
from workers.evaluator import MeasurementSetup, SampleMemory
from workers.measurement_options import MeasurementOptions
from workers.measuring import sample_loss
from workers.measuring.sample_loss import SampleGroups, SampleLossTotal
from workers.metric_names import SAMPLE_LOSSES
from workers.samples.batches import Batch

POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [-1.0, 0.7], [0.05, 1.5]])


def opened(loss, dataset, groups="target", *, network=None, batch_size=16, **choices):
    return evaluator_of(loss, network or mlp(), dataset, groups=groups, batch_size=batch_size, **choices)


def measured(evaluator):
    plane = plane_of(mlp(), origin_seed=9)
    evaluator.load(*plane, far_points=[(1.0, 1.0)])
    values = evaluator.measure(POINTS)
    state = evaluator.measure_state(plane[0], plane[2])
    description = evaluator.description
    evaluator.close()
    assert set(values) == set(state) == set(description.metrics)
    assert state["loss[2]"] == values["loss[2]"][0]
    return plane, description, values


def test_the_sums_of_batches_are_joined_once_for_the_loss_its_groups_and_its_samples(monkeypatch):
    joined, join = [], sample_loss._concatenate
    monkeypatch.setattr(sample_loss, "_concatenate", lambda parts: joined.append(len(parts)) or join(parts))
    loss = SampleLossTotal(lambda outputs, targets: (outputs - targets) ** 2, "mean", None, None)
    loss.groups, loss.keeps_samples = SampleGroups((3, 7), np.array([0, 1, 0, 1, 1])), True
    for size, output in ((2, 1.0), (3, 2.0)):
        loss.add(np.full((size, 1), output), Batch(None, np.zeros((size, 1)), size))
    pending = loss.pending()
    assert joined == [2, 2]
    np.testing.assert_array_equal(pending.samples[SAMPLE_LOSSES], [1, 1, 4, 4, 4])
    values = pending.read()
    assert (values["loss"], values["loss[3]"], values["loss[7]"]) == (14 / 5, 5 / 2, 9 / 3)


LOSSES = {
    "mean": (nn.CrossEntropyLoss(), lambda targets: np.ones(len(targets))),
    "class weights": (
        nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 3.0, 0.6])),
        lambda targets: np.array([0.2, 1.0, 3.0, 0.6], np.float32).astype(np.float64)[targets],
    ),
    "ignored": (nn.CrossEntropyLoss(ignore_index=1), lambda targets: (targets != 1).astype(float)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_class_losses_are_those_of_their_samples_alone_and_add_up_to_the_loss(name):
    loss, weigh = LOSSES[name]
    inputs, targets = features(), classes()
    plane, description, values = measured(opened(loss, (inputs, targets), metrics={"accuracy": accuracy}))
    names = [f"loss[{label}]" for label in range(4)]
    assert description.metrics == ("loss", "loss_stderr", *names, "accuracy")
    weights = weigh(targets.numpy())
    shares = np.array([weights[targets.numpy() == label].sum() for label in range(4)])
    together = sum(share * values[item] for share, item in zip(shares, names, strict=True) if share) / shares.sum()
    np.testing.assert_allclose(together, values["loss"], rtol=1e-12)
    for label in range(4):
        of_class = targets == label
        for index, point in enumerate(POINTS):
            network = at_point(mlp(), plane, point).double().eval()
            with torch.no_grad():
                outputs = network(inputs[of_class].double())
                plain = type(loss)(weight=loss.weight if loss.weight is None else loss.weight.double())
                expected = plain(outputs, targets[of_class])
            if name == "ignored" and label == 1:
                assert np.isnan(values[names[label]][index])
            else:
                np.testing.assert_allclose(values[names[label]][index], float(expected), rtol=1e-5)


def test_the_sums_of_classes_add_up_to_a_loss_that_is_a_sum():
    _, _, values = measured(opened(nn.CrossEntropyLoss(reduction="sum"), (features(), classes())))
    together = sum(values[f"loss[{label}]"] for label in range(4))
    np.testing.assert_allclose(together, values["loss"], rtol=1e-12)


def test_the_loss_itself_is_the_same_bits():
    data = (features(), classes())
    _, _, values = measured(opened(nn.CrossEntropyLoss(), data))
    evaluator = opened(nn.CrossEntropyLoss(), data, None)
    evaluator.load(*plane_of(mlp(), origin_seed=9))
    for name, expected in evaluator.measure(POINTS).items():
        np.testing.assert_array_equal(values[name], expected)


def test_of_several_data_sets_a_class_that_one_lacks_is_nan_and_said():
    inputs, targets = features(30, seed=8), classes(30, 3, seed=8)
    sets = {"train": (features(), classes()), "test": (inputs, targets)}
    with pytest.warns(UserWarning, match="data set 'test': there is no sample of the groups 3, whose loss is NaN"):
        evaluator = opened(nn.CrossEntropyLoss(), sets)
    _, description, values = measured(evaluator)
    assert description.metrics[7:] == ("loss_stderr@test", *(f"loss[{label}]@test" for label in range(4)))
    assert np.isnan(values["loss[3]@test"]).all()
    counts = np.bincount(targets)
    together = sum(count * values[f"loss[{label}]@test"] for label, count in enumerate(counts)) / counts.sum()
    np.testing.assert_allclose(together, values["loss@test"], rtol=1e-12)
    _, _, alone = measured(opened(nn.CrossEntropyLoss(), (inputs, targets)))
    np.testing.assert_array_equal(values["loss[1]@test"], alone["loss[1]"])


def test_a_function_says_the_groups():
    def sign(inputs, targets):
        assert len(inputs) == len(targets)
        return (inputs[:, 0] > 0).long() * 2

    _, description, values = measured(
        opened(nn.CrossEntropyLoss(), DataLoader(TensorDataset(features(), classes()), 9), sign)
    )
    assert description.metrics == ("loss", "loss_stderr", "loss[0]", "loss[2]")
    other = opened(nn.CrossEntropyLoss(), (features(), classes()), lambda inputs, _: (inputs[:, 1] > 0).long() * 2)
    assert other.description.groups_sha256 != description.groups_sha256
    assert (values["loss[0]"] != values["loss[2]"]).all()


@pytest.mark.filterwarnings("ignore:loss depends on how samples are batched")
def test_what_has_no_groups_is_refused():
    data, loss = (features(), classes()), nn.CrossEntropyLoss()
    wide = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    for error, text, arguments in (
        (CallbackFunctionError, "groups needs a loss that has a value for each sample", (weighted_mean, data)),
        (SamplesError, r"targets that are one whole number for each sample, but .* float32 of shape \(50, 4\)",
         (nn.MSELoss(), (features(), features(inputs=4)))),
        (SamplesError, "groups must return one whole number for each", (loss, data, lambda *_: torch.zeros(3))),
        (CallbackFunctionError, "the function groups raised ZeroDivisionError", (loss, data, lambda *_: 1 / 0)),
        (CallbackFunctionError, "must be at most 1000, each of which is a surface of its own, but there are 1",
         (loss, (features(1100), classes(1100)), lambda inputs, _: (inputs[:, 0] * 1e8).long())),
        (SampleMemoryError, "the groups of all samples must be known before", (loss, data)),
    ):  # fmt: skip
        memory = SampleMemory(limit=500) if error is SampleMemoryError else None
        with pytest.raises(error, match=text):
            opened(*arguments, memory=memory, batch_size=2000)
    with pytest.raises(CallbackFunctionError, match="groups needs a loss that has a value for each sample"):
        opened(OwnLoss(lambda network, batch: network(batch[0]).mean()), data, network=wide)
    with pytest.raises(ValueError, match=r'groups must be "target", a function of \(inputs, targets\), or None'):
        MeasurementOptions(groups="classes")
    evaluator = FunctionEvaluator(lambda weights: 1.0, {"place": np.zeros(1)})
    with pytest.raises(ValueError, match="groups does not reach the Evaluator"):
        make_evaluator(evaluator, MeasurementSetup(MeasurementOptions(groups="target")))


def test_padded_sentences_have_groups_by_a_function():
    """Batches that cannot be joined; many targets for each sample."""
    loss, network, _ = case("transformer")
    groups = lambda inputs, targets: (targets != -100).sum(1) > 6  # noqa: E731
    evaluator = opened(loss, sentence_loader(), groups, network=network)
    assert evaluator.description.metrics == ("loss", "loss_stderr", "loss[0]", "loss[1]")
    evaluator.close()
