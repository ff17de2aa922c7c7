"""Minima and saddles on pictures, the persistence diagram and the merge tree: what the artists show."""

import math

import numpy as np
import pytest
from figure_cases import build, build_line, build_unfinished, draw, legend_texts, line

from landscape import figures
from landscape.figures.minima import leaf_order
from landscape.grid.data import DirectionsData
from landscape.landscape import Landscape
from landscape.roles import NETWORK

SLOW = pytest.mark.slow
TRUTH = "of the grid, not of the network"
VALUES = [0.5, 5, 1, 3, 2, 9, 1.5]


def wells():
    """Four wells of different depth; the grid is not square and its axes differ."""
    x, y = np.linspace(-2, 2.5, 46), np.linspace(-1, 1.2, 23)
    loss = 1.2 + 0.5 * np.cos(2.2 * x)[None] + 0.4 * np.cos(4.5 * y)[:, None] + 0.12 * x[None] + 0.1 * y[:, None]
    return build(loss)


def letters(ax):
    return {text.get_text(): text for text in ax.texts if text.get_text() in tuple("ABCDEFGH")}


class TestMarks:
    @pytest.mark.parametrize("kind", ["contour", *(pytest.param(kind, marks=SLOW) for kind in ("lines", "heatmap"))])
    def test_stand_at_the_points_of_a_plane(self, kind):
        landscape = Landscape(wells())
        found = landscape.topology()
        ax = landscape.plot(kind, topology=True)
        assert len(found.minima) == 4
        assert line(ax, "4 minima").get_xydata().tolist() == [[m.x, m.y] for m in found.minima]
        assert line(ax, "saddles").get_xydata().tolist() == [[s.x, s.y] for s in found.saddles]
        assert f"4 minima {TRUTH}" in legend_texts(ax)
        assert letters(ax)["A"].xy == (found.minima[0].x, found.minima[0].y)
        assert len(letters(ax)) == 4
        draw(ax)

    def test_no_name_is_written_over_a_letter(self):
        data = wells()
        lowest = Landscape(data).topology().minima[0]
        data.origin.role, data.origin.name, data.origin.x, data.origin.y = NETWORK, "adam_2", lowest.x, lowest.y
        ax = figures.plot_contour(data, topology=True)
        draw(ax)
        (name,) = [text for text in ax.texts if text.get_text() == "adam_2"]
        for letter in letters(ax).values():
            assert not letter.get_window_extent().overlaps(name.get_window_extent())

    def test_follow_an_oblique_plane(self):
        data = wells()
        data.directions = DirectionsData(np.array([2.0, 3.0]), None, 0.5)
        found = Landscape(data).topology()
        ax = figures.plot_contour(data, topology=True)
        expected = np.column_stack(data.geometry.distances([m.x for m in found.minima], [m.y for m in found.minima]))
        np.testing.assert_allclose(line(ax, "4 minima").get_xydata(), expected)

    def test_stand_on_the_curve_of_a_line(self):
        ax = figures.plot_profile(build_line(VALUES), topology=True)
        x = np.linspace(-1, 1, 7)
        assert line(ax, "4 minima").get_xydata().tolist() == [[x[i], VALUES[i]] for i in (0, 2, 6, 4)]
        assert line(ax, "saddles").get_xydata().tolist() == [[x[i], VALUES[i]] for i in (3, 1, 5)]
        draw(ax)

    def test_a_minimum_of_0_stands_on_a_logarithmic_curve(self):
        ax = figures.plot_profile(build_line([0.0, 50, 1, 3, 2, 90, 1.5]), topology=True)
        assert ax.get_ylabel() == "loss (log scale, 0 drawn as 1)"
        assert line(ax, "4 minima").get_ydata().tolist() == [1, 1, 1.5, 2]

    @pytest.mark.parametrize(("wanted", "than"), [(2, "2"), (True, "twice the standard error")])
    def test_it_says_what_hides_the_others(self, wanted, than):
        data = build_line(VALUES)
        data.metrics["loss_stderr"][:] = 0.6
        ax = figures.plot_profile(data, topology=wanted)
        assert len(line(ax, "3 minima").get_xdata()) == 3
        assert f"3 minima {TRUTH}\n1 more is not deeper than {than}" in legend_texts(ax)

    def test_numbers_on_contour_lines_keep_clear(self):
        ax = figures.plot_contour(wells(), topology=True)
        draw(ax)
        marks = ax.transData.transform(line(ax, "4 minima").get_xydata())
        for text in ax.texts:
            if text.get_text() not in letters(ax):
                box = text.get_window_extent()
                assert not any(box.contains(*mark) for mark in marks), text.get_text()

    def test_letters_stay_inside(self):
        values = np.ones((9, 12))
        values[[0, 0, -1, -1], [0, -1, 0, -1]] = [0.1, 0.2, 0.3, 0.4]
        ax = figures.plot_heatmap(build(values, points=0), topology=True)
        draw(ax)
        frame = ax.get_window_extent()
        for name in "ABCD":
            box = letters(ax)[name].get_window_extent()
            assert all(frame.containsx(x) for x in (box.x0 + 2, box.x1 - 2)), name
            assert all(frame.containsy(y) for y in (box.y0 + 2, box.y1 - 2)), name

    def test_several_pictures_share_the_words(self):
        axes = figures.plot_multiples([wells(), build()], topology=True)
        assert legend_texts(axes[0]).count(f"minima {TRUTH}") == 1
        assert len(letters(axes[0])) == 4
        assert len(letters(axes[1])) == 1

    @SLOW
    def test_an_animation_has_them(self):
        data = wells()
        data.checkpoints.metrics["loss"][:] = 1.0
        options = {"seconds": 0.2, "rate": 10, "dpi": 40}
        plain, marked = (next(figures.walk_frames(data, topology=wanted, **options)) for wanted in (False, True))
        assert (plain != marked).any()

    @pytest.mark.parametrize("name", ["plot_surface", "plot_difference", "plot_merge_tree"])
    def test_pictures_that_cannot_mark_them_say_so(self, name):
        planes = [wells()] * (2 if name == "plot_difference" else 1)
        with pytest.raises(ValueError, match=f"topology must be left out for {name}: plot_contour, "):
            getattr(figures, name)(*planes, topology=True)

    @pytest.mark.parametrize(
        ("wanted", "error", "text"),
        [
            ("yes", TypeError, "topology must be a bool, or the barrier that a minimum must have more of than"),
            (-1, ValueError, "topology must be a finite number of at least 0, but got -1"),
            (None, TypeError, "topology must be a bool"),
        ],
    )
    def test_a_wrong_option(self, wanted, error, text):
        with pytest.raises(error, match=text):
            figures.plot_contour(wells(), topology=wanted)


class TestMergeTree:
    def test_each_minimum_rises_to_where_it_meets_a_lower_one(self):
        ax = figures.plot_merge_tree(build_line(VALUES))
        # From left to right 0.5, 1, 2 (which meets 1), 1.5.
        assert line(ax, "4 minima").get_xydata().tolist() == [[0, 0.5], [1, 1], [3, 1.5], [2, 2]]
        assert sorted(line(ax, "saddles").get_xydata().tolist()) == [[1, 5], [2, 3], [3, 9]]
        solid = [item.get_xydata() for item in ax.get_lines() if item.get_linestyle() == "-"]
        uprights = {ends[0, 0]: tuple(ends[:, 1]) for ends in solid if len(ends) == 2 and ends[0, 0] == ends[1, 0]}
        assert {x: ends for x, ends in uprights.items() if x} == {1: (1, 5), 2: (2, 3), 3: (1.5, 9)}
        assert uprights[0] == (0.5, ax.get_ylim()[1])
        assert [label.get_text() for label in ax.get_xticklabels()] == [
            "A\n(-1)", "B\n(-0.33)", "D\n(0.33)", "C\n(1)",
        ]  # fmt: skip
        assert {"+4", "+1", "+7.5"} <= {text.get_text() for text in ax.texts}
        assert "minima of the grid on this line, not of the network" in ax.get_title()
        draw(ax)

    def test_a_tree_of_one_line_says_so(self):
        for values, expected in (([2.0, 1, 3], ["the only minimum: nothing joins"]), ([2.0, 1, 3, 1.5, 2], ["+1.5"])):
            ax = figures.plot_merge_tree(build_line(values))
            draw(ax)
            assert [text.get_text() for text in ax.texts] == expected

    def test_what_rounding_left_of_a_zero_is_one(self):
        data = build_line(VALUES)
        data.x[2] = -1e-16
        labels = figures.plot_merge_tree(data).get_xticklabels()
        assert [label.get_text() for label in labels][1] == "B\n(0)"

    def test_no_two_lines_cross(self):
        values = np.random.default_rng(5).permutation(1200).reshape(30, 40).astype(float)
        found = Landscape(build(values)).topology(persistence=60)
        across = {place: index for index, place in enumerate(leaf_order(found))}
        assert len(across) == len(found.minima) > 12
        ends = {saddle.joins[0]: saddle.value for saddle in found.saddles}
        for saddle in found.saddles:
            low, high = sorted(across[place] for place in saddle.joins)
            for place, index in across.items():
                if low < index < high:
                    assert ends[place] <= saddle.value

    def test_parts_stand_side_by_side(self):
        ax = figures.plot_merge_tree(build_line([0.0, 1, math.inf, 2, 3, 1, 2]))
        assert line(ax, "3 minima").get_xydata().tolist() == [[0, 0], [1, 1], [2, 2]]
        assert "1 point without a value (1 not finite) left out" in ax.get_title()

    @SLOW
    def test_many_minima_have_no_names(self):
        values = np.random.default_rng(5).uniform(size=(30, 40))
        ax = figures.plot_merge_tree(build(values))
        assert ax.get_xlabel().endswith(" minima")
        assert ax.texts[:] == []
        draw(ax)


class TestPersistence:
    def test_each_minimum_at_its_saddle(self):
        data = build_line(VALUES)
        data.metrics["loss_stderr"][:] = 0.6
        ax = figures.plot_persistence(data)
        top = line(ax, "3 minima").get_xydata()[0, 1]
        assert line(ax, "3 minima").get_xydata().tolist() == [[0.5, top], [1, 5], [1.5, 9]]
        assert 9 < top < ax.get_ylim()[1]
        assert line(ax, "1 more is").get_xydata().tolist() == [[2, 3]]
        assert {"A", "B", "C", "no lower one to reach"} == {text.get_text() for text in ax.texts}
        assert ax.get_xlabel().startswith("loss at the minimum")
        assert ax.get_ylabel().startswith("loss at the saddle")
        assert "not of the network" in ax.get_title()
        draw(ax)

    def test_the_barrier_asked_for_is_a_line(self):
        ax = figures.plot_persistence(build_line(VALUES), persistence=2)
        x, y = line(ax, "barrier of 2").get_xydata().T
        np.testing.assert_allclose(y - x, 2)

    def test_both_axes_have_the_same_scale(self):
        ax = figures.plot_persistence(build_line(VALUES), scale="log")
        assert ax.get_xscale() == ax.get_yscale() == "log"
        assert ax.get_xlim()[0] == ax.get_ylim()[0]


@pytest.mark.parametrize("plot", [figures.plot_merge_tree, figures.plot_persistence])
class TestBoth:
    @pytest.mark.parametrize(
        "loss", [[1e-300, 1e300, 1e-200], [1, 1, 1], [3], [-5, 0, -1e6], [0, 0, 1e-9, 0], [-1, 5, -3, 900, 2, 4, 0.1]]
    )
    def test_strange_values(self, plot, loss):
        draw(plot(build_line(loss), style="paper", theme="dark"))

    def test_a_minimum_of_0_stands_where_the_label_says(self, plot):
        ax = plot(build_line([0.0, 50, 1, 3, 2, 90, 1.5]))
        across = plot is figures.plot_persistence
        assert "0 drawn as 1" in (ax.get_xlabel() if across else ax.get_ylabel())
        assert line(ax, "4 minima").get_xydata()[:, 0 if across else 1].tolist() == [1, 1, 1.5, 2]

    def test_a_plane_with_gaps(self, plot):
        ax = plot(build_unfinished())
        left_out = "92 points without a value (80 pending, 9 failed, 3 not finite) left out"
        assert left_out in ax.get_title().replace("\n", " ")
        assert "minima of the grid on this plane, not of the network" in ax.get_title()

    def test_another_metric(self, plot):
        data = build_line(VALUES)
        data.metrics["accuracy"] = np.array([0.9, 0.1, 0.8, 0.5, 0.7, 0.2, 0.6])
        ax = plot(data, metric="accuracy")
        assert "accuracy" in ax.get_ylabel()
        assert any(text.startswith("3 minima") for text in legend_texts(ax))

    @pytest.mark.parametrize(
        ("values", "options", "error", "text"),
        [
            (VALUES, {"color": "red"}, TypeError, "has no argument 'color'"),
            (VALUES, {"persistence": -1}, ValueError, "persistence must be a finite number of at least 0"),
            (VALUES, {"metric": "acc"}, KeyError, "the landscape has no metric 'acc'"),
            ([math.nan, math.inf], {}, ValueError, "a landscape with a finite value of loss, but this one has none"),
        ],
    )
    def test_wrong_arguments(self, plot, values, options, error, text):
        with pytest.raises(error, match=text):
            plot(Landscape(build_line(values)), **options)


@pytest.mark.parametrize("plot", [figures.plot_merge_tree, figures.plot_persistence, figures.plot_contour])
def test_a_flat_surface_has_no_lowest_place_to_mark_and_the_picture_says_that_it_is_flat(plot):
    data = build(np.full((3, 5), 3.0), points=0)
    ax = plot(data, **({"topology": True} if plot is figures.plot_contour else {}))
    assert "flat: loss is 3 at all 15 finite points" in [text.get_text() for text in ax.texts]
    assert not letters(ax)
    assert not any("minim" in text for text in legend_texts(ax))
    draw(ax)
