import itertools
import os

import numpy as np
import pytest
from data_sets import with_test_set
from figure_cases import (
    build,
    build_adaptive,
    build_line,
    build_real,
    build_unfinished,
    colour_ends,
    contour_lines,
    draw,
    legend_texts,
)
from long_paths import build_path

from landscape.drawing.appearance import STYLES
from landscape.drawing.fitting import shorter_side
from landscape.drawing.path import FEW, TIME_BAR
from landscape.figures import choose_scale, figure_pixels, plot_multiples, plot_uncertainty
from landscape.landscape import Landscape


def mark_of(name, ax):
    (legend,) = ax.figure.legends
    place = [text.get_text() for text in legend.get_texts()].index(name)
    entry = legend.legend_handles[place]
    return entry.get_color(), entry.get_linestyle()


def planes():
    other = build(network="ResNet")
    other.metrics["loss"] *= 30
    return [Landscape(build()), Landscape(other), Landscape(build_real("surface_resnet_pca", "ResNet 18"))]


class TestOneScale:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["contour", "heatmap"])
    def test_the_same_colour_is_the_same_value(self, kind):
        landscapes = planes()
        everything = np.concatenate([landscape.loss.ravel() for landscape in landscapes])
        assert colour_ends(plot_multiples(landscapes, kind=kind)) == [(everything.min(), everything.max())] * 3

    @pytest.mark.slow
    def test_one_bar_and_one_legend_for_all(self):
        axes = plot_multiples(planes())
        assert len(axes[0].figure.axes) == 5
        assert axes[0].figure.axes[3].get_ylabel() == "loss (log scale)"
        assert axes[0].figure.axes[4].get_xlabel() == "epoch along the path"
        said = [text for text in legend_texts(axes[0]) if not text.endswith("marked")]
        assert said == ["trajectory", "start", "end", "final weights", "origin"]
        levels = {tuple(contour_lines(ax).levels) for ax in axes}
        assert len(levels) == 1

    def test_clip_and_levels_are_shared(self):
        axes = plot_multiples(planes(), clip=(0.1, 10), levels=[0.5, 2])
        assert colour_ends(axes) == [(0.1, 10)] * 3
        assert all(contour_lines(ax).levels.tolist() == [0.5, 2] for ax in axes)
        assert "clipped to 0.1 ... 10" in axes[0].figure.axes[3].get_ylabel()

    def test_profiles_share_their_axis(self):
        axes = plot_multiples([build_line([1, 0.1, 2]), build_line([50, 3, 90, 7])])
        assert len({ax.get_ylim() for ax in axes}) == 1
        assert axes[0].get_ylim()[1] > 90
        assert [ax.get_ylabel() for ax in axes] == ["loss (log scale)", ""]

    @pytest.mark.parametrize("checkpoints", [5, 20])
    @pytest.mark.parametrize("kind", ["contour", "surface"])
    def test_a_run_looks_alike_in_all_whatever_its_place_in_its_file(self, checkpoints, kind):
        one, other = build_path(count=checkpoints, runs=2), build_path(count=checkpoints, runs=2)
        other.checkpoints.runs = ("run 2", "run 3")
        axes = plot_multiples([one, other], kind=kind)
        alone = [plot_multiples([data], kind=kind)[0] for data in (one, build_path(count=checkpoints, runs=3))]
        both, two, three = (
            {name: mark_of(name, ax) for name in legend_texts(ax) if "run" in name} for ax in (axes[0], *alone)
        )
        assert both == three
        assert two.items() < both.items()
        # Beside the legend, what is drawn.
        drawn = [
            {line.get_color() for line in ax.get_lines() if str(line.get_label()).startswith("run 2")} for ax in axes
        ]
        assert drawn[0] == drawn[1]
        if checkpoints > FEW:
            (bar,) = [ax for ax in axes[0].figure.axes if ax.get_label() == TIME_BAR]
            assert len(bar.images[0].get_array()) == 3

    def test_clip_holds_where_one_lies_wholly_beyond_it(self):
        low, high = build(np.linspace(0.01, 1, 20).reshape(4, 5)), build(np.linspace(2, 10, 20).reshape(4, 5))
        for clip in (1.5, (0.1, 1.5)):
            axes = plot_multiples([low, high], clip=clip)
            assert {high for _, high in colour_ends(axes)} == {1.5}
            assert axes[0].figure.axes[2].get_ylabel().endswith("1.5)")

    def test_surfaces(self):
        axes = plot_multiples(planes(), kind="surface", theme="dark")
        assert {ax.name for ax in axes} == {"3d"}
        assert len({ax.get_zlim() for ax in axes}) == 1
        draw(axes[0])


class TestArrangement:
    @pytest.mark.slow
    def test_no_surface_covers_the_labels_of_another(self):
        axes = plot_multiples([build()] * 4, kind="surface", columns=2, theme="light")
        draw(axes[0])
        axes[0].figure.set_layout_engine("none")
        together = figure_pixels(axes[0])
        for ax in axes[1:]:
            ax.set_visible(False)
        letters = (figure_pixels(axes[0]) < 60).all(2)
        assert letters.sum() > 1000
        assert (together[letters] < 200).all()

    @pytest.mark.slow
    def test_rows_and_columns(self):
        landscapes = [Landscape(build(title=str(index), points=0)) for index in range(5)]
        axes = plot_multiples(landscapes)
        assert [ax.get_subplotspec().colspan.start for ax in axes] == [0, 1, 2, 0, 1]
        assert [ax.get_title() for ax in axes] == ["0", "1", "2", "3", "4"]
        axes = plot_multiples(landscapes, columns=2, titles=list("abcde"))
        assert [ax.get_subplotspec().rowspan.start for ax in axes] == [0, 0, 1, 1, 2]
        assert [ax.get_title() for ax in axes] == list("abcde")
        assert len(plot_multiples(landscapes[:1], columns=9)) == 1

    @pytest.mark.slow
    def test_names_stand_at_the_rim_where_all_are_alike(self):
        axes = plot_multiples([Landscape(build(title=str(index))) for index in range(4)])
        first, second = "distance along PC 1\n(63.2 % of variance)", "along PC 2"
        assert [ax.get_xlabel() for ax in axes] == ["", "", first, first]
        assert [ax.get_ylabel() for ax in axes] == [second, "", second, ""]
        axes = plot_multiples([build(), build(decomposition="random", title="other")])
        assert [ax.get_ylabel() for ax in axes] == [second, "distance along\ndirection 2"]

    @pytest.mark.slow
    def test_equal_titles_get_the_file_or_a_number(self, tmp_path):
        same = [Landscape(build()), Landscape(build())]
        titles = ["1: LeNet, epochs 3 to 14", "2: LeNet, epochs 3 to 14"]
        assert [ax.get_title() for ax in plot_multiples(same)] == titles
        files = [Landscape(build(), tmp_path / name) for name in ("small_batch.h5", "large_$batch.h5")]
        titles = [ax.get_title() for ax in plot_multiples(files)]
        assert titles == ["LeNet, epochs 3 to 14\nsmall_batch", "LeNet, epochs 3 to 14\nlarge_\\$batch"]
        draw(plot_multiples(same, titles=["$a_{b$", r"\frac^2"])[0])

    def test_what_is_missing_is_shown(self):
        axes = plot_multiples([build_unfinished(), build()], style="paper")
        missing = {"coarse: value of the nearest measured point", "failed", "not finite", "interpolated"}
        assert missing <= set(legend_texts(axes[0]))
        assert axes[0].get_title().startswith("1: LeNet, epochs 3 to 8") or "so far" in axes[0].get_title()
        assert axes[0].figure.get_size_inches()[0] == 7.0

    @pytest.mark.slow
    def test_one_without_any_value_among_others(self):
        empty = build(np.full((4, 5), np.nan), points=0)
        axes = plot_multiples([empty, build()])
        draw(axes[0])
        assert [ax.get_label() for ax in axes[0].figure.axes[2:]] == ["<colorbar>", TIME_BAR]
        draw(plot_multiples([empty])[0])


def named(count, **attributes):
    return [Landscape(build_adaptive(network=f"Net {index}", **attributes)) for index in range(count)]


SEVERAL = {
    "uncertainty": lambda **look: plot_uncertainty(build_adaptive(), **look),
    "two": lambda **look: plot_multiples(named(2), **look),
    "three": lambda **look: plot_multiples(named(3), kind="heatmap", **look),
    "five": lambda **look: plot_multiples(named(5, points=4), kind="lines", **look),
    "metrics": lambda **look: plot_multiples(
        named(1), metrics=["loss", "accuracy", "loss_stderr"], trajectory=False, **look
    ),
    "matrix": lambda **look: plot_multiples(named(2, points=5), metrics=["loss", "accuracy"], **look),
    "square": lambda **look: plot_multiples(named(2), aspect="fill", **look),
    "surfaces": lambda **look: plot_multiples(named(4), kind="surface", **look),
    "lines": lambda **look: plot_multiples([build_line([3, 1, 0.2, 2])] * 3, **look),
}


def numbers_along(axis):
    """Where each number that an axis shows begins and ends, in pixels, and its value."""
    across = axis.axis_name == "x"
    low, high = sorted(axis.get_view_interval())
    slack, found = 1e-6 * (high - low), []
    for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True):
        text, box = label.get_text().replace("\N{MINUS SIGN}", "-"), label.get_window_extent()
        if text and low - slack <= place <= high + slack:
            found.append((box.x0 if across else box.y0, box.x1 if across else box.y1, float(text)))
    return sorted(found)


# Every second pair, so that each kind of picture has half of the styles, and its neighbours the others.
PAIRS = [
    pair for turn, pair in enumerate(itertools.product(SEVERAL, STYLES))
    if os.environ.get("EVERY_PICTURE") or sum(divmod(turn, len(STYLES))) % 2 == 0
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("case", "style"), PAIRS)
def test_in_every_style_pictures_have_a_size_and_numbers_an_order(case, style):
    axes = SEVERAL[case](style=style)
    figure = axes[0].figure
    figure.draw_without_rendering()
    assert min(map(shorter_side, axes)) >= 0.8
    for ax in (ax for ax in figure.axes if ax.name != "3d"):
        for axis in (ax.xaxis, ax.yaxis):
            found = numbers_along(axis)
            assert all(one[1] < two[0] and one[2] < two[2] for one, two in itertools.pairwise(found)), found
    assert any(numbers_along(ax.xaxis) for ax in figure.axes)


TWO = ["loss", "accuracy"]
OTHER = "must be left out for pictures of different quantities"


@pytest.mark.parametrize(
    ("landscapes", "options", "error", "message"),
    [
        ([], {}, ValueError, "landscapes must be at least one landscape"),
        (3, {}, TypeError, "landscapes must be a list of landscapes"),
        (["a.h5"], {}, TypeError, r"landscapes\[0\] must be a Landscape"),
        ([build_line([1, 2]), build()], {}, ValueError, "all planes or all lines"),
        (build(), {"titles": ["a", "b"]}, ValueError, "titles must be a list of 1 texts, one for each picture"),
        (build(), {"titles": "a"}, TypeError, "titles must be a list of texts"),
        (build(), {"kind": "map"}, ValueError, "kind must be one of 'contour', 'lines', 'heatmap'"),
        (build(), {"kind": "profile"}, ValueError, "plot_profile needs a line"),
        (build_line([1, 2]), {"kind": "surface"}, ValueError, "plot_surface needs a plane"),
        (build(), {"columns": 0}, ValueError, "columns must be an int of at least 1"),
        (build(), {"width": 3}, TypeError, "plot_multiples has no argument 'width'"),
        (build(), {"metrics": "loss"}, TypeError, r'metrics must be a list of names such as \["loss", "loss@test"\]'),
        (build(), {"metrics": []}, ValueError, "metrics must be a list of at least one name"),
        (with_test_set(build()), {"metrics": ["loss@val"]}, KeyError, "no metric 'loss@val'; it has .*'loss@test'"),
        (build(), {"metrics": ["loss"], "metric": "loss"}, ValueError, "metric must be left out where metrics says"),
        (build(), {"metrics": TWO, "clip": 2.0}, ValueError, rf"clip {OTHER} \(loss, accuracy\)"),
        (build(), {"metrics": TWO, "clip": 2}, ValueError, f"clip {OTHER}"),
        (build(), {"metrics": TWO, "scale": choose_scale(np.arange(3.0))}, ValueError, f"scale {OTHER}"),
    ],
)
def test_wrong_arguments(landscapes, options, error, message):
    with pytest.raises(error, match=message):
        plot_multiples(landscapes, **options)
