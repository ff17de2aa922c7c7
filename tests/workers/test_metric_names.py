"""One rule for the names of metrics, wherever they come from."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from landscape.grid.data import DirectionsData, LandscapeData
from workers import FunctionEvaluator, MeasurementPlan
from workers.callback_fn import make_evaluator
from workers.errors import CallbackFunctionError
from workers.evaluator import EvaluatorDescription, MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.metric_names import MetricName, metric_name_problem, other_datasets

UNUSABLE = [
    *("run", "final", "name", "run_name", "role"),
    *("x", "y", "status", "errors", "checkpoints", "origin", "directions", "number", "residual", "norm"),
    *("projected_loss", "loss_with_plane_buffers", "with_plane_buffers_status"),
    *("", ".", "..", ".hidden", "top/5", "/", "a\0", "a\n"),
]
ARRAYS = {"place": np.zeros(1)}


def function_evaluator(name):
    return FunctionEvaluator(lambda weights: {"loss": 1.0, name: 2.0}, ARRAYS)


def torch_evaluator(name):
    metrics = {name: lambda outputs, targets: 0.0}
    return make_evaluator((nn.MSELoss(), nn.Linear(1, 1), "no samples", metrics), MeasurementSetup())


def own_description(name):
    space = FunctionEvaluator(lambda weights: 0.0, ARRAYS).description.space
    return EvaluatorDescription(
        space, ("loss", name), 1, "0" * 64, MeasurementOptions(), False, MeasurementPlan(), "cpu"
    )


@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.parametrize("measure", [function_evaluator, torch_evaluator, own_description])
def test_every_evaluator_refuses_what_the_file_refuses_in_the_same_words(measure, name):
    with pytest.raises(ValueError, match=r"the name of a metric must .* Rename the metric") as of_the_file:
        LandscapeData.empty(np.zeros(1), None, DirectionsData(np.ones(1)), ("loss", name))
    with pytest.raises(CallbackFunctionError) as of_the_evaluator:
        measure(name)
    assert str(of_the_evaluator.value) == str(of_the_file.value) == metric_name_problem(name)


IN_USE, OF_GROUPS = "the landscape file uses itself, but got", r"must not contain '@', '\[' or '\]'.* got"


@pytest.mark.parametrize(
    ("measure", "name", "text"),
    [
        *((torch_evaluator, name, "must be printable text .* but got") for name in (1, None, b"accuracy")),
        *((own_description, name, "must be printable text .* but got") for name in (1, None, b"accuracy")),
        *((torch_evaluator, name, IN_USE) for name in ("loss", "loss_stderr", "loss_error")),
        *((function_evaluator, name, OF_GROUPS) for name in ("accuracy@test", "loss[3]", "top[5]@test")),
        *((torch_evaluator, name, OF_GROUPS) for name in ("accuracy@test", "loss[3]", "top[5]@test")),
    ],
)
def test_a_users_metric_has_a_name_of_its_own_that_is_text(measure, name, text):
    with pytest.raises(CallbackFunctionError, match=f"{text} {re.escape(repr(name))}"):
        measure(name)


def test_other_names_are_free():
    network, samples = nn.Linear(1, 1), (torch.zeros(4, 1), torch.zeros(4, 1))
    names = ["accuracy", "top-5 (%)", "x2", "Genauigkeit größer", "statuses", "norm.2"]
    metrics = {name: lambda outputs, targets: 0.0 for name in names}
    evaluator = make_evaluator((nn.MSELoss(), network, samples, metrics), MeasurementSetup())
    assert evaluator.description.metrics == ("loss", "loss_stderr", *names)
    LandscapeData.empty(np.zeros(1), None, DirectionsData(np.ones(1)), evaluator.description.metrics)


MEASURED = (
    "loss", "loss_stderr", "accuracy", "loss@test", "loss_stderr@test", "accuracy@test", "acc@5", "loss[3]",
    "accuracy[3]", "loss[3]@test", "loss_stderr[3]@test", "top[5]",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parts", "text"),
    [
        ("loss", ("loss", "", ""), "loss on train"),
        ("accuracy@test", ("accuracy", "", "test"), "accuracy on test"),
        ("loss_stderr[3]@test", ("loss_stderr", "3", "test"), "loss_stderr of group 3 on test"),
        ("accuracy[3]", ("accuracy", "3", ""), "accuracy of group 3 on train"),
        # Names of users' own from before there were data sets.
        ("acc@5", ("acc@5", "", ""), "acc@5 on train"),
        ("top[5]", ("top[5]", "", ""), "top[5] on train"),
    ],
)
def test_what_a_name_says(name, parts, text):
    found = MetricName.read(name, MEASURED)
    assert (found.quantity, found.group, found.dataset) == parts
    assert str(found) == name
    assert found.text("train") == text
    assert found.is_error == ("stderr" in name)


def test_the_names_that_belong_to_a_name():
    assert MetricName.read("loss[3]@test", MEASURED).standard_error == "loss_stderr[3]@test"
    assert MetricName.read("loss", MEASURED).standard_error == "loss_stderr"
    assert other_datasets(MEASURED) == ["test"]
    assert other_datasets(["loss", "loss@b", "loss@a", "accuracy@c", "loss[1]@b"]) == ["b", "a"]
