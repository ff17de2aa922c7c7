"""Anything that has named arrays: snapshots while it trains, evaluators of a user's own."""

from dataclasses import replace

import numpy as np
import pytest
from pages import code_blocks, run_page_block, takes_minutes
from scripts import run_script

from collectors import SummaryCollector
from collectors.errors import CheckpointWriteError, RunDirectoryError
from collectors.networks.weight_space import describe_arrays
from collectors.run_directory import RunDirectory
from landscape import SummaryLandscape, evaluate, line_between, random_plane
from landscape.functions import barrier
from workers import FunctionEvaluator
from workers.errors import CallbackFunctionError
from workers.measurement_options import MeasurementOptions

LANDSCAPE = {"unit": "step", "intervals": [[0, 2, 4]]}


def arrays(shift=0.0):
    return {"weight": np.arange(6.0).reshape(2, 3) + shift, "count": np.array([3])}


def train(folder, calls, **arguments):
    """Saves snapshots; an exception among them is raised in its turn."""
    with SummaryCollector(folder, collect_landscape=LANDSCAPE, **arguments) as collector:
        for call in calls:
            if isinstance(call, Exception):
                raise call
            collector.snapshot(*call)


@takes_minutes
@pytest.mark.slow
def test_the_page(tmp_path):
    classifier, function = code_blocks("anything_else")
    run_page_block(classifier, tmp_path / "classifier")
    assert sorted(path.name for path in (tmp_path / "classifier" / "run").glob("*.h5")) == [
        "landscape_0-10_pca.h5",
        "landscape_10_random.h5",
    ]
    *_, lowest, trace = run_page_block(function, tmp_path / "function").strip().splitlines()
    assert 0.5 < float(lowest) < 1.5
    value, low, high = map(float, trace.split())
    inputs = np.random.default_rng(0).standard_normal((200, 5))
    assert low < 2 * np.square(inputs).mean(0).sum() + 2 < high
    assert low < value < high


def test_snapshots_are_saved_where_they_are_asked_for(tmp_path):
    with SummaryCollector(tmp_path, collect_landscape=LANDSCAPE) as collector:
        for step in range(5):
            state = arrays(step)
            collector.snapshot(step, state, network="Mine")
            state["weight"] += 100  # what was saved is a copy
    run = RunDirectory(tmp_path)
    assert run.present((0, 1, 2, 3, 4)) == [0, 2, 4]
    assert run.metadata.framework == "arrays"
    assert run.metadata.network["name"] == "Mine"
    assert run.metadata.network["trainable"] == ["weight"]
    file = run.checkpoint(4, describe_arrays(arrays(), "Mine"))
    np.testing.assert_array_equal(file.read("weight"), arrays(4)["weight"])
    assert file.read("count").dtype == np.int64


def test_a_crash_leaves_what_was_reached(tmp_path):
    with pytest.raises(KeyError, match="mine"):
        train(tmp_path, [*((step, arrays(step)) for step in range(3)), KeyError("mine"), (4, arrays())])
    assert RunDirectory(tmp_path).present((0, 1, 2, 3, 4)) == [0, 2]


def test_resuming_goes_on_before_the_first_new_number(tmp_path):
    with SummaryCollector(tmp_path, collect_landscape=LANDSCAPE) as collector:
        for step in range(5):
            collector.snapshot(step, arrays(step))
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        with SummaryCollector(tmp_path, collect_landscape=LANDSCAPE) as collector:
            collector.snapshot(0, arrays())
    with SummaryCollector(tmp_path, collect_landscape=LANDSCAPE, existing="resume") as collector:
        for step in (3, 4):
            collector.snapshot(step, arrays(10 * step))
    run = RunDirectory(tmp_path)
    assert run.present((0, 2, 4)) == [0, 2, 4]
    assert run.checkpoint(2).read("weight")[0, 0] == 2
    assert run.checkpoint(4).read("weight")[0, 0] == 40


def test_another_rank_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with SummaryCollector(tmp_path / "run", collect_landscape=LANDSCAPE) as collector:
        for step in range(5):
            collector.snapshot(step, arrays(step))
    assert not (tmp_path / "run").exists()


def test_a_missing_number_is_a_warning(tmp_path):
    with pytest.warns(UserWarning, match=r"ended at step 2 without saving \[4\]"):
        train(tmp_path, [(step, arrays(step)) for step in range(3)])


@pytest.mark.parametrize(
    ("calls", "error", "match"),
    [
        ([(2, arrays()), (2, arrays())], ValueError, "number must grow from snapshot to snapshot, but 2 follows 2"),
        ([(-1, arrays())], ValueError, "number must be"),
        ([("1", arrays())], TypeError, "number must be"),
        ([(0, [1, 2])], TypeError, "arrays must be a mapping from name to array"),
        ([(0, {})], TypeError, "arrays must be a mapping from name to array with at least one entry"),
        ([(0, arrays()), (1, {"weight": np.zeros(2)})], ValueError, "arrays must keep their names, shapes"),
        ([(0, {"text": np.array(["a"])})], TypeError, "which checkpoints cannot hold"),
    ],
)
def test_wrong_snapshots(tmp_path, calls, error, match):
    with pytest.raises(error, match=match):
        train(tmp_path, calls)


def test_snapshots_belong_inside_the_context(tmp_path):
    collector = SummaryCollector(tmp_path, collect_landscape=LANDSCAPE)
    with pytest.raises(RuntimeError, match="inside `with collector:`"):
        collector.snapshot(0, arrays())
    with pytest.raises(ValueError, match="snapshot needs collect_landscape"), SummaryCollector(tmp_path) as collector:
        collector.snapshot(0, arrays())


def test_a_checkpoint_that_cannot_be_written_stops_the_training(tmp_path):
    (tmp_path / "ckpt_dir" / "arrays_2_step.safetensors").mkdir(parents=True)
    with pytest.raises(CheckpointWriteError, match="could not be written"):
        train(tmp_path, [(step, arrays(step)) for step in range(5)])
    assert RunDirectory(tmp_path).present((0, 2, 4)) == [0]


def quadratic(weights):
    return {"loss": float((weights["weight"] ** 2).sum()), "largest": abs(weights["weight"]).max()}


def test_a_function_is_measured_where_the_plane_says():
    evaluator = FunctionEvaluator(quadratic, arrays())
    plane = random_plane(arrays(), network=evaluator.description.space, seed=14)
    x, y = np.linspace(-1, 1, 5), np.linspace(-2, 2, 3)
    landscape = evaluate(plane, lambda: evaluator, x=x, y=y)
    first, second = (direction["weight"].astype(np.float64) for direction in plane.directions)
    points = arrays()["weight"] + x[None, :, None, None] * first + y[:, None, None, None] * second
    np.testing.assert_allclose(landscape.loss, (points**2).sum((2, 3)), rtol=1e-6)
    np.testing.assert_allclose(landscape.metrics["largest"], abs(points).max((2, 3)), rtol=1e-6)


def test_buffers_of_a_function_are_interpolated_too():
    """Its description says so itself, as that of any evaluator which callback_fn returns."""
    space = describe_arrays({"weight": np.zeros(2), "scale": np.zeros(2)})
    tensors = (space.tensors[0], replace(space.tensors[1], role="buffer", trainable=False))
    evaluator = FunctionEvaluator(
        lambda arrays: (arrays["weight"] * arrays["scale"]).sum(), replace(space, tensors=tensors)
    )
    ends = {"weight": np.array([1.0, 2.0]), "scale": np.array([3.0, 5.0])}, {"weight": np.ones(2), "scale": np.ones(2)}
    line = line_between(*ends, network=evaluator.description.space)
    with pytest.warns(UserWarning, match="the loss drawn at b is 8, but its own is 2"):
        fixed = evaluate(line, lambda: evaluator, x=[0.0, 0.5, 1.0, 2.0])
    np.testing.assert_allclose(fixed.loss, [13, 10.5, 8, 3])
    with pytest.warns(UserWarning, match="the loss drawn at b is 8"):
        found = barrier(*ends, lambda: evaluator, points=3, progress=False)
    assert found.landscape.attributes["buffers"] == "fixed"
    with pytest.raises(ValueError, match=r'buffers="interpolate" .* the Evaluator that callback_fn returns'):
        evaluate(line, lambda: evaluator, x=[0.0, 1.0], buffers="interpolate")
    evaluator._description = replace(evaluator.description, options=MeasurementOptions(buffers="interpolate"))
    np.testing.assert_allclose(evaluate(line, lambda: evaluator, x=[0.0, 0.5, 1.0, 2.0]).loss, [13, 6.5, 2, 1])


def test_a_function_chooses_its_own_samples():
    def evaluator():
        return FunctionEvaluator(quadratic, arrays(), num_samples=200)

    plane = random_plane(arrays(), network=evaluator().description.space, seed=14)
    with pytest.raises(ValueError, match='samples="random" does not reach the Evaluator that callback_fn returns'):
        evaluate(plane, evaluator, size=3, samples="random")
    # Which of a run's settings is the user's choice, and which the default, is not known.
    assert evaluate(plane, evaluator, size=3, num_samples=50).attributes["num_samples"] == 200


def test_statistics_are_not_recalibrated_by_a_function(tmp_path):
    train(tmp_path, [(step, arrays(step)) for step in range(5)])
    small = {"landscape_size": 3, "create_landscape": {"train": False}}
    with pytest.raises(ValueError, match='buffers="recalibrate" does not reach the Evaluator that callback_fn returns'):
        SummaryLandscape(tmp_path).gen_landscapes_with_multi_process(
            lambda: FunctionEvaluator(quadratic, arrays()), small, [0], buffers="recalibrate", progress=False
        )


def test_a_function_may_change_what_it_gets():
    def destructive(weights):
        weights["weight"] *= 0
        weights["count"] += 1
        return float(weights["count"][0])

    evaluator = FunctionEvaluator(destructive, arrays())
    evaluator.load({"weight": arrays()["weight"]}, [{"weight": np.ones((2, 3))}], {"count": np.array([3])})
    np.testing.assert_array_equal(evaluator.measure(np.zeros((3, 1)))["loss"], [4, 4, 4])
    assert evaluator.measure_state({"weight": np.ones((2, 3))}, {"count": np.array([7])}) == {"loss": 8.0}


@pytest.mark.parametrize(
    ("function", "names", "error", "match"),
    [
        (3, arrays(), TypeError, "function must be a function"),
        (quadratic, [1], TypeError, "arrays must be a mapping from name to array"),
        (lambda weights: {"accuracy": 1.0}, arrays(), CallbackFunctionError, 'must return "loss"'),
        (lambda weights: np.zeros(3), arrays(), CallbackFunctionError, "loss must be a single number"),
        (lambda weights: {"loss": 1.0, "a/b": 2.0}, arrays(), CallbackFunctionError, "name of a metric"),
        (lambda weights: weights["bias"], arrays(), CallbackFunctionError, "KeyError: 'bias'"),
    ],
)
def test_wrong_functions(function, names, error, match):
    with pytest.raises(error, match=match):
        FunctionEvaluator(function, names)


def test_neither_imports_a_framework():
    program = (
        "import sys, collectors, workers; workers.FunctionEvaluator, collectors.SummaryCollector; print(*sys.modules)"
    )
    loaded = set(run_script(program).split())
    assert not {"torch", "keras", "jax", "mindspore", "lightning", "transformers", "composer"} & loaded
