"""Results that stay on the device, and CUDA graphs; on the CPU, work that is 'recorded' is done again."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from worker_cases import CASES, at_point, case, classes, direct_loss, evaluator_of, features, mlp, plane_of

from workers.evaluator import MeasurementSetup
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.measuring.sample_loss import mean_over_samples
from workers.torch.evaluator import TorchEvaluator
from workers.torch.points import PointGraph, capture_of, read_points, run_pending

POINTS = np.array([[0.0, 0.0], [0.3, -0.2], [1.0, 1.0]])
CPU = torch.device("cpu")


def do_again(work):
    work()
    return work


def refuse(_work):
    raise RuntimeError("operation not permitted when stream is capturing\nmore text")


def repeat_the_first(work):
    """A graph of a network that computes something on the host: it does not see that the point has changed."""
    result = work()
    return lambda: result


def measured(name, capture, monkeypatch, metrics=None):
    monkeypatch.setattr("workers.torch.evaluator.capture_of", lambda _device: capture)
    loss, network, dataset = case(name)
    evaluator = evaluator_of(loss, network, dataset, metrics, batch_size=16)
    evaluator.load(*plane_of(network))
    values = evaluator.measure(POINTS)
    recorded = evaluator._points._graph is not None
    evaluator.close()
    return values, recorded, evaluator.description.notes


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_point_gives_what_plain_ones_give(name, monkeypatch):
    plain, recorded, notes = measured(name, None, monkeypatch)
    assert not recorded
    again, recorded, notes = measured(name, do_again, monkeypatch)
    assert recorded
    assert notes == ()
    tolerance = 2e-2 if "16" in name else 1e-5
    for key in plain:
        np.testing.assert_allclose(again[key], plain[key], rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("capture", [None, do_again])
def test_interpolated_buffers_are_recorded_too(capture, monkeypatch):
    monkeypatch.setattr("workers.torch.evaluator.capture_of", lambda _device: capture)
    loss, network, dataset = case("batchnorm")
    evaluator = evaluator_of(loss, network, dataset, batch_size=16, buffers="interpolate")
    origin, directions, buffers = plane_of(network)
    ends = [
        {name: (scale * array).astype(np.float32) for name, array in buffers.items() if array.dtype.kind == "f"}
        for scale in (2.0, 0.3)
    ]
    evaluator.load(origin, directions, buffers, ends)
    assert (evaluator._points._graph is not None) == (capture is not None)
    points = [(0.0, 0.0), (1.0, 0.0), (0.25, 0.5), (-3.0, 0.4), (0.9, 0.9)]
    found = evaluator.measure(np.array(points))["loss"]
    evaluator.close()
    for value, (x, y) in zip(found, points, strict=True):
        kept = np.maximum([1 - x - y, x, y], 0)
        factor = (kept / kept.sum()) @ [1.0, 2.0, 0.3]
        mixed = {name: array * factor if array.dtype.kind == "f" else array for name, array in buffers.items()}
        moved = at_point(network, (origin, directions, mixed), (x, y))
        assert value == pytest.approx(direct_loss(loss, moved, dataset), rel=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_sums_on_the_device_equal_those_of_numpy(name):
    """What is added up in tensors, without waiting for a device, against the same in arrays."""
    loss, network, dataset = case(name)
    evaluator = evaluator_of(loss, network, dataset, batch_size=16)
    total = evaluator._main.loss
    batches = evaluator._main.samples.batches(16)
    with torch.no_grad():
        (found,) = read_points([run_pending(evaluator._forward, batches, total, {}, CPU)])
    numerators, denominators = (torch.cat(part).numpy() for part in (total._numerators, total._denominators))
    expected = mean_over_samples(numerators, denominators)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12)
    evaluator.close()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_every_reduction_equals_numpys(reduction, count):
    evaluator = evaluator_of(nn.CrossEntropyLoss(reduction=reduction), mlp(), (features(count), classes(count)))
    total = evaluator._main.loss
    with torch.no_grad():
        evaluator._pending()
        found = total.result()
    numerators, denominators = (torch.cat(part).numpy() for part in (total._numerators, total._denominators))
    for key, value in mean_over_samples(numerators, denominators, reduction).items():
        np.testing.assert_allclose(found[key], value, rtol=1e-12)
    evaluator.close()


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).double().mean()


def accuracy_on_the_host(outputs, targets):
    return float(accuracy(outputs, targets))


def test_metrics_that_stay_on_the_device_are_recorded_too(monkeypatch):
    plain, _, _ = measured("plain", None, monkeypatch, {"accuracy": accuracy})
    again, recorded, _ = measured("plain", do_again, monkeypatch, {"accuracy": accuracy})
    assert recorded
    np.testing.assert_array_equal(again["accuracy"], plain["accuracy"])


@pytest.mark.parametrize(
    ("capture", "metrics", "text"),
    [
        (refuse, None, "one CUDA graph: operation not permitted when stream is capturing."),
        (do_again, {"accuracy": accuracy_on_the_host}, "the loss or a metric is computed on the host"),
    ],
)
def test_what_cannot_be_recorded_runs_kernel_by_kernel_and_says_so(capture, metrics, text, monkeypatch):
    plain, _, _ = measured("plain", None, monkeypatch, metrics)
    values, recorded, notes = measured("plain", capture, monkeypatch, metrics)
    assert not recorded
    assert text in notes[0]
    for key in plain:
        np.testing.assert_array_equal(values[key], plain[key])


def test_a_graph_that_gives_other_values_is_not_used(monkeypatch):
    """The forward pass alone gives nothing away; the loaded plane does."""
    plain, _, _ = measured("plain", None, monkeypatch)
    with pytest.warns(UserWarning, match=r"kernel by kernel instead of through one CUDA graph: at \[0.01, 0.01\]"):
        values, recorded, _ = measured("plain", repeat_the_first, monkeypatch)
    assert not recorded
    np.testing.assert_array_equal(values["loss"], plain["loss"])


def test_a_shortage_of_memory_is_not_for_ever(monkeypatch):
    """It is tried again with smaller batches and with the next plane; what cannot be recorded at all is not."""
    calls = []

    def short_of_memory(work):
        calls.append(work)
        if len(calls) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return do_again(work)

    monkeypatch.setattr("workers.torch.evaluator.capture_of", lambda _device: short_of_memory)
    loss, network, dataset = case("plain")
    evaluator = evaluator_of(loss, network, dataset, batch_size=16)
    assert evaluator.description.notes == ()
    with pytest.warns(
        UserWarning, match=r"CUDA graph: CUDA out of memory\. Tried to allocate 2 GiB\. It is tried again"
    ):
        evaluator.load(*plane_of(network))
    plain = evaluator.measure(POINTS)["loss"]
    assert evaluator._points._graph is None
    evaluator.use_batch_size(8)
    assert evaluator._points._graph is not None
    np.testing.assert_allclose(evaluator.measure(POINTS)["loss"], plain, rtol=1e-6)
    evaluator.close()
    assert len(calls) == 3


def test_recalibrated_buffers_are_never_recorded(monkeypatch):
    monkeypatch.setattr("workers.torch.evaluator.capture_of", lambda _device: refuse)
    loss, network, dataset = case("batchnorm")
    evaluator = evaluator_of(loss, network, dataset, options=MeasurementOptions(buffers="recalibrate"))
    evaluator.load(*plane_of(network))
    assert evaluator.description.notes == ()
    evaluator.close()


def test_a_point_keeps_its_numbers_when_the_next_is_measured():
    graph = PointGraph(lambda at: at * 2, 2, CPU, do_again)
    first, second = graph.numbers([1.0, 2.0]), graph.numbers([3.0, 4.0])
    assert first.tolist() == [2, 4]
    assert second.tolist() == [6, 8]


def test_the_cpu_records_nothing():
    assert capture_of(CPU) is None
    assert capture_of(torch.device("cuda", 1)).keywords == {"device": torch.device("cuda", 1)}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; tests/benchmarks/gpu.py checks it too")
@pytest.mark.parametrize("name", ["plain", "batchnorm", "regression", "frozen layer", "float64"])
def test_a_cuda_graph_gives_what_the_cpu_gives(name):
    loss, network, dataset = case(name)
    plane = plane_of(network)
    results = []
    for device in ("cpu", "cuda"):
        plan, options = MeasurementPlan(16), MeasurementOptions()
        evaluator = TorchEvaluator(
            loss, copy.deepcopy(network), dataset, {}, MeasurementSetup(options, plan=plan, device=device)
        )
        evaluator.load(*plane)
        assert (evaluator._points._graph is not None) is (device == "cuda")
        results.append(evaluator.measure(POINTS))
        evaluator.close()
    np.testing.assert_allclose(results[1]["loss"], results[0]["loss"], rtol=1e-4)
