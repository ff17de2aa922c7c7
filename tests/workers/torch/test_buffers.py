"""Buffers on a plane: the origin's, or normalization statistics anew at each point."""

import copy

import numpy as np
import pytest
import torch
from measured_planes import measure_plane
from torch import nn
from torch.utils.data import TensorDataset
from worker_cases import (
    ConvNet,
    at_point,
    classes,
    classifier,
    direct_loss,
    direct_losses,
    evaluator_of,
    features,
    found,
    images,
    plane_of,
    seeded,
    state_of,
)

from workers.errors import SamplesError

POINTS = np.array([[0.0, 0.0], [0.6, -0.4], [-0.8, 0.9]])
DATA = TensorDataset(images(), classes(40, 5))


def cumulative_average(network, inputs, batch_size):
    """Statistics as they are defined: each layer's mean over batches of batch means and unbiased variances."""
    network = copy.deepcopy(network).double().eval()
    layers = [layer for layer in network.modules() if isinstance(layer, nn.modules.batchnorm._NormBase)]
    means = {layer: [] for layer in layers}
    variances = {layer: [] for layer in layers}

    def normalize(layer, arguments, output):
        (values,) = arguments
        axes = tuple(range(2, values.ndim))
        if not isinstance(layer, nn.modules.instancenorm._InstanceNorm):
            axes = (0, *axes)
        for kept, statistic in ((means, values.mean(axes)), (variances, values.var(axes, unbiased=True))):
            kept[layer].append(statistic.reshape(-1, values.shape[1]).mean(0))
        mean, variance = values.mean(axes, keepdim=True), values.var(axes, unbiased=False, keepdim=True)
        shape = [1, -1] + [1] * (values.ndim - 2)
        weight = 1 if layer.weight is None else layer.weight.reshape(shape)
        bias = 0 if layer.bias is None else layer.bias.reshape(shape)
        return (values - mean) / (variance + layer.eps).sqrt() * weight + bias

    handles = [layer.register_forward_hook(normalize) for layer in layers]
    with torch.no_grad():
        for batch in inputs.double().split(batch_size):
            if len(batch) > 1:
                network(batch)
        for handle in handles:
            handle.remove()
        for layer in layers:
            layer.running_mean.copy_(torch.stack(means[layer]).mean(0))
            layer.running_var.copy_(torch.stack(variances[layer]).mean(0))
    return network


class InstanceNormalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.norm = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        self.head = nn.Linear(64, 5)

    def forward(self, pictures):
        return self.head(torch.relu(self.norm(self.convolution(pictures))).flatten(1))


# With 13 the last batch holds a single sample and is left out.
@pytest.mark.parametrize(
    ("build", "batch_size"), [(ConvNet, 40), (ConvNet, 16), (ConvNet, 13), (InstanceNormalized, 16)]
)
def test_recalibrated_statistics_are_cumulative_averages(build, batch_size):
    plane = plane_of(seeded(build), origin_seed=2)
    evaluator = recalibrated(build, batch_size, 9)
    evaluator.load(*plane)
    moved = [cumulative_average(at_point(seeded(build), plane, point), images(), batch_size) for point in POINTS]
    expected = [direct_loss(nn.CrossEntropyLoss(), network, DATA) for network in moved]
    np.testing.assert_allclose(evaluator.measure(POINTS)["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(evaluator.measure_state(plane[0], None)["loss"], expected[0], rtol=1e-5)


def recalibrated(build, batch_size, computed=None):
    return evaluator_of(
        nn.CrossEntropyLoss(), seeded(build), DATA, batch_size=computed, buffers="recalibrate",
        recalibration_batch_size=batch_size,
    )  # fmt: skip


def test_fixed_statistics_are_the_origins_at_every_point():
    network = seeded(ConvNet)
    origin, directions, buffers = plane_of(network)
    buffers = {name: array * 2 for name, array in buffers.items()}
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, DATA)
    evaluator.load(origin, directions, buffers)
    measured = evaluator.measure(POINTS)["loss"]
    now = state_of(network)[1]
    for name, array in buffers.items():
        assert now[name].tobytes() == array.astype(now[name].dtype).tobytes()
    expected = direct_losses(nn.CrossEntropyLoss(), seeded(ConvNet), (origin, directions, buffers), POINTS, DATA)
    np.testing.assert_allclose(measured, expected, rtol=1e-5)


def test_own_buffers_are_never_recalibrated():
    evaluator = recalibrated(ConvNet, 16)
    evaluator.load(*plane_of(seeded(ConvNet)))
    before = evaluator.measure(POINTS)["loss"]
    other = seeded(ConvNet, seed=7)
    own = evaluator.measure_state(*state_of(other))["loss"]
    np.testing.assert_allclose(own, direct_loss(nn.CrossEntropyLoss(), other.eval(), DATA), rtol=1e-5)
    assert evaluator.measure(POINTS)["loss"].tobytes() == before.tobytes()


def test_momentum_mode_and_counters_come_back():
    network = seeded(ConvNet).train()
    network.features[1].momentum = 0.37
    network.features[1].num_batches_tracked.fill_(12)
    before = found(network)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, DATA, buffers="recalibrate")
    measure_plane(evaluator, plane_of(network), POINTS)
    assert found(network) == before
    assert [network.features[index].momentum for index in (1, 4)] == [0.37, 0.1]


def test_normalization_that_keeps_no_statistics_belongs_to_its_batches():
    network = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.warns(UserWarning, match="loss depends on how samples are batched"):
        evaluator = classifier(network, batch_size=7)
    assert evaluator.description.partition_dependent
    plane = plane_of(network)
    with torch.no_grad():
        expected = nn.functional.cross_entropy(network(features()), classes())
    np.testing.assert_allclose(measure_plane(evaluator, plane, POINTS[:1])["loss"], expected, rtol=1e-5)


def test_recalibration_needs_batches():
    one = (images(1), classes(1, 5))
    with pytest.raises(SamplesError, match="needs batches of at least two samples for its statistics"):
        evaluator_of(nn.CrossEntropyLoss(), seeded(ConvNet), one, buffers="recalibrate", num_samples=1)
