"""At each network that a line, a plane or a curve goes through, every buffer is its own, whatever kinds it has."""

import copy
import functools
import warnings

import digits_networks
import numpy as np
import pytest
import torch
from marked_cases import marked
from torch import nn
from torch.nn.utils import parametrizations, prune
from two_networks import fit

from collectors.networks.torch_network import to_tensor
from landscape import Measure, MeasurementPlan, evaluate, line_between
from landscape.functions import barrier, connect, measure_points
from landscape.landscape import Landscape
from landscape.planes import plane_through

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(60, 6, generator=GENERATOR) * 2 + 1
CLASSES = torch.randint(0, 3, (60,), generator=GENERATOR)
HOW = {"device_ids": [0], "progress": False, "plan": MeasurementPlan(batch_size=60)}
own_loss = functools.partial(digits_networks.own_loss, inputs=INPUTS, targets=CLASSES)
pytestmark = pytest.mark.filterwarnings("ignore:the buffers .* differ between the networks")


class Buffered(nn.Module):
    """A small network with one buffer of a kind, and BatchNorm beside it if asked."""

    def __init__(self, kind, *, normalized):
        super().__init__()
        self.kind = kind
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8) if normalized else nn.Identity()
        if kind == "spectral":
            self.first = parametrizations.spectral_norm(self.first)
        elif kind == "pruned":
            prune.random_unstructured(self.first, "weight", amount=0.5)
        elif kind != "none":
            self.register_buffer("extra", EXTRAS[kind]())

    def forward(self, inputs):
        hidden = self.norm(self.first(inputs))
        extra = getattr(self, "extra", None)
        if self.kind == "scale" or self.kind == "bool mask" or self.kind == "float mask":
            hidden = hidden * extra
        elif self.kind == "index":
            hidden = hidden[:, extra]
        elif self.kind == "inf mask":
            hidden = torch.softmax(hidden + extra, 1)
        return self.last(torch.tanh(hidden) if self.kind != "inf mask" else hidden)


EXTRAS = {
    "scale": lambda: torch.rand(8) + 0.5,
    "bool mask": lambda: torch.rand(8) > 0.5,
    "float mask": lambda: (torch.rand(8) > 0.5).float(),
    "index": lambda: torch.randperm(8),
    "inf mask": lambda: torch.zeros(8).index_fill(0, torch.randperm(8)[:4], -torch.inf),
}
KINDS = ["none", *EXTRAS, "spectral", "pruned"]
OF_SEVERAL = ["scale", "index", "spectral", "pruned"]


def network(kind, seed, *, normalized):
    """Returns a network whose buffers are those of a short training."""
    return copy.deepcopy(trained(kind, seed, normalized))


@functools.cache
def trained(kind, seed, normalized):
    torch.manual_seed(seed)
    built = fit(Buffered(kind, normalized=normalized).train(), INPUTS, CLASSES, epochs=20, seed=0)
    with torch.no_grad():
        built(INPUTS)  # or the product of pruned weights would be part of a graph, and could not be copied
    return built


def halfway(a, b):
    """Returns the first network in float64 with the mean of both networks' parameters."""
    middle = copy.deepcopy(a).double()
    with torch.no_grad():
        for target, other in zip(middle.parameters(), b.parameters(), strict=True):
            target.copy_((target + other.double()) / 2)
    return middle


def two(kind, *, normalized=False):
    """Returns two networks of a kind, and the callback_fn of a third."""
    a, b = (network(kind, seed, normalized=normalized) for seed in (1, 2))
    return a, b, lambda: (nn.CrossEntropyLoss(), network(kind, 9, normalized=normalized), (INPUTS, CLASSES), {})


@pytest.mark.parametrize("normalized", marked([True, False], pytest.mark.slow, after=1))
@pytest.mark.parametrize(
    ("kind", "curved"), [*((kind, False) for kind in KINDS), *((kind, True) for kind in OF_SEVERAL)]
)
def test_the_ends_of_a_barrier_are_the_networks(kind, curved, normalized):
    """pytorch/pytorch#65495: an averaged network kept the first one's buffers, so that it belonged to no network."""
    a, b, callback_fn = two(kind, normalized=normalized)
    way = (connect(a, b, callback_fn, steps=3, **HOW),) if curved else (a, b)
    found = Measure(callback_fn, **HOW).barrier(*way, points=5)
    np.testing.assert_allclose(found.landscape.loss[[0, -1]], [own_loss(a), own_loss(b)], rtol=1e-5)
    assert np.isfinite(found.landscape.loss).all()


@pytest.mark.parametrize("buffers", marked(["auto", "interpolate", "recalibrate"], pytest.mark.slow, after=1))
@pytest.mark.parametrize("kind", OF_SEVERAL)
def test_the_corners_of_a_plane_are_the_networks(kind, buffers):
    a, b, callback_fn = two(kind, normalized=True)
    networks = [a, b, network(kind, 3, normalized=True)]
    plane = plane_through(*networks)
    corners = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    expected = [own_loss(each) for each in networks]
    found = measure_points(plane, callback_fn, corners, buffers=buffers, device_ids=[0], plan=HOW["plan"])
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-5)
    drawn = evaluate(plane, callback_fn, x=[0.0, 0.5, 1.0], y=[0.0, 0.5, 1.0], buffers=buffers, **HOW)
    np.testing.assert_allclose(drawn.loss[[0, 0, 2], [0, 2, 0]], expected, rtol=1e-5)
    for part in (drawn.checkpoints.metrics, drawn.checkpoints.projected, drawn.checkpoints.with_plane_buffers):
        np.testing.assert_allclose(part["loss"], expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scale", "pruned", "spectral"])
def test_a_curve_is_fitted_at_the_networks_that_are_measured(kind):
    a, b, callback_fn = two(kind)
    path = connect(a, b, callback_fn, steps=5, batch_size=60, learning_rate=1e-6, **HOW)
    settings = path.curve.settings
    places = [settings.place(step) for step in range(5)]
    found = [evaluate(path, callback_fn, x=[0.0, t], **HOW).loss[1] for t in places]
    np.testing.assert_allclose(path.losses, found, rtol=1e-4)


def test_statistics_between_networks_are_those_of_the_samples():
    """By hand: one pass in train mode with a cumulative average, other buffers interpolated."""
    a, b, callback_fn = two("scale", normalized=True)
    found = barrier(a, b, callback_fn, points=3, **HOW)
    middle = halfway(a, b)
    with torch.no_grad():
        middle.extra.copy_((a.extra.double() + b.extra.double()) / 2)
        middle.norm.reset_running_stats()
        middle.norm.momentum = None
        middle.train()(INPUTS.double())
    assert found.landscape.loss[1] == pytest.approx(own_loss(middle), rel=1e-5)


def test_vectors_of_spectral_normalization_keep_their_length_and_point_the_same_way():
    a = network("spectral", 1, normalized=False)
    b = copy.deepcopy(a)
    with torch.no_grad():
        for vector in (b.first.parametrizations.weight[0]._u, b.first.parametrizations.weight[0]._v):
            vector.neg_()  # the same singular value
        b.last.bias.add_(1)
    line = line_between(a, b)
    for t in (0.25, 0.5, 0.75, 1.5):
        point = line.point((t,))
        for side in "uv":
            name = f"first.parametrizations.weight.0._{side}"
            assert np.linalg.norm(point[name]) == pytest.approx(1, abs=1e-6)
            np.testing.assert_allclose(point[name], dict(a.named_buffers())[name], atol=1e-6)
    np.testing.assert_array_equal(line.point((1.0,))[name], dict(b.named_buffers())[name])


def test_pruned_networks_are_interpolated_as_what_they_compute_with():
    a, b, callback_fn = two("pruned")
    assert not torch.equal(a.first.weight_mask, b.first.weight_mask)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is left out
        found = barrier(a, b, callback_fn, points=3, **HOW)
    dense = [copy.deepcopy(each) for each in (a, b)]
    for each in dense:
        prune.remove(each.first, "weight")
    assert found.landscape.loss[1] == pytest.approx(own_loss(halfway(*dense)), rel=1e-5)
    assert [own_loss(a), own_loss(b)] == pytest.approx([own_loss(each) for each in dense])


@pytest.mark.filterwarnings("default:the buffers .* differ between the networks")
@pytest.mark.parametrize("kind", ["bool mask", "float mask", "index", "inf mask"])
def test_what_cannot_be_interpolated_is_named_in_a_warning_and_in_the_file(kind, tmp_path):
    """lucidrains/phenaki-pytorch#21: buffers that are no statistics, such as positions, were averaged like weights."""
    a, b, callback_fn = two(kind)
    with pytest.warns(UserWarning, match="the buffers 'extra' differ between the networks and cannot be interpolated"):
        found = barrier(a, b, callback_fn, points=3, output=tmp_path / "a.h5", **HOW)
    assert found.landscape.loss[1] == pytest.approx(own_loss(halfway(a, b)), rel=1e-5)
    notes = Landscape.load(tmp_path / "a.h5").attributes["notes"]
    assert any("'extra' differ between the networks" in note and "those of a" in note for note in notes)


def test_a_point_of_the_line_is_the_network_itself():
    a, b, _ = two("index", normalized=True)
    line = line_between(a, b)
    for t, expected in ((0.0, a), (1.0, b)):
        point = line.point((t,), "interpolate")
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(to_tensor(point[name]), value, rtol=1e-6, atol=1e-7)
