import itertools

import numpy as np
import pytest
from figure_cases import build, build_line, draw, line
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from landscape.figures import choose_scale, plot_contour, plot_contour_lines, plot_heatmap, plot_profile, plot_surface
from landscape.landscape import Landscape
from landscape.scales.landscape_scale import joint_scale, landscape_scale
from landscape.scales.levels import crowded, number_text, quantile_levels

DRAWINGS = [plot_contour, plot_surface]


class TestScale:
    @pytest.mark.parametrize(
        ("values", "kind", "extend", "label"),
        [
            (np.geomspace(0.03, 40, 50), "log", "neither", "loss (log scale)"),
            (np.linspace(2, 3, 50), "linear", "neither", "loss"),
            (np.linspace(-3, 3, 50), "linear", "neither", "loss"),
            (np.sinh(np.linspace(-12, 12, 101)), "symlog", "neither", "loss (log scale around 0)"),
            (np.append(np.linspace(2.0, 2.1, 500), 1e6), "linear", "max", "loss (clipped above 2.1)"),
            (np.append(0.0, np.geomspace(1e-3, 1, 30)), "log", "min", "loss (log scale, 0 drawn as 0.001)"),
        ],
        ids=["decades", "narrow", "negative", "decades of both signs", "an outlier", "a zero"],
    )
    def test_kinds_of_which_nan_and_infinities_have_no_say(self, values, kind, extend, label):
        scale = choose_scale(values)
        assert (scale.kind, scale.extend, scale.label("loss")) == (kind, extend, label)
        assert repr(choose_scale(np.append(values, [np.nan, np.inf, -np.inf]))) == repr(scale)

    def test_levels_and_ends(self):
        scale = choose_scale(np.geomspace(0.03, 40, 50))
        assert (scale.low, scale.high) == (0.03, 40)
        assert scale.levels.tolist() == [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
        assert scale.texts() == ["0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"]
        assert 0 in choose_scale(np.linspace(-3, 3, 50)).levels
        both = choose_scale(np.sinh(np.linspace(-12, 12, 101))).levels
        assert 0 in both
        assert both[0] < -100
        clipped = choose_scale(np.append(np.linspace(2.0, 2.1, 500), 1e6))
        assert (clipped.high, clipped.clipped_above) == (2.1, True)

    def test_zeros_do_not_prevent_a_logarithm(self):
        scale = choose_scale(np.append(0.0, np.geomspace(1e-3, 1, 30)))
        assert (scale.low, scale.clipped_below) == (1e-3, False)
        both = choose_scale(np.array([-1.0, 0.1, 2.0]), "log")
        assert both.label("loss") == "loss (log scale, 0 and less drawn as 0.1)"
        low = np.concatenate([[0.0, 1e-9], np.geomspace(1, 9, 30)])
        assert choose_scale(low, "log").label("loss") == "loss (log scale, clipped below 1, 0 drawn as 1)"

    def test_a_path_below_the_grid_is_not_drawn_below_its_zeros(self):
        data = build()
        data.metrics["loss"][:3] = 0.0
        data.checkpoints.projected["loss"][4] = 1e-3
        scale = landscape_scale(data)
        assert scale.low == scale.tall.low == 1e-3
        assert scale.tall.label("loss") == "loss (log scale, 0 drawn as 0.001)"
        assert (scale.heights(data.loss[:3]) == scale.forward(1e-3)).all()

    def test_a_zero_is_drawn_where_the_label_says_on_curves_too(self):
        ax = plot_profile(build_line([3.0, 0.1, 0.0, 0.02, 2.0]))
        assert ax.get_ylabel() == "loss (log scale, 0 drawn as 0.02)"
        for name in ("loss", "measured points"):
            assert line(ax, name).get_ydata().tolist() == [3.0, 0.1, 0.02, 0.02, 2.0]

    def test_all_pictures_draw_zeros_as_the_same_value(self):
        data = build()
        data.metrics["loss"][:3] = 0.0
        lows = {landscape_scale(data, path=path).low for path in (True, False)}
        assert lows == {0.02}  # of the origin, below the whole grid
        assert "0 drawn as 0.02" in plot_contour(Landscape(data)).figure.axes[1].get_ylabel()

    def test_shares_are_linear_and_losses_of_the_same_values_are_not(self):
        values = np.geomspace(0.004, 0.98, 50)
        # A name that only begins like a loss is none.
        for metric in ("accuracy", "top-5 accuracy", "F1", "loss2 % {0}", "normalized accuracy", "größe µ$x_1$"):
            assert choose_scale(values, metric=metric).kind == "linear"
            assert choose_scale(np.append(values, [0.0, 1.0, np.nan]), metric=metric).kind == "linear"
            assert choose_scale(values, "log", metric=metric).kind == "log"
        for metric in ("loss", "val_loss", "mse", "CrossEntropy", "top-1 error", "loss@test", "loss[3]", "RMSE"):
            assert choose_scale(values, metric=metric).kind == "log"
        assert choose_scale(values).kind == "log"
        # Beyond 1, or small numbers only, they are no shares.
        assert choose_scale(100 * values, metric="accuracy").kind == "log"
        assert choose_scale(1e-4 * values, metric="brightness").kind == "log"

    def test_a_clip_beyond_all_values_is_refused(self):
        values = np.append(np.linspace(0.4, 11.8, 30), np.inf)
        text = r"clip must be a range that holds some .* from 0\.4 to 11\.8, but got"
        for clip in ((100, None), (100, 200), 0.1, (None, 0.1)):
            with pytest.raises(ValueError, match=text):
                choose_scale(values, clip=clip)
        assert choose_scale(values, clip=100).high == 100
        assert choose_scale(values, clip=(11, None)).low == 11

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_clip_among_the_outliers_leaves_them_all_to_the_other_end(self, sign):
        values = sign * np.append(np.linspace(-1, 1, 80), [500.0, 1000.0])
        scale = choose_scale(values, "linear", clip=(5, None) if sign > 0 else -5)
        assert not scale.flat
        assert sorted([sign * scale.low, sign * scale.high]) == [5, 1000]

    def test_a_clip_must_hold_a_value_of_one_of_several_landscapes(self):
        low, high = build(), build()
        high.metrics["loss"][...] += 1000
        assert joint_scale([low, high], clip=(1000, None)).low == 1000
        above, below = (joint_scale([low, high], clip=clip) for clip in (100, (100, None)))
        assert (above.high, above.top, above.clipped_above) == (100, 100, True)
        assert (below.low, below.bottom, below.clipped_below) == (100, 100, True)
        with pytest.raises(ValueError, match="clip must be a range that holds some of the values"):
            joint_scale([low, high], clip=(5000, None))

    def test_a_path_below_zero_has_a_place_where_linear_scales_are_joined_to_a_logarithm(self):
        low, high = build(np.linspace(1, 2, 20).reshape(4, 5)), build(np.linspace(100, 200, 20).reshape(4, 5))
        low.checkpoints.projected["loss"][:2] = [-0.5, 0.01]
        scale = joint_scale([low, high])
        assert (scale.kind, scale.tall.low) == ("log", 0.01)
        assert "0 and less drawn as 0.01" in scale.label("loss")
        assert np.isfinite(scale.tall.heights([-0.5, 0.01, 200.0])).all()

    def test_differences_of_shares_are_linear(self):
        values = np.append(np.geomspace(1e-4, 1e-3, 50), 0.5)
        assert choose_scale(values, symmetric=True, metric="accuracy").kind == "linear"
        assert choose_scale(values, symmetric=True, metric="loss").kind == "symlog"

    @pytest.mark.slow
    @pytest.mark.parametrize("plot", [*DRAWINGS, plot_contour_lines, plot_heatmap])
    def test_pictures_of_an_accuracy_are_linear(self, plot):
        data = build()
        data.metrics["accuracy"][:] = np.exp(-data.metrics["loss"])
        assert data.metrics["accuracy"].min() < 0.1 * data.metrics["accuracy"].max()
        for scale, logarithmic in (("auto", False), ("log", True)):
            ax = plot(Landscape(data), metric="accuracy", scale=scale)
            draw(ax)
            written = [text.get_text() for text in ax.figure.findobj(Text)]
            (label,) = [text for text in written if text.startswith("accuracy")]
            assert ("log scale" in label) == logarithmic
            if not logarithmic:
                assert {"0.2", "0.4", "0.6", "0.8"} <= set(written)

    def test_levels_are_round_inside_and_about_as_many_as_asked(self):
        ends = ((0.03, 40), (1e-12, 1e9), (1, 2), (7.1, 7.2), (1e-300, 1e300), (3, 90))
        for (low, high), count, kind in itertools.product(ends, (4, 8, 12, 24), ("linear", "log")):
            levels = choose_scale(np.geomspace(low, high, 40), kind, count).levels
            assert (np.diff(levels) > 0).all()
            assert 1 <= len(levels) <= count + 3
            assert levels[0] >= low * (1 - 1e-12)
            assert levels[-1] <= high * (1 + 1e-12)

    @pytest.mark.parametrize("kind", ["linear", "log", "symlog"])
    def test_heights_and_values_are_inverse_and_keep_the_order(self, kind):
        values = np.array([-50, -1, -0.01, 0, 0.3, 2, 900.0]) if kind != "log" else np.geomspace(1e-5, 1e5, 9)
        scale = choose_scale(values, kind)
        heights = scale.forward(values)
        assert (np.diff(heights) > 0).all()
        np.testing.assert_allclose(scale.height_values(heights), values, atol=1e-12)

    def test_numbers_are_short_and_tell_neighbours_apart(self):
        assert number_text(1e-5) == "1e-5"
        assert number_text(0.25) == "0.25"
        assert number_text(2.5e7) == "2.5e7"
        near = np.array([2.3025, 2.303, 2.3035])
        assert [number_text(value, near) for value in near] == ["2.3025", "2.303", "2.3035"]

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"scale": "cubic"}, ValueError, "scale must be one of 'auto', 'log'"),
            ({"scale": 3}, TypeError, "scale must be"),
            ({"scale": "log"}, ValueError, "scale must be 'linear' or 'symlog' where no value is positive"),
            ({"levels": "log"}, ValueError, "levels must be 'linear' or 'quantile' where no value is positive"),
            ({"levels": "cubic"}, ValueError, "levels must be an int from 2 to 100, one of 'auto', 'linear', 'log'"),
            ({"levels": 1}, ValueError, "levels must be an int from 2 to 100"),
            ({"levels": 101}, ValueError, "levels must be an int from 2 to 100"),
            ({"levels": 2.5}, TypeError, "levels must be an int"),
            ({"levels": True}, TypeError, "levels must be an int"),
            ({"levels": []}, ValueError, "levels must be 1 to 100 increasing values"),
            ({"levels": [2, 1]}, ValueError, "levels must be 1 to 100 increasing values"),
            ({"levels": [1, float("nan")]}, ValueError, r"levels\[1\] must be a finite number"),
            ({"levels": ["a"]}, TypeError, r"levels\[0\] must be a finite number"),
            ({"levels": [1e8, 1e9]}, ValueError, "levels must be at least one value from -9 to 0"),
            ({"clip": "high"}, TypeError, "clip must be a number"),
            ({"clip": (1, 2, 3)}, ValueError, "clip must be"),
            ({"clip": (2, 1)}, ValueError, "clip must be a pair whose first number is the smaller"),
            ({"clip": np.nan}, ValueError, "clip must be finite"),
        ],
    )
    def test_wrong_arguments(self, arguments, error, message):
        with pytest.raises(error, match=message):
            choose_scale(np.linspace(-9, 0, 10), **arguments)


def _shares_of_colours(scale, values):
    return np.sort(np.ma.filled(scale.norm()(scale.shown(values)), np.nan).ravel())


class TestOutliers:
    @pytest.mark.parametrize("corner", [30.0, 1e3, 1e6, 1e12])
    @pytest.mark.parametrize("kind", ["auto", "linear", "log"])
    def test_most_points_get_most_colours(self, corner, kind):
        """The case that was seen: 97 % below 2.2, a corner at 1e6."""
        x, y = np.linspace(-1, 1, 41), np.linspace(-1, 1, 41)[:, None]
        loss = 0.2 + x**2 + y**2
        steep = (x > 0.6) & (y > 0.7)
        loss = np.where(steep, 2.2 * (corner / 2.2) ** ((x - 0.6) * (y - 0.7) / 0.12), loss)
        assert (loss < 2.2).mean() > 0.95
        scale = choose_scale(loss, kind)
        shares = _shares_of_colours(scale, loss)
        assert shares[int(0.95 * len(shares))] - shares[0] >= 0.6
        assert scale.clipped_above
        assert "clipped above" in scale.label("loss")
        if corner == 1e6:
            bar = plot_contour(Landscape(build(loss)), scale=kind).figure.axes[1]
            assert bar.get_ylabel().replace("\n", " ") == scale.label("loss")

    def test_below_zero_too(self):
        values = np.concatenate([np.linspace(-2, 2, 970), -np.geomspace(10, 1e6, 30)])
        for kind in ("linear", "symlog"):
            scale = choose_scale(values, kind)
            shares = _shares_of_colours(scale, values)
            assert shares[-1] - shares[int(0.05 * len(shares))] >= 0.6
            assert scale.clipped_below
            assert not scale.clipped_above

    def test_a_difference_keeps_zero_in_the_middle(self):
        values = np.concatenate([np.linspace(-2, 2, 970), np.geomspace(10, 1e6, 30)])
        scale = choose_scale(values, "linear", symmetric=True)
        assert scale.low == -scale.high
        assert np.quantile(np.abs(values), 0.95) / scale.high >= 0.6

    def test_a_narrow_minimum_and_a_narrow_peak_of_accuracy_are_no_outliers(self):
        x, y = np.linspace(-1, 1, 41), np.linspace(-1, 1, 41)[:, None]
        well = np.exp(-((x**2 + y**2) / 0.01))
        scale = choose_scale(2.3 - 1.9 * well)
        assert (scale.kind, scale.low, scale.clipped_below) == ("linear", pytest.approx(0.4), False)
        scale = choose_scale(0.1 + 0.85 * well, metric="accuracy")
        assert (scale.kind, scale.high, scale.clipped_above) == ("linear", pytest.approx(0.95), False)

    @given(
        values=st.lists(st.floats(-1e12, 1e12), min_size=20, max_size=200),
        far=st.lists(st.floats(-1e30, 1e30), max_size=10),
        kind=st.sampled_from(["auto", "linear"]),
    )
    def test_whatever_the_values_are(self, values, far, kind):
        every = np.array(values + far[: len(values) // 20])
        scale = choose_scale(every, kind)
        if scale.flat or scale.kind == "log":
            return
        shares = _shares_of_colours(scale, every)
        kept = len(shares) - int(0.05 * len(shares))
        stretches = [shares[first + kept - 1] - shares[first] for first in range(len(shares) - kept + 1)]
        # Nearly all values alike get one colour, whatever is done.
        assert max(stretches) >= 0.6 - 1e-9 or min(stretches) < 1e-6


class TestLevels:
    def test_a_crowded_smooth_plane_gets_quantiles_and_a_noisy_one_does_not(self):
        x = np.linspace(-1, 1, 41)
        smooth = 1 + 0.02 * (x**2 + x[:, None] ** 2)
        smooth[:2, :2] = 0.02
        assert choose_scale(smooth, "log", clip=(0.02, 2)).spacing == "quantile"
        noisy = 1 + 0.02 * np.random.default_rng(0).random((41, 41))
        noisy[:2, :2] = 0.02
        assert choose_scale(noisy, "log", clip=(0.02, 2)).spacing == "log"
        assert not crowded(smooth[:3, :3], np.array([1.0]))

    def test_quantile_levels_are_as_round_as_they_can_be(self):
        assert quantile_levels(np.linspace(0, 1, 1001), 4).tolist() == [0.2, 0.4, 0.6, 0.8]
        close = quantile_levels(np.linspace(1, 1.001, 1001), 3)
        assert close.tolist() == [1.0003, 1.0005, 1.0008] or np.allclose(close, [1.00025, 1.0005, 1.00075])
        assert quantile_levels(np.ones(9), 5).tolist() == [1.0]

    def test_quantiles_divide_all_values_into_equal_shares(self):
        values = np.random.default_rng(0).exponential(size=(20, 50))
        below = np.searchsorted(np.sort(values.ravel()), quantile_levels(values, 4))
        np.testing.assert_allclose(np.diff([0, *below, values.size]), 200, atol=25)


class TestTicks:
    def test_given_levels_are_the_ticks_wherever_the_path_lies(self):
        data = build(points=0)
        data.origin.metrics["loss"] = 1e-3
        for kind in ("linear", "log"):
            tall = landscape_scale(data, scale=kind, levels=[0.5, 1.5]).tall
            assert tall.low == 1e-3
            assert tall.levels.tolist() == tall.ticks().tolist() == [0.5, 1.5]

    @pytest.mark.parametrize("values", [np.linspace(0.11, 0.98, 99), np.geomspace(1, 9, 99), np.linspace(-7, 3.9, 50)])
    def test_a_linear_axis_has_numbers_over_most_of_its_length(self, values):
        scale = choose_scale(values, "linear")
        ticks = scale.ticks()
        assert np.ptp(ticks) >= 0.8 * (scale.high - scale.low)
        assert 3 <= len(ticks) <= 12

    def test_on_a_surface_whose_levels_crowd(self):
        x, y = np.linspace(-1, 1, 41), np.linspace(-1, 1, 41)[:, None]
        loss = 1 + (x**2 + y**2) ** 4
        ax = plot_surface(Landscape(build(loss)), scale="linear", trajectory=False)
        scale = choose_scale(loss, "linear", count=8)
        ticks = ax.get_zticks()
        assert np.ptp(ticks) >= 0.8 * (scale.high - scale.low)
        assert next(text.get_text() for text in ax.get_zticklabels()) != ""
