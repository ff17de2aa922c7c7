"""Several data sets in one survey: each value is that of a survey of its data set alone, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torchmetrics
from torch import nn
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, TensorDataset
from worker_cases import (
    CASES,
    ConvNet,
    at_point,
    case,
    classes,
    evaluator_of,
    features,
    images,
    mlp,
    plane_of,
    seeded,
    sentence_loader,
    weighted_mean,
)

from workers.errors import CallbackFunctionError, SampleMemoryError, SamplesError
from workers.evaluator import SampleMemory
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan, Workload

POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [-1.0, 0.7], [0.05, 1.5]])
FAR = [(1.0, 1.0)]


def pair(count, seed, inputs=6):
    return features(count, inputs, seed), classes(count, seed=seed + 1)


def opened(loss, network, dataset, metrics=None, **choices):
    return evaluator_of(loss, network, dataset, metrics, batch_size=16, **choices)


def measured(evaluator, network_plane):
    """Returns the description, the points' values, and those of the plane's origin as a state of its own."""
    with torch.no_grad():
        evaluator.load(*network_plane, far_points=FAR)
        values = evaluator.measure(POINTS)
        origin, _, buffers = network_plane
        state = evaluator.measure_state(origin, buffers)
        description = evaluator.description
        evaluator.close()
    return description, values, state


def check_equal_alone(loss, build, datasets, metrics=None, **options):
    """Compares with a survey of each data set alone, under the plan of all together."""
    together = opened(loss, build(), datasets, metrics, **options)
    plane = plane_of(build(), origin_seed=9)
    description, values, state = measured(together, plane)
    assert [item.name for item in description.datasets] == list(datasets)
    assert set(values) == set(state) == set(description.metrics)
    names = []
    options.pop("workload", None)
    plan = options.pop("plan", None) or description.plan
    counts = options.pop("num_samples", None)
    for index, (name, dataset) in enumerate(datasets.items()):
        count = counts.get(name) if isinstance(counts, dict) else counts
        alone = opened(loss, build(), dataset, metrics, plan=plan, num_samples=count, **options)
        expected_description, expected, expected_state = measured(alone, plane)
        assert not expected_description.datasets
        found = description.datasets[index]
        assert found.num_samples == expected_description.num_samples
        assert found.samples_sha256 == expected_description.samples_sha256
        assert found.partition_dependent == expected_description.partition_dependent
        for metric in expected_description.metrics:
            full = f"{metric}@{name}" if index else metric
            names.append(full)
            np.testing.assert_array_equal(values[full], expected[metric], err_msg=full)
            np.testing.assert_array_equal(state[full], expected_state[metric], err_msg=full)
    assert tuple(names) == description.metrics
    return description, values


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_network(name):
    loss, _, dataset = case(name)
    other = case(name)[2]
    check_equal_alone(loss, lambda: case(name)[1], {"main": dataset, "few": other}, num_samples={"few": 17})


@pytest.mark.slow
def test_each_set_is_tested_for_its_own_partition():
    """One data set has batches of one size, the other has batches that cannot be joined."""
    loss = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(5)
    lengths = (3, 7, 5)
    padded = [
        (torch.randint(1, 11, (4, n), generator=generator), torch.randint(1, 11, (4, n), generator=generator))
        for n in lengths
    ]
    even = TensorDataset(*(torch.randint(1, 11, (30, 6), generator=generator) for _ in range(2)))
    build = lambda: case("transformer")[1]  # noqa: E731
    check_equal_alone(loss, build, {"even": even, "ragged": padded})
    check_equal_alone(loss, build, {"ragged": padded, "even": even}, plan=MeasurementPlan(batch_size=16))
    check_equal_alone(loss, build, {"ragged": sentence_loader(), "others": sentence_loader(4)})


@pytest.mark.filterwarnings("ignore:(data set .* )?loss depends on how samples")
def test_a_loss_that_belongs_to_its_batches_keeps_those_of_each_set():
    def loader(data, size):
        return DataLoader(TensorDataset(*data), size)

    sets = {"train": loader(pair(50, 1), 9), "test": loader(pair(40, 7), 13)}
    with pytest.warns(UserWarning, match="data set 'test': loss depends on how samples are batched"):
        description, _ = check_equal_alone(weighted_mean, mlp, sets)
    assert description.partition_dependent
    assert any(note.startswith("data set 'test': loss depends") for note in description.notes)


def test_torchmetrics_objects_are_kept_apart():
    metrics = {"recall": torchmetrics.Recall("multiclass", num_classes=4, average="macro")}
    check_equal_alone(nn.CrossEntropyLoss(), mlp, {"a": pair(50, 1), "b": pair(50, 7), "c": pair(9, 3)}, metrics)


def wide():
    return seeded(lambda: nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 4)))


def conv_net():
    return seeded(ConvNet)


PICTURES = {"train": (images(40), classes(40, 5)), "test": (images(24) + 1, classes(24, 5, seed=8))}


@pytest.mark.parametrize(
    ("build", "sets", "plan"),
    [
        (wide, {"train": pair(200, 1, 784), "test": pair(90, 7, 784)}, MeasurementPlan(64, first_layer=True)),
        (conv_net, PICTURES, MeasurementPlan(16, channels_last=True)),
        (conv_net, PICTURES, None),  # tuned once, on the main set
        pytest.param(
            mlp,
            {"train": pair(64, 1), "test": pair(41, 7)},
            MeasurementPlan(32, compile=True),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["first layer", "channels last", "tuned", "compiled for the shapes of all sets"],
)
def test_a_plan_holds_for_all_sets(build, sets, plan):
    how = {"workload": Workload(compile=False)} if plan is None else {"plan": plan}
    description, _ = check_equal_alone(nn.CrossEntropyLoss(), build, sets, **how)
    assert plan is None or description.plan == replace(plan, compiler=description.plan.compiler)


def test_statistics_are_recalibrated_on_the_main_set_alone():
    """So the other sets are measured in the network that the main one makes."""
    train, test = (images(40), classes(40, 5)), (3 * images(24) + 1, classes(24, 5, seed=8))
    plane = plane_of(conv_net(), origin_seed=9)

    def survey(sets):
        options = {"buffers": "recalibrate", "recalibration_batch_size": 8}
        return measured(opened(nn.CrossEntropyLoss(), conv_net(), sets, **options), plane)

    found = survey({"a": train, "b": test})
    note = "the statistics are recalibrated on the data set 'a' alone"
    assert any(note in text for text in found[0].notes)
    np.testing.assert_array_equal(found[1]["loss"], survey(train)[1]["loss"])
    # The other set, where the statistics come from the main one: both as one, of which the first batch recalibrates.
    swapped = survey({"b": test, "a": train})[1]
    assert (np.abs(swapped["loss"] - found[1]["loss@b"]) > 1e-3).any()
    for index, point in enumerate(POINTS):
        network = at_point(conv_net(), plane, point)
        update_bn(train[0].split(8), network)
        with torch.no_grad():
            expected = nn.functional.cross_entropy(network.eval()(test[0]), test[1])
        np.testing.assert_allclose(found[1]["loss@b"][index], float(expected), rtol=1e-5)


def test_the_network_is_moved_once_for_all_sets(monkeypatch):
    from workers.torch.moves import NetworkInPlace

    moves = []
    plain = NetworkInPlace.move
    monkeypatch.setattr(NetworkInPlace, "move", lambda self, point: (moves.append(point), plain(self, point))[1])
    evaluator = opened(nn.CrossEntropyLoss(), mlp(), {"train": pair(50, 1), "test": pair(33, 7)})
    evaluator.load(*plane_of(mlp()), far_points=FAR)
    moves.clear()
    evaluator.measure(POINTS)
    assert len(moves) == len(POINTS)
    evaluator.close()


def test_smaller_batches_hold_for_all_sets():
    evaluator = opened(nn.CrossEntropyLoss(), mlp(), {"train": pair(50, 1), "test": pair(33, 7)})
    evaluator.load(*plane_of(mlp()))
    before = evaluator.measure(POINTS)
    evaluator.use_batch_size(5)
    assert {item.plan.batch_size for item in evaluator._sets} == {5}
    after = evaluator.measure(POINTS)
    evaluator.close()
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, rtol=1e-5, err_msg=name)


def test_other_workers_take_the_samples_of_each_set():
    sets = {"train": pair(50, 1), "test": pair(33, 7)}
    first = opened(nn.CrossEntropyLoss(), mlp(), sets, memory=SampleMemory(shared=True))
    held = first.description.held
    second = opened(nn.CrossEntropyLoss(), mlp(), sets, memory=SampleMemory((held,), shared=True))
    assert second.description.datasets == first.description.datasets
    for ours, theirs in zip(first._sets, second._sets, strict=True):
        assert ours.samples.store.files[0].handle().inode == theirs.samples.store.files[0].handle().inode


REFUSED = {
    "empty": ({}, SamplesError, "dataset must hold at least one data set"),
    "a batch of named arrays": (
        {"x": torch.zeros(4, 6), "y": torch.zeros(4)},
        SamplesError,
        r"always stands for several data sets by name.*its entry 'x' is a Tensor.*put it into a list",
    ),
    "a dict in a dict": ({"train": {"x": torch.zeros(4, 6)}}, SamplesError, "its entry 'train' is a dict, which is no"),
    "a text": ({"train": "cifar10"}, SamplesError, "its entry 'train' is a str, which is no data set"),
    "a reserved name": ({"a@b": pair(9, 1)}, CallbackFunctionError, "the name of a data set must be .* but got 'a@b'"),
    "a number as name": ({1: pair(9, 1)}, CallbackFunctionError, "the name of a data set must be .* but got 1"),
    "no samples": ({"train": pair(9, 1), "test": []}, SamplesError, "data set 'test': dataset must hold at least one"),
    "other shapes": ({"train": pair(9, 1), "test": pair(9, 1, 5)}, CallbackFunctionError, "'test': .* be evaluated on"),
    "not readable": ({"train": pair(9, 1), "test": 5}, TypeError, "data set 'test': dataset must be"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_is_refused(name):
    sets, error, text = REFUSED[name]
    with pytest.raises(error, match=f"(?s){text}"):
        opened(nn.CrossEntropyLoss(), mlp(), sets)


def test_numbers_of_samples_go_by_name():
    loss, sets = nn.CrossEntropyLoss(), {"train": pair(50, 1), "test": pair(33, 7)}
    counts = opened(loss, mlp(), sets, num_samples={"test": 20}).description.datasets
    assert [item.num_samples for item in counts] == [50, 20]
    counts = opened(loss, mlp(), sets, num_samples=25).description.datasets
    assert [item.num_samples for item in counts] == [25, 25]
    with pytest.raises(ValueError, match=r"num_samples must name data sets that callback_fn returns .* names 'val'"):
        opened(loss, mlp(), sets, num_samples={"val": 20})
    with pytest.raises(ValueError, match="num_samples must be one number, because callback_fn returned one data set"):
        opened(loss, mlp(), pair(50, 1), num_samples={"train": 20})
    with pytest.raises(ValueError, match=r"num_samples\['train'\]"):
        MeasurementOptions({"train": 0})


def test_samples_that_memory_does_not_hold_are_refused():
    sets = {"train": pair(500, 1), "test": pair(330, 7)}
    size = features(500).nbytes + classes(500).nbytes
    with pytest.raises(SampleMemoryError, match=r"data set 'test': the samples take .* several data sets are measured"):
        opened(nn.CrossEntropyLoss(), mlp(), sets, memory=SampleMemory(limit=size + 100))


def test_a_point_at_which_one_set_raises_names_it():
    class Fragile(nn.Sequential):
        def forward(self, inputs):
            if len(inputs) == 7 and self[0][0].weight.abs().max() > 5:
                raise RuntimeError("too far")
            return super().forward(inputs)

    evaluator = opened(nn.CrossEntropyLoss(), Fragile(mlp()), {"train": pair(32, 1), "test": pair(7, 7)})
    evaluator.load(*plane_of(Fragile(mlp())))
    evaluator.measure(np.zeros((1, 2)))
    with pytest.raises(RuntimeError, match="data set 'test': too far"):
        evaluator.measure(np.array([[50.0, 50.0]]))
    evaluator.close()
