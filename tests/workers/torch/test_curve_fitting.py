"""The bends of a curve: their gradient, how steps are cut, and what is left of the network."""

import contextlib
import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from curve_tasks import curve_task, fitted_step_by_step
from digits_networks import INPUTS as BATCH_NORM_INPUTS
from digits_networks import TARGETS as BATCH_NORM_TARGETS
from digits_networks import build as build_batch_norm
from torch import nn
from two_networks import INPUTS, TARGETS, build
from worker_cases import evaluator_of

from workers import MeasurementPlan
from workers.curves.curve import CurveShape, FittingSettings
from workers.errors import CurveError
from workers.measuring.curve_fitting import CurveSamples
from workers.torch.derivatives.curve_fitting import TorchCurveFitter

PLAN = MeasurementPlan(batch_size=256, threads=1)
LONG = 1e9


def open_evaluator(network, loss=None, data=(INPUTS, TARGETS)):
    return evaluator_of(loss or nn.CrossEntropyLoss(), network, data, plan=PLAN)


def fitting(**settings):
    evaluator = open_evaluator(build(2))
    return evaluator, curve_task(evaluator, build(0), build(1), **settings)


def flat(network):
    return nn.utils.parameters_to_vector(network.parameters()).detach().numpy()


@pytest.mark.parametrize("kind", ["bezier", "polygon"])
@pytest.mark.parametrize("bends", [1, 3])
def test_shares_are_those_of_the_textbook(kind, bends):
    shape, t = CurveShape(kind, bends), np.linspace(0, 1, 17)
    control = np.random.default_rng(0).standard_normal((bends + 2, 5))
    if kind == "polygon":
        expected = np.stack([np.interp(t, np.linspace(0, 1, bends + 2), column) for column in control.T], axis=1)
    else:
        expected = []
        for place in t:
            points = control
            while len(points) > 1:  # de Casteljau
                points = (1 - place) * points[:-1] + place * points[1:]
            expected.append(points[0])
    np.testing.assert_allclose(shape.weights(t) @ control, expected, atol=1e-12)
    np.testing.assert_allclose(shape.weights(t).sum(1), 1, atol=1e-12)


@pytest.mark.parametrize(("kind", "bends", "t"), [("bezier", 1, 0.3), ("bezier", 3, 0.7), ("polygon", 2, 0.45)])
def test_gradient_of_the_bends_is_that_of_finite_differences(kind, bends, t):
    a, b = (build(seed).double() for seed in (0, 1))
    evaluator = open_evaluator(copy.deepcopy(a), data=(INPUTS.double(), TARGETS))
    task = curve_task(evaluator, a, b, shape=CurveShape(kind, bends))
    samples = CurveSamples(evaluator._main.samples, False, task.settings)
    batch = samples.batch(0)[0]
    random = np.random.default_rng(0)
    held = 0.3 * random.standard_normal((bends, len(flat(a))))
    network, shares = copy.deepcopy(a), task.settings.shape.weights(t)[0]

    def loss(control):
        point = shares[0] * flat(a) + shares[-1] * flat(b) + shares[1:-1] @ control
        with torch.no_grad():
            nn.utils.vector_to_parameters(torch.from_numpy(point), network.parameters())
            return float(nn.functional.cross_entropy(network(batch.inputs), batch.targets))

    with contextlib.closing(TorchCurveFitter(evaluator._differentiated(), samples, task)) as fitter:
        value, slope = fitter.gradient(held, t, batch)
    assert value == pytest.approx(loss(held), rel=1e-10)
    for _ in range(3):
        along = random.standard_normal(held.shape)
        step = 1e-5
        expected = (loss(held + step * along) - loss(held - step * along)) / (2 * step)
        assert (slope * along).sum() == pytest.approx(expected, rel=1e-4)


def test_steps_are_the_same_however_they_are_cut_and_the_network_stays_as_found():
    a, b, network = build(0), build(1), build(2)
    before = copy.deepcopy(network.state_dict())
    evaluator = open_evaluator(network)
    task = curve_task(evaluator, a, b, steps=12, batch_size=100)
    whole = evaluator.fit_curve(task, None, LONG)
    held = fitted_step_by_step(evaluator, task)
    for name in ("bends", "first", "second", "losses"):
        np.testing.assert_array_equal(getattr(held, name), getattr(whole, name))
    # The plane that was loaded is still there, and the network goes back to what it was.
    at_origin = evaluator.measure(np.zeros((1, 1)))["loss"][0]
    assert at_origin == pytest.approx(nn.functional.cross_entropy(a(INPUTS), TARGETS).item(), rel=1e-5)
    evaluator.close()
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


def test_adam_is_that_of_pytorch():
    a, b = build(0), build(1)
    evaluator, task = fitting(steps=8, batch_size=300, learning_rate=0.02, seed=3)
    found = evaluator.fit_curve(task, None, LONG)
    ends = [torch.from_numpy(flat(item)) for item in (a, b)]
    bend = nn.Parameter((ends[0] + ends[1]) / 2)
    optimizer = torch.optim.Adam([bend], lr=0.02)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 8)
    network = build(2)
    sizes = [parameter.numel() for parameter in network.parameters()]
    for step in range(8):
        t = task.settings.place(step)
        point = (1 - t) ** 2 * ends[0] + 2 * t * (1 - t) * bend + t**2 * ends[1]
        named = zip(network.named_parameters(), point.split(sizes), strict=True)
        parts = {name: part.view(parameter.shape) for (name, parameter), part in named}
        optimizer.zero_grad()
        nn.functional.cross_entropy(torch.func.functional_call(network, parts, (INPUTS,)), TARGETS).backward()
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(found.bends[0], bend.detach().numpy(), atol=2e-5)


def test_batchnorm_computes_with_the_batch_and_keeps_its_statistics():
    a, b, network = (build_batch_norm(seed) for seed in (0, 1, 2))
    evaluator = open_evaluator(network, data=(BATCH_NORM_INPUTS, BATCH_NORM_TARGETS))
    statistics = {name: buffer.clone() for name, buffer in network.named_buffers()}
    task = curve_task(evaluator, a, b, batch_size=50)
    samples = CurveSamples(evaluator._main.samples, False, task.settings)
    batch = samples.batch(0)[0]
    with contextlib.closing(TorchCurveFitter(evaluator._differentiated(), samples, task)) as fitter:
        value, _ = fitter.gradient(fitter.fit(None, 0.0).bends, 0.0, batch)
    trained = copy.deepcopy(a).train()
    assert value == pytest.approx(nn.functional.cross_entropy(trained(batch.inputs), batch.targets).item(), rel=1e-5)
    assert not any(layer.training for layer in network.modules())
    with pytest.raises(CurveError, match="batches of at least two samples"):
        evaluator.fit_curve(replace(task, settings=replace(task.settings, batch_size=1)), None, LONG)
    evaluator.close()
    torch.testing.assert_close(dict(network.named_buffers()), statistics, rtol=0, atol=0)


def test_sparse_embeddings_are_fitted_as_dense_ones():
    words, losses = torch.randint(10, (8, 5), generator=torch.Generator().manual_seed(0)), []
    for sparse in (False, True):
        networks = []
        for seed in range(3):
            torch.manual_seed(seed)
            networks.append(nn.Sequential(nn.Embedding(10, 4, sparse=sparse), nn.Flatten(), nn.Linear(20, 3)).double())
        evaluator = open_evaluator(networks[2], data=(words, torch.arange(8) % 3))
        losses.append(evaluator.fit_curve(curve_task(evaluator, *networks[:2], steps=3), None, LONG).losses)
        evaluator.close()
        assert networks[2][0].sparse == sparse
    np.testing.assert_allclose(*losses, rtol=1e-12)


def test_own_batches_are_kept_where_a_loss_belongs_to_them():
    def spread(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets) + outputs.std(0).mean()

    a, b = build(0), build(1)
    loader = [(INPUTS[:120], TARGETS[:120]), (INPUTS[120:200], TARGETS[120:200]), (INPUTS[200:], TARGETS[200:])]
    evaluator = open_evaluator(build(2), spread, loader)
    with pytest.warns(UserWarning, match="batches"):
        task = curve_task(evaluator, a, b, steps=6)
    assert evaluator.description.partition_dependent
    samples = CurveSamples(evaluator._main.samples, True, task.settings)
    assert sorted(samples.batch(step)[0].size for step in range(3)) == [80, 100, 120]
    assert len(evaluator.fit_curve(task, None, LONG).losses) == 6


def test_batchnorm_refuses_own_batches_of_one_sample_before_the_first_step():
    """Also where that batch is drawn last."""

    def of_means(outputs, targets):
        return (outputs.mean(0) ** 2).sum()

    alone = int(FittingSettings().order(0, 3)[-1])
    parts = [slice(200, 201) if number == alone else slice(100 * number, 100 * number + 90) for number in range(3)]
    loader = [(BATCH_NORM_INPUTS[part], BATCH_NORM_TARGETS[part]) for part in parts]
    with pytest.warns(UserWarning, match="batches"):
        evaluator = open_evaluator(build_batch_norm(2), of_means, loader)
    task = curve_task(evaluator, build_batch_norm(0), build_batch_norm(1), steps=1)
    with pytest.raises(CurveError, match="batches of at least two samples"):
        evaluator.fit_curve(task, None, LONG)


def test_low_precision_is_fitted_in_float32():
    a, b, network = (build(seed).bfloat16() for seed in (0, 1, 2))
    evaluator = open_evaluator(network, data=(INPUTS.bfloat16(), TARGETS))
    found = evaluator.fit_curve(curve_task(evaluator, a, b, steps=3), None, LONG)
    assert found.bends.dtype == np.float32
    assert (found.losses < 10).all()
    evaluator.close()
    assert {parameter.dtype for parameter in network.parameters()} == {torch.bfloat16}


def test_a_loss_that_is_not_finite_names_the_place_and_the_remedy():
    evaluator, task = fitting(steps=40, learning_rate=1e30)
    text = r"not finite at t = 0\.\d+ of the curve, in step \d+ of 40 .*lower learning_rate"
    with pytest.raises(CurveError, match=text):
        evaluator.fit_curve(task, None, LONG)
    assert np.isfinite(evaluator.measure(np.zeros((1, 1)))["loss"]).all()


@pytest.mark.parametrize(
    ("kind", "wrong", "text"),
    [
        (FittingSettings, {"batch_size": 0}, "batch_size must be an int of at least 1"),
        (FittingSettings, {"learning_rate": 0.0}, "learning_rate must be a number above 0"),
        (FittingSettings, {"seed": -1}, "seed must be an int of at least 0"),
        (CurveShape, {"bends": 0}, "bends must be an int"),
    ],
)
def test_wrong_settings_are_named(kind, wrong, text):
    with pytest.raises(ValueError, match=text):
        kind(**wrong)
