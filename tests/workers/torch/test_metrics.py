"""Metrics come from the same forward pass as the loss."""

import numpy as np
import pytest
import torch
import torchmetrics
from examples import accuracy
from measured_planes import measure_plane
from torch import nn
from torch.utils.data import DataLoader
from worker_cases import at_point, classes, evaluator_of, features, labelled, mlp, plane_of

from collectors import Loss, Model
from workers.errors import CallbackFunctionError
from workers.pools.in_process import Worker

POINTS = np.array([[0.0, 0.0], [0.4, -0.2]])


def macro_recall(outputs, targets):
    """Does not split into samples: each batch has its own classes."""
    hits = outputs.argmax(1) == targets
    return float(np.mean([hits[targets == label].float().mean().item() for label in targets.unique()]))


def broken(method):
    """Returns a metric of which one method raises."""

    def fail(*_):
        raise KeyError(method)

    return type("Broken", (torchmetrics.classification.MulticlassAccuracy,), {method: fail})(4)


def loader():
    return DataLoader(labelled(), batch_size=9)


def outputs_at(points):
    networks = [at_point(mlp().double(), plane_of(mlp()), point) for point in points]
    with torch.no_grad():
        return [network(features().double()) for network in networks]


def measured(metrics, batch_size=None):
    evaluator = evaluator_of(nn.CrossEntropyLoss(), mlp(), loader(), metrics, batch_size=batch_size)
    return measure_plane(evaluator, plane_of(mlp()), POINTS, far_points=[(1.0, 1.0)]), evaluator.description


@pytest.mark.parametrize("batch_size", [1, 7, 64, None])
def test_metrics_equal_a_direct_computation(batch_size):
    metrics = {
        "accuracy": accuracy,
        "top": torchmetrics.classification.MulticlassAccuracy(4, average="micro"),
        "f1": torchmetrics.classification.MulticlassF1Score(4, average="macro"),
    }
    values, description = measured(metrics, batch_size)
    assert description.metrics == ("loss", "loss_stderr", "accuracy", "top", "f1")
    assert not description.partition_dependent
    for index, outputs in enumerate(outputs_at(POINTS)):
        expected = float(accuracy(outputs, classes()))
        np.testing.assert_allclose(values["accuracy"][index], expected, rtol=1e-6)
        np.testing.assert_allclose(values["top"][index], expected, rtol=1e-6)
        f1 = torchmetrics.functional.classification.multiclass_f1_score(outputs, classes(), 4, average="macro")
        np.testing.assert_allclose(values["f1"][index], f1, rtol=1e-6)


def test_the_users_metric_object_is_not_touched():
    metric = torchmetrics.classification.MulticlassAccuracy(4)
    metric.update(torch.eye(4), torch.arange(4))
    before = {name: value.clone() for name, value in metric.metric_state.items()}
    measured({"top": metric})
    assert all(torch.equal(before[name], value) for name, value in metric.metric_state.items())


@pytest.mark.parametrize("metrics", [{}, None, {"one": accuracy, "two": accuracy}])
def test_one_forward_pass_for_all(metrics):
    network = mlp()
    calls = []
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, loader(), metrics, batch_size=20)
    evaluator.load(*plane_of(network))
    network.register_forward_hook(lambda module, inputs, outputs: calls.append(len(outputs)))
    evaluator.measure(POINTS)
    assert calls == [20, 20, 10] * len(POINTS)


def test_an_object_that_keeps_its_own_totals_is_no_module():
    class Hits:
        def reset(self):
            self.hits = self.count = 0

        def update(self, outputs, targets):
            self.hits += int((outputs.argmax(1) == targets).sum())
            self.count += len(targets)

        def compute(self):
            return self.hits / self.count

    values, _ = measured({"hits": Hits(), "accuracy": accuracy})
    np.testing.assert_allclose(values["hits"], values["accuracy"], rtol=1e-6)


def test_a_metric_of_batches_keeps_the_loaders_own():
    with pytest.warns(UserWarning, match="metric 'recall' depends on how samples are batched, so the data set's own"):
        values, description = measured({"recall": macro_recall, "accuracy": accuracy}, 7)
    assert description.partition_dependent
    assert description.plan.batch_size is None
    assert description.metrics == ("loss", "loss_stderr", "recall", "accuracy")  # the loss still splits
    for index, outputs in enumerate(outputs_at(POINTS)):
        parts = [slice(start, start + 9) for start in range(0, 50, 9)]
        each = [macro_recall(outputs[part], classes()[part]) for part in parts]
        expected = np.average(each, weights=[9, 9, 9, 9, 9, 5])
        np.testing.assert_allclose(values["recall"][index], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "metrics",
    [
        {"acc", "recall", "loss"},
        {"acc": "acc", "recall": "recall", "mean": Loss()},
        Model(mlp(), nn.CrossEntropyLoss(), metrics={"acc", "recall", "loss"}).metrics,
    ],
    ids=["names", "dict", "those of a Model"],
)
def test_metrics_by_name(metrics):
    by_name, _ = measured(metrics)
    assert set(by_name) == {"loss", "loss_stderr", "acc", "recall"}
    options = {"num_classes": outputs_at(POINTS)[0].shape[1]}
    objects, _ = measured(
        {
            "acc": torchmetrics.classification.MulticlassAccuracy(average="micro", **options),
            "recall": torchmetrics.classification.MulticlassRecall(**options),
        }
    )
    for name, values in objects.items():
        np.testing.assert_array_equal(by_name[name], values)


def test_nan_metrics_stay():
    def never(outputs, targets):
        return float("nan")

    with pytest.warns(UserWarning, match="metric 'never' is not finite at the plane's origin, its corners and between"):
        values, _ = measured({"never": never})
    assert np.isnan(values["never"]).all()


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ([accuracy], "the fourth item .* must be a dict of metrics .* but is a list"),
        ({"acc", "roc"}, "the fourth item .* given by name must be one of the names .* but got 'roc'"),
        ({"a": "roc"}, "the fourth item .* given by name must be one of the names .* but got 'roc'"),
        ({"a": 3}, r"metric 'a' must be a torchmetrics object or a function of \(outputs, targets\), but is 3"),
        ({"a": torchmetrics.MeanMetric}, "metric 'a' must be a torchmetrics object or a function"),
        ({"a": lambda outputs, targets: outputs}, "metric 'a' must be a single number for a batch, but is a tensor"),
        ({"a": lambda outputs, targets: None}, "metric 'a' must be a single number for a batch, but is a NoneType"),
        (
            {"a": torchmetrics.classification.MulticlassAccuracy(4, average=None)},
            r"metric 'a' must be a single number for a batch, but is a tensor of shape \(4,\)",
        ),
        ({"b": accuracy, "a": lambda outputs: 1.0}, r"^metric 'a' raised TypeError: .* takes 1 positional argument"),
        ({"b": accuracy, "a": broken("update")}, "^metric 'a' raised KeyError: 'update'"),
        ({"b": accuracy, "a": broken("compute")}, "^metric 'a' raised KeyError: 'compute'"),
    ],
)
def test_bad_metrics_are_refused(metrics, text):
    with pytest.raises(CallbackFunctionError, match=text):
        measured(metrics)


def test_a_point_where_a_metric_raises_names_it_and_keeps_the_traceback():
    def best_class(outputs, targets):
        if outputs.abs().max() > 1e3:
            raise ArithmeticError("far away")
        return outputs.argmax(1).float().mean()

    network = mlp()
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, loader(), {"accuracy": accuracy, "best": best_class})
    evaluator.load(*plane_of(network))
    (values, nothing, _), (none, text, _) = Worker(evaluator).measure_points([(0.0, 0.0), (1e4, 0.0)])
    assert (nothing, none) == (None, None)
    assert set(values) == {"loss", "loss_stderr", "accuracy", "best"}
    assert text.endswith("\nworkers.errors.CallbackFunctionError: metric 'best' raised ArithmeticError: far away\n")
    assert 'raise ArithmeticError("far away")' in text


def test_memory_that_a_metric_wants_is_had_by_smaller_batches():
    def hungry(outputs, targets):
        if len(outputs) > 13:
            raise MemoryError("out of memory")
        return outputs.mean()

    evaluator = evaluator_of(nn.CrossEntropyLoss(), mlp(), loader(), {"hungry": hungry})
    evaluator.load(*plane_of(mlp()))
    evaluator.use_batch_size(50)
    ((values, error, _),) = Worker(evaluator).measure_points([(0.0, 0.0)])
    assert error is None
    assert np.isfinite(values["hungry"])
    assert evaluator.description.plan.batch_size == 13
