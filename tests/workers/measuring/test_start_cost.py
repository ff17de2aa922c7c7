"""What is computed before the first point: counted in samples, because at a minute for a pass each one is long."""

import contextlib
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from counted_network import BATCH_SIZE, SAMPLES, counted_callback, counted_network, large_data, passes_of
from runs import collected
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from landscape import SummaryLandscape, random_plane
from workers.errors import NondeterministicLossError
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.measuring.checks import check_determinism
from workers.pools.in_process import InProcessPool
from workers.pools.open_pool import open_pool


@contextlib.contextmanager
def in_process(callback_fn, plane, plan=None):
    """A pool that has loaded a plane."""
    with InProcessPool(callback_fn, MeasurementOptions(), plan=plan) as pool:
        pool.load(plane.origin, plane.directions, plane.buffers)
        yield pool


def start(folder, device_ids, *, with_metric=False, buffers="fixed"):
    """Goes as far as a survey does before its first point; returns the passes of each worker, and the origin."""
    plane = random_plane(counted_network(folder), seed=0)
    callback_fn = counted_callback(folder, with_metric=with_metric)
    options = MeasurementOptions(buffers=buffers)
    with open_pool(callback_fn, options, device_ids=device_ids, points=1600, compile=False) as pool:
        pool.load(plane.origin, plane.directions, plane.buffers)
        origin = check_determinism(pool.measure_origin())
    return passes_of(folder), origin


@pytest.mark.parametrize("with_metric", [False, True])
@pytest.mark.slow
def test_one_pass_and_a_part_in_process(tmp_path, with_metric):
    """The pass is the origin's measurement, which is kept."""
    passes, origin = start(tmp_path, [0], with_metric=with_metric)
    # A metric of which nothing says that it adds batches up is compared on all samples, in another pass.
    assert len(passes) == 1
    assert passes[0] < 1.9 + with_metric
    features, targets = large_data().dataset.tensors
    with torch.no_grad():
        expected = functional.cross_entropy(counted_network(tmp_path)(features).double(), targets)
    assert origin["loss"] == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray", "ignore::FutureWarning:ray")
def test_no_more_on_each_of_two_workers(tmp_path):
    passes, _ = start(tmp_path, [0, 1])
    assert len(passes) == 2
    # One of them tunes for both.
    assert max(passes) < 1.9
    assert min(passes) < 1.5


def mean_of_what_counts(outputs, targets):
    """A user's own loss: nothing says that it ignores padding."""
    return functional.cross_entropy(outputs, targets, ignore_index=-1)


@pytest.mark.slow
@pytest.mark.parametrize("padded", [None, 20])
def test_padding_that_a_few_batches_do_not_show(padded, recwarn):
    """A mean over what counts adds batches up only where as much counts in each."""
    features, targets = large_data().dataset.tensors
    targets = targets.clone()
    if padded is not None:
        targets[padded * BATCH_SIZE : padded * BATCH_SIZE + 200] = -1
    torch.manual_seed(0)
    network = nn.Linear(32, 10)
    plane = random_plane(network, seed=0)
    loader = DataLoader(TensorDataset(features, targets), batch_size=BATCH_SIZE)
    with in_process(lambda: (mean_of_what_counts, network, loader, {}), plane, MeasurementPlan(1024)) as pool:
        description = pool.description
    assert description.partition_dependent is (padded is not None)
    assert description.plan.batch_size == (None if padded is not None else 1024)
    assert bool([item for item in recwarn if "depends on how samples are batched" in str(item.message)]) is (
        padded is not None
    )


class Drifting(nn.Linear):
    """Changes a little with each pass, in a way that a single batch does not show."""

    seen = 0

    def __init__(self):
        # It depends on the weights how much the loss changes with the scale of the outputs.
        with torch.random.fork_rng():
            torch.manual_seed(0)
            super().__init__(32, 10)

    def forward(self, features):
        self.seen += len(features)
        return super().forward(features) * (1 + 4e-4 * self.seen / SAMPLES)


@pytest.mark.slow
def test_a_network_that_changes_in_a_whole_pass_is_found_out():
    network = Drifting()
    plane = random_plane(network, seed=0)
    with in_process(lambda: (nn.CrossEntropyLoss(), network, large_data(), {}), plane, MeasurementPlan(256)) as pool:
        origins = pool.measure_origin()
    with pytest.raises(NondeterministicLossError, match="a network that changes its own state"):
        check_determinism(origins)


def clock_that_goes_on_by(seconds):
    """A clock that goes on by so many seconds from one look at it to the next."""
    return SimpleNamespace(perf_counter=itertools.count(0.0, seconds).__next__)  # time: a false clock


@pytest.mark.slow
def test_the_origin_that_is_kept_is_that_of_the_points(tmp_path, monkeypatch):
    whole, of_a_batch = 8.0, 0.5
    monkeypatch.setattr("workers.measuring.measured_set.time", clock_that_goes_on_by(whole))
    monkeypatch.setattr("workers.measuring.network_evaluator.time", clock_that_goes_on_by(of_a_batch))
    network = counted_network(tmp_path)
    plane = random_plane(network, seed=0)
    with in_process(counted_callback(tmp_path, with_metric=True), plane) as pool:
        (found,) = pool.measure_origin()
        again = pool._worker.evaluator.measure(np.zeros((1, 2)))
        assert found.measured.values[0] == {name: column[0] for name, column in again.items()}
        assert found.measured.elsewhere["loss"] != found.measured.repeated[0]["loss"]
        batches = SAMPLES / pool.description.plan.batch_size
        assert found.measured.seconds == min(whole, of_a_batch * batches)
        (second,) = pool.measure_origin()
        assert second.measured.values == found.measured.values


@pytest.mark.slow
@pytest.mark.parametrize("compile", ["auto", True])
def test_a_dry_run_says_what_it_does_and_compiles_nothing(tmp_path, monkeypatch, capsys, compile):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    (tmp_path / "training").mkdir()
    (tmp_path / "counts").mkdir()
    collected(tmp_path / "run", counted_network(tmp_path / "training", 3, 2), epochs=4)

    def callback_fn():
        return nn.CrossEntropyLoss(), counted_network(tmp_path / "counts", 3, 2), large_data(3), {}

    landscape = SummaryLandscape(tmp_path / "run")
    landscape.gen_landscapes_with_multi_process(
        callback_fn,
        {"landscape_size": 256, "num_samples": SAMPLES, "create_landscape": {"train": True, "result": True}},
        device_ids=[0],
        dry_run=True,
        compile=compile,
        sampling="full",
    )
    said = capsys.readouterr().out
    assert said.startswith("dry run: reads the data set and measures a little; compiles nothing, and writes nothing")
    assert re.search(r"_pca\.h5: 65,5\d\d points x .*; in batches of .* not compiled \(", said), said
    assert "_random.h5: 65,536 points x " in said, "its points take as long, so nothing of it is measured"
    steps = [
        "building the network",
        "opening checkpoints, computing the directions of 2",
        "measuring a point, a part of it twice, over",
    ]
    assert [said.index(step) for step in steps] == sorted(said.index(step) for step in steps)
    assert ("a dry run compiles nothing; a run would: asked for" in said) is (compile is True), said
    (passes,) = passes_of(tmp_path / "counts")
    assert passes < 1.9
    assert not list((tmp_path / "cache").rglob("*.so"))
    assert not list((tmp_path / "run").glob("*.h5"))
