"""A value at any place: the measurement, what lies between measurements, or a new measurement."""

import numpy as np
import pytest
import torch
from examples import BOWL_ORIGIN, bowl, bowl_loss, bowl_plane
from scipy.interpolate import RegularGridInterpolator

from landscape import evaluate
from landscape.functions import measure_points
from landscape.grid.data import LandscapeData
from landscape.landscape import Landscape
from landscape.planes import random_line
from landscape.record.checks import PointStatus
from workers.errors import NondeterministicLossError

X, Y = np.linspace(-1, 2, 7), np.linspace(0, 1, 5)


@pytest.fixture(scope="module")
def plane():
    return bowl_plane()


@pytest.fixture(scope="module")
def landscape(plane):
    return evaluate(plane, bowl, x=X, y=Y, progress=False, device_ids=[0])


class TestAt:
    def test_a_measured_point_is_the_measurement(self, landscape):
        found = landscape.at(0.5, 0.25)
        assert (found.value, found.measured, found.estimated_error) == (landscape.loss[1, 3], True, 0.0)
        assert (found.nearest, found.nearest_value) == ((0.5, 0.25), landscape.loss[1, 3])
        assert (found.x, found.y, found.metric) == (0.5, 0.25, "loss")
        # The last bits of a coordinate do not make another point.
        assert landscape.at(np.nextafter(0.5, 1), 0.25).measured

    def test_between_points_it_is_bilinear_and_says_so(self, landscape):
        expected = RegularGridInterpolator((Y, X), landscape.loss)
        generator = np.random.default_rng(0)
        for x, y in zip(generator.uniform(-1, 2, 20), generator.uniform(0, 1, 20), strict=True):
            found = landscape.at(x, y)
            assert found.value == pytest.approx(float(expected([y, x])[0]), rel=1e-12)
            assert (found.measured, found.estimated_error) == (False, None)
            squares = ((X - x) / 3) ** 2 + ((Y - y) ** 2)[:, None]
            row, column = np.unravel_index(squares.argmin(), squares.shape)
            assert found.nearest == (X[column], Y[row])
            assert found.nearest_value == landscape.loss[row, column]
        # An edge needs two points only.
        assert landscape.at(-1, 0.1).value == pytest.approx(0.6 * landscape.loss[0, 0] + 0.4 * landscape.loss[1, 0])

    def test_points_without_a_value(self, landscape):
        same = {name: getattr(landscape, name) for name in ("x", "y", "directions", "origin")}
        data = LandscapeData(metrics={"loss": landscape.loss.copy()}, status=landscape.status.copy(), **same)
        data.metrics["loss"][2, 2], data.status[2, 2] = np.nan, PointStatus.PENDING
        holed = Landscape(data)
        assert np.isnan(holed.at(X[2], Y[2]).value)
        assert not holed.at(X[2], Y[2]).measured
        assert holed.at(X[2], Y[2]).nearest != (X[2], Y[2])
        assert np.isnan(holed.at(0.1, 0.4).value)
        assert np.isfinite(holed.at(1.1, 0.4).value)

    def test_adaptive_sampling_has_an_estimate(self, plane):
        axis = np.linspace(-1, 1, 33)
        drawn = evaluate(plane, bowl, x=axis, y=axis, sampling="adaptive", progress=False, device_ids=[0])
        row, column = np.argwhere(drawn.status == PointStatus.INTERPOLATED)[0]
        found = drawn.at(axis[column], axis[row])
        assert not found.measured
        assert found.value == drawn.loss[row, column]
        assert found.estimated_error == drawn["loss_error"][row, column]

    def test_lines(self):
        line = evaluate(random_line(bowl()[1], perturb_one_dimensional=True), bowl, x=X, progress=False, device_ids=[0])
        assert line.at(0.5).measured
        assert line.at(0.75).value == pytest.approx((line.loss[3] + line.loss[4]) / 2)
        assert (line.at(0.75).y, len(line.at(0.75).nearest)) == (None, 1)
        with pytest.raises(ValueError, match="y must be left out; a line has one coordinate"):
            line.at(0.5, 0.5)

    @pytest.mark.parametrize(
        ("arguments", "error", "match"),
        [
            ((5, 0.5), ValueError, r"x must be a coordinate of the grid, from -1 to 2 \(measure_points measures any"),
            ((0, -0.1), ValueError, "y must be a coordinate of the grid, from 0 to 1"),
            ((0,), ValueError, r"y must be given; a plane has two coordinates: at\(x, y\)"),
            (("a", 0), TypeError, "x must be a finite number"),
            ((0, 0, "depth"), KeyError, "no metric 'depth'"),
        ],
    )
    def test_wrong_places(self, landscape, arguments, error, match):
        with pytest.raises(error, match=match):
            landscape.at(*arguments)


class TestMeasurePoints:
    def test_anywhere_by_the_closed_form(self, plane):
        points = [(0.3, 0.7), (-4.0, 9.0), (0.0, 0.0)]
        found = measure_points(plane, bowl, points, device_ids=[0])
        expected = [bowl_loss(x, y) for x, y in points]
        np.testing.assert_allclose(found["loss"], expected, rtol=1e-12)
        assert set(found) == {"loss"}

    def test_the_same_as_a_landscape(self, plane, landscape, tmp_path):
        places = [(x, y) for y in Y for x in X]
        found = measure_points(plane, bowl, places, device_ids=[0], plan=None)
        np.testing.assert_array_equal(found["loss"].reshape(landscape.shape), landscape.loss)

    def test_a_line(self):
        line = random_line(bowl()[1], perturb_one_dimensional=True)
        direction = line.directions[0]["weight"]
        found = measure_points(line, bowl, [[0.5], [2.0]], device_ids=[0])
        expected = [bowl_loss(x, 0, direction) for x in (0.5, 2.0)]
        np.testing.assert_allclose(found["loss"], expected, rtol=1e-12)

    def test_a_point_that_fails_is_nan_and_said(self, plane):
        def failing():
            loss, network, data, metrics = bowl()

            def checked(outputs, targets):
                if 2.5 < float(outputs[0, 0].detach()) - BOWL_ORIGIN[0] < 3.5:
                    raise RuntimeError("not here")
                return loss(outputs, targets)

            return checked, network, data, metrics

        with pytest.warns(UserWarning, match=r"1 of 3 points failed and are NaN; the first one is points\[1\]"):
            found = measure_points(plane, failing, [(0.5, 0.0), (3.0, 0.0), (5.0, 0.0)], device_ids=[0])
        assert np.isfinite(found["loss"]).tolist() == [True, False, True]

    @pytest.mark.parametrize(
        ("points", "error"),
        [([], ValueError), ([0.5, 0.5], ValueError), ([[0.5, np.nan]], ValueError), ([["a", "b"]], TypeError)],
    )
    def test_wrong_points(self, plane, points, error):
        with pytest.raises(error, match=r"points must be an array of the shape \(k, 2\)"):
            measure_points(plane, bowl, points)
        with pytest.raises(TypeError, match="plane must be a Plane"):
            measure_points(points, bowl, points)

    def test_a_loss_that_draws_is_noticed(self, plane):
        def noisy():
            loss, network, data, metrics = bowl()
            return (lambda outputs, targets: loss(outputs, targets) + torch.rand(())), network, data, metrics

        with pytest.raises(NondeterministicLossError):
            measure_points(plane, noisy, [(0.5, 0.5)], device_ids=[0])


def test_a_dry_run_of_points_says_what_they_would_cost(plane, capsys):
    assert measure_points(plane, bowl, [[0, 0], [1, 1]], device_ids=[0], dry_run=True) is None
    assert "\n2 points: 2 points x " in capsys.readouterr().out


def test_a_budget_leaves_points_out(plane):
    with pytest.warns(UserWarning, match=r"ended the measurement after 0 of 2 points\. The next call starts anew"):
        found = measure_points(plane, bowl, [[0, 0], [1, 1]], device_ids=[0], budget=1e-9, progress=False)
    assert np.isnan(found["loss"]).all()
