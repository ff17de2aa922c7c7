import numpy as np
import pytest
from figure_cases import build, contour_lines, draw, legend_texts, line, loss_at
from matplotlib.collections import QuadMesh
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from landscape.drawing.missing import edges
from landscape.drawing.placement import overlaps
from landscape.figures import plot_contour, plot_surface
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus

DRAWINGS = [plot_contour, plot_surface]

COARSE = "coarse: value of the nearest measured point"


class TestContour:
    def test_every_line_lies_where_the_loss_has_its_value(self):
        ax = plot_contour(Landscape(build(rows=120, columns=160)))
        lines = contour_lines(ax)
        checked = 0
        for level, segments in zip(lines.levels, lines.allsegs, strict=True):
            for segment in segments:
                np.testing.assert_allclose(loss_at(segment[:, 0], segment[:, 1]), level, rtol=0.15, atol=0.01)
                checked += len(segment)
        assert checked > 500

    @pytest.mark.slow
    def test_rows_are_y_with_three_rows_and_five_columns(self):
        loss = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 50], [1, 2, np.nan, 4, 5.0]]
        ax = plot_contour(Landscape(build(loss)))
        (mesh,) = [item for item in ax.collections if isinstance(item, QuadMesh)]
        values = np.ma.filled(mesh.get_array(), np.nan).reshape(3, 5)
        np.testing.assert_array_equal(values, loss)
        corners = mesh.get_coordinates()
        assert corners.shape == (4, 6, 2)
        np.testing.assert_allclose(corners[1, 4:].mean(axis=0)[0], 2.5)
        np.testing.assert_allclose(corners[1:3, 4, 1].mean(), 0.1)
        assert ax.get_xlim() == (-2, 2.5)
        assert ax.get_ylim() == (-1, 1.2)

    def test_colours_are_logarithmic_and_the_bar_says_so(self):
        ax = plot_contour(Landscape(build()))
        bar = ax.figure.axes[1]
        assert bar.get_ylabel() == "loss (log scale)"
        assert bar.get_yscale() == "log"
        shown = [float(text.get_text()) for text in bar.get_yticklabels()]
        np.testing.assert_allclose(shown, bar.get_yticks())
        np.testing.assert_allclose(shown, contour_lines(ax).levels)

    def test_labels_on_lines_say_their_level(self):
        ax = plot_contour(Landscape(build(rows=60, columns=60, points=0)))
        lines = contour_lines(ax)
        labels = [text for text in ax.texts if text.get_text()]
        assert len(labels) >= 3
        for label in labels:
            assert float(label.get_text()) == pytest.approx(loss_at(*label.get_position()), rel=0.3, abs=0.02)
        assert {float(label.get_text()) for label in labels} <= set(lines.levels)

    def test_the_trajectory_is_where_it_was(self):
        data = build()
        ax = plot_contour(Landscape(data))
        path = data.checkpoints
        np.testing.assert_array_equal(line(ax, "trajectory").get_xydata(), np.column_stack([path.x, path.y]))
        np.testing.assert_array_equal(line(ax, "start").get_xydata(), [[path.x[0], path.y[0]]])
        np.testing.assert_array_equal(line(ax, "end").get_xydata(), [[path.x[-1], path.y[-1]]])
        np.testing.assert_array_equal(line(ax, "final weights").get_xydata(), [[0, 0]])
        assert legend_texts(ax) == ["trajectory", "start (epoch 3)", "end (epoch 14)", "final weights (epoch 14)"]

    def test_numbers_stand_beside_their_checkpoints_and_apart_from_each_other(self):
        data = build(points=40)
        ax = plot_contour(Landscape(data))
        ax.figure.draw_without_rendering()
        path = data.checkpoints
        places = {str(number): (x, y) for number, x, y in zip(path.number, path.x, path.y, strict=True)}
        notes = [text for text in ax.texts if hasattr(text, "xyann")]
        assert 5 <= len(notes) <= 9
        assert all(int(note.get_text()) % 5 == 0 for note in notes)
        boxes = []
        for note in notes:
            assert note.xy == pytest.approx(places[note.get_text()])
            boxes.append(note.get_window_extent().extents)
        stacked = np.array(boxes)
        for index, box in enumerate(stacked):
            others = np.delete(stacked, index, axis=0)
            assert not overlaps(box, others).any()

    def test_without_trajectory(self):
        ax = plot_contour(Landscape(build()), trajectory=False)
        assert ax.get_lines() == []
        assert legend_texts(ax) == []

    def test_a_path_that_leaves_the_picture_is_said_to(self):
        data = build()
        data.checkpoints.x[:2] = 99
        assert "trajectory (2 of 12 outside)" in legend_texts(plot_contour(Landscape(data)))

    def test_pending_failed_and_infinite_cells_are_shown_as_such(self):
        data = build(rows=10, columns=10, points=0)
        loss = data.metrics["loss"]
        loss[2, 3:5], data.status[2, 3:5] = np.nan, PointStatus.FAILED
        loss[8:, :], data.status[8:, :] = np.nan, PointStatus.PENDING
        loss[0, 0], loss[0, 9], loss[1, 9] = np.inf, np.nan, -np.inf
        ax = plot_contour(Landscape(data))
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
        ax = plot_contour(Landscape(data))
        (mesh,) = [item for item in ax.collections if isinstance(item, QuadMesh)]
        assert np.ma.getmaskarray(mesh.get_array()).reshape(4, 4)[1, 1]

    def test_clipping_is_labelled(self):
        ax = plot_contour(Landscape(build()), clip=(0.1, 5))
        assert ax.figure.axes[1].get_ylabel() == "loss (log scale, clipped to 0.1 ... 5)"
        (filled,) = [item for item in ax.collections if isinstance(item, QuadContourSet) and item.filled]
        assert filled.extend == "both"
        assert (filled.norm.vmin, filled.norm.vmax) == (0.1, 5)

    def test_clipping_does_not_move_the_lines(self):
        whole = contour_lines(plot_contour(Landscape(build()), levels=9))
        clipped = contour_lines(plot_contour(Landscape(build()), levels=9, clip=5.5))
        positions = {float(level): segments for level, segments in zip(whole.levels, whole.allsegs, strict=True)}
        common = [index for index, level in enumerate(clipped.levels) if float(level) in positions]
        assert len(common) >= 3
        for index in common:
            for ours, theirs in zip(clipped.allsegs[index], positions[float(clipped.levels[index])], strict=True):
                np.testing.assert_array_equal(ours, theirs)

    def test_other_metrics_keep_their_name(self):
        ax = plot_contour(Landscape(build()), metric="accuracy", scale="linear", colormap="magma")
        assert ax.figure.axes[1].get_ylabel() == "accuracy"

    def test_axes_of_the_user_are_used(self):
        figure = Figure()
        left, right = figure.subplots(1, 2)
        assert plot_contour(Landscape(build()), right) is right
        assert len(left.collections) == 0
        assert right.get_legend() is not None
        assert figure.legends == []
        assert figure.get_layout_engine() is None
