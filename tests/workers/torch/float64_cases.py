"""What test_placement.py checks in processes whose devices have no float64, each function in one.

The first device stands in for an Apple GPU, so that ``device_ids=None`` takes it.
"""

import copy
import re
import warnings

import numpy as np
import pytest
import torch
import torchmetrics
from examples import accuracy
from torch import nn
from torch.utils.data import DataLoader, StackDataset, TensorDataset
from worker_cases import classes, features, seeded

from landscape import evaluate, line_between, random_plane
from landscape.errors import LandscapeError
from landscape.functions import connect, measure_curvature
from workers import OwnLoss
from workers.measurement_plan import MeasurementPlan
from workers.pools import open_pool

DEVICE = "twin:0"
PLAN = MeasurementPlan(16)
DATA = TensorDataset(features(), classes())
WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.6])
LIKE_FLOAT32 = {"rtol": 2e-5, "atol": 2e-6}

open_pool.apple_gpu = lambda: DEVICE


def network(seed=0, dtype=torch.float32):
    layers = (nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))
    return seeded(lambda: nn.Sequential(*copy.deepcopy(layers)), seed).to(dtype)


def callback_fn(data=DATA, dtype=torch.float32):
    loss = nn.CrossEntropyLoss(weight=WEIGHTS.clone(), ignore_index=-100)
    metrics = {"accuracy": accuracy, "torchmetrics": torchmetrics.classification.MulticlassAccuracy(4, average="micro")}
    return loss, network(3, dtype), data, metrics


def of_batches():
    """A loss that belongs to its batches."""
    loss = lambda outputs, targets: nn.functional.cross_entropy(outputs / outputs.std(), targets)  # noqa: E731
    return loss, network(3), DataLoader(DATA, batch_size=10), {}


class WithLabels(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = network()

    def forward(self, features, labels):
        logits = self.layers(features)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def of_labels():
    """A network that computes its own loss, a mean over labels that count."""
    labels = torch.where(torch.arange(50) % 3 == 0, -100, classes())
    return OwnLoss(), WithLabels(), DataLoader(StackDataset(features=features(), labels=labels), batch_size=7), {}


def told(call, *arguments, **options):
    """Returns what a call returns, and its warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = call(*arguments, progress=False, plan=PLAN, **options)
    return result, [str(item.message) for item in found]


def on_both(call, *arguments, **options):
    """Returns what a call returns with the device and on the CPU; the log says once which it is, and why the CPU."""
    there, lines = told(call, *arguments, **options)
    assert sum(line.startswith(f"the network computes on {DEVICE} in float32") for line in lines) == 1, lines
    here, lines = told(call, *arguments, device_ids=[0], **options)
    assert not any(DEVICE in line for line in lines), lines
    return there, here


def assert_same(there, here):
    assert there.metrics.keys() == here.metrics.keys()
    for name, values in here.metrics.items():
        assert len(np.unique(values)) > 1, name
        np.testing.assert_allclose(there.metrics[name], values, err_msg=name, **LIKE_FLOAT32)


def check_a_grid():
    plane = random_plane(network())
    for options in ({"buffers": "recalibrate"}, {"groups": "target"}, {"sample_memory": 2000}):
        there, here = on_both(evaluate, plane, callback_fn, size=(4, 3), **options)
        assert_same(there, here)
        assert any(DEVICE in note for note in there.attributes["notes"]), there.attributes["notes"]
        assert not any(DEVICE in note for note in here.attributes["notes"])


def check_losses_of_other_kinds():
    assert_same(*on_both(evaluate, random_plane(network()), of_batches, size=3))
    assert_same(*on_both(evaluate, random_plane(WithLabels()), of_labels, size=3))


def check_the_loss_of_each_sample():
    there, here = on_both(evaluate, random_plane(network()), callback_fn, size=3, keep_samples=True)
    np.testing.assert_allclose(there.samples().losses(), here.samples().losses(), **LIKE_FLOAT32)


def check_buffers_between_networks():
    there, here = on_both(evaluate, line_between(network(), network(1)), callback_fn, size=4, extremes=True)
    assert there.attributes["buffers"] == "interpolate"
    assert_same(there, here)


def check_curvature():
    for options in ({}, {"matrix": "ggn"}):
        there, here = on_both(
            measure_curvature, network(), callback_fn, top=2, trace_probes=2, keep_vectors=True, **options
        )
        for name in ("loss", "gradient_norm", "eigenvalues", "trace"):
            np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-4, err_msg=name)
    for call, start in ((of_batches, network), (of_labels, WithLabels)):
        there, here = on_both(measure_curvature, start(), call, top=1)
        np.testing.assert_allclose(there.eigenvalues, here.eigenvalues, rtol=1e-4)


def check_a_curve():
    for call, ends in ((callback_fn, [network(), network(1)]), (of_labels, [WithLabels(), WithLabels()])):
        with torch.no_grad():
            next(ends[1].parameters()).mul_(-1)
        there, here = on_both(connect, *ends, call, steps=12)
        np.testing.assert_allclose(there.curve.fitting.bends, here.curve.fitting.bends, atol=1e-4)
        np.testing.assert_allclose(there.curve.fitting.losses, here.curve.fitting.losses, rtol=1e-4)
        assert_same(*on_both(evaluate, here, call, size=5))


def check_networks_end_as_they_were():
    given = network().to(DEVICE).train()
    before = {name: value.cpu().clone() for name, value in given.state_dict().items()}
    told(evaluate, random_plane(network()), lambda: (nn.CrossEntropyLoss(), given, DATA, {}), size=3)
    assert given.training
    for name, value in given.state_dict().items():
        assert value.device == torch.device(DEVICE)
        assert torch.equal(value.cpu(), before[name])


def refused(call, text, **options):
    with pytest.raises((ValueError, LandscapeError), match=text):
        told(evaluate, random_plane(network()), call, size=3, **options)


def check_what_is_refused():
    wide = TensorDataset(features(dtype=torch.float64), classes())
    has_none, on_the_cpu = f"which {DEVICE} does not have", r"measure on the CPU \(device_ids=\[0\]\)"
    refused(lambda: callback_fn(wide, torch.float64), rf"'0\.weight' in float64, {has_none}\. .* {on_the_cpu}")
    refused(lambda: callback_fn(wide), f"dataset must give float32 on {DEVICE}, .* but gave float64; .* {on_the_cpu}")
    for precision in ("bfloat16", "tf32"):
        text = f'precision="{precision}" is available on CPUs and NVIDIA GPUs, but not on {DEVICE}. .* {on_the_cpu}'
        refused(callback_fn, text, precision=precision)
    refused(callback_fn, "seed_each_point=True is available on CPUs .* but not on twin", seed_each_point=True)
    found, lines = told(evaluate, random_plane(network()), callback_fn, size=3, compile=True)
    text = f"compile=True was asked for, but .* runs eagerly: code is compiled for CPUs and .* not for {DEVICE}"
    assert any(re.match(text, line) for line in lines), lines
    assert not found.attributes["measurement_plan"]["compile"]


def check_the_stand_in_refuses():
    tensor = torch.ones(3, device=DEVICE)
    for work in (
        lambda: torch.zeros(3, dtype=torch.float64, device=DEVICE),
        tensor.double,
        lambda: tensor.to("cpu", torch.float64),
        lambda: torch.ones(3, dtype=torch.float64).to(DEVICE, torch.float32),
        lambda: torch.add(tensor, torch.ones((), dtype=torch.float64)),
    ):
        with pytest.raises(TypeError, match="don't support float64"):
            work()
    assert (tensor * 2.0).sum().item() == 6
