import collections
import json
import math
import sys

import numpy as np
import pytest
from calibration_surfaces import KnownSurface, analytic_surfaces
from hypothesis import given, settings
from hypothesis import strategies as st
from places import DATA
from scipy.interpolate import RectBivariateSpline

from landscape.record.checks import PointStatus
from landscape.sampling import adaptive_sampling
from landscape.sampling.adaptive_sampling import AdaptiveSampling, predicted_loss
from landscape.sampling.grids import GridLevels
from landscape.sampling.refinement import linear, predict
from landscape.sampling.tolerance import largest_gap, largest_share


def surface(name):
    with np.load(DATA / f"surface_{name}.npz") as arrays:
        return arrays["loss"]


def finer(loss, size):
    """The same surface on more points, by a spline through all that are known."""
    axis, fine = np.linspace(-1, 1, len(loss)), np.linspace(-1, 1, size)
    return RectBivariateSpline(axis, axis, loss)(fine, fine)


def axes(rows, columns=None):
    return np.meshgrid(np.linspace(-1, 1, columns or rows), np.linspace(-1, 1, rows))


def bowl(rows, columns=None):
    x, y = axes(rows, columns)
    return x**2 + 10 * y**2


class Survey:
    """Measures a known surface, in an order and in chunks of its own."""

    def __init__(self, truth, tolerance=0.01, **options):
        self.truth = truth
        self.loss = np.full(truth.shape, np.nan)
        self.status = np.zeros(truth.shape, np.uint8)
        self.make = lambda: AdaptiveSampling(truth.shape, tolerance, **options)
        self.sampling = self.make()

    def measure(self, place):
        self.loss[place] = self.truth[place]
        self.status[place] = PointStatus.MEASURED

    def ask(self):
        flat = self.sampling.next_points(self.loss, self.status)
        return [tuple(int(index) for index in np.unravel_index(point, self.truth.shape)) for point in flat]

    def round(self):
        """Measures what is asked for, and returns it."""
        batch = self.ask()
        for place in batch:
            assert self.status[place] == PointStatus.PENDING
            self.measure(place)
        return batch

    def run(self):
        while self.round():
            pass
        return self.fill()

    def fill(self):
        return self.sampling.fill({"loss": self.loss, "accuracy": self.loss / 2}, self.status)


@pytest.fixture(scope="module")
def lenet():
    """A finished survey, what it gave, and the points of its check."""
    survey = Survey(surface("lenet_random"))
    while batch := survey.round():
        held_out = batch
    return survey, survey.fill(), held_out


def errors(result, truth):
    """The largest error and the root mean square, as shares of the range."""
    loss, finite = result.metrics["loss"], np.isfinite(truth)
    np.testing.assert_array_equal(np.isfinite(loss), finite)
    error = np.abs(loss[finite] - truth[finite]) / np.ptp(truth[finite])
    return float(error.max()), float(np.sqrt((error**2).mean()))


class TestSurfacesOfTrainedNetworks:
    # The held-out points count: at 256 x 256 they alone are one in fifty.
    @pytest.mark.parametrize(
        ("name", "size", "share"),
        [
            ("lenet_random", 65, 1 / 8),
            ("resnet_pca", 65, 1 / 8),
            ("resnet_pca", 41, 1 / 4),
            ("lenet_random", 256, 1 / 40),
            ("resnet_pca", 256, 1 / 38),
        ],
    )
    def test_a_hundredth_with_a_fraction_of_the_points(self, name, size, share):
        truth = surface(name)
        truth = truth if len(truth) == size else finer(truth, size)
        result = Survey(truth).run()
        largest, rms = errors(result, truth)
        assert largest <= 0.01
        assert rms <= 0.001
        assert result.report.measured <= share * truth.size
        assert result.report.reached
        assert result.report.held_out == -(-2 * (truth.size - result.report.measured + result.report.held_out) // 100)
        assert result.report.held_out_error <= 0.0075
        assert result.report.estimated_error <= 0.01

    def test_estimates_are_of_the_errors_size(self):
        truth = surface("resnet_pca")
        result = Survey(truth).run()
        gaps = result.status == PointStatus.INTERPOLATED
        error = np.abs(result.metrics["loss"] - truth)[gaps]
        assert (error <= result.loss_error[gaps]).mean() > 0.9
        assert result.loss_error[gaps].mean() < 20 * error.mean()
        assert (result.loss_error[~gaps] == 0).all()


X, Y = axes(65)
X41, Y41 = axes(41)
ROUGH = {
    "wall": (1 / (1 + np.exp(-(X + 0.3 * Y) / 0.03)) + 0.1 * bowl(65), 1 / 3),
    "step": (np.where(X + 0.3 * Y > 0, 1.0, 0.0), 1 / 2),
    "kink": (np.abs(X + 0.3 * Y), 1 / 3.5),
    "two minima": (np.minimum((X - 0.5) ** 2 + Y**2, (X + 0.5) ** 2 + Y**2 + 0.1), 1 / 4),
    "pit": (1 - np.exp(-((X - 0.137) ** 2 + (Y + 0.26) ** 2) / 0.01), 1 / 4.5),
    "six decades": (10 ** (3 * (X + Y)), 1 / 10),
    "valley": (np.log1p(50 * (X + 0.2 * Y) ** 2 + 0.5 * (Y - 0.3 * X) ** 4), 1 / 5),
    "hole": (np.where((X - 0.2) ** 2 + Y**2 < 0.1, np.nan, bowl(65)), 1 / 5),
    "corners": (np.where(X**2 + Y**2 > 1.2, np.inf, bowl(65)), 1 / 4),
    "explosion": (np.where(X + Y > 1.5, 1e30, bowl(65)), 1 / 5),
    "noise": (bowl(65) / 11 + 0.02 * np.random.default_rng(0).standard_normal((65, 65)), 1),
    "checkerboard": ((np.indices((65, 65)).sum(0) % 2).astype(float), 1),
    # Without caution these two were beyond the tolerance. How often a claim is false, test_calibration.py says.
    "kinks": (np.maximum(0, X41 + 0.3 * Y41) + np.maximum(0, 0.5 * Y41 - X41) ** 2, 1),
    "beside a hole": (np.where(X + 0.2 * Y > 0.3, np.nan, bowl(65)), 1),
    "slight noise": (bowl(65) / 11 + 1e-3 * np.random.default_rng(0).standard_normal((65, 65)), 1 / 8),
}


class TestHardSurfaces:
    @pytest.mark.parametrize("name", list(ROUGH))
    def test_the_tolerance_holds_at_every_point(self, name):
        truth, share = ROUGH[name]
        result = Survey(truth).run()
        assert result.report.reached
        assert errors(result, truth)[0] <= 0.01
        assert result.report.measured <= share * truth.size

    @pytest.mark.parametrize("name", ["noise", "checkerboard"])
    def test_what_is_rough_everywhere_is_measured_everywhere(self, name):
        result = Survey(ROUGH[name][0]).run()
        assert result.report.interpolated == 0
        assert np.isnan(result.report.held_out_error)
        assert result.report.to_json()["held_out_error"] is result.report.to_json()["share_beyond_95"] is None

    def test_a_failed_check_starts_refinement(self):
        # Three cells wide, between all points of the first grid.
        x, y = axes(256)
        truth = 1 - np.exp(-(((x - 0.137) ** 2 + (y + 0.26) ** 2) / 0.0118**2))
        result = Survey(truth).run()
        assert result.report.checks == 2
        assert errors(result, truth)[0] <= 0.01

    def test_one_outlying_point_between_all_measured_ones_is_not_seen(self):
        truth = bowl(65)
        truth[21, 22] = 30
        result = Survey(truth).run()
        assert result.status[21, 22] == PointStatus.INTERPOLATED
        assert result.report.reached
        assert errors(result, truth)[0] > 0.5

    def test_a_constant_needs_the_first_grid_and_the_check_only(self):
        result = Survey(np.full((65, 65), 2.3)).run()
        np.testing.assert_allclose(result.metrics["loss"], 2.3, rtol=1e-12)
        assert result.report.measured < 300

    def test_a_relative_tolerance_holds_over_six_decades(self):
        truth = 10 ** (3 * (X + 0.5 * np.sin(3 * Y)))
        result = Survey(truth, relative=True).run()
        assert (np.abs(result.metrics["loss"] - truth) / truth).max() <= 0.01
        assert result.report.measured <= truth.size / 6
        assert result.report.relative
        plain = Survey(truth).run()
        assert (np.abs(plain.metrics["loss"] - truth) / truth).max() > 0.01

    def test_interpolated_losses_stay_positive_beside_a_wall(self):
        assert (Survey(np.where(X + 0.3 * Y > 0, 1.0, 1e-6)).run().metrics["loss"] > 0).all()

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_nothing_is_interpolated_beside_what_is_not_finite(self, value):
        x, y = axes(50, 70)
        truth = np.where(x + 0.2 * y > 0.3, value, bowl(50, 70))
        result = Survey(truth).run()
        np.testing.assert_array_equal(np.isfinite(result.metrics["loss"]), np.isfinite(truth))
        holes = ~np.isfinite(truth)
        np.testing.assert_array_equal(result.metrics["loss"][holes], truth[holes])
        assert np.isnan(result.loss_error[holes & (result.status == PointStatus.INTERPOLATED)]).all()
        across = holes[:, 1:] != holes[:, :-1]
        assert (result.status[:, 1:][across] == PointStatus.MEASURED).all()
        assert (result.status[:, :-1][across] == PointStatus.MEASURED).all()

    def test_nothing_finite_at_all(self):
        result = Survey(np.full((40, 40), np.nan)).run()
        assert np.isnan(result.metrics["loss"]).all()


class TestLaws:
    @pytest.mark.slow
    @settings(max_examples=20)
    @given(
        shape=st.one_of(st.tuples(st.integers(1, 45), st.integers(1, 45)), st.tuples(st.integers(1, 200))),
        seed=st.integers(0, 1000),
    )
    def test_any_shape_and_any_order(self, shape, seed):
        generator = np.random.default_rng(seed)
        places = np.meshgrid(*(np.linspace(-1, 1, length) for length in shape), indexing="ij")
        truth = sum((index + 1) * (place - 0.2) ** 2 for index, place in enumerate(places)) + np.sin(4 * places[-1])
        survey, other = Survey(truth), Survey(truth)
        expected = survey.run()
        # Results come one by one in any order, and a new object takes over whenever it likes.
        while batch := other.ask():
            other.measure(batch[generator.integers(len(batch))])
            if generator.random() < 0.05:
                other.sampling = other.make()
        result = other.make().fill({"loss": other.loss, "accuracy": other.loss / 2}, other.status)
        np.testing.assert_array_equal(result.status, expected.status)
        np.testing.assert_array_equal(result.loss_error, expected.loss_error)
        for name in ("loss", "accuracy"):
            np.testing.assert_array_equal(result.metrics[name], expected.metrics[name])
            assert np.isfinite(result.metrics[name]).all()
        assert json.dumps(result.report.to_json()) == json.dumps(expected.report.to_json())
        measured = result.status == PointStatus.MEASURED
        np.testing.assert_array_equal(result.metrics["loss"][measured], truth[measured])

    def test_a_filled_landscape_is_done(self, lenet):
        survey, first, _ = lenet
        again = survey.make()
        assert again.next_points(first.metrics["loss"], first.status) == []
        second = again.fill(first.metrics, first.status)
        np.testing.assert_array_equal(second.metrics["loss"], first.metrics["loss"])
        assert second.report == first.report

    def test_what_was_measured_unasked_is_kept_and_changes_nothing_else(self, lenet):
        finished, plain, _ = lenet
        truth, survey = finished.truth, Survey(finished.truth)
        for place in [(1, 1), (30, 17), (63, 2)]:
            survey.measure(place)
        result = survey.run()
        unasked = result.status != plain.status
        assert unasked.sum() == 3
        np.testing.assert_array_equal(result.metrics["loss"][unasked], truth[unasked])
        np.testing.assert_array_equal(result.metrics["loss"][~unasked], plain.metrics["loss"][~unasked])

    def test_failed_points_stay_failed_and_are_not_interpolated_across(self):
        survey = Survey(bowl(41))
        survey.round()
        survey.loss[20, 20], survey.status[20, 20] = np.nan, PointStatus.FAILED
        result = survey.run()
        assert result.status[20, 20] == PointStatus.FAILED
        assert np.isnan(result.metrics["loss"][20, 20])
        assert (result.status[19:22, 19:22] == PointStatus.INTERPOLATED).sum() == 0
        assert np.isnan(result.metrics["loss"]).sum() == 1

    def test_metrics_without_a_claim_are_linear_between_measured_points(self, lenet):
        survey, result, _ = lenet
        steps = np.round(survey.truth)
        measured = result.status == PointStatus.MEASURED
        metrics = {"loss": survey.loss, "accuracy": np.where(measured, steps, np.nan)}
        accuracy = survey.sampling.fill(metrics, survey.status).metrics["accuracy"]
        np.testing.assert_array_equal(accuracy[measured], steps[measured])
        assert steps.min() <= accuracy.min() <= accuracy.max() <= steps.max()

    def test_the_seed_chooses_the_held_out_points(self, lenet):
        survey, one, _ = lenet
        other = Survey(survey.truth, seed=1).run()
        assert one.report.measured == other.report.measured
        assert not np.array_equal(one.status, other.status)

    def test_a_smaller_tolerance_measures_more(self):
        counts = [Survey(surface("resnet_pca"), share).run().report.measured for share in (0.05, 0.01, 0.002)]
        assert counts == sorted(set(counts))

    def test_deciding_is_cheap(self, monkeypatch):
        """One prediction for each round, and of Python's calls, of which a million take a second, a few for a point."""
        predictions, calls = [], collections.Counter()

        def counted(*arguments):
            predictions.append(predict(*arguments))
            return predictions[-1]

        monkeypatch.setattr(adaptive_sampling, "predict", counted)
        survey = Survey(finer(surface("resnet_pca"), 256))
        before = sys.getprofile()
        sys.setprofile(lambda _frame, event, _function: calls.update([event]))
        try:
            result = survey.run()
        finally:
            sys.setprofile(before)
        rounds = result.report.rounds
        assert 2 <= rounds <= 8
        assert len(predictions) <= rounds
        assert calls["call"] + calls["c_call"] <= 3 * rounds * survey.truth.size


class TestReport:
    @pytest.mark.parametrize(("beyond", "points"), [(0, 1), (0, 81), (3, 50), (49, 50), (200, 1300)])
    def test_a_larger_share_would_rarely_give_so_few(self, beyond, points):
        share = largest_share(beyond, points)
        as_few = (math.comb(points, k) * share**k * (1 - share) ** (points - k) for k in range(beyond + 1))
        assert sum(as_few) == pytest.approx(0.05, rel=1e-6)

    def test_shares_that_say_nothing(self):
        assert largest_share(5, 5) == 1.0
        assert np.isnan(largest_share(0, 0))

    @settings(max_examples=50)
    @given(shape=st.tuples(st.integers(1, 9), st.integers(1, 9)), seed=st.integers(0, 10**6), share=st.floats(0, 1))
    def test_a_feature_as_wide_as_the_gap_has_a_measured_point(self, shape, seed, share):
        gaps = np.random.default_rng(seed).random(shape) < share
        gap = largest_gap(gaps)

        def squares(side):
            rows, columns = (max(length - side, 0) + 1 for length in shape)
            return [gaps[row : row + side, column : column + side] for row in range(rows) for column in range(columns)]

        assert gap == max(shape) + 1 or not any(square.all() for square in squares(gap))
        assert gap == 1 or any(square.all() for square in squares(gap - 1))

    @pytest.mark.parametrize(("shape", "gap"), [((65, 65), 11), ((200,), 7)])
    def test_a_smooth_surface_leaves_a_coarser_grid_than_the_first_open(self, shape, gap):
        result = Survey(np.linspace(0, 1, math.prod(shape)).reshape(shape)).run()
        assert result.report.largest_gap == gap

    def test_held_out_points_join_the_prediction_and_their_errors_are_those_from_before(self, lenet):
        survey, plain, last = lenet
        share, moved = 0.005 * np.ptp(survey.truth), Survey(survey.truth)
        moved.loss, moved.status = survey.loss.copy(), survey.status
        for place in last:
            moved.loss[place] += share
        moved = moved.fill()
        np.testing.assert_array_equal(moved.status, plain.status)
        gaps = plain.status == PointStatus.INTERPOLATED
        change = (moved.metrics["loss"] - plain.metrics["loss"])[gaps]
        assert change.min() >= 0
        assert 0.3 * share < change.max() < 1.5 * share
        assert plain.report.held_out == moved.report.held_out == len(last)
        assert moved.report.held_out_error == pytest.approx(0.005, abs=1.01 * plain.report.held_out_error)
        np.testing.assert_array_equal(moved.loss_error, plain.loss_error)
        assert moved.report.estimated_error == plain.report.estimated_error

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [65, 129])
    def test_held_out_points_make_errors_smaller(self, size):
        ratios = []
        for known in [*analytic_surfaces(1, (size,)), KnownSurface("LeNet", finer(surface("lenet_random"), size))]:
            survey = Survey(known.loss)
            while batch := survey.round():
                held_out = tuple(np.transpose(batch))
            result = survey.fill()
            gaps = (result.status == PointStatus.INTERPOLATED) & np.isfinite(known.loss)
            if (check := survey.sampling._check) is None:
                continue  # all of it is measured
            survey.loss[held_out] = np.nan
            predicted = predicted_loss(check.prediction, check.scale, survey.loss)
            before, after = (
                np.linalg.norm(loss[gaps] - known.loss[gaps]) for loss in (predicted, result.metrics["loss"])
            )
            if before > 1e-9 * np.ptp(known.loss[gaps]):
                ratios.append(after / before)
        assert len(ratios) >= 10
        assert np.exp(np.mean(np.log(ratios))) <= {65: 0.97, 129: 0.85}[size]

    def test_a_passed_check(self, lenet):
        report = lenet[1].report
        assert report.share_beyond_95 == pytest.approx(1 - 0.05 ** (1 / report.held_out))


class TestSmoothStart:
    @pytest.mark.parametrize("tolerance", [0.01, 0.001])
    def test_a_bowl_takes_half_of_the_points_that_its_first_grid_and_a_check_would(self, tolerance):
        truth = bowl(40) + 1e-3
        survey = Survey(truth, tolerance)
        result = survey.run()
        levels = GridLevels.of(truth.shape)
        assert result.report.reached
        assert result.report.checks == 1
        assert result.report.measured <= 0.6 * (levels.is_first.sum() + 0.02 * truth.size)
        assert (survey.status[levels.is_first] == PointStatus.PENDING).any()
        # Nothing is raised towards the least measured loss where the estimate says that the minimum is deeper.
        np.testing.assert_allclose(result.metrics["loss"], truth, rtol=0, atol=1e-12 * np.ptp(truth))

    def test_what_is_smooth_at_the_tests_alone_is_found_by_the_check(self):
        truth = bowl(40)
        first = GridLevels.of(truth.shape).is_first
        truth[~first] += np.random.default_rng(0).normal(size=(~first).sum())
        result = Survey(truth).run()
        assert result.report.checks > 0
        assert result.report.interpolated == 0
        np.testing.assert_array_equal(result.metrics["loss"], truth)

    def test_a_hole_is_never_smooth(self):
        truth = np.where(axes(40)[0] > 0.9, np.nan, bowl(40))
        survey, first = Survey(truth), GridLevels.of(truth.shape).is_first
        survey.round()
        survey.round()
        np.testing.assert_array_equal(survey.status == PointStatus.MEASURED, first)


class TestTimeRanOut:
    def test_before_the_first_grid_is_whole_nothing_is_filled(self):
        survey = Survey(bowl(41))
        for place in survey.ask()[:-1]:
            survey.measure(place)
        result = survey.fill()
        np.testing.assert_array_equal(result.status, survey.status)
        np.testing.assert_array_equal(result.metrics["loss"], survey.loss)
        assert not result.report.reached
        assert result.report.interpolated == 0
        assert (result.loss_error[result.status == PointStatus.MEASURED] == 0).all()

    @pytest.mark.parametrize("truth", [surface("resnet_pca"), np.where(axes(41)[0] > 0.31, np.nan, bowl(41))])
    def test_after_it_what_can_be_filled_is_and_nothing_is_claimed(self, truth):
        survey = Survey(truth)
        survey.round()
        assert survey.fill().report.interpolated == 0
        survey.round()  # neither is smooth, so the first grid follows
        result = survey.fill()
        assert not result.report.reached
        assert result.report.held_out == 0
        gaps = result.status == PointStatus.INTERPOLATED
        assert gaps.sum() == result.report.interpolated > 1000
        pending = result.status == PointStatus.PENDING
        assert pending.any() == np.isnan(truth).any()
        assert np.isnan(result.metrics["loss"][pending]).all()
        assert np.isnan(result.loss_error[pending]).all()
        # What was filled in between does not keep the survey from going on as if it had not been.
        survey.loss[...], survey.status[...] = result.metrics["loss"], np.where(gaps, 0, result.status)
        survey.sampling = survey.make()
        again, plain = survey.run(), Survey(truth).run()
        np.testing.assert_array_equal(again.status, plain.status)
        np.testing.assert_array_equal(again.metrics["loss"], plain.metrics["loss"])


class TestGridLevels:
    @settings(max_examples=50)
    @given(shape=st.tuples(st.integers(1, 300), st.integers(1, 300)))
    def test_each_grid_holds_the_coarser_one_and_the_last_holds_all(self, shape):
        levels = GridLevels.of(shape)
        for step in levels.steps:
            for axis in (0, 1):
                np.testing.assert_array_equal(step.fine[axis][step.inside[axis]], step.coarse[axis])
        last = levels.steps[-1].fine if levels.steps else levels.first
        assert [nodes.tolist() for nodes in last] == [list(range(length)) for length in shape]

    def test_small_grids_are_measured_whole(self):
        assert len(AdaptiveSampling((3, 3)).next_points(np.full((3, 3), np.nan), np.zeros((3, 3), np.uint8))) == 9


def test_a_linear_interpolant_is_nan_wherever_a_value_that_it_needs_is():
    step = GridLevels.of((33, 49)).steps[-1]
    values = np.ones([len(axis) for axis in step.coarse])
    values[0, 0] = np.nan
    needed = [fine < coarse[1] for fine, coarse in zip(step.fine, step.coarse, strict=True)]
    np.testing.assert_array_equal(np.isnan(linear(values, step)), np.outer(*needed))
