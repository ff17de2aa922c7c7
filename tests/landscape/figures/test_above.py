"""Contour lines and heat maps; interpolated points; levels."""

import numpy as np
import pytest
from figure_cases import build, build_line, build_unfinished, contour_lines, legend_texts, line
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.contour import QuadContourSet

from landscape.drawing.missing import edges
from landscape.figures import choose_scale, plot_contour, plot_contour_lines, plot_heatmap, plot_surface
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus
from landscape.scales.levels import crowded, quantile_levels


def mesh(ax):
    (found,) = [item for item in ax.collections if isinstance(item, QuadMesh)]
    return found


class TestLines:
    def test_they_lie_where_the_filled_ones_do_and_nothing_is_filled(self):
        landscape = Landscape(build())
        ax = plot_contour_lines(landscape)
        ours, filled = contour_lines(ax), contour_lines(plot_contour(landscape))
        np.testing.assert_array_equal(ours.levels, filled.levels)
        for mine, theirs in zip(ours.allsegs, filled.allsegs, strict=True):
            for segment, other in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(segment, other)
        assert not [item for item in ax.collections if isinstance(item, QuadContourSet) and item.filled]
        assert ax.figure.axes[1].get_ylabel() == "loss (log scale)"

    def test_a_single_line_has_a_bar_too(self):
        ax = plot_contour_lines(Landscape(build()), levels=[1.0])
        assert contour_lines(ax).levels.tolist() == [1.0]
        assert ax.figure.axes[1].get_yticks().tolist() == [1.0]
        loss = build().metrics["loss"]
        assert ax.figure.axes[1].get_ylim() == pytest.approx((loss.min(), loss.max()))

    @pytest.mark.parametrize(("theme", "low", "high"), [("light", 0.0, 0.67), ("dark", 0.33, 1.0)])
    def test_every_line_stands_out_from_the_page(self, theme, low, high):
        lines = contour_lines(plot_contour_lines(Landscape(build()), theme=theme))
        brightness = lines.get_edgecolor()[:, :3] @ [0.299, 0.587, 0.114]
        assert len(brightness) > 5
        assert (brightness >= low).all()
        assert (brightness <= high).all()

    def test_the_path_is_dark_on_a_light_page(self):
        for theme, ink in (("light", "#111111"), ("dark", "#ececec")):
            path = line(plot_contour_lines(Landscape(build(points=8)), theme=theme), "trajectory")
            assert path.get_color() == ink
        assert line(plot_contour(Landscape(build(points=8))), "trajectory").get_color() == "white"


class TestHeatmap:
    def test_each_cell_has_its_own_value_around_its_own_place(self):
        loss = np.array([[1, 2, 3, 4, 5], [1, 2, 3, 4, 50], [1, 2, np.nan, 4, 5.0]])
        data = build(loss)
        ax = plot_heatmap(Landscape(data))
        cells = mesh(ax)
        np.testing.assert_array_equal(np.ma.filled(cells.get_array(), np.nan).reshape(3, 5), loss)
        corners = cells.get_coordinates()
        np.testing.assert_allclose(corners[0, :, 0], edges(data.x))
        np.testing.assert_allclose(corners[:, 0, 1], edges(data.y))
        assert (ax.get_xlim(), ax.get_ylim()) == (tuple(edges(data.x)[[0, -1]]), tuple(edges(data.y)[[0, -1]]))
        assert not [item for item in ax.collections if isinstance(item, QuadContourSet)]

    def test_unequal_steps_have_unequal_cells(self):
        data = build(np.arange(1.0, 10).reshape(3, 3), points=0)
        data.x[:] = [0, 1, 4]
        np.testing.assert_allclose(
            mesh(plot_heatmap(Landscape(data))).get_coordinates()[0, :, 0], [-0.5, 0.5, 2.5, 5.5]
        )

    def test_clipping_is_in_the_bar(self):
        ax = plot_heatmap(Landscape(build()), clip=(0.1, 5))
        bar = ax.figure.axes[1]
        assert bar.get_ylabel() == "loss (log scale, clipped to 0.1 ... 5)"
        assert mesh(ax).colorbar.extend == "both"
        assert (mesh(ax).norm.vmin, mesh(ax).norm.vmax) == (0.1, 5)


class TestInterpolated:
    def test_the_few_are_marked(self):
        data = build_unfinished()
        for plot in (plot_contour, plot_heatmap, plot_contour_lines):
            ax = plot(Landscape(data))
            marks = line(ax, "interpolated").get_xydata()
            rows, columns = np.nonzero(data.status == PointStatus.INTERPOLATED)
            np.testing.assert_array_equal(marks, np.column_stack([data.x[columns], data.y[rows]]))
            kinds = {
                "coarse: value of the nearest measured point (80)",
                "failed (9)",
                "not finite (3)",
                "interpolated (32)",
            }
            assert kinds <= set(legend_texts(ax))
            assert "interpolated" in ax.get_title()

    def test_where_most_are_interpolated_the_measured_ones_are_marked(self):
        data = build(rows=9, columns=9, points=0)
        data.status[:] = PointStatus.INTERPOLATED
        data.status[::4, ::4] = PointStatus.MEASURED
        ax = plot_contour(Landscape(data))
        assert len(line(ax, "measured").get_xydata()) == 9
        assert "measured (9, all others interpolated)" in legend_texts(ax)


class TestLevels:
    def test_quantiles_share_the_plane_equally(self):
        data = build(rows=60, columns=80)
        ax = plot_contour(Landscape(data), levels="quantile")
        levels = contour_lines(ax).levels
        shares = np.histogram(data.metrics["loss"], [0, *levels, np.inf])[0] / data.metrics["loss"].size
        np.testing.assert_allclose(shares, 1 / (len(levels) + 1), atol=0.01)
        assert ax.figure.axes[1].get_ylabel() == "loss (log scale, levels at quantiles)"

    def test_a_crowded_smooth_plane_gets_quantiles_and_a_noisy_one_does_not(self):
        x = np.linspace(-1, 1, 41)
        smooth = 1 + 0.02 * (x**2 + x[:, None] ** 2)
        smooth[:2, :2] = 0.02
        assert choose_scale(smooth, "log", clip=(0.02, 2)).spacing == "quantile"
        noisy = 1 + 0.02 * np.random.default_rng(0).random((41, 41))
        noisy[:2, :2] = 0.02
        assert choose_scale(noisy, "log", clip=(0.02, 2)).spacing == "log"
        assert not crowded(smooth[:3, :3], np.array([1.0]))

    @pytest.mark.slow
    def test_words_numbers_and_values(self):
        landscape = Landscape(build())
        assert contour_lines(plot_contour(landscape, levels=[0.1, 1, 3, 1e9])).levels.tolist() == [0.1, 1, 3]
        linear = contour_lines(plot_contour(landscape, levels="linear")).levels
        np.testing.assert_allclose(np.diff(linear), np.diff(linear)[0])
        decades = contour_lines(plot_contour(landscape, scale="linear", levels="log")).levels
        assert {0.1, 1.0, 10.0} <= set(decades.tolist())
        assert len(contour_lines(plot_contour(landscape, levels=5)).levels) <= 5

    def test_quantile_levels_are_as_round_as_they_can_be(self):
        assert quantile_levels(np.linspace(0, 1, 1001), 4).tolist() == [0.2, 0.4, 0.6, 0.8]
        close = quantile_levels(np.linspace(1, 1.001, 1001), 3)
        assert close.tolist() == [1.0003, 1.0005, 1.0008] or np.allclose(close, [1.00025, 1.0005, 1.00075])
        assert quantile_levels(np.ones(9), 5).tolist() == [1.0]

    @pytest.mark.parametrize(
        ("levels", "error", "message"),
        [
            ("cubic", ValueError, "levels must be an int from 2 to 100, one of 'auto', 'linear', 'log', 'quantile'"),
            (True, TypeError, "levels must be an int"),
            (101, ValueError, "levels must be an int from 2 to 100"),
            ([], ValueError, "levels must be 1 to 100 increasing values"),
            ([2, 1], ValueError, "levels must be 1 to 100 increasing values"),
            ([1, float("nan")], ValueError, r"levels\[1\] must be a finite number"),
            (["a"], TypeError, r"levels\[0\] must be a finite number"),
            ([1e8, 1e9], ValueError, "levels must be at least one value from 0.0.* to "),
        ],
    )
    def test_wrong_levels(self, levels, error, message):
        with pytest.raises(error, match=message):
            plot_contour(Landscape(build()), levels=levels)

    def test_logarithmic_levels_need_something_positive(self):
        with pytest.raises(ValueError, match="levels must be 'linear' or 'quantile' where no value is positive"):
            choose_scale(np.linspace(-3, -1, 9), levels="log")


@pytest.mark.parametrize("plot", [plot_contour, plot_contour_lines, plot_heatmap, plot_surface])
class TestAll:
    def test_a_line_and_foreign_axes(self, plot):
        text = f"{plot.__name__} needs a plane, but the landscape is a line; use plot_profile"
        with pytest.raises(ValueError, match=text):
            plot(Landscape(build_line([1, 2])))
        with pytest.raises(TypeError, match="ax must be matplotlib axes or None"):
            plot(Landscape(build()), "axes")
        with pytest.raises(TypeError, match=f"{plot.__name__} has no argument 'colour'; it has metric, levels"):
            plot(Landscape(build()), colour="red")
        with pytest.raises(ValueError, match="colormap must be matplotlib's name of colours, such as 'viridis'"):
            plot(Landscape(build()), colormap="nothing")


def test_default_colours_are_even_in_brightness():
    from matplotlib import colormaps

    steps = np.diff(colormaps["viridis"](np.linspace(0, 1, 64))[:, :3] @ [0.2126, 0.7152, 0.0722])
    assert (steps > 0).all()
    cells = mesh(plot_heatmap(Landscape(build())))
    assert cells.get_cmap().name == "viridis"
    assert to_rgb(cells.get_cmap()(0.0)) == to_rgb(colormaps["viridis"](0.0))
