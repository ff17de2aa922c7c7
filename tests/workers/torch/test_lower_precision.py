"""``precision``: forward passes that round on purpose, and nothing else that does."""

import numpy as np
import pytest
import torch
from digits_networks import INPUTS, TARGETS, train
from digits_networks import build as build_digits
from examples import accuracy
from measured_planes import measure_plane
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset
from worker_cases import at_point, classes, evaluator_of, found, labelled, mlp, plane_of, step

from workers import OwnLoss
from workers.errors import NondeterministicLossError
from workers.evaluator import OriginMeasurement, SampleMemory
from workers.measurement_plan import MeasurementPlan
from workers.measuring.checks import check_determinism
from workers.pool import OriginValues

POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [-1.0, 0.7]])
DIGITS = TensorDataset(INPUTS, TARGETS)
# Of a number in bfloat16, which has 8 bits of which one is implied.
ROUNDING = 2.0**-8


def measured(network, dataset, loss=None, points=POINTS, scale=0.05, **how):
    how.setdefault("batch_size", 64)
    evaluator = evaluator_of(loss or nn.CrossEntropyLoss(), network, dataset, {"accuracy": accuracy}, **how)
    values = measure_plane(evaluator, plane_of(network, scale=scale), points, far_points=[[1.0, 1.0], [-1.0, 1.0]])
    return values, evaluator.description


@pytest.fixture(scope="module")
def trained():
    return train(build_digits(), epochs=2)


class ImageNetwork(nn.Module):
    """Convolution, activation, pooling and a linear layer; ``rounded`` does by hand what autocast does."""

    def __init__(self, *, rounded=False):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Conv2d(1, 4, 3), nn.Linear(36, 5)
        self.rounded = rounded

    def forward(self, images):
        kind = torch.bfloat16 if self.rounded else torch.float32
        first = functional.conv2d(images.to(kind), self.first.weight.to(kind), self.first.bias.to(kind))
        return functional.linear(
            functional.max_pool2d(torch.tanh(first), 2).flatten(1), self.last.weight.to(kind), self.last.bias.to(kind)
        )


def test_bfloat16_rounds_what_layers_take_and_give_and_nothing_else():
    generator = torch.Generator().manual_seed(0)
    images, targets = torch.randn(40, 1, 8, 8, generator=generator), classes(40, 5)
    network = ImageNetwork()
    values, description = measured(network, TensorDataset(images, targets), scale=0.5, precision="bfloat16")
    plane = plane_of(network, scale=0.5)
    by_hand = [at_point(ImageNetwork(rounded=True), plane, point) for point in POINTS]
    with torch.no_grad():
        outputs = [moved(images) for moved in by_hand]
    assert all(item.dtype == torch.bfloat16 for item in outputs)
    expected = [float(functional.cross_entropy(item.double(), targets)) for item in outputs]
    np.testing.assert_allclose(values["loss"], expected, rtol=1e-6)
    assert values["accuracy"].tolist() == [float(accuracy(item, targets)) for item in outputs]
    assert description.plan.precision == description.options.precision == "bfloat16"
    assert description.notes == ()


@pytest.mark.slow
def test_it_differs_from_float32_by_the_rounding(trained):
    how = {"points": np.random.default_rng(0).uniform(-1, 1, (20, 2))}
    full, description = measured(trained, DIGITS, **how)
    low, _ = measured(trained, DIGITS, precision="bfloat16", **how)
    assert description.plan.precision == "float32"
    gaps = np.abs(low["loss"] / full["loss"] - 1)
    assert (gaps > 0).all()
    # Each of 600 samples is rounded its own way; the mean keeps a small part of that.
    assert 1e-5 < np.median(gaps) < ROUNDING / 4
    assert gaps.max() < ROUNDING
    assert np.abs(low["accuracy"] - full["accuracy"]).max() < 0.01
    np.testing.assert_allclose(low["loss_stderr"], full["loss_stderr"], rtol=0.05)


@pytest.mark.slow
def test_it_gives_the_same_bits_in_other_plans(trained):
    first, _ = measured(trained, DIGITS, precision="bfloat16")
    # What autocast rounds cannot be added up beforehand.
    plan = MeasurementPlan(64, first_layer=True)
    with pytest.warns(UserWarning, match="the plan says that the first layer is computed once for a plane, but here"):
        other, description = measured(trained, DIGITS, precision="bfloat16", plan=plan, batch_size=None)
    assert not description.plan.first_layer
    assert other["loss"].tobytes() == first["loss"].tobytes()
    # Neither does it depend on what is next to a sample.
    other, description = measured(trained, DIGITS, precision="bfloat16", batch_size=300)
    assert not description.partition_dependent
    np.testing.assert_allclose(other["loss"], first["loss"], rtol=1e-3)


class Watching(nn.Module):
    """Records under which autocast it runs."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = mlp(), set()

    def forward(self, inputs):
        outputs = self.layer(inputs)
        self.seen.add((torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled(), outputs.dtype))
        return outputs


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_loss_is_outside_and_the_users_settings_come_back(precision):
    network, seen = Watching(), set()

    def loss(outputs, targets):
        seen.add((torch.is_autocast_enabled("cpu"), outputs.dtype))
        return functional.cross_entropy(outputs, targets)

    before = found(network)
    with torch.autocast("cpu", torch.float16, enabled=precision == "float32"):
        state = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        measured(network, labelled(), loss, precision=precision)
        assert (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")) == state
    is_low = precision == "bfloat16"
    assert network.seen == {(is_low, False, torch.bfloat16 if is_low else torch.float32)}
    assert seen == {(False, torch.float32)}
    assert found(network) == before


def test_statistics_are_recalibrated_in_the_same_precision(trained):
    values = [
        measured(trained, DIGITS, precision=precision, buffers="recalibrate", recalibration_batch_size=600)[0]["loss"]
        for precision in ("float32", "bfloat16")
    ]
    gaps = np.abs(values[1] / values[0] - 1)
    assert (gaps > 0).all()
    assert gaps.max() < 4 * ROUNDING


def own_step(network, batch):
    loss, outputs = step(network, batch)
    own_step.seen = outputs.dtype
    return loss, outputs


def test_a_network_that_computes_its_own_loss():
    metrics = {"largest": lambda outputs, _: torch.tensor(float(outputs.dtype == torch.float32))}
    full, low = (
        measure_plane(
            evaluator_of(OwnLoss(own_step), mlp(), labelled(), metrics, batch_size=40, precision=precision),
            plane_of(mlp()), POINTS,
        )
        for precision in ("float32", "bfloat16")
    )  # fmt: skip
    assert own_step.seen == torch.bfloat16
    assert low["largest"].tolist() == [1.0, 1.0, 1.0]
    assert 0 < np.abs(low["loss"] / full["loss"] - 1).max() < 4 * ROUNDING


def test_samples_that_are_read_in_passes(trained):
    kept, _ = measured(trained, DIGITS, precision="bfloat16", batch_size=50)
    with pytest.warns(UserWarning, match="read anew for each group of points"):
        values, description = measured(
            trained, DIGITS, precision="bfloat16", batch_size=50, memory=SampleMemory(limit=INPUTS.nbytes // 3)
        )
    assert description.streamed
    for name, expected in kept.items():
        np.testing.assert_allclose(values[name], expected, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
def test_compiled_code_is_of_one_precision(trained, tmp_path, monkeypatch):
    """One folder of packages serves both; code of the wrong one would give the other's values."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    results = {}
    for precision in ("float32", "bfloat16", "float32"):
        plan = MeasurementPlan(100, compile=True)
        values, description = measured(trained, DIGITS, plan=plan, precision=precision)
        assert (description.plan.compiler, description.notes) == ("AOTInductor", ())
        eager, _ = measured(trained, DIGITS, plan=MeasurementPlan(100), precision=precision)
        tolerance = 1e-5 if precision == "float32" else ROUNDING
        np.testing.assert_allclose(values["loss"], eager["loss"], rtol=tolerance)
        assert results.setdefault(precision, values["loss"].tobytes()) == values["loss"].tobytes()
    assert results["float32"] != results["bfloat16"]


@pytest.mark.parametrize(
    ("precision", "dtype", "text"),
    [
        ("tf32", torch.float32, r'="tf32" needs an NVIDIA GPU, but .* on cpu, .* or precision="bfloat16"\.$'),
        ("bfloat16", torch.float64, r'="bfloat16" changes nothing: the weights are in float64\. Use .*float32'),
        ("bfloat16", torch.bfloat16, r'="bfloat16" changes nothing: the weights are in bfloat16\.'),
    ],
)
def test_what_cannot_be_had(precision, dtype, text):
    network = mlp(dtype=dtype)
    before = found(network)
    with pytest.raises(ValueError, match=f"^precision{text}"):
        evaluator_of(nn.CrossEntropyLoss(), network, labelled(dtype=dtype), precision=precision)
    assert found(network) == before


def test_workers_of_other_hardware_may_round_otherwise():
    def worker(name, *losses):
        return OriginValues(name, "cpu", OriginMeasurement(tuple({"loss": value} for value in losses)))

    origins = [worker("one", 1.0, 1.0), worker("other", 1.004, 1.004)]
    assert check_determinism(origins, "bfloat16") == {"loss": 1.0}
    with pytest.raises(NondeterministicLossError, match="on other"):
        check_determinism(origins)
    # What one worker measures twice must be equal in any precision.
    with pytest.raises(NondeterministicLossError, match="on one"):
        check_determinism([worker("one", 1.0, 1.004)], "bfloat16")
    with pytest.raises(NondeterministicLossError, match="on other"):
        check_determinism([origins[0], worker("other", 1.1, 1.1)], "bfloat16")
