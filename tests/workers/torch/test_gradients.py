"""Losses that need gradients: physics-informed networks against closed forms, and nothing left behind."""

import weakref

import numpy as np
import pytest
import torch
from measured_planes import measure_plane
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from landscape import evaluate, random_plane
from landscape.planes import custom_plane
from workers import OwnLoss
from workers.errors import CallbackFunctionError
from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan, Workload
from workers.torch.evaluator import TorchEvaluator

NOTE = "the loss needs gradients"
PLACES = torch.linspace(0, 3, 30, dtype=torch.float64)[:, None]


class Wave(nn.Module):
    """u(x) = a sin(b x), whose derivatives everybody knows."""

    def __init__(self, a=1.0, b=1.0, dtype=torch.float64):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([a, b], dtype=dtype))

    def forward(self, x):
        return self.weights[0] * torch.sin(self.weights[1] * x)


def second_derivative(network, x):
    x = x.requires_grad_(True)
    u = network(x)
    (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return u, second


def residual_step(network, batch):
    """The loss of u'' = -sin(x)."""
    (x,) = batch
    u, second = second_derivative(network, x)
    return (second + torch.sin(x)).square().mean(), u


def residual(a, b):
    x = PLACES.numpy()
    return np.mean((-a * b**2 * np.sin(b * x) + np.sin(x)) ** 2)


def mean_of(outputs, _):
    return float(outputs.numpy().mean())  # raises where outputs need gradients


def with_own_loss():
    return OwnLoss(residual_step), Wave(), DataLoader(TensorDataset(PLACES), batch_size=7), {"u": mean_of}


class WaveAndPlaces(Wave):
    def forward(self, x):
        x = x.requires_grad_(True)
        return super().forward(x), x


def with_loss_function():
    def loss(outputs, targets):
        u, x = outputs
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return (second - targets).square().mean()

    data = DataLoader(TensorDataset(PLACES, -torch.sin(PLACES)), batch_size=7)
    return loss, WaveAndPlaces(), data, {"u": lambda outputs, _: mean_of(outputs[0], _)}


class Curvature(Wave):
    def forward(self, x):
        return second_derivative(super().forward, x)[1]


def with_gradients_in_the_network():
    return nn.MSELoss(), Curvature(), (PLACES, -torch.sin(PLACES)), {"u": mean_of}


def built(loss, network, inputs, batch_size, **setup):
    """Returns an evaluator of inputs without targets."""
    loader = DataLoader(TensorDataset(inputs), batch_size=batch_size)
    return TorchEvaluator(loss, network, loader, {}, MeasurementSetup(**setup))


def at_a_place(evaluator, network):
    """Returns the loss at a place of a random plane, and the weights there."""
    plane, place = random_plane(network, seed=1), [0.3, -0.2]
    loss = measure_plane(evaluator, (plane.origin, plane.directions, plane.buffers), np.array([place]))["loss"][0]
    return loss, {name: torch.from_numpy(array) for name, array in plane.point(place).items()}


def tanh_network(inputs):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1))


def slope_of(state, inputs, prefix=""):
    """Returns the closed form of that network's gradient by its inputs."""
    first, bias, second = (state[f"{prefix}{name}"] for name in ("0.weight", "0.bias", "2.weight"))
    return ((1 - torch.tanh(inputs @ first.T + bias).square()) * second) @ first


def measured(callback_fn, **options):
    x, y = np.linspace(-1, 1, 5), np.linspace(-0.5, 1, 4)
    directions = [{"weights": np.array([1.0, 0.0])}, {"weights": np.array([0.0, 1.0])}]
    return evaluate(custom_plane(callback_fn()[1], directions), callback_fn, x=x, y=y, progress=False, **options)


@pytest.mark.filterwarnings("ignore:metric 'u'")
@pytest.mark.parametrize("callback_fn", [with_own_loss, with_loss_function, with_gradients_in_the_network])
def test_the_residual_is_that_of_the_closed_form(callback_fn):
    with pytest.warns(UserWarning, match=NOTE):
        landscape = measured(callback_fn)
    expected = [[residual(1 + a, 1 + b) for a in landscape.x] for b in landscape.y]
    np.testing.assert_allclose(landscape.loss, expected, rtol=1e-12, atol=1e-15)
    assert landscape.attributes["measurement_plan"]["gradients"] is True
    assert any(NOTE in note for note in landscape.attributes["notes"])
    assert not landscape.attributes["partition_dependent"], "a mean over places does not depend on batches"
    assert "u" in landscape.metrics


@pytest.mark.filterwarnings("ignore:loss depends on how samples are batched")
def test_nothing_is_left_behind_and_the_users_gradients_stay():
    network = Wave(0.5, 2.0)
    network.weights.grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    own_gradient, places = network.weights.grad, PLACES.clone()

    def backward_step(network, batch):
        loss, u = residual_step(network, batch)
        loss.backward()
        norm = network.weights.grad.norm()  # of this batch alone
        return norm, u

    def callback_fn():
        return OwnLoss(backward_step), network, DataLoader(TensorDataset(places), batch_size=30), {}

    with pytest.warns(UserWarning, match=NOTE):
        landscape = measured(callback_fn)
    torch.testing.assert_close(network.weights.detach(), torch.tensor([0.5, 2.0], dtype=torch.float64))
    assert network.weights.grad is own_gradient
    assert own_gradient.tolist() == [3.0, 4.0]
    assert not places.requires_grad
    assert places.grad is None
    a, b = 0.5 + landscape.x[3], 2 + landscape.y[2]
    step = 1e-6
    slopes = [
        (residual(a + step, b) - residual(a - step, b)) / (2 * step),
        (residual(a, b + step) - residual(a, b - step)) / (2 * step),
    ]
    assert landscape.loss[2, 3] == pytest.approx(np.hypot(*slopes), rel=1e-6)


@pytest.mark.filterwarnings("ignore:the loss needs gradients")
def test_only_one_batch_is_recorded_at_a_time():
    alive, most = [], []

    def step(network, batch):
        loss, u = residual_step(network, batch)
        alive[:] = [item for item in alive if item() is not None]
        most.append(len(alive))
        alive.append(weakref.ref(u))
        return loss, u

    built(OwnLoss(step), Wave(), PLACES, 5)
    assert max(most) == 0, "what gradients need of one batch was there when the next one was computed"


@pytest.mark.parametrize("compile", [True, False, "auto"])
@pytest.mark.filterwarnings("ignore")
def test_it_is_neither_compiled_nor_is_a_layer_kept(compile):
    """A first layer of 784 inputs would be kept for a plane, and then no gradient reaches the batch."""
    network, inputs = tanh_network(784), torch.randn(64, 784)

    def penalty(network, batch):
        (x,) = batch
        (slope,) = torch.autograd.grad(network(x.requires_grad_(True)).sum(), x)
        return slope.square().sum(1).mean()

    evaluator = built(OwnLoss(penalty), network, inputs, 64, workload=Workload(compile, points=10_000))
    plan = evaluator.description.plan
    assert (plan.gradients, plan.compile, plan.first_layer) == (True, False, False)
    assert "needs gradients" in plan.reason or compile is False
    found, state = at_a_place(evaluator, network)
    assert found == pytest.approx(slope_of(state, inputs).square().sum(1).mean().item(), rel=1e-5)


class Force(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy = tanh_network(784)

    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            return torch.autograd.grad(self.energy(x).sum(), x)[0]


def test_a_network_that_switches_gradients_on_itself_has_no_kept_layer():
    network, inputs = Force(), torch.randn(256, 784)
    setup = MeasurementSetup(workload=Workload(points=10_000))
    evaluator = TorchEvaluator(nn.MSELoss(), network, (inputs, torch.zeros(256, 784)), {}, setup)
    assert not evaluator.description.plan.first_layer
    assert not evaluator.description.plan.gradients, "it needs no help"
    found, state = at_a_place(evaluator, network)
    assert found == pytest.approx(slope_of(state, inputs, "energy.").square().mean().item(), rel=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_functional_derivatives_work_without():
    """torch.func differentiates in spite of no_grad."""

    def loss(network, batch):
        (x,) = batch
        weights = dict(network.named_parameters())

        def u(x):
            return torch.func.functional_call(network, weights, (x[None],))[0, 0]

        laplacian = torch.vmap(lambda x: torch.func.hessian(u)(x).trace())(x)
        return laplacian.square().mean()

    network = tanh_network(100).double()
    inputs = torch.randn(12, 100, dtype=torch.float64)
    evaluator = built(OwnLoss(loss), network, inputs, 6, workload=Workload(points=10_000))
    assert not evaluator.description.plan.gradients
    found, state = at_a_place(evaluator, network)
    first, hidden = state["0.weight"], torch.tanh(inputs @ state["0.weight"].T + state["0.bias"])
    laplacian = ((-2 * hidden * (1 - hidden.square())) * state["2.weight"]) @ first.square().sum(1)
    assert found == pytest.approx(laplacian.square().mean().item(), rel=1e-9)


def test_inference_mode_outside_does_not_matter():
    def callback_fn():
        with torch.inference_mode(False):
            model, network, _, metrics = with_own_loss()
        return model, network, DataLoader(TensorDataset(PLACES.clone()), batch_size=30), metrics  # an inference tensor

    with pytest.warns(UserWarning, match=NOTE), torch.inference_mode():
        landscape = measured(callback_fn)
    assert landscape.loss[2, 2] == pytest.approx(residual(1 + landscape.x[2], 1 + landscape.y[2]), rel=1e-12)


def test_a_network_made_in_inference_mode_is_an_error_that_says_so():
    with torch.inference_mode(), pytest.raises(CallbackFunctionError, match=r"Leave torch[.]inference_mode"):
        measured(with_own_loss)


def test_a_metric_that_needs_gradients_is_told_where_to_go():
    def slope(outputs, _):
        return torch.autograd.grad(outputs.sum(), outputs)[0].mean()

    data = PLACES, torch.zeros_like(PLACES)
    with pytest.raises(CallbackFunctionError, match="Metrics get the outputs without gradients"):
        TorchEvaluator(nn.MSELoss(), Wave(), data, {"slope": slope}, MeasurementSetup())


def test_what_is_wrong_with_gradients_on_is_raised_as_it_is():
    def step(network, batch):
        (x,) = batch
        return torch.autograd.grad(network(x).sum(), x)[0].square().mean()  # forgot x.requires_grad_

    with pytest.raises(CallbackFunctionError, match="One of the differentiated Tensors does not require grad"):
        built(OwnLoss(step), Wave(), PLACES, 30)


@pytest.mark.filterwarnings("ignore:compile=True was asked for")
def test_a_plan_from_elsewhere_does_not_decide():
    for gradients in (True, False):
        plan = MeasurementPlan(gradients=gradients, compile=True)
        with pytest.warns(UserWarning, match=NOTE):
            evaluator = TorchEvaluator(*with_own_loss(), MeasurementSetup(plan=plan))
        assert evaluator.description.plan.gradients
        assert not evaluator.description.plan.compile
        assert MeasurementPlan.from_json(evaluator.description.plan.to_json()).gradients


def test_recalibrated_statistics_and_lower_precision_go_with_it():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
    options = MeasurementOptions(buffers="recalibrate", precision="bfloat16")
    with pytest.warns(UserWarning, match=NOTE):
        evaluator = built(OwnLoss(residual_step), network, PLACES.float(), 15, options=options)
    assert np.isfinite(at_a_place(evaluator, network)[0])
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())


def test_an_own_class_of_loss_with_a_reduction_keeps_its_standard_error():
    class Slopes(nn.Module):
        def __init__(self):
            super().__init__()
            self.reduction = "mean"

        def forward(self, outputs, targets):
            u, x = outputs
            (first,) = torch.autograd.grad(u.sum(), x)
            return functional.mse_loss(first, targets, reduction=self.reduction)

    loader = DataLoader(TensorDataset(PLACES, torch.cos(PLACES)), batch_size=7)
    with pytest.warns(UserWarning, match=NOTE):
        landscape = measured(lambda: (Slopes(), WaveAndPlaces(), loader, {}))
    assert "loss_stderr" in landscape.metrics
    a, b = 1 + landscape.x[3], 1 + landscape.y[2]
    each = (a * b * np.cos(b * PLACES.numpy()) - np.cos(PLACES.numpy())) ** 2
    assert landscape.loss[2, 3] == pytest.approx(each.mean(), rel=1e-12)
    assert landscape.metrics["loss_stderr"][2, 3] == pytest.approx(each.std(ddof=1) / np.sqrt(each.size), rel=1e-9)
