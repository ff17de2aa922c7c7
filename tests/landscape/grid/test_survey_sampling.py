"""Adaptive sampling, budget and forecast, through the real survey, pool and file."""

import itertools
import re
import shutil

import numpy as np
import pytest
from false_clock import FalseClock
from figure_cases import build
from surfaces import landscape as measured_everywhere

from landscape import Landscape, evaluate
from landscape.facts import page_facts, sampling_text, summary_text
from landscape.figures import plot_difference, plot_multiples
from landscape.grid.forecast import fewest_points
from landscape.interactive.content import landscape_content
from landscape.interactive.notebook import notebook_figure
from landscape.planes import custom_plane
from landscape.record.checks import PointStatus
from landscape.sampling.adaptive_sampling import AdaptiveSampling
from landscape.sampling.sampling import full_grid
from workers import FunctionEvaluator

GRID = np.linspace(-1, 1, 65)
WEIGHTS = {"place": np.zeros(2)}


def valley(place):
    x, y = place
    return 0.3 * x**2 + 2 * (y - 0.4 * x) ** 2 + 0.2 * np.sin(2 * x + y)


def surface(function, calls=None):
    def measure(weights):
        if calls is not None:
            calls.append(tuple(weights["place"]))
        return {"loss": float(function(weights["place"])), "height": float(weights["place"][0] > 0)}

    return lambda: FunctionEvaluator(measure, WEIGHTS)


def plane():
    space = FunctionEvaluator(lambda weights: 0.0, WEIGHTS).description.space
    return custom_plane(WEIGHTS, [{"place": np.array([1.0, 0.0])}, {"place": np.array([0.0, 1.0])}], network=space)


def measure(function, path=None, *, calls=None, **options):
    callback_fn = surface(function, calls)
    return evaluate(plane(), callback_fn, x=GRID, y=GRID, output=path, progress=False, device_ids=[0], **options)


def exact(function):
    return np.array([[function((x, y)) for x in GRID] for y in GRID])


@pytest.fixture(scope="module")
def landscape(tmp_path_factory):
    """That of the valley, whose default tolerance is 0.01."""
    return measure(valley, tmp_path_factory.mktemp("adaptive") / "landscape.h5", sampling="adaptive")


def test_few_points_give_the_same_picture(landscape):
    truth = exact(valley)
    error = abs(landscape.loss - truth) / np.ptp(truth)
    assert error.max() < 0.01
    measured = landscape.status == PointStatus.MEASURED
    assert (landscape.status[~measured] == PointStatus.INTERPOLATED).all()
    assert measured.sum() < measured.size / 8
    np.testing.assert_allclose(landscape.loss[measured], truth[measured], rtol=1e-12)
    assert (landscape["loss_error"][measured] == 0).all()
    assert (landscape["loss_error"][~measured] > 0).all()
    assert landscape.complete
    report = landscape.attributes["sampling"]
    assert report["reached"]
    assert report["measured"] == measured.sum()
    assert report["held_out"] >= 0.02 * report["interpolated"]
    held_out = rf"largest error at {report['held_out']} held-out points"
    assert held_out in sampling_text(landscape)
    assert f"{report['interpolated']} of 4225 points interpolated" in repr(landscape)
    assert Landscape.load(landscape.path).attributes["sampling"] == report
    note = f"{measured.sum()} of 4,225 points measured, {report['interpolated']:,} interpolated"
    assert note in landscape.plot_contour().get_title()


@pytest.mark.parametrize("size", [12, 40, 65, (7, 50)])
def test_the_fewest_points_are_those_of_a_plane_as_smooth_as_can_be(size, capsys):
    how = {"size": size, "sampling": "adaptive", "tolerance": 0.1, "device_ids": [0]}
    report = evaluate(plane(), surface(lambda place: 1 + place.sum()), **how)
    assert "100 %" in capsys.readouterr().err
    measured = int((report.status == PointStatus.MEASURED).sum())
    # Some of the worst points are looked at besides.
    assert 0 <= measured - fewest_points(report.loss.shape, "adaptive") <= 8


@pytest.mark.slow
def test_every_text_says_what_is_estimated_and_what_may_be_missed(landscape):
    report = landscape.attributes["sampling"]
    missed = f"features narrower than {report['largest_gap']} points may be missed"
    estimated = f"largest estimated error {100 * report['estimated_error']:.2g} % of the range of losses"
    share = f"95 % confidence at most {100 * report['share_beyond_95']:.2g} % of the interpolated points are beyond the"
    page, notebook = landscape_content(landscape, "a"), notebook_figure(landscape)["layout"]["title"]["text"]
    for text in (
        sampling_text(landscape), landscape.plot_contour().get_title(), page["estimates"]["loss"], notebook,
    ):  # fmt: skip
        assert estimated in text
        assert missed in text
    for text in (summary_text(landscape), dict(page_facts(landscape))["sampling"]):
        assert share in text
    assert missed in landscape.plot_surface().get_title()
    for mode, is_said in (("full", False), ("adaptive", True)):
        data = build()
        data.attributes["sampling"] = {**report, "mode": mode, "reached": False}
        assert (f"the tolerance of {100 * report['tolerance']:.2g} % is not reached" in sampling_text(data)) is is_said
    # Only the loss has an estimate.
    title = landscape.plot_contour(metric="height").get_title()
    assert "interpolated linearly, error not estimated" in title
    assert "estimated error" not in title
    other = measure(lambda place: valley(place) + place[0], sampling="adaptive", tolerance=0.05)
    title = plot_difference(landscape, other).get_title()
    assert missed in title
    assert "estimated error" not in title
    (legend,) = plot_multiples([landscape, other])[0].figure.legends
    assert missed in [text.get_text() for text in legend.get_texts()]
    whole = measured_everywhere()
    assert "missed" not in summary_text(whole) + whole.plot_contour().get_title()
    assert landscape_content(whole, "a")["estimates"] == {"loss": "", "accuracy": ""}


@pytest.mark.slow
def test_a_tolerance_of_the_loss_itself_that_is_not_reached_says_both(monkeypatch):
    slowly = slow(valley, FalseClock(monkeypatch), 1 / 32, after=300)
    with pytest.warns(UserWarning, match="budget"):
        landscape = measure(slowly, sampling="adaptive", budget=3, tolerance=1e-6, relative_tolerance=True)
    text = sampling_text(landscape)
    estimate = r"largest estimated error [\d.e+-]+ % of the loss at each point; the tolerance of 0.0001 % is not"
    assert re.search(estimate, text)
    assert "95 %" not in text


def test_what_goes_on_with_another_seed_says_that_one(tmp_path):
    path, calls = tmp_path / "a.h5", []

    def interrupted(place):
        if len(calls) > 150:
            raise KeyboardInterrupt
        return valley(place)

    with pytest.raises(KeyboardInterrupt):
        measure(interrupted, path, calls=calls, sampling="adaptive", seed=3)
    assert Landscape.load(path).attributes["seed"] == 3
    measure(valley, path, sampling="adaptive", seed=5)
    assert Landscape.load(path).attributes["seed"] == 5


@pytest.mark.slow
def test_a_finished_adaptive_landscape_is_not_measured_again_and_can_be_completed(landscape, tmp_path):
    first, path, calls = landscape, shutil.copy(landscape.path, tmp_path), []

    def again(**options):
        calls.clear()
        return measure(valley, path, calls=calls, **options)

    same = again(sampling="adaptive")
    np.testing.assert_array_equal(same.loss, first.loss)
    np.testing.assert_array_equal(same.status, first.status)
    assert len(set(calls)) <= 3  # the origin, and what the evaluator and the pool try when they are made

    finer = again(sampling="adaptive", tolerance=0.000005)
    assert finer.attributes["sampling"]["measured"] > first.attributes["sampling"]["measured"]
    assert abs(finer.loss - exact(valley)).max() < abs(first.loss - exact(valley)).max()

    whole = again()
    assert (whole.status == PointStatus.MEASURED).all()
    assert "loss_error" not in whole.metrics
    assert len(calls) <= 4225 - finer.attributes["sampling"]["measured"] + 4
    np.testing.assert_allclose(whole.loss, exact(valley), rtol=1e-12)


def slow(function, clock, seconds, after=0):
    """Returns a function that takes so many seconds of the clock, and no time for its first calls."""
    calls = itertools.count(1)

    def function_and_clock(place):
        clock.go_on(seconds if next(calls) > after else 0)
        return function(place)

    return function_and_clock


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["full", "adaptive"])
def test_a_budget_ends_with_the_picture_so_far(tmp_path, sampling, monkeypatch):
    path = tmp_path / "landscape.h5"
    budget = 3 if sampling == "full" else "3s"
    slowly = slow(valley, FalseClock(monkeypatch), 1 / 32, after=300)
    with pytest.warns(UserWarning, match=r"budget of 3 s ended the landscape after \d+ of 4225 points"):
        landscape = measure(slowly, path, sampling=sampling, budget=budget, tolerance=0.00001)
    assert not landscape.complete
    assert not landscape.attributes["sampling"]["reached"]
    measured = landscape.status == PointStatus.MEASURED
    # Beside those that take no time, as many as fill the budget, and at most the 64 that were measured at once then.
    # The first grid is whole, so that the rest is interpolated.
    assert 300 < measured.sum() <= 300 + 3 * 32 + 64
    assert (landscape.status[~measured] == PointStatus.INTERPOLATED).all()
    assert abs(landscape.loss - exact(valley)).max() < 0.05 * np.ptp(exact(valley))
    went_on = measure(valley, path, sampling=sampling, tolerance=0.00001)
    assert went_on.complete
    assert went_on.report.resumed == measured.sum()


def test_the_forecast_says_what_is_left(capsys, tmp_path, monkeypatch):
    path = tmp_path / "landscape.h5"
    slowly = surface(slow(valley, FalseClock(monkeypatch), 1 / 32))
    landscape = evaluate(plane(), slowly, x=GRID[::8], y=GRID[::8], output=path, device_ids=[0])
    forecast = landscape.report.forecast
    assert forecast.points == 81
    assert forecast.seconds_per_point == 1 / 32
    assert forecast.seconds == 81 / 32
    assert forecast.disk == pytest.approx(path.stat().st_size, rel=0.3)
    said = capsys.readouterr().err
    assert "81 points x" in said
    assert "on 1 worker: about 2.5 s" in said
    again = evaluate(plane(), slowly, x=GRID[::8], y=GRID[::8], output=path, device_ids=[0], progress=False)
    assert again.report.forecast.points == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("shape", [(65, 65), (40, 40), (7, 30), (3, 3), (1,), (2,), (50,), (1, 9), (256, 20)])
def test_every_point_once_and_the_whole_extent_first(shape):
    order = list(full_grid(shape))
    assert sorted(order) == list(range(int(np.prod(shape))))
    # Two per cent of the points, or a few on a small grid, reach every side.
    first = np.array(np.unravel_index(order[: max(int(0.02 * len(order)), 16)], shape))
    assert (first.min(1) == 0).all()
    assert (first.max(1) == np.array(shape) - 1).all()


@pytest.mark.parametrize("measured", [121, 500])
def test_of_a_smooth_surface_a_budget_leaves_a_whole_picture(measured):
    """Points are measured in the order of the full grid, of which adaptive sampling had asked for fewer."""
    axis = np.linspace(-1, 1, 40)
    truth = axis[None] ** 2 + 2 * axis[:, None] ** 2 + 0.1
    loss, status = np.full((40, 40), np.nan), np.zeros((40, 40), np.uint8)
    places = full_grid((40, 40))[:measured]
    loss.flat[places], status.flat[places] = truth.flat[places], PointStatus.MEASURED
    found = AdaptiveSampling((40, 40)).fill({"loss": loss}, status)
    assert (found.status[status == 0] == PointStatus.INTERPOLATED).all()
    np.testing.assert_allclose(found.metrics["loss"], truth, atol=0.01)
    assert not found.report.reached
