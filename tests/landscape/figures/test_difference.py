import copy
from pathlib import Path

import numpy as np
import pytest
from figure_cases import build, build_line, contour_lines, draw, legend_texts, line
from matplotlib.contour import QuadContourSet

from landscape.figures import plot_difference
from landscape.figures.difference import joint_status
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus


def pair(change, **attributes):
    first = build(**attributes)
    second = copy.deepcopy(first)
    second.attributes["network"] = "ResNet"
    change(second)
    return Landscape(first), Landscape(second)


def tilted(data):
    data.metrics["loss"] += np.linspace(-3, 1, len(data.x))


def filled(ax):
    (found,) = [item for item in ax.collections if isinstance(item, QuadContourSet) and item.filled]
    return found


class TestDifference:
    def test_colours_part_at_zero_however_lopsided_the_values(self):
        first, second = pair(tilted)
        ax = plot_difference(first, second)
        norm = filled(ax).norm
        assert norm.vmin == -norm.vmax
        assert norm.vmax == pytest.approx(3)
        red, green, blue, _ = filled(ax).cmap(norm(0.0))
        assert min(red, green, blue) > 0.95
        assert filled(ax).cmap(norm(2.5))[0] > filled(ax).cmap(norm(2.5))[2]
        assert 0 in contour_lines(ax).levels
        assert ax.figure.axes[1].get_ylabel() == "difference of loss"
        assert ax.get_title() == "LeNet, epochs 3 to 14\nminus ResNet, epochs 3 to 14"
        # The path is the first one's, and lines lie at first minus second.
        np.testing.assert_array_equal(line(ax, "trajectory").get_xydata()[:, 0], first.checkpoints.x)
        lines, checked = contour_lines(ax), 0
        for level, segments in zip(lines.levels, lines.allsegs, strict=True):
            for segment in segments:
                expected = -np.interp(segment[:, 0], first.x, np.linspace(-3, 1, len(first.x)))
                np.testing.assert_allclose(expected, level, atol=1e-6)
                checked += len(segment)
        assert checked > 50

    def test_over_decades_the_colours_are_logarithmic_around_zero(self):
        def wild(data):
            data.metrics["loss"] += np.sinh(np.linspace(-12, 12, len(data.x)))

        ax = plot_difference(*pair(wild))
        assert ax.figure.axes[1].get_ylabel() == "difference of loss (log scale around 0)"
        norm = filled(ax).norm
        assert norm(0.0) == pytest.approx(0.5)

    def test_clipping_is_symmetric_and_said(self):
        ax = plot_difference(*pair(tilted), clip=1.5)
        assert (filled(ax).norm.vmin, filled(ax).norm.vmax) == (-1.5, 1.5)
        assert ax.figure.axes[1].get_ylabel() == "difference of loss (clipped above 1.5)"

    def test_what_either_lacks_is_shown_as_missing(self):
        def holes(data):
            tilted(data)
            data.metrics["loss"][0, :3], data.status[0, :3] = np.nan, PointStatus.PENDING
            data.metrics["loss"][1, 0], data.status[1, 0] = np.nan, PointStatus.FAILED
            data.metrics["loss"][5, 5] = np.inf
            data.status[10, 10] = PointStatus.INTERPOLATED

        ax = plot_difference(*pair(holes))
        assert {"pending (1)", "failed (1)", "not finite (1)", "interpolated (1)"} <= set(legend_texts(ax))
        assert "coarse: value of the nearest measured point (2)" in legend_texts(ax)
        draw(ax)

    def test_equal_landscapes_are_flat(self):
        ax = plot_difference(*pair(lambda data: None))
        assert "flat: difference of loss is 0 at all 600 finite points" in {text.get_text() for text in ax.texts}
        draw(ax)

    def test_infinities_of_one_sign_have_no_difference(self):
        infinite = Landscape(build(np.full((4, 5), np.inf)))
        ax = plot_difference(infinite, infinite)
        assert "no finite value of difference of loss" in {text.get_text() for text in ax.texts}

    def test_joint_status(self):
        names = ("MEASURED", "INTERPOLATED", "PENDING", "FAILED")
        measured, interpolated, pending, failed = (PointStatus[name] for name in names)
        first = np.array([[measured, interpolated, pending, failed, pending]], np.uint8)
        second = np.array([[measured, measured, interpolated, pending, failed]], np.uint8)
        assert joint_status(first, second).tolist() == [[measured, interpolated, pending, failed, failed]]


class TestWrongArguments:
    def test_rounding_is_no_other_grid(self):
        first, second = build(), build()
        second.x += 1e-14
        assert plot_difference(first, second).get_xlim() == (-2, 2.5)

    def test_other_grids_lines_others_and_options(self):
        first, second = pair(tilted)
        moved = build(rows=20, columns=30)
        moved.y += 0.5
        along_x = "along x the first has 30 points from -2 to 2.5 and the second 31 points from -2 to 2.5; measure both"
        along_y = r"along y the first has 20 points from -1 to 1\.2 and the second 20 points"
        for other, look, error, match in (
            (build(rows=20, columns=31), {}, ValueError, along_x),
            (moved, {}, ValueError, along_y),
            (build_line([1, 2]), {}, ValueError, "plot_difference needs two planes, but got a line"),
            (np.ones(3), {}, TypeError, "second must be a Landscape"),
            (second, {"metric": "recall"}, KeyError, "no metric 'recall'"),
            (second, {"scale": "log"}, ValueError, "'auto', 'linear' or 'symlog' where values have both signs"),
            (second, {"width": 3}, TypeError, "plot_difference has no argument 'width'"),
        ):
            with pytest.raises(error, match=match):
                plot_difference(first, other, **look)


class TestWhatIsSaid:
    def test_files_are_named_where_titles_are_the_same(self):
        planes = [build(), build()]
        assert plot_difference(*map(Landscape, planes)).get_title() == "LeNet, epochs 3 to 14\nfirst minus second"
        planes[0].path, planes[1].path = Path("/a/sgd.h5"), Path("/a/adam.h5")
        assert plot_difference(*map(Landscape, planes)).get_title() == "LeNet, epochs 3 to 14\nsgd minus adam"
        planes[0].path, planes[1].path = Path("/sgd/plane.h5"), Path("/adam/plane.h5")
        assert plot_difference(*map(Landscape, planes)).get_title().endswith("\nsgd/plane minus adam/plane")

    @pytest.mark.parametrize("sign", [1, -1])
    def test_the_bar_has_no_colours_that_do_not_occur(self, sign):
        first, second = build(), build()
        second.metrics["loss"][:] = first.metrics["loss"] - sign * np.linspace(0.5, 4, 30)
        ax = plot_difference(first, second)
        bar = ax.figure.axes[1]
        ends = bar.get_ylim() if "difference" in bar.get_ylabel() else bar.get_xlim()
        assert sorted(sign * end for end in ends) == pytest.approx([0, 4])
        # Equal strength on both sides of zero: the colours themselves still reach as far below as above.
        mesh = next(item for item in ax.collections if item.get_array() is not None)
        assert mesh.norm.vmin == -mesh.norm.vmax
