"""Networks in bfloat16 and float16: losses and metrics come from their outputs in at least float32."""

import contextlib
import dataclasses
import functools
from collections import OrderedDict

import numpy as np
import pytest
import torch
from measured_planes import measure_plane
from scipy import special
from torch import nn
from torch.nn import functional
from torch.utils.data import StackDataset, TensorDataset
from worker_cases import classes, evaluator_of, features, labelled, mlp, plane_of

from workers import OwnLoss
from workers.errors import CallbackFunctionError
from workers.measurement_plan import Workload
from workers.torch.settings import at_least_float32

POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [-1.0, 0.7]])
HALVES = [torch.bfloat16, torch.float16]
LABELS = classes()


class Autocast(nn.Module):
    """Weights in float32, outputs in bfloat16."""

    def __init__(self, **options):
        super().__init__()
        self.inner = mlp()
        self.options = options

    def forward(self, inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16, **self.options):
            return self.inner(inputs)


class Classifier(nn.Module):
    """As those of Transformers: the loss is computed inside, from outputs in the network's own precision."""

    def __init__(self, dtype):
        super().__init__()
        self.inner = mlp(dtype=dtype)

    def forward(self, inputs, labels):
        logits = self.inner(inputs)
        return {"loss": nn.CrossEntropyLoss()(logits, labels), "logits": logits}


def samples_by_name(dtype):
    return StackDataset(inputs=features(dtype=dtype), labels=LABELS)


def logits_at(network, inputs, plane, point):
    """The network's own outputs at a point of a plane, exactly as float64."""
    origin, directions, _ = plane
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            value = origin[name].astype(np.float32)
            for coordinate, direction in zip(point, directions, strict=True):
                value = value + np.float32(coordinate) * direction[name]
            parameter.copy_(torch.from_numpy(value))
        return network(inputs).double().numpy()


def losses_at(network, inputs, plane, weights=None):
    """Returns the cross entropy at the points, in NumPy and float64."""
    counts = np.ones(len(LABELS)) if weights is None else weights.double().numpy()[LABELS.numpy()]
    losses = []
    for point in POINTS:
        logits = logits_at(network, inputs, plane, point)
        each = special.logsumexp(logits, 1) - logits[np.arange(len(LABELS)), LABELS.numpy()]
        losses.append(np.average(each, weights=counts))
    return losses


def measured(loss, network, dataset, metrics=None, batch_size=16):
    plane = plane_of(network)
    evaluator = evaluator_of(loss, network, dataset, metrics, batch_size=batch_size)
    return measure_plane(evaluator, plane, POINTS), evaluator.description, plane


def batch_mean(outputs, targets):
    """A loss whose reduction we do not know."""
    return functional.cross_entropy(outputs, targets)


def halves():
    return labelled(dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), functional.cross_entropy, batch_mean])
def test_a_loss_is_that_of_a_float32_head(loss, dtype):
    network, inputs = mlp(dtype=dtype), features(dtype=dtype)
    values, description, plane = measured(
        loss, network, TensorDataset(inputs, LABELS), {"doubled": lambda o, t: 2 * functional.cross_entropy(o, t)}
    )
    expected = losses_at(network, inputs, plane)
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-6)
    np.testing.assert_allclose(values["doubled"], 2 * np.array(expected), rtol=1e-6)
    assert not description.notes
    # What the outputs in their own precision give.
    rounded = [
        float(loss(torch.from_numpy(logits_at(network, inputs, plane, point)).to(dtype), LABELS)) for point in POINTS
    ]
    assert np.max(np.abs(np.array(rounded) / expected - 1)) > 1e-5


@pytest.mark.parametrize("options", [{}, {"cache_enabled": True}])
def test_autocast_inside_the_network_too(options):
    # Its cache of weights must not outlive a point, or all points would have the weights of the first.
    network, inputs = Autocast(**options), features()
    values, _, plane = measured(nn.CrossEntropyLoss(), network, TensorDataset(inputs, LABELS))
    np.testing.assert_allclose(values["loss"], losses_at(network, inputs, plane), rtol=1e-6)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_class_weights_and_targets_of_low_precision_are_taken(dtype):
    network, inputs = mlp(dtype=dtype), features(dtype=dtype)
    probe = mlp(dtype=dtype)(inputs)
    weights = torch.linspace(0.5, 2, probe.shape[1]).to(dtype)
    for loss in (nn.CrossEntropyLoss(weight=weights), functools.partial(functional.cross_entropy, weight=weights)):
        values, description, plane = measured(loss, mlp(dtype=dtype), TensorDataset(inputs, LABELS))
        np.testing.assert_allclose(values["loss"], losses_at(network, inputs, plane, weights), rtol=1e-6)
        assert not description.notes
        if isinstance(loss, nn.Module):
            assert loss.weight.dtype == dtype  # the user's own stays
    targets = probe.detach().sigmoid()
    values, description, plane = measured(nn.BCEWithLogitsLoss(), mlp(dtype=dtype), TensorDataset(inputs, targets))
    for value, point in zip(values["loss"], POINTS, strict=True):
        logits, wanted = logits_at(network, inputs, plane, point), targets.double().numpy()
        assert value == pytest.approx((np.logaddexp(0, logits) - wanted * logits).mean(), rel=1e-6)
    assert not description.notes


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_network_with_its_own_loss_computes_it_in_float32(dtype):
    network = Classifier(dtype)
    seen = []

    def error(outputs, batch):
        seen.append(outputs["logits"].dtype)
        return functional.cross_entropy(outputs["logits"], batch["labels"])

    values, description, plane = measured(None, network, samples_by_name(dtype), {"again": error})
    expected = losses_at(nn.Sequential(OrderedDict(inner=mlp(dtype=dtype))), features(dtype=dtype), plane)
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-6)
    np.testing.assert_allclose(values["again"], expected, rtol=1e-6)
    assert set(seen) == {torch.float32}
    assert not description.notes


@pytest.mark.parametrize("compile", [True, "auto"])
def test_such_a_network_is_not_compiled(compile):
    workload = Workload(compile=compile, points=1e9)
    text = r"compile=True was asked for, but .* its own loss is computed in float32"
    with pytest.warns(UserWarning, match=text) if compile is True else contextlib.nullcontext():
        evaluator = evaluator_of(None, Classifier(torch.bfloat16), samples_by_name(torch.bfloat16), workload=workload)
    assert not evaluator.description.plan.compile
    assert "its own loss is computed in float32" in evaluator.description.plan.reason


def test_a_loss_of_ones_own_that_stays_rounded_gets_a_note():
    def step(network, batch):
        return (network.inner(batch["inputs"]) + 1).square().mean()  # no loss function of PyTorch

    with pytest.warns(UserWarning, match=r"the loss comes out in bfloat16, which keeps about two digits"):
        _, description, _ = measured(OwnLoss(step), Classifier(torch.bfloat16), samples_by_name(torch.bfloat16))
    assert any("comes out in bfloat16" in note for note in description.notes)


# Of values in bfloat16, whose rounding does not tell whether the loss depends on its batches.
@pytest.mark.filterwarnings("ignore:loss depends on how samples are batched")
def test_a_loss_that_takes_no_float32_gets_what_it_takes_and_a_note():
    head = nn.Linear(4, 4, bias=False).bfloat16().requires_grad_(False)

    def with_head(outputs, targets):
        return functional.cross_entropy(head(outputs[:, :4]), targets % 4)

    with pytest.warns(UserWarning, match="loss and metrics are computed from the network's outputs in low precision"):
        values, description, _ = measured(with_head, mlp(dtype=torch.bfloat16), halves())
    assert np.isfinite(values["loss"]).all()
    assert any("do not take them in float32" in note for note in description.notes)


def test_a_loss_that_fails_either_way_raises_its_first_error():
    def wrong(outputs, targets):
        raise RuntimeError(f"no {outputs.dtype}")

    with pytest.raises(CallbackFunctionError, match=r"no torch\.float32"):
        measured(wrong, mlp(dtype=torch.bfloat16), halves())


@dataclasses.dataclass(frozen=True)
class Output:
    logits: torch.Tensor
    name: str


def test_containers_stay_what_they_are():
    half, whole, integers = torch.ones(2, dtype=torch.float16), torch.ones(2, dtype=torch.float64), torch.ones(2).long()
    for value in (whole, integers, [whole, integers], (whole,), {"a": whole}, Output(whole, "x"), None, 3.0, "text"):
        assert at_least_float32(value) is value
    found = at_least_float32([half, (half, whole), {"a": half, "b": integers}, Output(half, "x")])
    assert type(found) is list
    assert [found[0].dtype, found[1][0].dtype, found[2]["a"].dtype, found[3].logits.dtype] == [torch.float32] * 4
    assert found[1][1] is whole
    assert found[2]["b"] is integers
    assert isinstance(found[3], Output)
