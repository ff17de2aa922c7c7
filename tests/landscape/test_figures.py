from __future__ import annotations

import io
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from matplotlib.collections import QuadMesh
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from landscape.figures import plot_contour, plot_profile, plot_surface, save_figure
from landscape.figures.labels import most_telling, overlaps, place_labels
from landscape.figures.missing import edges
from landscape.figures.scales import SCALES, choose_scale, number_text
from landscape.figures.texts import plain
from landscape.landscape_data import DirectionsData, LandscapeData, PointStatus, TrajectoryData
from landscape.surface import Landscape

ROOT = Path(__file__).parents[2]


def loss_at(x: Any, y: Any) -> Any:
    """An asymmetric loss: steeper to the right than to the left, its valley bends upwards."""
    return 0.02 + (x - 0.1 * y) ** 2 + 6 * (y - 0.15 * x**2) ** 2 + 0.5 * np.clip(x, 0, None) ** 3


def build(loss: Any = None, *, rows: int = 20, columns: int = 30, points: int = 12, **attributes: Any) -> LandscapeData:
    if loss is not None:
        loss = np.asarray(loss, np.float64)
        rows, columns = loss.shape
    x, y = np.linspace(-2, 2.5, columns), np.linspace(-1, 1.2, rows)
    angle = np.linspace(9, 0, points)
    path = TrajectoryData.empty(
        range(3, 3 + points), 0.2 * angle * np.cos(angle), 0.1 * angle * np.sin(angle), np.zeros(points), angle
    )
    path.projected["loss"][:] = loss_at(path.x, path.y)
    path.status[:] = path.projected_status[:] = PointStatus.MEASURED
    data = LandscapeData.empty(
        x, y, DirectionsData(np.ones(2), np.array([0.632, 0.214]), 0.0), ("loss", "accuracy"), path if points else None,
        {"decomposition": "pca", "network": "LeNet", "unit": "epoch"} | attributes,
    )  # fmt: skip
    data.metrics["loss"][:] = loss_at(x, y[:, None]) if loss is None else loss
    data.metrics["accuracy"][:] = 0.5 + 0.1 * np.sin(x)
    data.status[:] = PointStatus.MEASURED
    data.convergence.metrics["loss"] = 0.02
    data.convergence.status = PointStatus.MEASURED
    return data


def build_line(loss: Any, **attributes: Any) -> LandscapeData:
    loss = np.asarray(loss, np.float64)
    data = LandscapeData.empty(
        np.linspace(-1, 1, len(loss)), None, DirectionsData(np.ones(1)), ("loss", "loss_stderr"), None,
        {"decomposition": "random", "normalization": "filter", "intervals": [[20]], "unit": "step"} | attributes,
    )  # fmt: skip
    data.metrics["loss"][:] = loss
    data.status[:] = PointStatus.MEASURED
    return data


def contour_lines(ax: Any) -> QuadContourSet:
    (lines,) = [item for item in ax.collections if isinstance(item, QuadContourSet) and not item.filled]
    return lines


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.figure.findobj(lambda item: hasattr(item, "get_text"))]


def legend_texts(ax: Any) -> list[str]:
    legends = [*ax.figure.legends, *([ax.get_legend()] if ax.get_legend() else [])]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def line(ax: Any, label: str) -> Any:
    (found,) = [item for item in ax.get_lines() if str(item.get_label()).startswith(label)]
    return found


def draw(ax: Any) -> None:
    save_figure(ax, io.BytesIO(), dpi=50)


DRAWINGS = [plot_contour, plot_surface]


class TestContour:
    def test_every_line_lies_where_the_loss_has_its_value(self) -> None:
        ax = plot_contour(Landscape(build(rows=120, columns=160)))
        lines = contour_lines(ax)
        checked = 0
        for level, segments in zip(lines.levels, lines.allsegs, strict=True):
            for segment in segments:
                np.testing.assert_allclose(loss_at(segment[:, 0], segment[:, 1]), level, rtol=0.15, atol=0.01)
                checked += len(segment)
        assert checked > 500

    def test_rows_are_y_with_three_rows_and_five_columns(self) -> None:
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

    def test_colours_are_logarithmic_and_the_bar_says_so(self) -> None:
        ax = plot_contour(Landscape(build()))
        bar = ax.figure.axes[1]
        assert bar.get_ylabel() == "loss (log scale)"
        assert bar.get_yscale() == "log"
        shown = [float(text.get_text()) for text in bar.get_yticklabels()]
        np.testing.assert_allclose(shown, bar.get_yticks())
        np.testing.assert_allclose(shown, contour_lines(ax).levels)

    def test_labels_on_lines_say_their_level(self) -> None:
        ax = plot_contour(Landscape(build(rows=60, columns=60, points=0)))
        lines = contour_lines(ax)
        labels = [text for text in ax.texts if text.get_text()]
        assert len(labels) >= 3
        for label in labels:
            assert float(label.get_text()) == pytest.approx(loss_at(*label.get_position()), rel=0.3, abs=0.02)
        assert {float(label.get_text()) for label in labels} <= set(lines.levels)

    def test_the_trajectory_is_where_it_was(self) -> None:
        data = build()
        ax = plot_contour(Landscape(data))
        path = data.trajectory
        np.testing.assert_array_equal(line(ax, "trajectory").get_xydata(), np.column_stack([path.x, path.y]))
        np.testing.assert_array_equal(line(ax, "start").get_xydata(), [[path.x[0], path.y[0]]])
        np.testing.assert_array_equal(line(ax, "end").get_xydata(), [[path.x[-1], path.y[-1]]])
        np.testing.assert_array_equal(line(ax, "convergence point").get_xydata(), [[0, 0]])
        assert legend_texts(ax) == ["trajectory", "start (epoch 3)", "end (epoch 14)", "convergence point"]

    def test_numbers_stand_beside_their_checkpoints_and_apart_from_each_other(self) -> None:
        data = build(points=40)
        ax = plot_contour(Landscape(data))
        ax.figure.draw_without_rendering()
        path = data.trajectory
        places = {str(number): (x, y) for number, x, y in zip(path.number, path.x, path.y, strict=True)}
        notes = [text for text in ax.texts if hasattr(text, "xyann")]
        assert len(notes) > 10
        boxes = []
        for note in notes:
            assert note.xy == pytest.approx(places[note.get_text()])
            boxes.append(note.get_window_extent().extents)
        stacked = np.array(boxes)
        for index, box in enumerate(stacked):
            others = np.delete(stacked, index, axis=0)
            assert not overlaps(box, others).any()

    def test_without_trajectory(self) -> None:
        ax = plot_contour(Landscape(build()), trajectory=False)
        assert ax.get_lines() == []
        assert legend_texts(ax) == []

    def test_a_path_that_leaves_the_picture_is_said_to(self) -> None:
        data = build()
        data.trajectory.x[:2] = 99
        assert "trajectory (2 of 12 outside)" in legend_texts(plot_contour(Landscape(data)))

    def test_pending_failed_and_infinite_cells_are_shown_as_such(self) -> None:
        data = build(rows=10, columns=10, points=0)
        loss = data.metrics["loss"]
        loss[2, 3:5], data.status[2, 3:5] = np.nan, PointStatus.FAILED
        loss[8:, :], data.status[8:, :] = np.nan, PointStatus.PENDING
        loss[0, 0], loss[0, 9], loss[1, 9] = np.inf, np.nan, -np.inf
        ax = plot_contour(Landscape(data))
        assert legend_texts(ax) == ["convergence point", "pending (20)", "failed (2)", "not finite (3)"]
        assert ax.get_title() == "LeNet\n80 of 100 points so far"
        patches = [item for item in ax.get_children() if isinstance(item, PathPatch)]
        across, up = edges(data.x), edges(data.y)
        failed = next(item for item in patches if item.get_hatch() == "xxxx").get_path().get_extents()
        np.testing.assert_allclose(failed.extents, [across[3], up[2], across[5], up[3]])
        draw(ax)

    def test_the_own_status_rules_even_where_a_number_is_left(self) -> None:
        data = build(rows=4, columns=4, points=0)
        data.status[1, 1] = PointStatus.FAILED
        ax = plot_contour(Landscape(data))
        (mesh,) = [item for item in ax.collections if isinstance(item, QuadMesh)]
        assert np.ma.getmaskarray(mesh.get_array()).reshape(4, 4)[1, 1]

    def test_clipping_is_labelled(self) -> None:
        ax = plot_contour(Landscape(build()), clip=(0.1, 5))
        assert ax.figure.axes[1].get_ylabel() == "loss (log scale, clipped to 0.1 ... 5)"
        (filled,) = [item for item in ax.collections if isinstance(item, QuadContourSet) and item.filled]
        assert filled.extend == "both"
        assert (filled.norm.vmin, filled.norm.vmax) == (0.1, 5)

    def test_clipping_does_not_move_the_lines(self) -> None:
        whole = contour_lines(plot_contour(Landscape(build()), levels=9))
        clipped = contour_lines(plot_contour(Landscape(build()), levels=9, clip=5.5))
        positions = {float(level): segments for level, segments in zip(whole.levels, whole.allsegs, strict=True)}
        common = [index for index, level in enumerate(clipped.levels) if float(level) in positions]
        assert len(common) >= 3
        for index in common:
            for ours, theirs in zip(clipped.allsegs[index], positions[float(clipped.levels[index])], strict=True):
                np.testing.assert_array_equal(ours, theirs)

    def test_other_metrics_keep_their_name(self) -> None:
        ax = plot_contour(Landscape(build()), metric="accuracy", scale="linear", colormap="magma")
        assert ax.figure.axes[1].get_ylabel() == "accuracy"

    def test_axes_of_the_user_are_used(self) -> None:
        figure = Figure()
        left, right = figure.subplots(1, 2)
        assert plot_contour(Landscape(build()), right) is right
        assert len(left.collections) == 0
        assert right.get_legend() is not None
        assert figure.legends == []
        assert figure.get_layout_engine() is None

    def test_a_line_is_sent_elsewhere(self) -> None:
        for plot in DRAWINGS:
            with pytest.raises(ValueError, match="the landscape is a line; use plot_profile"):
                plot(Landscape(build_line([1, 2])))


class TestLabelsOfAxes:
    def test_principal_directions_say_what_they_explain(self) -> None:
        ax = plot_contour(Landscape(build()))
        assert ax.get_xlabel() == "first principal direction (explained variance 63.2 %)"
        assert ax.get_ylabel() == "second principal direction (explained variance 21.4 %)"
        assert ax.get_title() == "LeNet, epochs 3 to 14"

    def test_random_directions_say_how_they_were_scaled(self) -> None:
        ax = plot_contour(Landscape(build(decomposition="random", normalization="filter")))
        assert ax.get_xlabel() == "random direction 1 (filter-normalised)"
        assert ax.get_ylabel() == "random direction 2 (filter-normalised)"
        ax = plot_contour(Landscape(build(decomposition="random", normalization="none")))
        assert ax.get_ylabel() == "random direction 2"

    def test_other_directions(self) -> None:
        assert plot_contour(Landscape(build(decomposition="points"))).get_ylabel() == "towards point 2"
        assert plot_contour(Landscape(build(decomposition="custom"))).get_xlabel() == "direction 1"

    def test_titles(self) -> None:
        assert plot_contour(Landscape(build(points=0, intervals=[[7]], unit="step"))).get_title() == "LeNet, step 7"
        assert plot_contour(Landscape(build(title="mine"))).get_title() == "mine"
        assert plot_contour(Landscape(build(points=0, network=None))).get_title() == "loss landscape"

    @pytest.mark.parametrize(
        "name", ["$", r"a_$b_{c$", r"$\frac$", "$$", r"\$x$", "a\nb\0c", "\ud800", "%s {} _x", "n" * 500]
    )
    @pytest.mark.parametrize("plot", DRAWINGS)
    def test_any_name_can_be_drawn(self, plot: Any, name: str) -> None:
        data = build(rows=4, columns=5, network=name, unit=name, decomposition=name, normalization=name)
        metric = name if name.isprintable() else "loss"
        for metrics in (data.metrics, data.trajectory.projected, data.trajectory.metrics):
            metrics[metric] = metrics["loss"] + 1
        data.convergence.metrics[metric] = 1.0
        draw(plot(Landscape(data), metric=metric))

    def test_text_is_drawn_as_it_is(self) -> None:
        from matplotlib.cbook import is_math_text

        for text in ("$a$", r"\$a$b$", r"$$\frac", "a$b"):
            assert not is_math_text(plain(text))
        assert plain("ab_{c}") == "ab_{c}"
        assert plain("x" * 100) == "x" * 45 + "..."


class TestSurface:
    def test_heights_are_logarithms_and_ticks_are_values(self) -> None:
        data = build(points=0)
        ax = plot_surface(Landscape(data))
        assert ax.get_zlabel() == "loss (log scale)"
        values = [float(text.get_text()) for text in ax.get_zticklabels()]
        np.testing.assert_allclose(10.0 ** np.array(ax.get_zticks()), values, rtol=1e-6)

    def test_cells_stand_over_their_place(self) -> None:
        loss = np.array([[1, 2, 3, 4, 5], [1, 2, 3, 4, 50], [1, 2, np.nan, 4, 5.0]])
        data = build(loss, points=0)
        ax = plot_surface(Landscape(data))
        cells = next(item for item in ax.collections if isinstance(item, Poly3DCollection))
        flat = np.asarray(cells._faces if hasattr(cells, "_faces") else cells._vec[:3].T).reshape(-1, 3)
        grid = {(x, y): loss[j, i] for j, y in enumerate(data.y) for i, x in enumerate(data.x)}
        assert len(flat) == 4 * 6
        for x, y, height in flat:
            assert 10**height == pytest.approx(grid[x, y])
        assert "1 points not finite" in ax.get_title()

    def test_the_path_runs_at_its_projected_loss(self) -> None:
        data = build()
        ax = plot_surface(Landscape(data))
        x, y, height = line(ax, "trajectory (projected loss)").get_data_3d()
        np.testing.assert_array_equal(x, data.trajectory.x)
        np.testing.assert_array_equal(y, data.trajectory.y)
        np.testing.assert_allclose(10 ** np.asarray(height), data.trajectory.projected["loss"])
        star = np.ravel(line(ax, "convergence point").get_data_3d())
        np.testing.assert_allclose(star, [0, 0, np.log10(0.02)])

    def test_an_origin_below_every_grid_point_keeps_its_height(self) -> None:
        data = build(np.full((3, 5), 1.0), points=0)
        data.convergence.metrics["loss"] = 0.01
        ax = plot_surface(Landscape(data))
        assert line(ax, "convergence point").get_data_3d()[2][0] == pytest.approx(-2)
        assert ax.get_zlim()[0] < -2

    def test_checkpoints_that_are_pending_are_left_out(self) -> None:
        data = build()
        data.trajectory.projected["loss"][3:] = np.nan
        x, _, _ = line(plot_surface(Landscape(data)), "trajectory").get_data_3d()
        np.testing.assert_array_equal(x, data.trajectory.x[:3])

    def test_it_is_seen_over_its_lowest_side(self) -> None:
        rising = np.linspace(1, 5, 8) * np.ones((6, 1))
        looking = {}
        for name, loss in (("right", rising), ("left", rising[:, ::-1])):
            ax = plot_surface(Landscape(build(loss, points=0)), trajectory=False)
            looking[name] = np.cos(np.radians(ax.azim))
        assert looking["right"] < 0 < looking["left"]

    def test_flat_axes_are_refused(self) -> None:
        with pytest.raises(TypeError, match=r"ax must be three-dimensional axes"):
            plot_surface(Landscape(build()), Figure().add_subplot())

    def test_axes_of_the_user_are_used(self) -> None:
        ax = Figure().add_subplot(projection="3d")
        assert plot_surface(Landscape(build()), ax) is ax


class TestProfile:
    def test_shows_the_values_where_they_were_measured(self) -> None:
        loss = [5, 2, 0.5, 0.02, 0.7, 1, 9]
        data = build_line(loss)
        data.metrics["loss_stderr"][:] = 0.01
        data.status[2] = PointStatus.INTERPOLATED
        ax = plot_profile(Landscape(data))
        np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), np.column_stack([data.x, loss]))
        assert line(ax, "interpolated").get_xydata().tolist() == [[data.x[2], 0.5]]
        assert len(line(ax, "measured").get_xydata()) == 6
        assert ax.get_yscale() == "log"
        assert ax.get_ylabel() == "loss (log scale)"
        assert ax.get_xlabel() == "random direction (filter-normalised)"
        assert ax.get_title() == "step 20\n6 of 7 points measured so far, 1 interpolated"
        (band,) = ax.collections
        box = band.get_paths()[0].get_extents()
        np.testing.assert_allclose([box.ymin, box.ymax], [0.01, 9.01])
        assert "loss ± standard error" in legend_texts(ax)

    def test_what_is_missing_is_marked(self) -> None:
        data = build_line([1, np.nan, np.nan, np.inf, 2])
        data.status[1], data.status[2] = PointStatus.PENDING, PointStatus.FAILED
        ax = plot_profile(Landscape(data))
        assert {"pending (1)", "failed (1)", "not finite (1)"} <= set(legend_texts(ax))
        assert line(ax, "failed").get_xdata()[0] == data.x[2]
        draw(ax)

    def test_checkpoints_and_origin(self) -> None:
        data = build_line([1, 2, 3])
        data.trajectory = TrajectoryData.empty([4, 5], np.array([-1.0, 0.0]), None, np.zeros(2), np.zeros(2))
        data.trajectory.projected["loss"][:] = [0.5, 8]
        data.convergence.metrics["loss"] = 2.5
        ax = plot_profile(Landscape(data))
        assert line(ax, "checkpoints").get_xydata().tolist() == [[-1, 0.5], [0, 8]]
        assert line(ax, "convergence point").get_xydata().tolist() == [[0, 2.5]]
        assert {text.get_text() for text in ax.texts} == {"4", "5"}
        low, high = ax.get_ylim()
        assert low < 0.5
        assert high > 8
        assert plot_profile(Landscape(data), trajectory=False).texts[:] == []

    def test_a_plane_is_sent_elsewhere(self) -> None:
        with pytest.raises(ValueError, match="the landscape is a plane; use plot_contour"):
            plot_profile(Landscape(build()))

    @pytest.mark.parametrize(
        "loss", [[1, 1, 1], [np.nan] * 3, [3], [np.inf, -np.inf], [1e-300, 1e300], [-5, 0, 1e6], [0, 0, 1e-9]]
    )
    def test_strange_values(self, loss: list[float]) -> None:
        draw(plot_profile(Landscape(build_line(loss))))


def surfaces() -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    one = np.full((3, 5), np.nan)
    one[1, 2] = 4.0
    outlier = 1 + 0.01 * np.arange(400.0).reshape(20, 20) / 400
    outlier[0, 0] = 1e30
    return {
        "flat": np.full((3, 5), 1.25),
        "zero": np.zeros((3, 5)),
        "nothing": np.full((3, 5), np.nan),
        "one": one,
        "infinite": np.full((3, 5), np.inf),
        "one row": np.arange(1.0, 6)[None],
        "one column": np.arange(1.0, 6)[:, None],
        "one point": np.ones((1, 1)),
        "extremes": np.array([[-1e308, 1e308], [0, 5e-324]]),
        "positive extremes": np.array([[5e-324, 1e308], [1, 2]]),
        "outlier": outlier,
        "rounding": np.nextafter(np.ones((3, 5)), np.arange(15).reshape(3, 5) % 2),
        "zeros and more": np.eye(5) * 1e4,
        "negative": -np.arange(15.0).reshape(3, 5),
        "both": np.sinh(np.arange(-30.0, 30)).reshape(6, 10),
        "checkered": np.where(np.indices((6, 6)).sum(0) % 2, np.nan, 2.0 + np.arange(36).reshape(6, 6)),
    }


class TestStrangeSurfaces:
    @pytest.mark.parametrize("name", surfaces())
    @pytest.mark.parametrize("plot", DRAWINGS)
    def test_is_drawn(self, plot: Any, name: str) -> None:
        loss = surfaces()[name]
        data = build(loss)
        draw(plot(Landscape(data)))
        np.testing.assert_array_equal(data.metrics["loss"], loss)

    @pytest.mark.parametrize("scale", ["linear", "symlog"])
    @pytest.mark.parametrize("name", ["flat", "extremes", "both", "zeros and more", "negative", "checkered"])
    def test_any_scale(self, name: str, scale: str) -> None:
        draw(plot_contour(Landscape(build(surfaces()[name], points=0)), scale=scale))

    def test_the_picture_says_what_is_odd(self) -> None:
        def words(name: str) -> str:
            return " ".join(text.get_text() for text in plot_contour(Landscape(build(surfaces()[name]))).texts)

        assert "flat: loss is 1.25 at all 15 finite points" in words("flat")
        assert "no finite value of loss" in words("nothing")
        assert "flat: loss is 4 at the only finite point" in words("one")

    @settings(max_examples=150, deadline=None)
    @given(values=arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats()), kind=st.sampled_from(SCALES))
    def test_any_values_have_a_scale(self, values: Any, kind: str) -> None:
        if kind == "log" and not (values[np.isfinite(values)] > 0).any():
            return
        scale = choose_scale(values, kind)
        if scale.flat:
            return
        bands = scale.bands()
        assert np.isfinite(bands).all()
        assert (np.diff(bands) > 0).all()
        assert (bands[0], bands[-1]) == (scale.low, scale.high)
        assert (np.diff(scale.levels) > 0).all()
        assert ((scale.levels >= scale.low) & (scale.levels <= scale.high)).all()
        assert len(set(scale.texts())) == len(scale.levels)
        heights = scale.forward(scale.shown(values))
        assert (np.isfinite(heights) == np.isfinite(values)).all()

    @pytest.mark.parametrize("seed", range(6))
    def test_random_surfaces_of_every_magnitude(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        loss = random.choice([1, 1, -1, 0], (5, 7)) * 10.0 ** random.uniform(-300, 300, (5, 7))
        loss[random.random((5, 7)) < 0.2] = random.choice([np.nan, np.inf, -np.inf])
        for plot in DRAWINGS:
            draw(plot(Landscape(build(loss, points=3))))


class TestScale:
    def test_positive_values_over_decades_are_logarithmic(self) -> None:
        scale = choose_scale(np.geomspace(0.03, 40, 50))
        assert scale.kind == "log"
        assert (scale.low, scale.high) == (0.03, 40)
        assert scale.levels.tolist() == [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]
        assert scale.texts() == ["0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"]
        assert (scale.extend, scale.label("loss")) == ("neither", "loss (log scale)")

    def test_narrow_and_negative_values_are_linear(self) -> None:
        assert choose_scale(np.linspace(2, 3, 50)).kind == "linear"
        scale = choose_scale(np.linspace(-3, 3, 50))
        assert scale.kind == "linear"
        assert 0 in scale.levels
        assert scale.label("loss") == "loss"

    def test_both_signs_over_decades_are_logarithmic_around_zero(self) -> None:
        scale = choose_scale(np.sinh(np.linspace(-12, 12, 101)))
        assert scale.kind == "symlog"
        assert 0 in scale.levels
        assert scale.levels[0] < -100
        assert scale.label("loss") == "loss (log scale around 0)"

    def test_nan_and_infinities_have_no_say(self) -> None:
        values = np.geomspace(0.03, 40, 50)
        with_others = np.concatenate([values, [np.nan, np.inf, -np.inf]])
        assert repr(choose_scale(with_others)) == repr(choose_scale(values))

    def test_outliers_do_not_take_all_the_colours(self) -> None:
        values = np.concatenate([np.linspace(2.0, 2.1, 500), [1e6]])
        scale = choose_scale(values)
        assert scale.kind == "linear"
        assert scale.high == 2.1
        assert scale.clipped_above
        assert scale.extend == "max"
        assert scale.label("loss") == "loss (clipped above 2.1)"

    def test_zeros_do_not_prevent_a_logarithm(self) -> None:
        scale = choose_scale(np.concatenate([[0.0], np.geomspace(1e-3, 1, 30)]))
        assert scale.kind == "log"
        assert scale.low == 1e-3
        assert scale.label("loss") == "loss (log scale, clipped below 0.001)"

    def test_levels_are_round_inside_and_about_as_many_as_asked(self) -> None:
        for low, high in ((0.03, 40), (1e-12, 1e9), (1, 2), (7.1, 7.2), (1e-300, 1e300), (3, 90)):
            for count in (4, 8, 12, 24):
                for kind in ("linear", "log"):
                    levels = choose_scale(np.geomspace(low, high, 40), kind, count).levels
                    assert (np.diff(levels) > 0).all()
                    assert 1 <= len(levels) <= count + 3
                    assert levels[0] >= low * (1 - 1e-12)
                    assert levels[-1] <= high * (1 + 1e-12)

    @pytest.mark.parametrize("kind", ["linear", "log", "symlog"])
    def test_heights_and_values_are_inverse_and_keep_the_order(self, kind: str) -> None:
        values = np.array([-50, -1, -0.01, 0, 0.3, 2, 900.0]) if kind != "log" else np.geomspace(1e-5, 1e5, 9)
        scale = choose_scale(values, kind)
        heights = scale.forward(values)
        assert (np.diff(heights) > 0).all()
        np.testing.assert_allclose(scale.height_values(heights), values, atol=1e-12)

    def test_numbers_are_short_and_tell_neighbours_apart(self) -> None:
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
            ({"levels": 1}, ValueError, "levels must be an int from 2 to 100"),
            ({"levels": 2.5}, TypeError, "levels must be an int"),
            ({"clip": "high"}, TypeError, "clip must be a number"),
            ({"clip": (1, 2, 3)}, ValueError, "clip must be"),
            ({"clip": (2, 1)}, ValueError, "clip must be a pair whose first number is the smaller"),
            ({"clip": np.nan}, ValueError, "clip must be finite"),
        ],
    )
    def test_wrong_arguments(self, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
        for plot in DRAWINGS:
            with pytest.raises(error, match=message):
                plot(Landscape(build()), **arguments)

    def test_a_logarithm_needs_something_positive(self) -> None:
        with pytest.raises(ValueError, match="scale must be 'linear' or 'symlog' where no value is positive"):
            choose_scale(np.array([-1.0, 0.0]), "log")

    def test_unknown_metric_and_wrong_flag(self) -> None:
        with pytest.raises(KeyError, match="no metric 'recall'"):
            plot_contour(Landscape(build()), metric="recall")
        with pytest.raises(TypeError, match="trajectory must be a bool"):
            plot_contour(Landscape(build()), trajectory=1)


class TestPlacement:
    def test_labels_keep_clear_of_everything(self) -> None:
        random = np.random.default_rng(0)
        points, sizes = random.uniform(0, 300, (40, 2)), np.full((40, 2), 12.0)
        frame, taken = np.array([0.0, 0, 300, 300]), np.array([[100.0, 100, 200, 200]])
        placed = place_labels(points, sizes, range(40), frame, taken, gap=4.0)
        assert placed
        boxes = np.array([[x - 6, y - 6, x + 6, y + 6] for x, y in placed.values()])
        for index, box in enumerate(boxes):
            assert not overlaps(box, taken).any()
            assert not overlaps(box, np.delete(boxes, index, axis=0)).any()
            assert (box[:2] >= 0).all()
            assert (box[2:] <= 300).all()
            assert not ((points > box[:2]) & (points < box[2:])).all(axis=1).any()

    @given(count=st.integers(0, 200))
    def test_the_ends_come_first_and_none_is_forgotten(self, count: int) -> None:
        order = most_telling(count)
        assert sorted(order) == list(range(count))
        assert order[:2] == ([0, count - 1] if count > 1 else list(range(count)))


class TestSaving:
    @pytest.mark.parametrize("suffix", ["PNG", "pdf", "svg"])
    @pytest.mark.parametrize("plot", DRAWINGS)
    def test_the_same_picture_gives_the_same_bytes(self, tmp_path: Path, suffix: str, plot: Any) -> None:
        files = [tmp_path / f"{index}.{suffix}" for index in range(2)]
        for file in files:
            save_figure(plot(Landscape(build())), file)
        assert files[0].read_bytes() == files[1].read_bytes()
        start = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix.lower()]
        assert files[0].read_bytes().startswith(start)
        if suffix == "svg":
            xml.etree.ElementTree.parse(files[0])
        assert len(list(tmp_path.iterdir())) == 2

    def test_figures_subfigures_and_streams(self, tmp_path: Path) -> None:
        figure = Figure()
        ax = figure.subfigures(1, 2)[1].subplots()
        pictures = []
        for item in (figure, ax.figure, ax):
            stream = io.BytesIO()
            save_figure(item, stream)
            pictures.append(stream.getvalue())
        assert pictures[0] == pictures[1] == pictures[2]

    def test_other_names_and_things(self, tmp_path: Path) -> None:
        ax = Figure().add_subplot()
        for name in ("a.jpg", "a", "a.png.txt"):
            with pytest.raises(ValueError, match=r"path must be a name that ends in \.png, \.pdf or \.svg"):
                save_figure(ax, tmp_path / name)
        with pytest.raises(TypeError, match="figure must be a matplotlib figure or axes"):
            save_figure("picture", tmp_path / "a.png")
        with pytest.raises(TypeError, match="path must be a path or a binary stream"):
            save_figure(ax, 3)
        with pytest.raises(FileNotFoundError):
            save_figure(ax, tmp_path / "none" / "a.png")
        assert list(tmp_path.iterdir()) == []


def test_pyplot_is_never_touched() -> None:
    script = """
import sys, matplotlib
names = set(matplotlib.rcParams) - {"backend"}  # asking for the backend imports pyplot
before = {name: matplotlib.rcParams[name] for name in names}
sys.path.insert(0, "tests/landscape")
import io
from landscape.figures import plot_contour, plot_surface, save_figure
from landscape.surface import Landscape
from test_figures import build
for plot in (plot_contour, plot_surface):
    save_figure(plot(Landscape(build())), io.BytesIO())
assert "matplotlib.pyplot" not in sys.modules
assert {name: matplotlib.rcParams[name] for name in names} == before
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
