"""The ends of the Hessian's spectrum at each point of a landscape (``extremes=True``), and the ratio of the two."""

import copy
from functools import partial

import h5py
import numpy as np
import pytest
import torch
from examples import BOWL_SCALES, bowl
from paraboloid import Paraboloid
from saddles import exact_hessian
from torch import nn
from worker_cases import found

from landscape import Landscape, evaluate, line_between, random_plane
from landscape.errors import LandscapeIdentityError
from landscape.functions import refine
from landscape.planes import custom_plane, random_line
from workers.errors import CallbackFunctionError, CurvatureError
from workers.metric_names import EXTREMES

CORNERS = {"x": [-1.0, 1.0], "y": [-1.0, 1.0]}
QUIET = {"extremes": True, "progress": False, "device_ids": [0]}


def samples():
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (50,), generator=generator)


def build(seed=0, *, normalized=False):
    """Returns a network of 33 weights in float64, or one with BatchNorm whose statistics belong to the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        norm = [nn.BatchNorm1d(3)] if normalized else []
        network = nn.Sequential(nn.Linear(6, 3), *norm, nn.Tanh(), nn.Linear(3, 3)).double()
        network.train()
        with torch.no_grad():
            network(samples()[0] * (1 + seed))
    return network.eval()


def returned(seed=0, *, normalized=False):
    return nn.CrossEntropyLoss(), build(seed, normalized=normalized), samples(), {}


def ends_at(network):
    """Returns the largest and the lowest eigenvalue of the whole Hessian, by other code."""
    values = np.linalg.eigvalsh(exact_hessian(network, nn.functional.cross_entropy, *samples()).numpy())
    return float(values[-1]), float(values[0])


def moved(plane, point):
    network = copy.deepcopy(build())
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            for coordinate, direction in zip(point, plane.directions, strict=True):
                parameter += coordinate * torch.from_numpy(np.array(direction[name]))
    return network


def assert_ends(values, place, network):
    for name, expected in zip(("max_eigenvalue", "min_eigenvalue"), ends_at(network), strict=True):
        assert values[name][place] == pytest.approx(expected, rel=1e-2)


def test_every_point_has_both_ends_of_its_own_hessian(tmp_path):
    plane = random_plane(build(), seed=0)
    network = build()
    before = found(network)
    measured = evaluate(
        plane, lambda: (nn.CrossEntropyLoss(), network, samples(), {}), **CORNERS, output=tmp_path / "a.h5", **QUIET
    )
    assert found(network) == before
    for row, y in enumerate(measured.y):
        for column, x in enumerate(measured.x):
            assert_ends(measured, (row, column), moved(plane, (x, y)))
    ratio = np.abs(measured["min_eigenvalue"] / measured["max_eigenvalue"])
    np.testing.assert_array_equal(measured["convexity_ratio"], ratio)
    plain = evaluate(plane, returned, **CORNERS, progress=False, device_ids=[0])
    np.testing.assert_allclose(measured.loss, plain.loss, rtol=1e-12)
    assert measured.origin.metrics["max_eigenvalue"] == pytest.approx(ends_at(build())[0], rel=1e-2)
    again = Landscape.load(tmp_path / "a.h5")
    np.testing.assert_array_equal(again["min_eigenvalue"], measured["min_eigenvalue"])
    assert "to 1 % of itself" in again.attributes["notes"][-1]
    with h5py.File(measured.export(tmp_path / "li.h5", "li")[0], "r") as file:
        for theirs, ours in zip(("max_eig", "min_eig", "convexity_ratio"), EXTREMES, strict=True):
            np.testing.assert_array_equal(file[theirs][:], measured[ours])
        assert "max_eigenvalue" not in file


def test_the_ends_of_a_known_matrix_where_the_lower_one_is_positive():
    line = custom_plane(bowl()[1], [{"weight": np.ones(4)}])
    measured = evaluate(line, bowl, size=3, **QUIET)
    low, high = min(BOWL_SCALES), max(BOWL_SCALES)
    for name, expected in zip(EXTREMES, (2 * high, 2 * low, low / high), strict=True):
        np.testing.assert_allclose(measured[name], expected, rtol=1e-6)


@pytest.mark.slow
def test_between_networks_with_their_own_statistics():
    networks = {"one": build(0, normalized=True), "other": build(1, normalized=True)}
    measured = evaluate(
        line_between(*networks.values()), partial(returned, normalized=True), x=[0.0, 0.5, 1.0], **QUIET
    )
    assert measured.attributes["buffers"] == "interpolate"
    path = measured.checkpoints
    assert path is not None
    for network, place, row in zip(networks.values(), (0, 2), range(2), strict=True):
        assert_ends(measured, place, network)
        assert_ends(path.metrics, row, network)


@pytest.mark.slow
def test_they_belong_to_the_identity_and_stay_on_a_finer_grid(tmp_path):
    line, path = random_line(build(), seed=0), tmp_path / "a.h5"
    evaluate(line, returned, size=3, output=path, progress=False, device_ids=[0])
    with pytest.raises(LandscapeIdentityError, match="extremes: the file has nothing, this run"):
        evaluate(line, returned, size=3, output=path, **QUIET)
    first = evaluate(line, returned, size=3, output=path, overwrite=True, save_directions=True, **QUIET)
    finer = refine(path, returned, factor=2, progress=False, device_ids=[0])
    for name in EXTREMES:
        np.testing.assert_array_equal(finer[name][::2], first[name])
        assert np.isfinite(finer[name]).all()
    with pytest.raises(ValueError, match='sampling must be "full" with extremes=True'):
        refine(path, returned, factor=2, sampling="adaptive", progress=False)


def test_the_forecast_says_what_they_cost(capsys):
    measured = evaluate(random_line(build(), seed=0), returned, size=3, extremes=True, device_ids=[0])
    forecast = measured.report.forecast  # type: ignore[union-attr]
    assert 2 < forecast.products <= 33
    assert 0 < forecast.seconds_of_extremes < forecast.seconds_per_point
    text = f"are the ends of the Hessian's spectrum ({forecast.products} products at the origin)"
    assert text in str(forecast)
    assert text in capsys.readouterr().err


def test_where_the_loss_is_no_number_there_are_none():
    def logarithm(outputs, _targets):
        return outputs.square().sum(1).mean() + outputs.sum(1).log().mean()

    inputs, network = torch.zeros(6, 1, dtype=torch.float64), bowl()[1]
    line = custom_plane(network, [{"weight": np.ones(4)}])
    measured = evaluate(
        line, lambda: (logarithm, bowl()[1], (inputs, torch.zeros(6)), {}), x=[-10.0, 0.0, 10.0], **QUIET
    )
    np.testing.assert_array_equal(np.isfinite(measured.loss), [False, True, True])
    for name in EXTREMES:
        np.testing.assert_array_equal(np.isfinite(measured[name]), [False, True, True])


def test_what_does_not_go_together():
    for options, text in (
        ({"sampling": "adaptive"}, 'sampling must be "full" with extremes=True'),
        ({"buffers": "recalibrate"}, 'extremes=True needs buffers="fixed" or "interpolate"'),
    ):
        with pytest.raises(ValueError, match=text):
            evaluate(random_line(build()), returned, size=3, **QUIET, **options)


def test_a_metric_of_that_name():
    metrics = {"max_eigenvalue": lambda outputs, _targets: outputs.mean()}
    with pytest.raises(CallbackFunctionError, match=r"metrics of the name \['max_eigenvalue'\]. Rename"):
        evaluate(random_line(build()), lambda: (*returned()[:3], metrics), size=3, **QUIET)


def test_an_evaluator_without_second_derivatives():
    space = Paraboloid().description.space
    line = custom_plane({"x": np.zeros(3)}, [{"x": np.ones(3)}], network=space)
    with pytest.raises(CurvatureError, match=r"Paraboloid makes no products of the Hessian.*trace_by_lines"):
        evaluate(line, Paraboloid, size=3, **QUIET)


@pytest.mark.slow
def test_two_workers_give_the_same_values():
    plane = random_plane(build(), seed=0)
    alone, shared = (evaluate(plane, returned, size=4, **{**QUIET, "device_ids": ids}) for ids in ([0], [0, 1]))
    assert shared.report is not None
    assert shared.report.workers == 2
    for name in EXTREMES:
        np.testing.assert_allclose(shared[name], alone[name], rtol=1e-6)
