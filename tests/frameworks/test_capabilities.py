"""Each cell of the table of capabilities is tried: what it claims works, and anything else is refused in words."""

import functools
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from capabilities import FRAMEWORKS, HOLES, IMPORTS, OF_EVALUATORS, OLD_CHECKPOINTS, RESUMES, table
from cases import PACKAGES, another, runs_here
from marked_cases import marked

from collectors.errors import LandscapeError
from landscape import Landscape, MeasurementPlan, evaluate, random_plane
from landscape.functions import connect, hessian_plane, measure_curvature
from landscape.paths.alignment import align

PAGE = Path(__file__).parents[2] / "docs" / "trainers" / "index.md"
HERE = {"device_ids": [0], "progress": False}
PLAN = MeasurementPlan(batch_size=16)
# What is tried of a framework, where that is not its first case.
CHOSEN = {"torch": "torch BatchNorm", "jax": "flax.nnx"}


def _cases(kind):
    found = []
    for framework in FRAMEWORKS:
        if framework in PACKAGES and runs_here(framework):
            cases = getattr(import_module(f"{framework}_cases"), kind)
            chosen = [case for case in cases if case.name == CHOSEN.get(framework)]
            found.append(pytest.param(framework, (chosen or cases)[0], id=framework))
    return found


def of_each_framework(kind):
    return pytest.mark.parametrize(("framework", "case"), _cases(kind))


@functools.cache
def plain_grid(case):
    """A grid around a framework's network with nothing but a plan, which several cells look at."""
    return evaluate(random_plane(case.build()[1], seed=0), case.build, size=3, plan=PLAN, **HERE)


def measure(framework, case, capability, folder):
    """Does what a cell of the table names, with a network and data as a user gives them."""
    network = case.build()[1]
    plane = random_plane(network, seed=0)

    def grid(**options):
        return evaluate(plane, case.build, size=3, **{"plan": PLAN, **HERE, **options})

    match capability:
        case "a grid":
            assert np.isfinite(plain_grid(case).loss).all()
        case "metrics":
            found = plain_grid(case)
            if "accuracy" not in found.metrics:
                model, network, data, _ = case.build()
                metrics = {"accuracy": lambda outputs, batch: (outputs["logits"].argmax(-1) == 1).float().mean()}
                found = evaluate(plane, lambda: (model, network, data, metrics), size=3, plan=PLAN, **HERE)
            assert np.isfinite(found["accuracy"]).all()
        case "standard errors":
            assert np.isfinite(plain_grid(case)["loss_stderr"]).all()
        case "several data sets":
            model, network, data, metrics = case.build()
            sets = {"train": data, "test": case.build()[2]}
            found = evaluate(plane, lambda: (model, network, sets, metrics), size=3, plan=PLAN, **HERE)
            np.testing.assert_array_equal(found["loss@test"], found.loss)
        case "the loss of each class":
            assert any(name.startswith("loss[") for name in grid(groups="target").metrics)
        case "the loss of each sample":
            assert grid(keep_samples=True).samples().measured.all()
        case "a random choice of samples":
            model, network, data, metrics = case.build()
            data = as_arrays(data) if framework in ("keras", "jax", "mindspore") else data
            options = {"samples": "random", "num_samples": 8, "plan": PLAN, **HERE}
            chosen = [
                evaluate(plane, lambda: (model, network, data, metrics), size=3, seed=seed, **options).loss
                for seed in (0, 0, 1)
            ]
            np.testing.assert_array_equal(chosen[0], chosen[1])
            assert (chosen[0] != chosen[2]).any()
        case "lower precision":
            assert np.isfinite(grid(precision="bfloat16", plan=None).loss).all()
        case "recalibrated statistics":
            assert np.isfinite(grid(buffers="recalibrate").loss).all()
        case "curvature (Hessian)" | "curvature (Gauss-Newton)":
            matrix = "hessian" if "Hessian" in capability else "ggn"
            found = measure_curvature(network, case.build, top=1, matrix=matrix, plan=PLAN, **HERE)
            assert np.isfinite(found.eigenvalues).all()
        case "a plane along eigenvectors":
            assert np.isfinite(hessian_plane(network, case.build, which="top", **HERE).norms).all()
        case "a curve between two networks":
            path = connect(network, another(network), case.build, steps=2, **HERE)
            assert np.isfinite(evaluate(path.line(), case.build, size=3, plan=PLAN, **HERE).loss).all()
        case "alignment":
            align(another(network), network, network=network, example=inputs_of(framework, case))
        case "two workers":
            np.testing.assert_array_equal(grid(device_ids=[0, 1]).loss, plain_grid(case).loss)
        case "going on after a stop":
            path = folder / "grid.h5"
            with pytest.warns(UserWarning, match="the budget of"):
                grid(output=path, budget=1e-6)
            np.testing.assert_array_equal(grid(output=path).loss, plain_grid(case).loss)
            assert Landscape.load(path).complete
        case _:
            raise AssertionError(capability)


def as_arrays(batches):
    """Returns (inputs, targets) of all batches; a stream has no index from which to choose."""
    parts = [[np.asarray(getattr(part, "asnumpy", lambda part=part: part)()) for part in batch] for batch in batches]
    return tuple(map(np.concatenate, zip(*parts, strict=True)))


def inputs_of(framework, case):
    batch = next(iter(case.build()[2]))
    if framework == "composer":
        return (batch,)
    if isinstance(batch, dict):
        return {name: values for name, values in batch.items() if name != "labels"}
    return batch[0]


@pytest.mark.parametrize("capability", marked(OF_EVALUATORS, pytest.mark.slow))
@of_each_framework("EVALUATOR_CASES")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_network_can_what_the_table_says(framework, case, capability, tmp_path, monkeypatch):
    if framework == "composer":
        from test_composer import site

        monkeypatch.setenv("PYTHONPATH", site(tmp_path)["PYTHONPATH"])
    refusal = None
    with warnings.catch_warnings():
        # Where there is nothing to do, nothing was tried.
        warnings.filterwarnings("error", "buffers=.* changes nothing")
        try:
            measure(framework, case, capability, tmp_path)
        except (LandscapeError, TypeError, ValueError, KeyError, UserWarning) as error:
            refusal = str(error)
    hole = HOLES.get((capability, framework))
    assert (refusal is None) == (hole is None), refusal or f"it works, but the table says: {hole}"


@pytest.mark.parametrize(("framework", "case"), _cases("COLLECTOR_CASES"))
def test_a_trainer_resumes_as_the_table_says(framework, case):
    """What resuming gives, test_collector_contract.py tests with the same case."""
    assert case.can_resume == ((RESUMES, framework) not in HOLES)


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if runs_here(name)])
def test_old_checkpoints_are_imported_where_the_table_says(framework):
    test = OLD_CHECKPOINTS.get(framework)
    assert (test is None) == ((IMPORTS, framework) in HOLES)
    if test is not None:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (Path(__file__).parents[1] / file).read_text()


def test_the_page_shows_the_table():
    assert "\n".join(table()) in PAGE.read_text()
