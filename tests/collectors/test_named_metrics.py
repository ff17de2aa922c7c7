"""Metrics by name, against scikit-learn; and the mean loss as a metric."""

import re
import sys

import numpy as np
import pytest
import sklearn.metrics as oracle
import torch
from torch import nn

from collectors import LambdaCallback, Loss, Model
from collectors.named_metrics import METRIC_NAMES, metric_by_name

CLASSES = 7


def classified(count=50, seed=0):
    """Returns the scores and classes of some samples, as batches of unequal sizes and as a whole."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(count, CLASSES, generator=generator)
    targets = (scores + torch.randn(count, CLASSES, generator=generator)).argmax(1)
    return list(zip(scores.split(12), targets.split(12), strict=True)), scores, targets


def classifier(metrics, **options):
    return Model(nn.Identity(), nn.CrossEntropyLoss(), metrics=metrics, **options)


def expected_of(scores, targets):
    found, true = scores.argmax(1).numpy(), targets.numpy()
    top_5 = oracle.top_k_accuracy_score(true, scores.numpy(), k=5, labels=range(CLASSES))
    means = {"average": "macro", "labels": np.arange(CLASSES), "zero_division": 0}
    accuracy = oracle.accuracy_score(true, found)
    return {
        "acc": accuracy,
        "accuracy": accuracy,
        "top_1_accuracy": accuracy,
        "top_5_accuracy": top_5,
        "precision": oracle.precision_score(true, found, **means),
        "recall": oracle.recall_score(true, found, **means),
        "f1": oracle.f1_score(true, found, **means),
        "F1": oracle.f1_score(true, found, **means),
        "loss": float(nn.functional.cross_entropy(scores, targets)),
    }


def test_names_give_what_scikit_learn_gives():
    batches, scores, targets = classified()
    expected = expected_of(scores, targets)
    assert set(expected) == set(METRIC_NAMES) - {"mae", "mse", "confusion_matrix"}
    results = classifier(set(expected)).eval(batches)
    assert results == pytest.approx(expected, rel=1e-5)
    assert list(results) == sorted(results)  # a set has no order of its own


def test_the_documented_spelling():
    batches, scores, targets = classified()
    expected = expected_of(scores, targets)
    renamed = classifier({"mine": "acc", "mean": Loss(), "again": "loss"}).eval(batches)
    assert renamed == pytest.approx({"mine": expected["acc"], "mean": expected["loss"], "again": expected["loss"]})
    assert list(classifier(["recall", Loss(), "acc"]).metrics) == ["recall", "Loss", "acc"]


def test_the_confusion_matrix():
    batches, scores, targets = classified()
    matrix = classifier(["confusion_matrix"]).eval(batches)["confusion_matrix"]
    np.testing.assert_array_equal(matrix, oracle.confusion_matrix(targets, scores.argmax(1), labels=range(CLASSES)))


def test_errors_of_values():
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(30, 2, generator=generator), torch.randn(30, 2, generator=generator)
    batches = list(zip(outputs.split(8), targets.split(8), strict=True))
    results = Model(nn.Identity(), nn.MSELoss(), metrics={"mae", "mse", "loss"}).eval(batches)
    squared = oracle.mean_squared_error(targets, outputs)
    assert results == pytest.approx(
        {"mae": oracle.mean_absolute_error(targets, outputs), "mse": squared, "loss": squared}, rel=1e-5
    )


def test_targets_that_losses_ignore_do_not_count():
    batches, scores, targets = classified()
    targets[::3] = -100  # the batches see it, too
    rest = targets >= 0
    results = classifier({"acc", "recall"}).eval(batches)
    expected = expected_of(scores[rest], targets[rest])
    assert results == pytest.approx({name: expected[name] for name in results}, rel=1e-5)


def test_pixels_and_other_numbers_of_classes():
    model = classifier({"acc"})
    for classes in (3, 4):
        scores = torch.randn(5, classes, 4, 4, generator=torch.Generator().manual_seed(1))
        targets = scores.argmax(1)
        targets[0] = (targets[0] + 1) % classes
        assert model.eval([(scores, targets)]) == {"acc": pytest.approx(0.8)}


def test_in_a_fit():
    batches, _, _ = classified()
    network = nn.Linear(CLASSES, CLASSES)
    model = Model(network, nn.CrossEntropyLoss(), torch.optim.SGD(network.parameters(), 0.1), metrics={"loss", "acc"})
    seen = []
    note = LambdaCallback(on_train_epoch_end=lambda context: seen.append(dict(context.original_args().eval_results)))
    model.fit(2, batches, batches, callbacks=note)
    assert [set(item) for item in seen] == [{"loss", "acc", "eval_loss"}] * 2
    assert all(item["loss"] == pytest.approx(item["eval_loss"]) for item in seen)


def test_a_loss_that_is_a_sum_is_a_mean_here():
    batches, scores, targets = classified()
    model = Model(nn.Identity(), nn.CrossEntropyLoss(reduction="sum"), metrics={"loss"})
    assert model.eval(batches)["loss"] == pytest.approx(float(nn.functional.cross_entropy(scores, targets)), rel=1e-5)


@pytest.mark.parametrize("make", [lambda name: {name}, lambda name: [name], lambda name: {"mine": name}])
def test_an_unknown_name_lists_the_known_ones(make):
    known = re.escape(str(list(METRIC_NAMES)))
    with pytest.raises(ValueError, match=f"a metric that is given by name must be one of the names {known}.*'roc'"):
        classifier(make("roc"))


NEEDED = r"'acc' needs outputs of shape \(N, classes, \.\.\.\)"


@pytest.mark.parametrize(
    ("loss_fn", "metrics", "outputs", "targets", "text"),
    [
        (nn.MSELoss(), {"acc"}, (4,), torch.ones(4), NEEDED + r".*got \(4,\) and \(4,\)"),
        (lambda a, b: a.mean(), {"acc"}, (4, 2), torch.ones(4), r"integer targets.*BinaryAccuracy\(\)"),
        (nn.CrossEntropyLoss(), {"top_5_accuracy"}, (4, 3), torch.ones(4).long(), "needs 5 classes or more, but got 3"),
        (None, {"loss"}, (1,), torch.ones(1), "metrics has the loss, but loss_fn is None"),
        (None, ["acc", "acc"], (1,), torch.ones(1), "metrics has two items called 'acc'"),
    ],
)
def test_metrics_that_do_not_fit(loss_fn, metrics, outputs, targets, text):
    with pytest.raises(ValueError, match=text):
        Model(nn.Identity(), loss_fn, metrics=metrics).eval([(torch.ones(outputs), targets)])


def test_without_torchmetrics(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    assert isinstance(metric_by_name("loss"), Loss)
    with pytest.raises(ImportError, match=r"'acc' comes from torchmetrics; install it with pip install.*torchmetrics"):
        classifier({"acc"})


def test_loss_by_hand():
    loss = Loss()
    for value in (1.0, np.array([2.0, 4.0]), torch.tensor(2.0)):
        loss.update(value)
    assert loss.compute() == loss.eval() == 2.0
    loss.clear()
    with pytest.raises(RuntimeError, match=r"Loss has no batch.*call update\(loss\) first"):
        loss.compute()
    loss.update(torch.tensor(3.0), samples=3)
    loss.update(1.0)
    assert loss.compute() == 2.5
