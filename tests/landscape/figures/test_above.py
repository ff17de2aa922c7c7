"""Planes seen from above: contours, lines, heat maps; the path on them; interpolated points; levels."""

import numpy as np
import pytest
from figure_cases import build, build_line, build_unfinished, contour_lines, draw, legend_texts, line, loss_at
from matplotlib.collections import QuadMesh
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from landscape.drawing.missing import edges
from landscape.drawing.placement import overlaps
from landscape.figures import plot_contour, plot_contour_lines, plot_heatmap, plot_profile, plot_surface
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus

COARSE = "coarse: value of the nearest measured point"


def mesh(ax):
    (found,) = [item for item in ax.collections if isinstance(item, QuadMesh)]
    return found


class TestContour:
    def test_every_line_lies_where_the_loss_has_its_value(self):
        lines = contour_lines(plot_contour(build(rows=120, columns=160)))
        checked = 0
        for level, segments in zip(lines.levels, lines.allsegs, strict=True):
            for segment in segments:
                np.testing.assert_allclose(loss_at(segment[:, 0], segment[:, 1]), level, rtol=0.15, atol=0.01)
                checked += len(segment)
        assert checked > 500

    def test_colours_are_logarithmic_and_the_bar_says_so(self):
        ax = plot_contour(build())
        bar = ax.figure.axes[1]
        assert bar.get_ylabel() == "loss (log scale)"
        assert bar.get_yscale() == "log"
        shown = [float(text.get_text()) for text in bar.get_yticklabels()]
        np.testing.assert_allclose(shown, bar.get_yticks())
        np.testing.assert_allclose(shown, contour_lines(ax).levels)

    def test_labels_on_lines_say_their_level(self):
        ax = plot_contour(build(rows=60, columns=60, points=0))
        lines = contour_lines(ax)
        labels = [text for text in ax.texts if text.get_text()]
        assert len(labels) >= 3
        for label in labels:
            assert float(label.get_text()) == pytest.approx(loss_at(*label.get_position()), rel=0.3, abs=0.02)
        assert {float(label.get_text()) for label in labels} <= set(lines.levels)

    def test_the_trajectory_is_where_it_was(self):
        data = build()
        ax = plot_contour(data)
        path = data.checkpoints
        np.testing.assert_array_equal(line(ax, "trajectory").get_xydata(), np.column_stack([path.x, path.y]))
        np.testing.assert_array_equal(line(ax, "start").get_xydata(), [[path.x[0], path.y[0]]])
        np.testing.assert_array_equal(line(ax, "end").get_xydata(), [[path.x[-1], path.y[-1]]])
        np.testing.assert_array_equal(line(ax, "final weights").get_xydata(), [[0, 0]])
        assert legend_texts(ax) == ["trajectory", "start (epoch 3)", "end (epoch 14)", "final weights (epoch 14)"]

    def test_numbers_stand_beside_their_checkpoints_and_apart_from_each_other(self):
        data = build(points=40)
        ax = plot_contour(data)
        ax.figure.draw_without_rendering()
        path = data.checkpoints
        places = {str(number): (x, y) for number, x, y in zip(path.number, path.x, path.y, strict=True)}
        notes = [text for text in ax.texts if hasattr(text, "xyann")]
        assert 5 <= len(notes) <= 9
        assert all(int(note.get_text()) % 5 == 0 for note in notes)
        boxes = np.array([note.get_window_extent().extents for note in notes])
        for index, (note, box) in enumerate(zip(notes, boxes, strict=True)):
            assert note.xy == pytest.approx(places[note.get_text()])
            assert not overlaps(box, np.delete(boxes, index, axis=0)).any()

    def test_without_trajectory(self):
        ax = plot_contour(build(), trajectory=False)
        assert ax.get_lines() == []
        assert legend_texts(ax) == []

    def test_a_path_that_leaves_the_picture_is_said_to(self):
        data = build()
        data.checkpoints.x[:2] = 99
        assert "trajectory (2 of 12 outside)" in legend_texts(plot_contour(data))

    def test_pending_failed_and_infinite_cells_are_shown_as_such(self):
        data = build(rows=10, columns=10, points=0)
        loss = data.metrics["loss"]
        loss[2, 3:5], data.status[2, 3:5] = np.nan, PointStatus.FAILED
        loss[8:, :], data.status[8:, :] = np.nan, PointStatus.PENDING
        loss[0, 0], loss[0, 9], loss[1, 9] = np.inf, np.nan, -np.inf
        ax = plot_contour(data)
        assert legend_texts(ax) == ["origin", f"{COARSE} (20)", "failed (2)", "not finite (3)"]
        assert ax.get_title() == "LeNet\n78 % measured (78 of 100 points)"
        patches = [item for item in ax.get_children() if isinstance(item, PathPatch)]
        across, up = edges(data.x), edges(data.y)
        failed = next(item for item in patches if item.get_hatch() == "xxxx").get_path().get_extents()
        np.testing.assert_allclose(failed.extents, [across[3], up[2], across[5], up[3]])
        draw(ax)

    def test_the_own_status_rules_even_where_a_number_is_left(self):
        data = build(rows=4, columns=4, points=0)
        data.status[1, 1] = PointStatus.FAILED
        ax = plot_contour(data)
        assert np.ma.getmaskarray(mesh(ax).get_array()).reshape(4, 4)[1, 1]

    def test_clipping_does_not_move_the_lines(self):
        whole = contour_lines(plot_contour(build(), levels=9))
        clipped = contour_lines(plot_contour(build(), levels=9, clip=5.5))
        positions = dict(zip(whole.levels.tolist(), whole.allsegs, strict=True))
        common = [pair for pair in zip(clipped.levels.tolist(), clipped.allsegs, strict=True) if pair[0] in positions]
        assert len(common) >= 3
        for level, segments in common:
            for ours, theirs in zip(segments, positions[level], strict=True):
                np.testing.assert_array_equal(ours, theirs)

    def test_axes_of_the_user_are_used(self):
        figure = Figure()
        left, right = figure.subplots(1, 2)
        assert plot_contour(build(), right) is right
        assert len(left.collections) == 0
        assert right.get_legend() is not None
        assert figure.legends == []
        assert figure.get_layout_engine() is None


class TestLines:
    def test_they_lie_where_the_filled_ones_do_and_nothing_is_filled(self):
        ax = plot_contour_lines(build())
        ours, filled = contour_lines(ax), contour_lines(plot_contour(build()))
        np.testing.assert_array_equal(ours.levels, filled.levels)
        for mine, theirs in zip(ours.allsegs, filled.allsegs, strict=True):
            for segment, other in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(segment, other)
        assert not [item for item in ax.collections if isinstance(item, QuadContourSet) and item.filled]
        assert ax.figure.axes[1].get_ylabel() == "loss (log scale)"

    def test_a_single_line_has_a_bar_too(self):
        ax = plot_contour_lines(build(), levels=[1.0])
        assert contour_lines(ax).levels.tolist() == [1.0]
        assert ax.figure.axes[1].get_yticks().tolist() == [1.0]
        loss = build().metrics["loss"]
        assert ax.figure.axes[1].get_ylim() == pytest.approx((loss.min(), loss.max()))

    @pytest.mark.parametrize(("theme", "low", "high"), [("light", 0.0, 0.67), ("dark", 0.33, 1.0)])
    def test_every_line_stands_out_from_the_page(self, theme, low, high):
        lines = contour_lines(plot_contour_lines(build(), theme=theme))
        brightness = lines.get_edgecolor()[:, :3] @ [0.299, 0.587, 0.114]
        assert len(brightness) > 5
        assert (brightness >= low).all()
        assert (brightness <= high).all()

    def test_only_on_the_bare_page_the_path_has_the_ink_of_the_page(self):
        path = line(plot_contour_lines(build(points=8), theme="dark"), "trajectory")
        assert path.get_color() == "#ececec"
        assert line(plot_contour(build(points=8)), "trajectory").get_color() == "white"


class TestCells:
    @pytest.mark.parametrize("plot", [plot_heatmap, pytest.param(plot_contour, marks=pytest.mark.slow)])
    def test_each_has_its_own_value_around_its_own_place(self, plot):
        loss = np.array([[1, 2, 3, 4, 5], [1, 2, 3, 4, 50], [1, 2, np.nan, 4, 5.0]])
        data = build(loss)
        ax = plot(data)
        cells = mesh(ax)
        assert cells.get_cmap().name == "viridis"
        np.testing.assert_array_equal(np.ma.filled(cells.get_array(), np.nan).reshape(3, 5), loss)
        corners = cells.get_coordinates()
        np.testing.assert_allclose(corners[0, :, 0], edges(data.x))
        np.testing.assert_allclose(corners[:, 0, 1], edges(data.y))
        ends = [edges(axis) if plot is plot_heatmap else axis for axis in (data.x, data.y)]
        assert (ax.get_xlim(), ax.get_ylim()) == tuple((axis[0], axis[-1]) for axis in ends)
        lines = [item for item in ax.collections if isinstance(item, QuadContourSet)]
        assert bool(lines) == (plot is plot_contour)

    def test_unequal_steps_have_unequal_cells(self):
        data = build(np.arange(1.0, 10).reshape(3, 3), points=0)
        data.x[:] = [0, 1, 4]
        np.testing.assert_allclose(mesh(plot_heatmap(data)).get_coordinates()[0, :, 0], [-0.5, 0.5, 2.5, 5.5])


class TestInterpolated:
    def test_the_few_are_marked(self):
        data = build_unfinished()
        for plot in (plot_contour, plot_heatmap, plot_contour_lines):
            ax = plot(data)
            marks = line(ax, "interpolated").get_xydata()
            rows, columns = np.nonzero(data.status == PointStatus.INTERPOLATED)
            np.testing.assert_array_equal(marks, np.column_stack([data.x[columns], data.y[rows]]))
            kinds = {f"{COARSE} (80)", "failed (9)", "not finite (3)", "interpolated (32)"}
            assert kinds <= set(legend_texts(ax))
            assert "interpolated" in ax.get_title()

    def test_where_most_are_interpolated_the_measured_ones_are_marked(self):
        data = build(rows=9, columns=9, points=0)
        data.status[:] = PointStatus.INTERPOLATED
        data.status[::4, ::4] = PointStatus.MEASURED
        ax = plot_contour(data)
        assert len(line(ax, "measured").get_xydata()) == 9
        assert "measured (9, all others interpolated)" in legend_texts(ax)
        data.status[1, 1] = PointStatus.FAILED
        assert "measured (9, 71 interpolated)" in legend_texts(plot_contour(data))


class TestLevels:
    def test_quantiles_share_the_plane_equally(self):
        data = build(rows=60, columns=80)
        ax = plot_contour(data, levels="quantile")
        levels = contour_lines(ax).levels
        shares = np.histogram(data.metrics["loss"], [0, *levels, np.inf])[0] / data.metrics["loss"].size
        np.testing.assert_allclose(shares, 1 / (len(levels) + 1), atol=0.01)
        assert ax.figure.axes[1].get_ylabel() == "loss (log scale, levels at quantiles)"

    @pytest.mark.slow
    def test_words_numbers_and_values(self):
        landscape = Landscape(build())
        assert contour_lines(plot_contour(landscape, levels=[0.1, 1, 3, 1e9])).levels.tolist() == [0.1, 1, 3]
        linear = contour_lines(plot_contour(landscape, levels="linear")).levels
        np.testing.assert_allclose(np.diff(linear), np.diff(linear)[0])
        decades = contour_lines(plot_contour(landscape, scale="linear", levels="log")).levels
        assert {0.1, 1.0, 10.0} <= set(decades.tolist())
        assert len(contour_lines(plot_contour(landscape, levels=5)).levels) <= 5


@pytest.mark.parametrize("plot", [plot_contour, plot_heatmap])
def test_clipping_is_in_the_bar(plot):
    ax = plot(build(), clip=(0.1, 5))
    assert ax.figure.axes[1].get_ylabel() == "loss (log scale, clipped to 0.1 ... 5)"
    drawn = mesh(ax) if plot is plot_heatmap else ax.collections[0]
    assert (drawn.extend if plot is plot_contour else drawn.colorbar.extend) == "both"
    assert (drawn.norm.vmin, drawn.norm.vmax) == (0.1, 5)


@pytest.mark.parametrize("plot", [plot_contour, plot_contour_lines, plot_heatmap, plot_surface, plot_profile])
def test_a_line_is_no_plane(plot):
    needs, found, other = ("plane", "line", "profile") if plot is not plot_profile else ("line", "plane", "contour")
    text = f"{plot.__name__} needs a {needs}, but the landscape is a {found}; use plot_{other}"
    with pytest.raises(ValueError, match=text):
        plot(build_line([1, 2]) if found == "line" else build())
