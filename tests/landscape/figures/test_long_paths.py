"""Paths of many checkpoints: colours of time with a bar, arrowheads, dots that do not touch, round numbers."""

import itertools

import numpy as np
import pytest
from figure_cases import build, legend_texts, line
from hypothesis import given
from hypothesis import strategies as st
from long_paths import SHAPES, build_path, places
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from surfaces import surface

from landscape.drawing.appearance import STYLES
from landscape.drawing.path import EDGE, RAMPS, TIME_BAR, Times, marked, marked_text, numbered, path_times, pieces
from landscape.drawing.placement import HEAD, arrow_places
from landscape.figures import plot_contour, plot_contour_lines, plot_multiples, plot_profile, plot_surface
from landscape.grid.checkpoints import CheckpointsData
from landscape.landscape import Landscape


def luminance(colors):
    """The relative luminance of sRGB colours."""
    values = np.asarray(colors)
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def bars(ax):
    return [other for other in ax.figure.axes if other.get_label() == TIME_BAR]


def timed(ax):
    return [item for item in ax.collections if type(item) is LineCollection]


def arrows(ax):
    return [item for item in ax.get_lines() if item.get_label() == "_arrow"]


class TestColours:
    def test_many_short_runs_differ_in_colour_or_stroke(self):
        ax = plot_contour(build_path(count=3, runs=17))
        looks = {
            (item.get_color(), item.get_linestyle())
            for item in ax.get_lines()
            if str(item.get_label()).startswith("run")
        }
        assert len(looks) == 17

    @pytest.mark.parametrize("run", range(len(RAMPS)))
    def test_they_darken_steadily_and_stay_lighter_than_their_rim(self, run):
        bright = luminance(Times(0, 100, "epoch").colors(run, np.arange(101)))
        assert (np.diff(bright) < 0).all()
        assert bright[0] > 0.75
        # WCAG's contrast of graphics, against the rim and so against every dark colour of a map.
        assert (bright.min() + 0.05) / (luminance(to_rgb(EDGE)) + 0.05) > 3

    def test_runs_differ_at_every_time(self):
        colors = np.stack([Times(0, 1, "epoch").colors(run, [0.4, 0.7, 1.0]) for run in range(len(RAMPS))])
        for one, two in itertools.combinations(colors, 2):
            assert (np.abs(one - two).max(axis=1) > 0.15).all()

    def test_they_are_for_long_paths_of_one_unit(self):
        assert path_times([build(points=9)]) is None
        assert path_times([build(points=0)]) is None
        assert path_times([build(points=10), build(points=3)]) == Times(3, 12, "epoch")
        assert path_times([build_path(count=20), build_path(count=20, unit="step")]) is None

    @given(count=st.integers(2, 2000), most=st.integers(1, 200))
    def test_pieces_join_and_leave_no_checkpoint_out(self, count, most):
        found = [piece for piece, _ in pieces(np.arange(count), most)]
        assert found[0].start == 0
        assert found[-1].stop == count
        assert all(one.stop - 1 == two.start for one, two in itertools.pairwise(found))
        assert len(found) <= most


class TestWhatIsMarked:
    @pytest.mark.parametrize(
        ("numbers", "expected"),
        [
            (range(9), range(9)),
            (range(50), range(0, 50, 5)),
            (range(200), range(0, 200, 20)),
            (range(1000), range(0, 1000, 100)),
            (range(3, 40), range(5, 40, 5)),
        ],
    )
    def test_numbers_are_round(self, numbers, expected):
        found = np.array(numbers)
        assert found[numbered(found)].tolist() == list(expected)

    def test_steps_without_round_numbers_still_have_numbers(self):
        found = 7 + 13 * np.arange(100)
        assert 3 <= len(numbered(found)) <= 12

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("count", [10, 200, 1000])
    def test_dots_do_not_touch(self, shape, count):
        points = 100 * places(shape, count)
        dots = marked(points, np.arange(count), 4.0)
        apart = np.hypot(*(points[dots.rows, None] - points[None, dots.rows]).transpose(2, 0, 1))
        assert (apart[~np.eye(len(apart), dtype=bool)] > 4).all()
        assert len(dots.rows) >= 2
        if dots.stride:
            assert set(np.diff(dots.rows)) == {dots.stride}

    def test_the_legend_says_which(self):
        points = np.column_stack([np.arange(1000.0), np.zeros(1000)])
        every = marked(points, np.arange(1000), 4.0)
        assert marked_text([every]) == "every 20th checkpoint marked"
        assert marked_text([marked(30 * points[:50], np.arange(50), 4.0)]) == ""
        crowded = marked(np.vstack([points, np.tile(points[-1], (1000, 1))]), np.arange(2000), 4.0)
        assert marked_text([crowded]) == f"{len(crowded.rows)} of 2,000 checkpoints marked"
        both = len(every.rows) + len(crowded.rows)
        assert marked_text([every, crowded]) == f"{both} of 3,000 checkpoints marked"


class TestArrows:
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("count", [3, 10, 200, 1000])
    def test_a_handful_points_the_way_it_went(self, shape, count):
        points = 150 * places(shape, count)
        found = arrow_places(points)
        assert 1 <= len(found) <= 8
        assert len(found) >= 2 or count == 3
        for place, x, y, angle in found:
            near = np.clip([place - 0.2, place, place + 0.2], 0, count - 1)
            before, on, after = np.column_stack([np.interp(near, np.arange(count), column) for column in points.T])
            assert count > 10 or (after - before) @ [np.cos(angle), np.sin(angle)] > 0
            np.testing.assert_allclose([x, y], on)

    def test_they_are_equally_far_apart(self):
        found = arrow_places(np.column_stack([np.linspace(0, 400, 1000), np.zeros(1000)]))
        np.testing.assert_allclose(np.diff(found[:, 1]), 400 / len(found), atol=HEAD)
        assert (np.abs(found[:, 3]) < 1e-9).all()

    def test_noise_has_no_direction(self):
        noise = np.random.default_rng(0).normal(size=(500, 2))
        assert len(arrow_places(noise)) == 0
        drift = 20 * noise.clip(-1, 1) / 4 + np.column_stack([np.linspace(0, 500, 500), np.zeros(500)])
        angles = arrow_places(drift)[:, 3]
        assert len(angles) >= 3
        assert (np.abs(angles) < 1).all()

    def test_gaps_and_single_points_have_none(self):
        assert len(arrow_places(np.empty((0, 2)))) == 0
        assert len(arrow_places(np.array([[1.0, 2.0]]))) == 0
        holed = np.array([[0.0, 0], [np.nan, np.nan], [200, 0]])
        assert len(arrow_places(holed)) >= 1


class TestPictures:
    @pytest.mark.parametrize("look", [{"theme": "light"}, {"theme": "dark"}, {"style": "paper"}])
    def test_a_thousand_checkpoints_have_a_bar_arrowheads_and_round_numbers(self, look):
        data = build_path("spiral", 1000)
        ax = plot_contour(data, **look)
        (bar,) = bars(ax)
        assert bar.get_xlabel() == "epoch along the path"
        assert bar.get_xlim() == (0, 999)
        (colored,) = timed(ax)
        shown = colored.get_colors()
        assert luminance(shown[0, :3]) > luminance(shown[-1, :3])
        assert 3 <= len(arrows(ax)) <= 8
        numbers = [int(text.get_text()) for text in ax.texts if text.get_text().isdigit() and text.get_zorder() == 7]
        assert len(numbers) >= 4
        assert all(number % 100 == 0 for number in numbers)
        said = legend_texts(ax)
        assert any(text.endswith("checkpoints marked") or text.endswith("checkpoint marked") for text in said)
        assert {"start (epoch 0)", "end (epoch 999)"} < set(said)
        # Every checkpoint lies on the line.
        path = np.column_stack([data.checkpoints.x, data.checkpoints.y])
        np.testing.assert_array_equal(line(ax, "trajectory").get_xydata(), path)
        joined = np.vstack([colored.get_segments()[0][:1], *(part[1:] for part in colored.get_segments())])
        np.testing.assert_array_equal(joined, path)

    @pytest.mark.slow
    @pytest.mark.parametrize("style", STYLES)
    @pytest.mark.parametrize(("shape", "count"), [*((shape, 17) for shape in SHAPES), ("spiral", 9), ("walk", 200)])
    def test_a_number_stands_at_its_own_checkpoint_which_has_a_mark(self, shape, count, style):
        data = build_path(shape, count)
        ax = plot_contour(data, style=style)
        found = data.checkpoints
        points = ax.transData.transform(np.column_stack([found.x, found.y]))
        dots = [item.get_xdata() for item in ax.get_lines() if item.get_label() in ("_dots", "trajectory")]
        marked_at = {float(x) for x in [*min(dots, key=len), found.x[0], found.x[-1]]}
        numbers = [text for text in ax.texts if text.get_zorder() == 7]
        assert numbers
        for text in numbers:
            own = int(text.get_text())
            assert float(found.x[own]) in marked_at
            box = text.get_window_extent()
            nearest = np.hypot(*(points - [(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2]).T).argmin()
            # In points; two dots are never so near.
            assert np.hypot(*(points[nearest] - points[own])) * 72 / ax.figure.dpi <= 3 * STYLES[style]["factor"]

    @pytest.mark.slow
    @pytest.mark.parametrize("look", [{}, {"style": "paper"}, {"theme": "dark", "size": (9, 4)}])
    @pytest.mark.parametrize("draw", [plot_contour, plot_surface])
    def test_the_bar_covers_nothing(self, draw, look):
        ax = draw(build_path("walk", 300, runs=2), **look)
        (bar,) = bars(ax)
        others = [legend.get_window_extent() for legend in ax.figure.legends]
        others += [other.get_tightbbox() for other in ax.figure.axes if other is not bar and other.name != "3d"]
        assert not any(bar.get_tightbbox().overlaps(other.padded(-1)) for other in others)

    @pytest.mark.slow
    def test_few_checkpoints_have_numbers_and_arrowheads_but_no_bar(self):
        ax = plot_contour(build_path("spiral", 6))
        assert bars(ax) == []
        assert timed(ax) == []
        assert len(arrows(ax)) >= 2
        assert {text.get_text() for text in ax.texts} >= {"0", "1", "2"}

    def test_runs_keep_their_hue_and_stroke(self):
        ax = plot_contour_lines(build_path("spiral", 60, runs=3))
        ends = [item.get_colors()[-1, :3] for item in timed(ax)]
        assert len(ends) == 3
        assert min(np.abs(one - two).max() for one, two in itertools.combinations(ends, 2)) > 0.3
        dashed = [len({dashes is None for _, dashes in item.get_linestyles()}) for item in timed(ax)]
        assert dashed == [1, 1, 1]
        assert timed(ax)[0].get_linestyles()[0][1] is None
        assert timed(ax)[1].get_linestyles()[0][1] is not None
        (bar,) = bars(ax)
        assert bar.images[0].get_array().shape[0] == 3
        assert [text for text in legend_texts(ax) if text.startswith("run ")] == ["run 1", "run 2", "run 3"]

    def test_a_surface_has_the_same_colours_and_every_checkpoint(self):
        data = build_path("spiral", 120)
        ax = plot_surface(data)
        assert len(bars(ax)) == 1
        drawn = [item for item in ax.get_lines() if item.get_label() == "_time"]
        assert len(drawn) == 64
        assert luminance(to_rgb(drawn[0].get_color())) > luminance(to_rgb(drawn[-1].get_color()))
        np.testing.assert_array_equal(
            line(ax, "trajectory").get_data_3d()[:2], [data.checkpoints.x, data.checkpoints.y]
        )
        assert "end (epoch 119)" in legend_texts(ax)

    @pytest.mark.slow
    def test_several_pictures_share_one_bar_and_time(self):
        pair = [Landscape(build_path("spiral", 100)), Landscape(build_path("walk", 300))]
        axes = plot_multiples(pair)
        (bar,) = bars(axes[0])
        assert bar.get_xlim() == (0, 299)
        last = [timed(ax)[0].get_colors()[-1, :3] for ax in axes]
        assert luminance(last[0]) > luminance(last[1])
        units = [Landscape(build_path("spiral", 50)), Landscape(build_path("spiral", 50, unit="step"))]
        assert len(bars(plot_multiples(units)[0])) == 2
        assert bars(plot_multiples(pair, trajectory=False)[0]) == []

    def test_a_profile_marks_and_numbers_only_what_has_room(self):
        data = surface(None)
        x = np.linspace(-0.9, 0.0, 500)
        data.checkpoints = CheckpointsData.empty(range(500), x, None, np.zeros(500), -x, ("loss",))
        data.checkpoints.projected["loss"][:] = np.interp(x, data.x, data.metrics["loss"])
        ax = plot_profile(data)
        assert len(bars(ax)) == 1
        shown = [item for item in ax.get_lines() if item.get_label() == "_checkpoint"]
        assert 5 < len(shown) < 100
        numbers = [int(text.get_text()) for text in ax.texts if text.get_text().isdigit()]
        assert numbers
        assert all(number % 50 == 0 for number in numbers)
