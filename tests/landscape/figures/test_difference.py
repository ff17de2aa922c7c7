"""One surface minus another, which differences may be chance, and maps of errors."""

import copy
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from data_sets import with_test_set
from figure_cases import build, build_line, colour_ends, contour_lines, draw, drawn_values, legend_texts, line
from matplotlib.patches import PathPatch

from landscape.figures import plot_difference, plot_uncertainty
from landscape.figures.difference import joint_status
from landscape.grid.data import LOSS_ERROR
from landscape.grid.differences import PAIRED, UNPAIRED, difference_errors
from landscape.grid.samples import KeptLosses
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus

SAMPLES = {"count": 50, "sha256": "a" * 64}
LOSS = ("loss", "loss")


def pair(change, **attributes):
    first = build(**attributes)
    second = copy.deepcopy(first)
    second.attributes["network"] = "ResNet"
    change(second)
    return Landscape(first), Landscape(second)


def tilted(data):
    data.metrics["loss"] += np.linspace(-3, 1, len(data.x))


class TestDifference:
    def test_colours_part_at_zero_however_lopsided_the_values(self):
        first, second = pair(tilted)
        ax = plot_difference(first, second)
        norm = drawn_values(ax).norm
        assert norm.vmin == -norm.vmax
        assert norm.vmax == pytest.approx(3)
        red, green, blue, _ = drawn_values(ax).cmap(norm(0.0))
        assert min(red, green, blue) > 0.95
        assert drawn_values(ax).cmap(norm(2.5))[0] > drawn_values(ax).cmap(norm(2.5))[2]
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
        norm = drawn_values(ax).norm
        assert norm(0.0) == pytest.approx(0.5)

    def test_clipping_is_symmetric_and_said(self):
        ax = plot_difference(*pair(tilted), clip=1.5)
        assert colour_ends([ax]) == [(-1.5, 1.5)]
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

    @pytest.mark.parametrize(
        ("loss", "text"),
        [
            (None, "flat: difference of loss is 0 at all 600 finite points"),
            (np.full((4, 5), np.inf), "no finite value of difference of loss"),
        ],
        ids=["equal", "infinities of one sign"],
    )
    def test_where_there_is_no_difference_the_picture_says_so(self, loss, text):
        ax = plot_difference(build(loss), build(loss))
        assert text in {text.get_text() for text in ax.texts}
        draw(ax)

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
        first, _ = both = pair(tilted)
        data, line = with_test_set(build()), with_test_set(build_line([1, 2, 3]))
        of_one, moved = (data, "loss@test", "loss"), build(rows=20, columns=30)
        moved.y += 0.5
        along_x = "along x the first has 30 points from -2 to 2.5 and the second 31 points from -2 to 2.5; measure both"
        along_y = r"along y the first has 20 points from -1 to 1\.2 and the second 20 points"
        for given, look, error, match in (
            ((first, build(rows=20, columns=31)), {}, ValueError, along_x),
            ((first, moved), {}, ValueError, along_y),
            ((first, build_line([1, 2])), {}, ValueError, "plot_difference needs two planes, but got a line"),
            ((line, *of_one[1:]), {}, ValueError, "plot_difference needs two planes, but got a line"),
            ((first, np.ones(3)), {}, TypeError, "second must be a Landscape, or the name of a metric"),
            (both, {"metric": "recall"}, KeyError, "no metric 'recall'"),
            ((data, "loss@val", "loss"), {}, KeyError, "no metric 'loss@val'; it has .*'loss@test'"),
            (both, {"scale": "log"}, ValueError, "'auto', 'linear' or 'symlog' where values have both signs"),
            (both, {"width": 3}, TypeError, "plot_difference has no argument 'width'"),
            ((data, "loss"), {}, TypeError, "minus must be the name of a metric"),
            (of_one, {"metric": "loss"}, ValueError, "metric must be left out where two metrics are subtracted"),
            ((data, data, "loss"), {}, TypeError, "minus must be left out where two landscapes are given"),
            (both, {"significance": -1}, ValueError, "^significance must be"),
            (both, {"significance": float("nan")}, ValueError, "^significance must be"),
            (both, {"significance": "two"}, TypeError, "^significance must be"),
        ):
            with pytest.raises(error, match=match):
                plot_difference(*given, **look)


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


def with_errors(stderr=0.1, **attributes):
    data = build(rows=6, columns=8, **attributes)
    data.metrics["loss_stderr"] = np.full(data.shape, stderr)
    return data


def shifted(data, by):
    other = copy.deepcopy(data)
    other.metrics["loss"] -= by
    return other


def with_samples(stderr=0.1, noise=0.01, seed=1):
    """Keeps losses of samples that differ much from each other and little between landscapes."""
    data = with_errors(stderr)
    hardness, random = np.random.default_rng(0).gamma(1.0, size=50), np.random.default_rng(seed)
    kept = KeptLosses("main", data.shape, 50)
    for flat in range(data.loss.size):
        kept.store(flat, (hardness + data.loss.flat[flat] + noise * random.normal(size=50)).astype(np.float32))
    data.kept_samples["main"] = kept
    data.attributes["identity"] = {"samples": dict(SAMPLES)}
    return data


def chance_text(ax):
    """Returns what the legend says about chance, in one line."""
    (text,) = [text for text in legend_texts(ax) if "standard errors" in text]
    return text.replace("\n", " ")


def hatched(ax):
    return [item for item in ax.get_children() if isinstance(item, PathPatch) and item.get_hatch() == "---"]


class TestErrors:
    def test_of_the_same_samples_the_error_is_that_of_each_samples_own_difference(self):
        first, second = with_samples(), with_samples(seed=2)
        found = difference_errors(first, second, LOSS)
        assert found.pairing == PAIRED
        gaps = first.kept_samples["main"].losses().astype(float) - second.kept_samples["main"].losses()
        np.testing.assert_allclose(found.stderr, gaps.std(axis=-1, ddof=1) / np.sqrt(50), rtol=1e-6)
        assert found.stderr.max() < 0.01

    def test_of_other_samples_or_two_data_sets_the_errors_add_up_as_of_independent_ones(self):
        first, second = with_samples(0.3), with_samples(0.4, seed=2)
        second.attributes["identity"]["samples"]["sha256"] = "b" * 64
        both = with_samples(0.3)
        both.metrics["loss@test"], both.metrics["loss_stderr@test"] = both.loss + 1, np.full(both.shape, 0.4)
        for found in (
            difference_errors(first, second, LOSS),
            difference_errors(both, both, ("loss@test", "loss")),
        ):
            assert found.pairing == UNPAIRED
            np.testing.assert_allclose(found.stderr, 0.5)

    def test_interpolation_counts_beside_the_samples(self):
        first, second = with_errors(), with_errors()
        first.metrics[LOSS_ERROR] = np.full(first.shape, 0.2)
        found = difference_errors(first, second, LOSS)
        assert found.within(np.full(first.shape, 0.48), 2.0).all()
        assert not found.within(np.full(first.shape, 0.49), 2.0).any()

    def test_a_point_that_only_one_measured_is_not_known(self):
        first, second = with_samples(), with_samples(seed=2)
        lacking = KeptLosses("main", second.shape, 50)
        lacking.store(3, second.kept_samples["main"].at(0, 3))
        second.kept_samples["main"] = lacking
        found = difference_errors(first, second, LOSS)
        assert np.isfinite(found.stderr).sum() == 1

    def test_what_is_interpolated_has_no_losses_of_samples_and_its_errors_add_up(self):
        first, second = with_samples(0.3), with_samples(0.4, seed=2)
        lacking = KeptLosses("main", second.shape, 50)
        lacking.take(second.kept_samples["main"], range(8, second.loss.size))
        second.kept_samples["main"], second.status[0] = lacking, PointStatus.INTERPOLATED
        second.metrics[LOSS_ERROR] = np.where(second.status == PointStatus.INTERPOLATED, 0.2, 0.0)
        found = difference_errors(first, second, LOSS)
        np.testing.assert_allclose(found.stderr[0], 0.5)
        assert found.stderr[1:].max() < 0.01
        assert found.within(np.full(first.shape, 1.19), 2.0).sum() == 8
        text = "within 2 standard errors and the interpolation error, paired over samples where measured: 8 of"
        assert chance_text(plot_difference(first, shifted(second, 1.0))) == f"{text} 48 points"

    def test_nothing_is_known_without_standard_errors(self):
        assert difference_errors(build(), build(), LOSS) is None
        assert difference_errors(with_errors(), with_errors(), ("accuracy", "accuracy")) is None


class TestMask:
    def test_what_may_be_chance_is_hatched_and_counted(self):
        first = with_errors(0.1)
        second = shifted(first, np.where(np.arange(8) < 3, 0.2, 0.4))
        ax = plot_difference(first, second)
        assert len(hatched(ax)) == 1
        assert chance_text(ax) == "within 2 standard errors, not paired: 18 of 48 points"

    def test_as_many_standard_errors_as_asked(self):
        first = with_errors(0.1)
        second = shifted(first, 0.4)
        assert not hatched(plot_difference(first, second, significance=2))
        through_the_method = Landscape(first).plot_difference(Landscape(second), significance=3.0)
        assert len(hatched(through_the_method)) == 1
        assert chance_text(through_the_method).startswith("within 3 standard errors")
        # None hatches nothing, not even what is equal.
        partly_equal = shifted(first, np.where(np.arange(8) < 3, 0.0, 0.4))
        for nothing in (None, 0):
            without = plot_difference(first, partly_equal, significance=nothing)
            assert not hatched(without)
            assert not any("standard errors" in text for text in legend_texts(without))
        assert "hatched" not in Landscape(first).caption_difference(partly_equal, significance=0).text.lower()

    def test_interpolated_points_without_an_error_are_hatched_and_said(self):
        data = with_errors(0.001)
        data.metrics["loss@test"], data.metrics["loss_stderr@test"] = data.loss + 1, np.full(data.shape, 0.001)
        data.metrics[LOSS_ERROR] = np.where(np.arange(8) == 2, 0.01, 0.0) * np.ones(data.shape)
        data.status[:, 2] = PointStatus.INTERPOLATED
        found = difference_errors(data, data, ("loss@test", "loss"))
        assert np.isnan(found.interpolation[:, 2]).all()
        assert (np.delete(found.interpolation, 2, axis=1) == 0).all()
        ax = plot_difference(data, "loss@test", "loss")
        among = "6 of 48 points, among them 6 whose interpolation error is not known"
        assert chance_text(ax) == f"within 2 standard errors, not paired: {among}"

    def test_missing_points_are_neither_chance_nor_counted(self):
        first = with_errors(0.1)
        first.status[0] = PointStatus.FAILED
        first.metrics["loss"][0] = np.nan
        assert chance_text(plot_difference(first, shifted(first, 0.1))).endswith("40 of 40 points")


class TestMaps:
    def test_each_kind_of_error_has_a_map_with_its_values(self):
        data = with_errors()
        data.metrics["loss_stderr"] += np.linspace(0, 1, 8)
        data.metrics[LOSS_ERROR] = np.linspace(0, 0.5, 48).reshape(6, 8)
        data.status[1::2] = PointStatus.INTERPOLATED
        axes = plot_uncertainty(data)
        assert [ax.get_title().split("\n")[0] for ax in axes] == [
            "standard error of loss over samples",
            "estimated interpolation error of loss",
        ]
        for ax, name in zip(axes, ("loss_stderr", LOSS_ERROR), strict=True):
            mesh = next(item for item in ax.collections if item.get_array() is not None and item.get_array().size == 48)
            shown = np.ma.filled(mesh.get_array().reshape(6, 8), np.nan)
            inside = (data.metrics[name] >= mesh.norm.vmin) & (data.metrics[name] <= mesh.norm.vmax)
            assert inside.sum() > 40
            np.testing.assert_allclose(shown[inside], data.metrics[name][inside])
            assert mesh.get_cmap().name == "magma"

    @pytest.mark.parametrize("style", ["screen", "paper"])
    @pytest.mark.parametrize("both", [False, True])
    def test_each_bar_says_in_words_what_it_shows_and_is_no_higher_than_its_map(self, both, style):
        data = with_errors()
        data.metrics["loss_stderr"] += np.linspace(0, 1, 8)
        if both:
            data.metrics[LOSS_ERROR] = np.linspace(0.1, 0.5, 48).reshape(6, 8)
        maps = plot_uncertainty(data, style=style)
        draw(maps[0])
        bars = [ax for ax in maps[0].figure.axes if ax.get_label() == "<colorbar>"]
        said = ["standard error", "interpolation error"] if both else ["standard error of the loss"]
        assert [bar.get_ylabel().replace("\n", " ").split(" (")[0] for bar in bars] == said
        for plane, bar in zip(maps, bars, strict=True):
            high, room = bar.get_window_extent().height, plane.get_window_extent().height
            # Before matplotlib 3.11 a bar is as high as the room for its map, so up to a fifth higher.
            assert high < (1.03 if matplotlib.__version_info__ >= (3, 11) else 1.2) * room
            assert both or high > 0.97 * room
        assert not any("loss_" in text for text in legend_texts(maps[0]))

    def test_a_data_set_is_named(self):
        data = with_errors(datasets=["train", "test"])
        data.metrics["loss@test"], data.metrics["loss_stderr@test"] = data.loss + 1, data.loss
        (ax,) = plot_uncertainty(data, metric="loss@test")
        (bar,) = [ax for ax in ax.figure.axes if ax.get_label() == "<colorbar>"]
        assert bar.get_ylabel().replace("\n", " ").startswith("standard error of the loss on test")

    def test_a_path_in_two_maps_has_its_checkpoints_once(self):
        data = build()
        data.metrics["loss_stderr"], data.metrics[LOSS_ERROR] = 0.1 * data.loss, 0.2 * data.loss
        (said,) = [text for text in legend_texts(plot_uncertainty(data)[0]) if "checkpoints marked" in text]
        assert said.endswith("of 12 checkpoints marked")

    @pytest.mark.parametrize(
        ("data", "look", "text"),
        [
            (with_errors(), {"metric": "accuracy"}, "^no error of 'accuracy' is known: the loss has a standard error"),
            (with_errors(), {"title": "mine"}, "^title must be left out for plot_uncertainty, whose maps"),
            (build_line([1.0, 2.0]), {}, "^plot_uncertainty needs a plane, but the landscape is a line"),
        ],
    )
    def test_what_has_no_maps(self, data, look, text):
        with pytest.raises(ValueError, match=text):
            plot_uncertainty(data, **look)
