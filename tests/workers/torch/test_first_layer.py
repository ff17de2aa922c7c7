"""The first layer computed once for a plane, also of compiled networks, beside the plain way and float64."""

import copy
import weakref

import numpy as np
import pytest
import torch
from measured_planes import measure_plane
from torch import nn
from torch.utils.data import DataLoader, StackDataset, TensorDataset
from worker_cases import (
    Skips,
    classes,
    direct_losses,
    evaluator_of,
    features,
    found,
    images,
    plane_of,
    seeded,
    state_of,
    step,
)

from workers.errors import PointsFailedError
from workers.evaluator import SampleMemory
from workers.measurement_plan import MeasurementPlan, Workload
from workers.samples.batches import Batch
from workers.torch import planning
from workers.torch.compiled import first_layer
from workers.torch.compiled.ahead_of_time import PackageError
from workers.torch.compiled.first_layer import FirstLayer, SplitNetwork, _code, _Rest
from workers.torch.compiled.network_code import code_of_network
from workers.torch.compiled.packages import PackagedNetwork, PackageFolder
from workers.torch.losses import OwnLoss

COUNT = 30
BATCH = 8
AT_EACH_POINT = "the first layer is computed once for a plane, but here it is computed at each point"
IMAGES = images(COUNT, size=8)
POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [-3.0, 0.7], [0.05, 3.0], [0.3, 0.7], [0.3, -0.2]])


def convolutional(first, channels=3, size=8):
    """A convolution, and what follows it in place."""
    with torch.no_grad():
        width = first(images(2, channels, size)).flatten(1).shape[1]
    return nn.Sequential(first, nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(width, 4))


class Towers(nn.Module):
    """Two layers on the same input, one of which is larger."""

    def __init__(self):
        super().__init__()
        self.small, self.large, self.head = nn.Linear(70, 5), nn.Linear(70, 12), nn.Linear(17, 4)

    def forward(self, inputs):
        return self.head(torch.cat([self.small(inputs).tanh_(), self.large(inputs).relu_()], 1))


class ByName(nn.Module):
    """Takes two inputs by name, of which it scales one."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(70, 12), nn.Linear(70, 12), nn.Linear(12, 4)

    def forward(self, one, other):
        return self.head(torch.tanh(self.first(one) * self.second(other / 2)))


def conv(*sizes, **choices):
    return lambda: convolutional(nn.Conv2d(3, *sizes, **choices))


TAKEN = {
    "LeNet-like": (conv(6, 5), IMAGES),
    "stride": (conv(6, 3, stride=2, padding=1), IMAGES),
    "dilation": (conv(6, 3, dilation=2), IMAGES),
    "groups": (lambda: convolutional(nn.Conv2d(4, 8, 4, groups=2), 4), images(COUNT, 4, 8)),
    "circular": (conv(6, 3, padding=1, padding_mode="circular"), IMAGES),
    "reflect": (conv(6, 3, padding=2, padding_mode="reflect"), IMAGES),
    "same": (conv(6, (3, 5), padding="same"), IMAGES),
    "no bias": (conv(6, 3, bias=False), IMAGES),
    "flat": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 90), nn.Tanh(), nn.Linear(90, 4)), IMAGES),
    "one axis": (
        lambda: nn.Sequential(nn.Conv1d(2, 5, 12), nn.ReLU(True), nn.Flatten(), nn.Linear(45, 4)),
        images(COUNT, 2, 20)[:, :, 0],
    ),
    "skips": (Skips, features(COUNT, 70)),
    "towers": (Towers, features(COUNT, 70)),
    "alone": (lambda: nn.Linear(70, 4), features(COUNT, 70)),
}


def dataset_of(inputs):
    return TensorDataset(inputs, classes(COUNT))


def evaluators(network, dataset, loss=None, **choices):
    """Returns an evaluator that computes the first layer once, and one that does not."""
    loss = loss or nn.CrossEntropyLoss()
    return [
        evaluator_of(loss, copy.deepcopy(network), dataset, plan=MeasurementPlan(BATCH, 1, first_layer=way), **choices)
        for way in (True, False)
    ]


def expected(network, plane, dataset, points=POINTS):
    return direct_losses(nn.CrossEntropyLoss(), network, plane, points, dataset)


def both(network, dataset, plane=None, points=POINTS, *, taken=True, **choices):
    """Returns the losses of both ways; the first layer must be taken, or not."""
    once, plain = evaluators(network, dataset, **choices)
    assert (once.description.plan.first_layer, plain.description.plan.first_layer) == (taken, False)
    assert any("first layer" in note for note in once.description.notes) != taken
    plane = plane or plane_of(network)
    losses = [measure_plane(evaluator, plane, points)["loss"] for evaluator in (once, plain)]
    np.testing.assert_allclose(*losses, rtol=3e-6 if taken else 0)
    return losses


@pytest.mark.parametrize("name", TAKEN)
def test_a_sum_gives_what_the_layer_gives(name):
    build, inputs = TAKEN[name]
    network, dataset = seeded(build), dataset_of(inputs)
    plane = plane_of(network, origin_seed=4, scale=0.2)
    once, plain = both(network, dataset, plane)
    wanted = expected(network, plane, dataset)
    np.testing.assert_allclose(once, wanted, rtol=3e-6)
    assert np.ptp(wanted) > 1e-2
    assert once[1] == once[5]  # in whatever order points come
    if name != "skips":
        assert once[0] == plain[0]  # the origin is the layer's own output


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_lines_and_spaces_of_three_axes(axes):
    network, dataset = lenet(), dataset_of(IMAGES)
    plane = plane_of(network, axes)
    points = np.random.default_rng(0).standard_normal((5, axes))
    once, _ = both(network, dataset, plane, points)
    np.testing.assert_allclose(once, expected(network, plane, dataset, points), rtol=3e-6)


def lenet():
    return seeded(TAKEN["LeNet-like"][0])


def test_a_point_has_the_same_bits_whatever_was_measured_before():
    first, _ = evaluators(lenet(), dataset_of(IMAGES))
    grid = np.array([[x, y] for y in (-0.5, -0.0, 0.0, 0.7) for x in (-1.0, -0.0, 0.0, 2.0)])
    first.load(*plane_of(lenet()))
    in_order = first.measure(grid)["loss"]
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(grid))
        assert np.array_equal(first.measure(grid[order])["loss"], in_order[order])


@pytest.mark.parametrize("frozen", ["weight", "bias", "both"])
def test_what_is_frozen_does_not_move(frozen):
    network = lenet()
    for name, parameter in network[0].named_parameters():
        parameter.requires_grad_(frozen not in (name, "both"))
    once, _ = both(network, dataset_of(IMAGES))
    assert np.ptp(once) > 1e-2


def test_a_dictionary_of_inputs():
    inputs = StackDataset(one=features(COUNT, 70), other=features(COUNT, 70, 9))
    once, plain = both(seeded(ByName), StackDataset(inputs, classes(COUNT)))
    assert not np.array_equal(once, plain)


def test_a_network_that_computes_its_own_loss():
    both(lenet(), DataLoader(dataset_of(IMAGES), BATCH), loss=OwnLoss(step))


@pytest.mark.filterwarnings("ignore:loss depends on how samples are batched")
def test_the_datas_own_batches():
    """The loss of a batch belongs to it; batches are found again when a plane shows so."""

    def spread(outputs, targets):
        return outputs.std()

    results = []
    for evaluator in evaluators(lenet(), DataLoader(dataset_of(IMAGES), 7), loss=spread):
        evaluator.load(*plane_of(lenet()), far_points=[(1.0, 1.0)])
        assert evaluator.description.plan.batch_size is None
        results.append(evaluator.measure(POINTS)["loss"])
    np.testing.assert_allclose(*results, rtol=3e-6)


def test_a_loss_that_looks_at_the_weights_sees_them_move():
    network = seeded(TAKEN["alone"][0])
    seen = []
    evaluator = evaluators(network, dataset_of(features(COUNT, 70)))[0]
    evaluator._module.register_forward_pre_hook(lambda layer, _: seen.append(layer.weight[0, 0].item()))
    plane = plane_of(network)
    evaluator.load(*plane)
    seen.clear()
    evaluator.measure(np.array([[0.5, 0.0], [-1.0, 0.0]]))
    weight, direction = (state["weight"][0, 0] for state in (plane[0], plane[1][0]))
    assert sorted(set(seen)) == pytest.approx(sorted([weight + 0.5 * direction, weight - direction]), rel=1e-6)


class TwoLayers(nn.Module):
    """Two layers, of which a function calls the first."""

    def __init__(self, call=lambda first, inputs: first(inputs)):
        super().__init__()
        self.first, self.head, self.call = nn.Linear(70, 12), nn.Linear(12, 4), call

    def forward(self, inputs):
        return self.head(self.call(self.first, inputs).tanh())


def in_place(first, inputs):
    return first(inputs.clamp_(-1, 1))  # the same whenever it is done again


def back_and_forth(first, inputs):
    """PyTorch does not count what is done to ``data``."""
    inputs.data.mul_(2)
    hidden = first(inputs)
    inputs.data.div_(2)
    return hidden


def lower(first, inputs):
    with torch.autocast("cpu", torch.bfloat16):
        return first(inputs).float()


class Own(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs).tanh()


def with_hook():
    network = TAKEN["alone"][0]()
    network.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 2,))
    return network


def with_parametrization():
    return nn.utils.parametrizations.weight_norm(TAKEN["alone"][0]())


def with_own_forward():
    network = TwoLayers()
    network.first.forward = lambda inputs: nn.functional.linear(inputs.relu(), network.first.weight)
    return network


def normalized():
    return nn.Sequential(nn.Linear(70, 12), nn.BatchNorm1d(12), nn.Linear(12, 4))


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (lambda: TwoLayers(in_place), {}),
        (lambda: TwoLayers(back_and_forth), {}),
        (lambda: TwoLayers(lambda first, inputs: first(inputs / 255)), {}),
        (lambda: TwoLayers(lambda first, inputs: first(inputs) * first(inputs)), {}),
        (lambda: TwoLayers(lower), {}),
        (with_hook, {}),
        (with_parametrization, {}),
        (with_own_forward, {}),
        (lambda: nn.Sequential(Own(70, 12), nn.Linear(12, 4)), {}),
        (lambda: nn.Sequential(nn.Linear(70, 12), nn.Linear(12, 4)).bfloat16(), {}),
        (lambda: nn.Sequential(nn.BatchNorm1d(70), nn.Linear(70, 4)), {}),
        (normalized, {"buffers": "recalibrate"}),
        (normalized, {"precision": "bfloat16"}),
    ],
)
def test_what_cannot_be_summed_is_computed_at_each_point(build, options):
    network = seeded(build)
    dataset = dataset_of(features(COUNT, 70, dtype=next(network.parameters()).dtype))
    with pytest.warns(UserWarning, match=AT_EACH_POINT):
        both(network, dataset, taken=False, **options)


def test_checkpoints_are_measured_with_their_own_first_layer_and_the_network_ends_as_found():
    network, dataset = lenet(), dataset_of(IMAGES)
    before = found(network)
    plan = MeasurementPlan(BATCH, 1, first_layer=True)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), network, dataset, plan=plan)
    plane, other = plane_of(network, origin_seed=1), plane_of(network, origin_seed=2)
    evaluator.load(*plane)
    values = evaluator.measure(POINTS)["loss"]
    state = evaluator.measure_state(other[0], other[2])["loss"]
    assert [state] == pytest.approx(expected(network, other, dataset, [(0, 0)]), rel=3e-6)
    assert np.array_equal(evaluator.measure(POINTS)["loss"], values)
    parameters, _ = state_of(network)
    weight = plane[0]["0.weight"] + np.float32(0.3) * plane[1][0]["0.weight"] - 0.2 * plane[1][1]["0.weight"]
    np.testing.assert_allclose(parameters["0.weight"], weight, rtol=1e-5, atol=1e-6)
    evaluator.load(*other)  # another plane
    np.testing.assert_allclose(evaluator.measure(np.zeros((1, 2)))["loss"], state, rtol=1e-6)
    evaluator.close()
    assert found(network) == before
    assert all("forward" not in vars(layer) for layer in network.modules())


def test_a_network_that_raises_is_whole_afterwards():
    def raises(first, inputs):
        hidden = first(inputs)
        if abs(float(first.weight.detach()[0, 0])) > 50:
            raise RuntimeError("too far")
        return hidden

    network = seeded(lambda: TwoLayers(raises))
    evaluator = evaluators(network, dataset_of(features(COUNT, 70)))[0]
    evaluator.load(*plane_of(network))
    values = evaluator.measure(POINTS)["loss"]
    with pytest.raises((RuntimeError, PointsFailedError), match="too far"):
        evaluator.measure(np.array([[1e4, 0.0]]))
    assert all("forward" not in vars(layer) for layer in evaluator._module.modules())
    assert np.array_equal(evaluator.measure(POINTS)["loss"], values)


def test_smaller_batches_after_a_shortage_keep_nothing():
    once, plain = evaluators(lenet(), dataset_of(IMAGES))
    for evaluator in (once, plain):
        evaluator.load(*plane_of(lenet()))
        evaluator.use_batch_size(4)
    assert once.description.plan == plain.description.plan == MeasurementPlan(4, 1)
    assert np.array_equal(once.measure(POINTS)["loss"], plain.measure(POINTS)["loss"])
    once.load(*plane_of(lenet()), far_points=[(1.0, 1.0)])
    assert not once.description.plan.first_layer


def tuned(network, inputs, points=400.0, limit=0.5, workers=1):
    how = {"workload": Workload(False, points, workers=workers), "memory": SampleMemory(limit=limit)}
    return evaluator_of(nn.CrossEntropyLoss(), network, dataset_of(inputs), **how).description.plan.first_layer


def test_tuning_takes_it_where_it_is_less_work_and_memory_allows(monkeypatch):
    build, inputs = TAKEN["flat"]
    kept = 4 * COUNT * 90 * 4
    assert tuned(build(), inputs)
    assert not tuned(build(), inputs, points=10)
    assert tuned(build(), inputs, limit=4 * kept)
    assert not tuned(build(), inputs, limit=4 * kept - 4)
    assert not tuned(build(), inputs, limit=4 * kept, workers=2)
    assert not tuned(nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 4)), features(COUNT, 40))  # as fast as a sum
    assert not tuned(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 4)), images(COUNT, 1, 8))
    deep = nn.Sequential(nn.Linear(70, 8), nn.Linear(8, 900), nn.Linear(900, 900), nn.Linear(900, 4))
    assert not tuned(deep, features(COUNT, 70))  # a small share of the work
    monkeypatch.setattr(first_layer, "_MOST_BYTES", kept - 1)
    assert not tuned(build(), inputs)


def test_streamed_samples_and_changed_layouts_take_the_plain_way(monkeypatch):
    plan = MeasurementPlan(BATCH, 1, channels_last=True, first_layer=True)

    def made():
        return evaluator_of(nn.CrossEntropyLoss(), lenet(), dataset_of(IMAGES), plan=plan)

    monkeypatch.setattr("workers.samples.torch_samples._LAID_OUT_AT_ONCE", 0)
    with pytest.warns(UserWarning, match=AT_EACH_POINT):
        made()
    monkeypatch.undo()
    evaluator, plane = made(), plane_of(lenet())
    assert evaluator.description.plan == plan
    losses = measure_plane(evaluator, plane, POINTS)["loss"]
    np.testing.assert_allclose(losses, expected(lenet(), plane, dataset_of(IMAGES)), rtol=3e-6)


def test_further_samples_that_are_laid_out_on_use_take_the_plain_way(monkeypatch):
    """Each of their batches is a new tensor, often at the address of the one before."""
    inputs, targets = images(64, size=24), classes(64)
    monkeypatch.setattr("workers.samples.torch_samples._LAID_OUT_AT_ONCE", inputs.nbytes // 2)
    network = seeded(lambda: convolutional(nn.Conv2d(3, 6, 8, stride=8), size=24))
    plan = MeasurementPlan(BATCH, 1, channels_last=True, first_layer=True)
    sets = {"train": TensorDataset(inputs[:BATCH], targets[:BATCH]), "test": TensorDataset(inputs, targets)}
    plane = plane_of(network)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), copy.deepcopy(network), sets, plan=plan)
    assert evaluator.description.plan == plan
    losses = measure_plane(evaluator, plane, POINTS)
    np.testing.assert_allclose(losses["loss"], expected(network, plane, sets["train"]), rtol=3e-6)
    np.testing.assert_allclose(losses["loss@test"], expected(network, plane, sets["test"]), rtol=3e-6)


def test_outputs_are_kept_only_for_the_batch_that_they_are_of():
    layer, inputs = nn.Linear(70, 12), features(BATCH, 70)
    layer.requires_grad_(False)
    first = FirstLayer(layer, layer, dict(layer.named_parameters()))
    first.load([state_of(layer)[0]] * 2)
    kept = weakref.ref(inputs)
    first.prepare([Batch((inputs,), None, BATCH)], compiled=False)
    del inputs
    assert kept() is not None  # so that no other batch can lie there
    first.prepare([], compiled=False)
    assert kept() is None


def test_a_plan_from_another_worker_gives_the_same_bits():
    first = evaluator_of(nn.CrossEntropyLoss(), lenet(), dataset_of(IMAGES), workload=Workload(False, 400.0))
    plan = first.description.plan
    assert plan.first_layer
    second = evaluator_of(nn.CrossEntropyLoss(), lenet(), dataset_of(IMAGES), plan=plan)
    assert second.description.plan == plan == MeasurementPlan.from_json(plan.to_json())
    plane = plane_of(lenet())
    whole, backwards = measure_plane(first, plane, POINTS), measure_plane(second, plane, POINTS[::-1])
    assert np.array_equal(whole["loss"], backwards["loss"][::-1])


ROWS = TensorDataset(features(COUNT, 70).view(COUNT, 7, 10), classes(COUNT))
COMPILED = MeasurementPlan(10, 1, compile=True, compiler="AOTInductor", first_layer=True)


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


def compiled(network, plan=COMPILED):
    return evaluator_of(nn.CrossEntropyLoss(), network, ROWS, plan=plan)


def check(evaluator, network, rtol):
    """Checks points, a checkpoint in between, and another plane."""
    assert evaluator.description.plan == COMPILED
    assert evaluator.description.notes == ()
    plane, other = plane_of(network, origin_seed=1, scale=0.2), plane_of(network, origin_seed=2, scale=0.1)
    evaluator.load(*plane)
    values = evaluator.measure(POINTS)["loss"]
    np.testing.assert_allclose(values, expected(network, plane, ROWS), rtol=rtol)
    assert np.ptp(values) > 1e-2
    state = evaluator.measure_state(other[0], other[2])["loss"]
    np.testing.assert_allclose(state, expected(network, other, ROWS, [(0, 0)])[0], rtol=rtol)
    assert np.array_equal(evaluator.measure(POINTS[::-1])["loss"][::-1], values)
    evaluator.load(*other)
    np.testing.assert_allclose(evaluator.measure(POINTS)["loss"], expected(network, other, ROWS), rtol=rtol)
    evaluator.load(*plane)
    assert np.array_equal(evaluator.measure(POINTS)["loss"], values)
    return values


def test_points_and_checkpoints_come_from_one_package(not_compiled):
    network = seeded(Skips)
    used = copy.deepcopy(network)
    before = found(used)
    evaluator = compiled(used)
    not_compiled.calls = 0
    check(evaluator, network, rtol=3e-6)
    assert not_compiled.calls == (4 * len(POINTS) + 1) * COUNT // COMPILED.batch_size
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
    for plan in (COMPILED, MeasurementPlan(COMPILED.batch_size, 1)):
        evaluator = evaluator_of(spread, copy.deepcopy(network), ROWS, plan=plan)
        with pytest.warns(UserWarning, match="loss depends on how samples are batched"):
            results.append(measure_plane(evaluator, plane, POINTS, far_points=[(1.0, 1.0)])["loss"])
        assert not evaluator.description.plan.compile
        assert evaluator.description.plan.first_layer == plan.first_layer
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_smaller_batches_after_a_shortage_are_neither_compiled_nor_kept(not_compiled):
    evaluator = compiled(seeded(Skips))
    plane = plane_of(seeded(Skips), scale=0.2)
    evaluator.load(*plane)
    evaluator.use_batch_size(5)
    plan = MeasurementPlan(5, 1, reason="not compiled: memory ran out")
    assert evaluator.description.plan == plan
    not_compiled.calls = 0
    values = evaluator.measure(POINTS)["loss"]
    assert not_compiled.calls == 0
    assert np.array_equal(measure_plane(compiled(seeded(Skips), plan), plane, POINTS)["loss"], values)


def test_tuning_gives_up_the_first_layer_of_images_that_are_laid_out_on_use(not_compiled, monkeypatch):
    """Each of their batches is a new tensor, often at the address of the one before."""
    monkeypatch.setattr("workers.samples.torch_samples._LAID_OUT_AT_ONCE", 0)
    monkeypatch.setattr(planning, "_COMPILED_BATCHES", (COMPILED.batch_size,))
    network = seeded(lambda: nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4)))
    dataset, plane = TensorDataset(images(COUNT, size=8), classes(COUNT)), plane_of(network)
    evaluator = evaluator_of(nn.CrossEntropyLoss(), copy.deepcopy(network), dataset, workload=Workload(True, 400.0))
    plan = evaluator.description.plan
    assert (plan.compile, plan.channels_last, plan.first_layer) == (True, True, False)
    losses = measure_plane(evaluator, plane, POINTS)["loss"]
    np.testing.assert_allclose(losses, expected(network, plane, dataset), rtol=3e-6)


def test_tuning_leaves_the_first_layer_out_of_what_is_compiled(not_compiled):
    network = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(70, 70), nn.Tanh(), nn.Linear(70, 4)))
    plan = evaluator_of(nn.CrossEntropyLoss(), network, ROWS, workload=Workload(True, 400.0)).description.plan
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
        results.append(check(compiled(copy.deepcopy(network)), network, rtol=1e-5))
        assert len(sorted(kept.glob("*.so"))) == 1
    assert np.array_equal(*results)
