"""Compiled networks whose first layer is computed once for a plane."""

import copy

import numpy as np
import pytest
import torch
from measured_planes import measure_plane
from torch import nn
from torch.utils.data import TensorDataset
from worker_cases import Skips, classes, direct_losses, evaluator_of, features, found, images, plane_of, seeded

from workers.measurement_plan import MeasurementPlan, Workload
from workers.torch import planning
from workers.torch.compiled.ahead_of_time import PackageError
from workers.torch.compiled.first_layer import FirstLayer, SplitNetwork, _code, _Rest
from workers.torch.compiled.network_code import code_of_network
from workers.torch.compiled.packages import PackagedNetwork, PackageFolder

COUNT, BATCH = 30, 10
POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [-3.0, 0.7], [0.05, 3.0], [0.3, 0.7], [0.3, -0.2]])
PLAN = MeasurementPlan(BATCH, 1, compile=True, compiler="AOTInductor", first_layer=True)


def data():
    return TensorDataset(features(COUNT, 70).view(COUNT, 7, 10), classes(COUNT))


def expected(network, plane, points=POINTS):
    return direct_losses(nn.CrossEntropyLoss(), network, plane, points, data())


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    return tmp_path / "summary-landscape" / "packages"


@pytest.fixture
def not_compiled(monkeypatch, kept):
    """Packages that run what they would compile, and count how often they do."""

    class Uncompiled:
        calls = 0

        def __init__(self, network):
            self._network = network

        def run(self, inputs):
            type(self).calls += 1
            return [self._network(*inputs)]

    monkeypatch.setattr(PackagedNetwork, "_open", lambda self, *_: ("", Uncompiled(self._network)))
    return Uncompiled


def built(network, plan=PLAN):
    return evaluator_of(nn.CrossEntropyLoss(), network, data(), plan=plan)


def check(evaluator, network, rtol):
    """Checks points, a checkpoint in between, and another plane."""
    assert evaluator.description.plan == PLAN
    assert evaluator.description.notes == ()
    plane, other = plane_of(network, origin_seed=1, scale=0.2), plane_of(network, origin_seed=2, scale=0.1)
    evaluator.load(*plane)
    values = evaluator.measure(POINTS)["loss"]
    np.testing.assert_allclose(values, expected(network, plane), rtol=rtol)
    assert np.ptp(values) > 1e-2
    state = evaluator.measure_state(other[0], other[2])["loss"]
    np.testing.assert_allclose(state, expected(network, other, [(0, 0)])[0], rtol=rtol)
    assert np.array_equal(evaluator.measure(POINTS[::-1])["loss"][::-1], values)
    evaluator.load(*other)
    np.testing.assert_allclose(evaluator.measure(POINTS)["loss"], expected(network, other), rtol=rtol)
    evaluator.load(*plane)
    assert np.array_equal(evaluator.measure(POINTS)["loss"], values)
    return values


def test_points_and_checkpoints_come_from_one_package(not_compiled):
    network = seeded(Skips)
    used = copy.deepcopy(network)
    before = found(used)
    evaluator = built(used)
    not_compiled.calls = 0
    check(evaluator, network, rtol=3e-6)
    assert not_compiled.calls == (4 * len(POINTS) + 1) * COUNT // BATCH
    evaluator.close()
    assert found(used) == before


def test_an_own_batch_of_all_samples(not_compiled):
    """A loss that shows on the plane that it belongs to its batches: code for other batches is not used."""

    def spread(outputs, targets):
        return (outputs - outputs.mean(0)).abs().sum() + nn.functional.cross_entropy(outputs, targets)

    network = seeded(Skips)
    nn.init.zeros_(network.head.weight)
    nn.init.zeros_(network.head.bias)
    results, plane = [], plane_of(network, scale=0.1)
    for plan in (PLAN, MeasurementPlan(BATCH, 1)):
        evaluator = evaluator_of(spread, copy.deepcopy(network), data(), plan=plan)
        with pytest.warns(UserWarning, match="loss depends on how samples are batched"):
            results.append(measure_plane(evaluator, plane, POINTS, far_points=[(1.0, 1.0)])["loss"])
        assert not evaluator.description.plan.compile
        assert evaluator.description.plan.first_layer == plan.first_layer
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_smaller_batches_after_a_shortage_are_neither_compiled_nor_kept(not_compiled):
    evaluator = built(seeded(Skips))
    plane = plane_of(seeded(Skips), scale=0.2)
    evaluator.load(*plane)
    evaluator.use_batch_size(5)
    plan = MeasurementPlan(5, 1, reason="not compiled: memory ran out")
    assert evaluator.description.plan == plan
    not_compiled.calls = 0
    values = evaluator.measure(POINTS)["loss"]
    assert not_compiled.calls == 0
    assert np.array_equal(measure_plane(built(seeded(Skips), plan), plane, POINTS)["loss"], values)


def test_tuning_gives_up_the_first_layer_of_images_that_are_laid_out_on_use(not_compiled, monkeypatch):
    """Each of their batches is a new tensor, often at the address of the one before."""
    monkeypatch.setattr("workers.samples.torch_samples._LAID_OUT_AT_ONCE", 0)
    monkeypatch.setattr(planning, "_COMPILED_BATCHES", (BATCH,))
    network = seeded(lambda: nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4)))
    dataset, plane = TensorDataset(images(COUNT, size=8), classes(COUNT)), plane_of(network)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), copy.deepcopy(network), dataset, workload=Workload(True, 400.0))
    plan = evaluator.description.plan
    assert (plan.compile, plan.channels_last, plan.first_layer) == (True, True, False)
    losses = measure_plane(evaluator, plane, POINTS)["loss"]
    np.testing.assert_allclose(losses, direct_losses(nn.CrossEntropyLoss(), network, plane, POINTS, dataset), rtol=3e-6)


def test_tuning_leaves_the_first_layer_out_of_what_is_compiled(not_compiled):
    network = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(70, 70), nn.Tanh(), nn.Linear(70, 4)))
    plan = evaluator_of(nn.CrossEntropyLoss(), network, data(), workload=Workload(True, 400.0)).description.plan
    assert (plan.compile, plan.compiler, plan.first_layer) == (True, "AOTInductor", True)


def test_the_layers_are_told_apart_and_what_it_cannot_take_is_an_error(not_compiled, tmp_path):
    network = seeded(lambda: nn.Sequential(nn.Linear(70, 70), nn.Linear(70, 70)))
    assert len({_code(_Rest(network, layer)) for layer in network} | {code_of_network(network)}) == 3
    inputs = features(COUNT, 70)
    first = FirstLayer(network[0], network, dict(network[0].named_parameters(prefix="0")))
    split = SplitNetwork(network, first, folder=PackageFolder(tmp_path), threads=1, options={})
    with torch.no_grad():
        assert torch.equal(split(inputs), network(inputs))
    assert split.append == network.append  # attributes are the network's
    with pytest.raises(PackageError, match="inputs are not tensors alone"):
        split(inputs=inputs)
    network.register_forward_pre_hook(lambda _, given: (given[0] / 2,))
    with torch.no_grad(), pytest.raises(PackageError, match="its first layer does not get these inputs"):
        split(inputs)


@pytest.mark.slow
def test_a_package_gives_the_same_bits_in_every_worker(kept):
    network = seeded(Skips)
    results = []
    for _ in range(2):
        results.append(check(built(copy.deepcopy(network)), network, rtol=1e-5))
        assert len(sorted(kept.glob("*.so"))) == 1
    assert np.array_equal(*results)
