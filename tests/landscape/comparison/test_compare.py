"""Comparing recipes: what is measured, against plain PyTorch; what is kept and continued; what may go wrong."""

import shutil
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from many_perceptrons import INPUTS, SAMPLES, TARGETS, network, perceptron, train, without_single_losses
from small_curvature import small, train_small
from torch import nn

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.networks.readers import describe_network
from collectors.weights.aligned import align, as_reader
from landscape import MeasurementPlan
from landscape.comparison import answers, measuring
from landscape.comparison.comparison import Comparison
from landscape.comparison.data import ComparisonData
from landscape.functions import compare, trace_by_lines
from landscape.planes.directions import random_direction
from workers.errors import CurvatureError, NondeterministicLossError
from workers.function_evaluator import FunctionEvaluator
from workers.pools.in_process import InProcessPool

PLAN = MeasurementPlan(batch_size=SAMPLES)


@pytest.fixture(scope="module")
def small_batches():
    return train("small", 4, steps=60)


@pytest.fixture(scope="module")
def large_batches():
    return train("large", 4, steps=60)


@pytest.fixture
def recipes(small_batches, large_batches):
    return {"small": small_batches[:3], "large": large_batches[:3]}


@pytest.fixture
def pair(recipes):
    """One network of each recipe."""
    return {name: networks[:1] for name, networks in recipes.items()}


def measure(recipes, callback=perceptron, **options):
    options = {"directions": 4, "points": 5, "device_ids": [0], "progress": False, "plan": PLAN, **options}
    return compare(recipes, callback, **options)


def test_the_loss_along_each_line_is_that_of_the_network_moved_by_hand(recipes):
    found = measure(recipes, seed=3)
    assert found.loss.shape == (6, 4, 5)
    assert found.t.tolist() == [-0.5, -0.25, 0, 0.25, 0.5]
    lines = {"normalization": "filter", "seed": 3, "t": found.t.tolist()}
    assert found.attributes["identity"]["lines"] == lines, "with others it is another experiment"
    moved = network()
    space = describe_network(moved)
    for row, weights in enumerate([*recipes["small"], *recipes["large"]]):
        state = align(as_reader("weights", weights), space)
        for number in range(4):
            direction = random_direction(space, state, seed=3, index=number)
            for place, t in enumerate(found.t):
                at = {name: torch.tensor(weights[name] + t * direction[name]).float() for name in weights}
                moved.load_state_dict(at)
                with torch.no_grad():
                    loss = float(nn.functional.cross_entropy(moved(INPUTS[:SAMPLES]), TARGETS[:SAMPLES]))
                assert found.loss[row, number, place] == pytest.approx(loss, rel=2e-5)


def test_one_pool_measures_each_point_once(recipes, monkeypatch):
    pools, points = [], []
    start, run = InProcessPool.__init__, InProcessPool.run
    monkeypatch.setattr(InProcessPool, "__init__", lambda *args, **more: (pools.append(1), start(*args, **more))[1])

    def counted(pool, tasks):
        return run(pool, (points.append(task) or task for task in tasks))

    monkeypatch.setattr(InProcessPool, "run", counted)
    measure(recipes)
    assert len(pools) == 1
    assert len(points) == 6 * 4 * 4


@pytest.mark.slow
def test_measures_by_hand(recipes):
    found = measure(recipes, rise=0.02, trace_lines=3)
    rises = (found.loss[:, :, 0] + found.loss[:, :, -1]) / 2 - found.loss[:, :, 2]
    assert found.values() == pytest.approx(rises.mean(1))
    assert found.values("steepest_rise") == pytest.approx(rises.max(1))
    assert found.values("loss") == pytest.approx(found.loss[:, 0, 2])
    radii = found.values("radius_of_rise")
    assert ((radii > 0) & (radii <= 0.5)).all()
    curve = (found.loss - found.loss[:, :, [2]]).mean(1)
    both = (curve + curve[:, ::-1])[:, 2:] / 2
    for radius, heights in zip(radii, both, strict=True):
        assert np.interp(radius, [0, 0.25, 0.5], np.sqrt(heights)) == pytest.approx(np.sqrt(0.02))
    alone = trace_by_lines(recipes["large"][0], perceptron, 3, device_ids=[0])
    assert found.trace[3] == pytest.approx(alone.value, rel=0.05)
    assert found.table("trace")[0].method == "Welch's t"
    without = measure(recipes, rise=50.0)
    assert np.isnan(without.values("radius_of_rise")).all()
    assert "for some networks there is no radius_of_rise" in without.summary("radius_of_rise")
    assert "random lines; measure it with trace_lines=30" in without.summary("trace")


@pytest.mark.slow
def test_a_difference_that_is_there_and_one_that_is_not(small_batches, large_batches):
    wide = [{name: value * (2 if name == "2.weight" else 1) for name, value in item.items()} for item in large_batches]
    found = measure({"large": large_batches[:3], "wide": wide[1:]}, directions=8)
    (answer,) = found.table()
    assert answer.verdict == "large is flatter"
    assert answer.low <= answer.difference <= answer.high < 0
    assert "large is flatter" in found.summary()
    assert found.table("radius_of_rise")[0].verdict == "large is flatter"
    equal = measure({"a": large_batches[:2] + small_batches[:1], "b": large_batches[2:] + small_batches[1:2]})
    assert equal.table()[0].verdict == "inconclusive"
    assert "inconclusive, because the interval holds 0" in equal.summary()
    assert "a difference of 10 %" in equal.summary()
    assert "a difference of 10 % would show in 4 of 5 cases." in found.summary()
    assert "inconclusive" in repr(equal)
    html = equal.table()._repr_html_()
    assert "<td>a - b</td>" in html
    assert "a - b" in str(equal.table())


@pytest.mark.slow
def test_pairs_of_the_same_seed_and_three_recipes(small_batches, large_batches, monkeypatch):
    untrained = [train("large", 1, steps=1)[0], *train("large", 2, first=1, steps=1)]
    found = measure(
        {
            "small": dict(enumerate(small_batches)),
            "large": {seed: weights for seed, weights in enumerate(large_batches) if seed},
            "none": untrained,
        }
    )
    first, second, third = found.table()
    assert first.method == "paired t"
    rises = found.values()
    assert first.difference == pytest.approx((rises[1:4] - rises[4:7]).mean())
    assert {second.method, third.method} == {"Welch's t"}
    assert max(answer.confidence for answer in found.table()) > 0.95
    assert "corrected for 3 pairs" in found.summary()
    # How many are needed is of the interval that is shown, which is longer the more pairs there are.
    asked = []
    monkeypatch.setattr(answers, "count_needed", lambda *_args, confidence, **_more: asked.append(confidence))
    assert [answer.confidence for answer in found.table()] == asked


def test_fewer_than_three_have_no_interval_say_why_and_correct_no_other_pair(recipes, small_batches, large_batches):
    found = measure({**recipes, "few": [small_batches[3], large_batches[3]]})
    first, *others = found.table()
    assert [answer.verdict for answer in others] == ["no interval", "no interval"]
    assert first.confidence == 0.95
    assert "corrected for" not in found.summary()
    assert "an interval needs at least 3 networks of each, but there are 2 of few" in found.summary()
    assert np.isfinite([item.low for item in found.means()]).tolist() == [True, True, False]


def test_how_much_of_a_spread_comes_from_the_directions_is_said_of_each_recipe(recipes):
    """Networks of the first recipe differ by 1, those of the second by their directions alone."""
    found = measure({name: networks[:2] for name, networks in recipes.items()})
    loss, noise = np.zeros(found.loss.shape), np.random.default_rng(1).normal(0, 0.01, found.loss.shape[:2])
    loss[:, :, [0, -1]] = np.array([1.0, 2.0, 1.0, 1.0])[:, None, None] + noise[..., None]
    columns = {name: getattr(found, name) for name in ComparisonData.declared}
    found = Comparison(ComparisonData({**columns, "loss": loss}, attributes=found.attributes))
    first, second = found.summary().splitlines()[-2:]
    one, other = found.attributes["recipes"]
    assert first.startswith(f"{one}: spread between networks 0.7")
    assert first.endswith("At most a tenth of that spread's variance comes from which directions were drawn.")
    assert second.startswith(f"{other}: spread between networks 0.00")
    assert "With 11 directions, a tenth of that spread's variance would come from which of them are drawn." in second


def test_two_networks_answer_for_themselves_alone(pair):
    found = measure(pair)
    (answer,) = found.table()
    assert answer.method == "bootstrap over directions and samples"
    assert found.block_rise.shape == (2, 4, 64)
    rises = (found.loss[:, :, 0] + found.loss[:, :, -1]) / 2 - found.loss[:, :, 2]
    assert found.block_rise @ found.block_size / SAMPLES == pytest.approx(rises, abs=1e-6)
    assert answer.low < answer.difference < answer.high
    assert "about these two networks, not about the recipes" in found.summary()
    assert "directions" in found.summary().splitlines()[-1]
    assert found.table("loss")[0].verdict == "no interval"


def weighted():
    return nn.CrossEntropyLoss(torch.linspace(0.2, 3, 10)), *perceptron()[1:]


def summed():
    return nn.CrossEntropyLoss(reduction="sum"), *perceptron()[1:]


@pytest.mark.parametrize("callback", [weighted, summed])
def test_the_blocks_of_a_weighted_loss_and_of_a_sum_make_up_the_whole(callback, pair):
    found = measure(pair, callback)
    rises = (found.loss[:, :, 0] + found.loss[:, :, -1]) / 2 - found.loss[:, :, 2]
    assert found.block_rise @ found.block_size / found.block_size.sum() == pytest.approx(rises, rel=1e-4)
    if callback is summed:
        (sums,), (means,) = found.table(), measure(pair).table()
        for name in ("difference", "low", "high"):
            assert getattr(sums, name) == pytest.approx(SAMPLES * getattr(means, name), rel=1e-4), name


def test_a_block_in_which_no_sample_counts_leaves_an_interval(pair):
    def ignoring():
        _, built, (inputs, targets), _ = perceptron()
        return nn.CrossEntropyLoss(ignore_index=int(targets[0])), built, (inputs[:40], targets[:40]), {}

    found = measure(pair, ignoring)
    assert found.block_size.tolist() == (TARGETS[:40] != TARGETS[0]).tolist()
    (answer,) = found.table()
    assert answer.low < answer.difference < answer.high


class OfHalves(nn.CrossEntropyLoss):
    """Its elements are two of each sample, in one row."""

    def forward(self, outputs, targets):
        return super().forward(outputs.reshape(-1, 5), targets.repeat_interleave(2) % 5)


def halved():
    return OfHalves(), *perceptron()[1:]


@pytest.mark.parametrize(
    ("callback", "options", "warned"),
    [
        pytest.param(without_single_losses, {}, pytest.warns(UserWarning, match="batched"), id="no losses of samples"),
        pytest.param(halved, {}, nullcontext(), id="elements of the loss are not those of the samples"),
        pytest.param(perceptron, {"sample_memory": "20kB"}, nullcontext(), id="memory does not hold the samples"),
    ],
)
@pytest.mark.filterwarnings("ignore:the samples take more memory:UserWarning")
def test_one_network_of_each_where_samples_cannot_be_told_apart(callback, options, warned, pair):
    with warned:
        found = measure(pair, callback, plan=None, **options)
    assert found.table()[0].method == "bootstrap over directions"
    assert not found.block_size.size


@pytest.mark.slow
def test_a_plain_function_is_compared_too():
    matrix = np.diag(np.linspace(1, 2, 12))

    def bowl():
        def loss(arrays):
            flat = np.concatenate([arrays["x"].ravel(), arrays["y"].ravel()])
            return 0.5 * flat @ matrix @ flat

        return FunctionEvaluator(loss, {"x": np.ones((2, 3)), "y": np.ones((2, 3))})

    random = np.random.default_rng(0)
    point = {name: [random.standard_normal((2, 3)) for _ in range(6)] for name in "xy"}
    networks = [{"x": x, "y": y} for x, y in zip(point["x"], point["y"], strict=True)]
    found = measure({"a": networks[:3], "b": networks[3:]}, bowl, plan=None, normalization="none", trace_lines=6)
    # A parabola rises by a quarter of what it does at twice the distance.
    curve = (found.loss - found.loss[:, :, [2]] + (found.loss - found.loss[:, :, [2]])[:, :, ::-1]) / 2
    assert curve[:, :, 3] == pytest.approx(curve[:, :, 4] / 4, rel=1e-5)
    assert found.trace == pytest.approx(np.full(6, matrix.trace()), rel=1e-3)
    one = measure({"a": networks[:1], "b": networks[3:4]}, bowl, plan=None, normalization="none")
    assert one.table()[0].method == "bootstrap over directions"


@pytest.mark.slow
def test_a_trace_by_another_number_of_lines_is_measured_anew(recipes, tmp_path):
    path = tmp_path / "compare.h5"
    few = measure(recipes, output=path, directions=4, trace_lines=2)
    more = measure(recipes, output=path, directions=4, trace_lines=5)
    assert more.report.measured == 0
    np.testing.assert_array_equal(more.trace, measure(recipes, directions=4, trace_lines=5).trace)
    assert (more.trace != few.trace).all()
    # Where it is not asked for, what is there stays.
    np.testing.assert_array_equal(measure(recipes, output=path, directions=4).trace, more.trace)
    assert "along these random lines, which are the same for all; other lines are not in it" in more.summary("trace")
    surer = measure(recipes, output=path, directions=4, confidence=0.99)
    anew = measure(recipes, directions=4, trace_lines=5, confidence=0.99)
    np.testing.assert_array_equal(surer.trace, more.trace)
    for one, other in ((surer.trace_low, anew.trace_low), (surer.trace_high, anew.trace_high)):
        np.testing.assert_allclose(one, other)


def test_a_trace_is_of_the_loss_with_recalibrated_statistics():
    inputs, targets = INPUTS[:40].double(), TARGETS[:40]

    def normalized(seed=0):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            width = inputs.shape[1]
            layers = nn.Linear(width, 3, bias=False), nn.BatchNorm1d(3), nn.Tanh(), nn.Linear(3, 10)
            return nn.Sequential(*layers).double()

    networks = [normalized(seed) for seed in range(2)]
    found = measure(
        {"a": networks[:1], "b": networks[1:]},
        lambda: (nn.CrossEntropyLoss(), normalized(), (inputs, targets), {}),
        buffers="recalibrate",
        trace_lines=60,
        plan=None,
    )
    for row, item in enumerate(networks):
        parts = [value.detach() for value in item.parameters()]

        def loss(flat, parts=parts):
            pieces = torch.split(flat, [part.numel() for part in parts])
            first, scale, shift, last, bias = (
                piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)
            )
            hidden = inputs @ first.T
            hidden = (hidden - hidden.mean(0)) / (hidden.var(0) + 1e-5).sqrt() * scale + shift
            return nn.functional.cross_entropy(torch.tanh(hidden) @ last.T + bias, targets)

        flat = torch.cat([part.reshape(-1) for part in parts])
        exact = float(torch.autograd.functional.hessian(loss, flat).trace())
        assert found.loss[row, 0, 2] == pytest.approx(float(loss(flat)))
        assert found.trace_low[row] < exact < found.trace_high[row]


@pytest.mark.slow
def test_it_goes_on_line_by_line_and_may_grow(recipes, tmp_path, large_batches, monkeypatch):
    path = tmp_path / "compare.h5"
    first = measure(recipes, output=path)
    more = {**recipes, "large": large_batches}
    grown = measure(more, output=path, directions=5)
    assert (grown.report.measured, grown.report.resumed) == (7 * 5 - 24, 24)
    np.testing.assert_array_equal(grown.loss[:6, :4], first.loss)
    np.testing.assert_array_equal(grown.loss, measure(more, directions=5).loss)
    with pytest.warns(UserWarning, match=r"the file holds 1 more networks than were given.*large 4"):
        assert measure(recipes, output=path).recipe.count("large") == 4


def test_traces_that_a_budget_left_out_are_said(pair, tmp_path):
    path = tmp_path / "compare.h5"
    measure(pair, output=path)
    with pytest.warns(UserWarning, match="the budget ended before the traces of 2 of 2 networks were measured"):
        found = measure(pair, output=path, trace_lines=3, budget=1e-9)
    assert np.isnan(found.trace).all()
    assert np.isfinite(measure(pair, output=path, trace_lines=3).trace).all()


def test_a_network_whose_trace_fails_counts_for_its_rise(recipes, tmp_path, monkeypatch):
    find = measuring.find_trace_by_lines

    def failing(pool, state, *args, **options):
        if state.sha256() == found_before.sha256[1]:
            raise CurvatureError("a kink")
        return find(pool, state, *args, **options)

    path = tmp_path / "compare.h5"
    found_before = measure(recipes, output=path)
    monkeypatch.setattr(measuring, "find_trace_by_lines", failing)
    with pytest.warns(UserWarning, match=r"left out of the comparison of traces: small 2 \(.*a kink\)$"):
        found = measure(recipes, output=path, trace_lines=2)
    assert list(found.errors) == ["network/1/trace"]
    assert found.left_out == {}
    assert found.values().tolist() == found_before.values().tolist()
    assert np.isnan(found.trace).tolist() == [False, True, False, False, False, False]
    assert [item.networks for item in found.means("trace")] == [2, 3]
    assert "left out: small 2: " in found.summary("trace")
    with pytest.warns(UserWarning, match="left out of the comparison of traces: small 2"):
        without = measure(recipes, output=path)
    assert without.errors == found.errors
    assert without.summary("trace") == found.summary("trace")
    monkeypatch.undo()
    assert not measure(recipes, output=path, trace_lines=2).errors


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1)])
def test_one_network_of_each_and_three_of_each_go_into_one_file(recipes, tmp_path, sizes):
    path = tmp_path / "compare.h5"
    fewer, more = ({name: networks[:size] for name, networks in recipes.items()} for size in sizes)
    measure(fewer, output=path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the file holds 4 more networks than were given")
        grown = measure(more, output=path)
    assert grown.complete
    assert grown.block_size.size == (64 if sizes[0] == 1 else 0)
    assert grown.table()[0].method == "Welch's t"
    assert sorted(grown.values()) == pytest.approx(sorted(measure(recipes).values()), rel=1e-4)


@pytest.mark.slow
def test_networks_that_are_not_finite_are_left_out_and_named(recipes, small_batches):
    broken = {name: value.copy() for name, value in small_batches[3].items()}
    broken["0.weight"][0, 0] = np.nan
    huge = {name: value * np.float32(1e38) for name, value in small_batches[3].items()}
    left_out = r"left out of the comparison: small 4 \(.*NaN or infinite.*small 5 \(.*not a finite number"
    with pytest.warns(UserWarning, match=left_out):
        found = measure({"small": [*recipes["small"], broken, huge], "large": recipes["large"]})
    assert found.means()[0].networks == 3
    assert set(found.left_out) == {"small 4", "small 5"}
    assert "left out: small 4" in found.summary()
    with pytest.raises(CheckpointError, match="no network has weights that are finite"):
        measure({"small": [broken], "large": [{name: value * np.nan for name, value in broken.items()}]})


class Guarded(nn.Module):
    """Raises where its last layer is longer than that of any network which is compared."""

    def __init__(self, inner, limit):
        super().__init__()
        self.inner, self.limit = inner, limit

    def forward(self, inputs):
        if self.inner[2].weight.norm() > self.limit:
            raise RuntimeError("too large for this network")
        return self.inner(inputs)


def test_a_point_that_fails(recipes):
    large = [{f"inner.{name}": value for name, value in item.items()} for item in recipes["large"]]
    steep = {name: value * 4 for name, value in large[0].items()}
    limit = float(np.linalg.norm(steep["inner.2.weight"])) * 1.01

    def guarded():
        loss, built, data, metrics = perceptron()
        return loss, Guarded(built, limit), data, metrics

    with pytest.warns(UserWarning, match=r"left out of the comparison: steep 1 \(.*too large for this network"):
        found = measure({"large": large, "steep": [steep]}, guarded, plan=None, compile=False)
    assert found.means()[1].networks == 0
    assert any(place.startswith("network/3/direction/") for place in found.errors)


@pytest.mark.slow
def test_who_cannot_be_compared(recipes, tmp_path):
    (tmp_path / "empty").mkdir()
    large, other = recipes["large"], nn.Sequential(nn.Linear(64, 9), nn.Tanh(), nn.Linear(9, 10))
    first = recipes["small"][:1]
    for given, error, match in (
        ({"small": first}, ValueError, "recipes must be at least two"),
        ([first], TypeError, "recipes must be a dict from recipes to lists"),
        ({"small": first[0], "large": large}, TypeError,
            r"recipes\['small'\] must be a list.*put a single one into a list"),
        ({"small": [], "large": large}, ValueError, r"recipes\['small'\] must be at least one network"),
        ({"small": first, "large": first}, ValueError,
            r"recipes\['small'\]\[0\] and recipes\['large'\]\[0\] are the same weights"),
        ({"small": first, "large": [large[0], other]}, CheckpointError,
            r"recipes\['large'\]\[1\] is another network[\s\S]*one architecture"),
        ({"small": [tmp_path / "empty"], "large": large}, (CheckpointError, RunDirectoryError), None),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            measure(given)
    with pytest.raises(ValueError, match="measure must be"):
        measure(recipes).table("sharpness")
    with pytest.raises(ValueError, match='trace_lines must be 0 with precision="bfloat16"'):
        measure(recipes, precision="bfloat16", plan=None, trace_lines=3)


@pytest.mark.parametrize("lines", [0, 2], ids=["networks", "traces"])
def test_networks_of_another_loss_join_no_file(recipes, tmp_path, large_batches, lines):
    def smoothed():
        return nn.CrossEntropyLoss(label_smoothing=0.5), *perceptron()[1:]

    measure(recipes, output=tmp_path / "compare.h5")
    given = recipes if lines else {**recipes, "large": large_batches}
    with pytest.raises(NondeterministicLossError, match=r"a network was measured twice .* after the file's own value"):
        measure(given, smoothed, output=tmp_path / "compare.h5", trace_lines=lines)


def test_a_loss_that_is_not_repeated_ends_it_and_leaves_no_file(recipes, tmp_path):
    def dropping():
        loss, built, data, metrics = perceptron()
        return lambda outputs, targets: loss(outputs + torch.randn_like(outputs), targets), built, data, metrics

    with pytest.raises(NondeterministicLossError):
        measure(recipes, dropping, plan=None, output=tmp_path / "compare.h5")
    assert not (tmp_path / "compare.h5").exists()


def test_runs_and_files_are_networks_too(tmp_path):
    runs = [train_small(tmp_path / f"run_{seed}", epochs=2 + seed) for seed in range(4)]
    last = sorted((runs[3] / "ckpt_dir").glob("*_5_*.safetensors"))[0]
    shutil.copy(last, tmp_path / "weights.safetensors")
    found = measure({"a": [runs[0], str(runs[1])], "b": [runs[2], tmp_path / "weights.safetensors"]}, small, plan=None)
    assert found.name == ("run_0", "run_1", "run_2", "weights")
    assert found.complete


@pytest.mark.slow
def test_two_workers_give_the_same(recipes, pair):
    alone = measure(recipes)
    both = measure(recipes, device_ids=[0, 1])
    np.testing.assert_array_equal(both.loss, alone.loss)
    assert both.report.workers == 2
    np.testing.assert_array_equal(measure(pair, device_ids=[0, 1]).block_rise, measure(pair).block_rise)
