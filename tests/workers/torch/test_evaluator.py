"""TorchEvaluator against plain float64 computations, and what it leaves behind."""

import copy
import functools
import gc
import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from measured_planes import measure_plane
from torch import nn
from worker_cases import (
    CASES,
    ConvNet,
    at_point,
    case,
    classes,
    classifier,
    direct_loss,
    direct_losses,
    evaluator_of,
    features,
    found,
    images,
    labelled,
    mlp,
    plane_of,
    seeded,
    state_of,
)

from workers.callback_fn import call_callback, make_evaluator
from workers.errors import CallbackFunctionError, FrozenNetworkError
from workers.evaluator import EvaluatorDescription, MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.samples.samples import Samples
from workers.torch import moves as torch_moves
from workers.torch.snapshot import NetworkSnapshot

POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [-1.0, 0.7], [0.05, 1.5]])
LOW = ("bfloat16", "float16")


@pytest.mark.parametrize("name", CASES)
def test_points_equal_a_direct_computation(name):
    loss, network, dataset = case(name)
    pristine = copy.deepcopy(network)
    evaluator = evaluator_of(loss, network, dataset, batch_size=7)
    plane = plane_of(pristine, origin_seed=9)
    values = measure_plane(evaluator, plane, POINTS)
    expected = direct_losses(loss, pristine, plane, POINTS, dataset)
    # Losses of low precision round each element; everything above that must agree in float64.
    np.testing.assert_allclose(values["loss"], expected, rtol=5e-3 if name in LOW else 1e-5)
    assert values["loss"].dtype == np.float64
    assert evaluator.description.metrics[0] == "loss"
    assert np.ptp(values["loss"]) > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_parameters_at_a_point_are_rounded_once_and_those_of_the_origin_never(name):
    loss, network, dataset = case(name)
    evaluator = evaluator_of(loss, network, dataset)
    origin, directions, buffers = plane_of(network, origin_seed=5)
    evaluator.load(origin, directions, buffers)
    for point in ((0.7, -1.3), (1e3, 1e-3), (0.7, -1.3)):  # far away and back: no drift
        evaluator.measure(np.array([point]))
        for info_name, array in state_of(network)[0].items():
            value = origin[info_name].astype(np.float64)
            scale = np.abs(value)
            for coordinate, direction in zip(point, directions, strict=True):
                if info_name in direction:
                    value = value + coordinate * direction[info_name].astype(np.float64)
                    scale = scale + np.abs(coordinate * direction[info_name])
            step = np.finfo(np.float64 if array.dtype == np.float64 else np.float32).eps * 2 * scale
            if array.dtype.itemsize == 2:
                step = step + np.abs(value) * (2**-8 if name == "bfloat16" else 2**-11)
            assert (np.abs(array.astype(np.float64) - value) <= step + 1e-30).all(), info_name
    evaluator.measure(np.array([[0.3, 0.4], [0.0, 0.0]]))
    parameters, _ = state_of(network)
    for key, array in origin.items():
        assert parameters[key].tobytes() == array.tobytes()


@pytest.mark.parametrize("small", [0, 10, 1 << 16])
def test_large_tensors_and_small_ones_move_alike(small, monkeypatch):
    """Small tensors are moved side by side in one vector."""
    monkeypatch.setattr(torch_moves, "_SMALL", small)
    for name in ("batchnorm", "float64", "bfloat16"):
        loss, network, dataset = case(name)
        plane = plane_of(network)
        values = measure_plane(evaluator_of(loss, network, dataset), plane, POINTS)["loss"]
        expected = direct_losses(loss, network, plane, POINTS, dataset)
        np.testing.assert_allclose(values, expected, rtol=5e-3 if name in LOW else 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_network_ends_as_it_was_found(name):
    loss, network, dataset = case(name)
    network.train()
    next(iter(network.children())).eval()
    gradient = next(network.parameters())
    gradient.grad = torch.ones_like(gradient)
    before = found(network)
    evaluator = evaluator_of(loss, network, dataset)
    plane = plane_of(network, origin_seed=1)
    evaluator.load(*plane)
    evaluator.measure(POINTS)
    evaluator.measure_state(plane[0], plane[2])
    during = found(network)
    assert during["places"] == before["places"]
    assert during["values"] != before["values"]
    evaluator.close()
    assert found(network) == before


def test_close_twice_does_not_undo_what_the_user_did_between():
    loss, network, dataset = case("plain")
    evaluator = evaluator_of(loss, network, dataset)
    evaluator.close()
    with torch.no_grad():
        network[0].weight.fill_(2.0)
    evaluator.close()
    assert (network[0].weight == 2).all()


class Fails(ConvNet):
    calls = 0
    fail_at = 10**9

    def forward(self, images):
        type(self).calls += 1
        if self.calls >= self.fail_at:
            raise RuntimeError("out of luck")
        return super().forward(images)


@pytest.mark.parametrize("buffers", ["fixed", "recalibrate"])
def test_an_exception_in_the_middle_leaves_the_network_as_found(buffers):
    loss, _, dataset = case("batchnorm")
    network = seeded(Fails).train()
    before = found(network)
    evaluator = evaluator_of(loss, network, dataset, batch_size=16, buffers=buffers, recalibration_batch_size=8)
    plane = plane_of(network)
    evaluator.load(*plane)
    evaluator.measure(POINTS[:1])
    Fails.fail_at = Fails.calls + 5
    with pytest.raises(RuntimeError, match="out of luck"):
        evaluator.measure(POINTS)
    Fails.fail_at = 10**9
    after = evaluator.measure(POINTS[1:2])
    evaluator.close()
    assert found(network) == before
    if buffers == "fixed":
        expected = direct_loss(loss, at_point(seeded(ConvNet), plane, POINTS[1]), dataset)
        np.testing.assert_allclose(after["loss"], expected, rtol=1e-5)


class Oddities(nn.Module):
    """Buffers that are expanded, empty, of integers, counted, shared, and replaced."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("positions", torch.arange(3.0).expand(5, 3))
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("count", torch.tensor(7))
        self.register_buffer("cache", torch.ones(2), persistent=False)
        self.register_buffer("steps", torch.zeros(3))
        self.nothing = nn.Parameter(torch.zeros(0, 3))

    def forward(self, inputs):
        self.count += 1
        self.cache *= 0.5
        self.steps = self.steps + 1
        return self.scale * self.layer(inputs) + self.positions.sum()


def test_odd_buffers_are_kept_and_come_back():
    network = Oddities()
    before = found(network)
    pristine = copy.deepcopy(network)
    evaluator = classifier(network)
    plane = plane_of(pristine)
    evaluator.load(*plane)
    values = evaluator.measure(POINTS)
    evaluator.measure_state(*state_of(pristine))
    evaluator.close()
    assert found(network) == before
    expected = direct_losses(nn.CrossEntropyLoss(), pristine, plane, POINTS, labelled())
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-5)


class PenalizedLoss(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.reduction = "mean"
        self.network = network
        self.dropout = nn.Dropout(0.5)

    def forward(self, outputs, targets):
        penalty = sum(parameter.square().sum() for parameter in self.network.parameters())
        return nn.functional.cross_entropy(self.dropout(outputs), targets, reduction=self.reduction) + 0.01 * penalty


def test_a_loss_that_looks_at_the_network_sees_it_move():
    network = mlp()
    before = found(network)
    loss = PenalizedLoss(network)
    plane = plane_of(network)
    values = measure_plane(evaluator_of(loss, network, labelled()), plane, POINTS)["loss"]
    expected = []
    for point in POINTS:
        moved = at_point(network, plane, point).double()
        expected.append(PenalizedLoss(moved).eval()(moved(features().double()), classes()).item())
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    assert loss.training
    assert loss.dropout.training
    assert found(network) == before
    assert loss.reduction == "mean"


@pytest.mark.parametrize("name", ["batchnorm", "transformer"])
def test_a_network_comes_back_from_another_device(name):
    """The meta device stands for a GPU: nothing that happens there may reach the network's own storage."""
    _, network, _ = case(name)
    network.train()
    gradient = next(network.parameters())
    gradient.grad = torch.ones_like(gradient)
    before = found(network)
    module = NetworkSnapshot(network, torch.device("meta"), restore=True)
    module.apply()
    assert {tensor.device.type for tensor in (*network.parameters(), *network.buffers())} == {"meta"}
    module.restore()
    assert found(network) == before


@pytest.mark.parametrize("wrap", [lambda network: torch.compile(network, backend="eager"), nn.DataParallel])
def test_wrapped_networks_are_measured_inside(wrap):
    space = classifier(wrap(mlp())).description.space
    assert space.network == "Sequential"
    assert [info.name for info in space.parameters] == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_what_does_not_change_between_points_is_made_once(monkeypatch):
    made = []
    for where, name in ((EvaluatorDescription, "__post_init__"), (Samples, "batches")):
        original = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *a, _f=original, _n=name, **k: (made.append(_n), _f(*a, **k))[1])
    evaluator = evaluator_of(*case("batchnorm"), batch_size=7)
    evaluator.load(*plane_of(case("batchnorm")[1]))
    evaluator.measure(POINTS)
    assert set(made) == {"__post_init__", "batches"}
    made.clear()
    for point in POINTS:
        evaluator.measure(point[None])
        assert evaluator.description.plan.batch_size == 7
    assert not made
    evaluator.use_batch_size(5)
    assert evaluator.description.plan.batch_size == 5
    evaluator.measure(POINTS[:1])
    assert "batches" in made


@pytest.mark.parametrize("plan", [MeasurementPlan(7, 2), MeasurementPlan(7, 2, channels_last=True, first_layer=True)])
def test_fewer_threads_give_the_same_values_in_the_plan_that_says_so(plan):
    loss, network, data = case("batchnorm")
    evaluator = evaluator_of(loss, network, data, plan=plan)
    evaluator.load(*plane_of(network))
    before = evaluator.measure(POINTS)["loss"]
    evaluator.use_one_thread()
    np.testing.assert_allclose(evaluator.measure(POINTS)["loss"], before, rtol=1e-6)
    assert evaluator.description.plan == replace(plan, threads=1, first_layer=evaluator.description.plan.first_layer)


class TakesOut(ConvNet):
    def forward(self, batch, scale):
        return super().forward(batch.pop("images") * scale)


def test_what_a_network_takes_out_of_a_batch_is_there_at_the_next_point():
    plane, inputs, targets = plane_of(seeded(ConvNet)), images(), classes(40, 5)
    plain = evaluator_of(nn.CrossEntropyLoss(), seeded(ConvNet), (inputs, targets), batch_size=7)
    expected = measure_plane(plain, plane, POINTS)["loss"]
    nested = [(({"images": inputs}, torch.ones(40, 1, 1, 1)), targets)]
    taking = evaluator_of(nn.CrossEntropyLoss(), seeded(TakesOut), nested, batch_size=7)
    np.testing.assert_array_equal(measure_plane(taking, plane, POINTS)["loss"], expected)


def test_order_and_company_of_points_change_nothing():
    loss, network, dataset = case("batchnorm")
    evaluator = evaluator_of(loss, network, dataset)
    evaluator.load(*plane_of(network))
    together = evaluator.measure(POINTS)["loss"]
    backwards = evaluator.measure(POINTS[::-1])["loss"][::-1]
    alone = np.concatenate([evaluator.measure(point[None])["loss"] for point in POINTS])
    assert together.tobytes() == backwards.tobytes() == alone.tobytes()


def complex_network():
    network = mlp()
    network.extra = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    return network


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: mlp().requires_grad_(False), FrozenNetworkError, "Sequential has no trainable .*requires_grad=True"),
        (complex_network, TypeError, r"must have real parameters, but \['extra'\]"),
    ],
)  # fmt: skip
def test_networks_that_cannot_be_moved_are_refused(build, error, text):
    with pytest.raises(error, match=text):
        classifier(build())


def test_a_loss_with_lazy_layers_that_were_never_run_is_refused():
    class LazyLoss(nn.Sequential):
        def forward(self, outputs, targets):
            return nn.functional.cross_entropy(super().forward(outputs), targets)

    text = r"loss's '0\.weight' has no shape yet .* run one batch through the loss first"
    with pytest.raises(TypeError, match=text):
        evaluator_of(LazyLoss(nn.LazyLinear(3)), mlp(), labelled())


def test_an_expanded_parameter_is_taken_where_it_is_frozen():
    network = mlp()
    network[0].bias = nn.Parameter(torch.full((1,), 0.25).expand(len(network[0].bias)))
    network[0].bias.requires_grad_(False)
    plain = copy.deepcopy(network)
    plain[0].bias = nn.Parameter(network[0].bias.clone(), requires_grad=False)
    values = []
    for either in (network, plain):
        evaluator = classifier(either)
        evaluator.load(*plane_of(either))
        values.append([*evaluator.measure(POINTS)["loss"], evaluator.measure_state(*state_of(either))["loss"]])
        evaluator.close()
    assert values[0] == values[1]
    assert network[0].bias.stride() == (0,)


def test_weights_that_share_a_part_of_their_memory_are_refused_and_columns_of_one_block_are_not():
    class Sliced(nn.Module):
        def __init__(self, *parts):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, len(part), bias=False) for part in parts)
            for layer, part in zip(self.layers, parts, strict=True):
                layer.weight = nn.Parameter(part.detach())

        def forward(self, inputs):
            return torch.cat([layer(inputs) for layer in self.layers], dim=1)

    block = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(TypeError, match=r"'layers\.0\.weight' and 'layers\.1\.weight' share a part .*clone\(\)"):
        classifier(Sliced(block.t(), block[:, :2].t()))
    columns, copies = Sliced(block[:, :2].t(), block[:, 2:].t()), Sliced(block.t().clone())
    values = []
    for network in (columns, copies):
        evaluator = classifier(network)
        evaluator.load(*plane_of(network))
        values.append(evaluator.measure_state(*state_of(network))["loss"])
    assert values[0] == pytest.approx(values[1], rel=1e-6)


def tensor_bytes():
    """Returns the bytes of all tensors of this process, each storage once."""
    gc.collect()
    # What other tests leave behind in the process has tensors without storage of their own.
    plain = [item for item in gc.get_objects() if type(item) in (torch.Tensor, nn.Parameter)]
    storages = [item.untyped_storage() for item in plain if item.layout is torch.strided]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.slow
@pytest.mark.parametrize(("frozen", "share"), [(False, 1.0), (True, 0.5)], ids=["all trainable", "half is frozen"])
def test_a_plane_is_held_once(frozen, share):
    # 90,000 elements: moved where they are; biases are moved side by side.
    network = nn.Sequential(nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 300))
    network[0].requires_grad_(not frozen)
    size = sum(4 * parameter.numel() for parameter in network.parameters())
    inputs = features(inputs=300)
    evaluator = evaluator_of(nn.MSELoss(), network, (inputs, inputs))
    plane = plane_of(network)
    before = tensor_bytes()
    for _ in range(2):
        evaluator.load(*plane)
        held = tensor_bytes() - before
        # The origin and two directions; small tensors have one more vector in which they are moved.
        assert held == pytest.approx((1 + 2 * share) * size, rel=0.02)


PAIR = (features(), classes())
RETURNED, NO_LOSS = "must return .* but returned ", "the first item .* must be a Model with a loss_fn .* but is "
WRONG = [
    (mlp(), f"{RETURNED}a Sequential"),
    ([1, 2, 3], f"{RETURNED}a list of 3"),
    ((nn.MSELoss(), "net", PAIR, {}), r"second item .* be a network of a supported .* but is str"),
    ((3, mlp(), PAIR, {}), rf"{NO_LOSS}3 \(int\)"),
    ((nn.MSELoss, mlp(), PAIR, {}), rf"{NO_LOSS}the class MSELoss \(make an object of it\)"),
    (("mse", mlp(), PAIR, {}), rf"{NO_LOSS}'mse' \(str\)"),
    ((nn.CrossEntropyLoss(), mlp(inputs=5), PAIR, {}), "cannot be evaluated on its data set: RuntimeError"),
]


class TestCallback:
    def test_the_place_of_an_error_is_in_the_users_own_code(self):
        def raising():
            raise KeyError("no such file")

        def callback():
            return torch.zeros(2).reshape(3)

        def reading():
            return json.loads("{")

        for function in (raising, callback, reading):
            with pytest.raises(CallbackFunctionError) as caught:
                call_callback(function)
            assert str(caught.value).endswith(f"({__file__}, line {function.__code__.co_firstlineno + 1})")
            assert not hasattr(caught.value, "__notes__"), "the cause has the traceback"
        with pytest.raises(CallbackFunctionError, match="callback_fn raised KeyError: 'no such file'") as caught:
            call_callback(raising)
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(CallbackFunctionError, match=r"raised FileNotFoundError: .*no_such_file'$"):
            call_callback(functools.partial(os.stat, "/no_such_file"))

    @pytest.mark.parametrize(("result", "text"), WRONG)
    def test_returning_something_else(self, result, text):
        with pytest.raises(CallbackFunctionError, match=text):
            make_evaluator(result, MeasurementSetup())

    def test_the_place_of_an_error_of_what_was_returned(self):
        def broken(outputs, targets):
            raise RuntimeError("broken")

        text = rf"cannot be evaluated on its data set: RuntimeError: broken \({re.escape(__file__)}, line \d+\)$"
        with pytest.raises(CallbackFunctionError, match=text):
            make_evaluator((broken, mlp(), PAIR, {}), MeasurementSetup())
        missing = torch.utils.data.Subset(labelled(), [0, 999])
        with pytest.raises(CallbackFunctionError, match=r"what callback_fn returned raised IndexError: .*999"):
            make_evaluator((nn.CrossEntropyLoss(), mlp(), missing, {}), MeasurementSetup())

    def test_a_model_brings_its_loss(self):
        from collectors.model.model import Model

        network, loss = mlp(), nn.CrossEntropyLoss(label_smoothing=0.1)
        model = Model(network, loss, torch.optim.SGD(network.parameters(), 0.1))
        evaluator = make_evaluator((model, network, labelled(), {}), MeasurementSetup())
        found = measure_plane(evaluator, plane_of(network), np.zeros((1, 2)))["loss"]
        np.testing.assert_allclose(found, direct_loss(loss, mlp(), labelled()), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_samples": 2.5}, TypeError, "num_samples must be an int"),
        ({"samples": "last"}, ValueError, "samples must be one of 'first', 'random'"),
        ({"seed": -1}, ValueError, "seed must be an int of at least 0"),
        ({"seed_each_point": 3}, TypeError, "seed_each_point must be"),
        ({"buffers": "auto"}, ValueError, "buffers must be one of 'fixed', 'recalibrate', 'interpolate'"),
        ({"recalibration_batch_size": 1}, ValueError, "recalibration_batch_size must be an int of at least 2"),
    ],
)
def test_options_are_checked(arguments, error, text):
    with pytest.raises(error, match=text):
        MeasurementOptions(**arguments)
