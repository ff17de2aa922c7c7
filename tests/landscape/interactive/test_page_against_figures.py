"""The same file as a page and as figures: the same scale, the same ends, the same levels."""

import itertools

import numpy as np
import pytest
from figure_cases import heights

from landscape import Landscape, MeasurementPlan
from landscape.figures import plot_contour, plot_difference, plot_multiples, plot_profile, plot_surface
from landscape.interactive.content import landscape_content
from landscape.record.checks import PointStatus

PLANES = ("smooth", "deep_origin", "steep", "negative", "both_signs", "holes", "outliers", "share", "pending")
LINES = ("line", "steep_line")


def made(example, name):
    """Returns a landscape whose values are of one kind; its path and origin are of another, where that matters."""
    data = example(line=name in LINES, seed=1)
    x = np.linspace(-1, 1, data.shape[-1])
    y = np.zeros(()) if name in LINES else np.linspace(-1, 1, data.shape[0])[:, None]
    bowl = x**2 + 0.7 * y**2 + 0.2 * x
    loss = {
        "smooth": 2 + bowl, "deep_origin": 1 + bowl, "steep": np.exp(6 * bowl) / 30, "negative": -5 + bowl,
        "both_signs": np.sinh(9 * (bowl - 0.6)), "holes": 0.01 + bowl, "outliers": 1 + bowl, "share": 0.4 + 0.2 * bowl,
        "pending": 0.02 + 3 * bowl, "line": 2 + bowl, "steep_line": np.exp(6 * bowl) / 30, "path_below_zero": 2 + bowl,
    }[name]  # fmt: skip
    if name == "holes":
        loss[2:4, 3:6], loss[7, 7] = np.nan, np.inf
    if name == "outliers":
        loss[0, 0] = 1e6
    if name == "pending":
        loss[5:], data.status[5:] = np.nan, PointStatus.PENDING
    data.metrics["loss"][...] = loss
    data.metrics["loss_stderr"][...] = 0.01
    data.checkpoints.projected["loss"][:] = np.linspace(4, 2.5, 6) if name != "negative" else -4
    if name == "path_below_zero":
        data.checkpoints.projected["loss"][:2] = -0.5, 0.01
    data.origin.metrics["loss"] = 1e-4 if name == "deep_origin" else float(np.nanmin(np.abs(loss)))
    return data


def bar(ax):
    """Returns the colour bar of a picture."""
    (found,) = {item.colorbar for item in ax.collections if getattr(item, "colorbar", None) is not None}
    return found


def scale_of(norm):
    """Returns the kind of a picture's colours, and the threshold of "symlog", which is where its height is 1."""
    name = type(norm).__name__
    if name == "FuncNorm":
        return "symlog", float(norm._trf.inverted().transform(np.array([1.0]))[0])
    return {"LogNorm": "log", "WideLogNorm": "log", "Normalize": "linear"}[name], 1.0


class TestOneRule:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", PLANES)
    def test_a_plane(self, example, name):
        data = made(example, name)
        scale = landscape_content(Landscape(data), "a")["scales"]["loss"]["auto"]
        drawn = bar(plot_contour(Landscape(data)))
        assert scale_of(drawn.norm) == (scale["kind"], pytest.approx(scale["threshold"]))
        assert (drawn.norm.vmin, drawn.norm.vmax) == (scale["low"], scale["high"])
        np.testing.assert_array_equal(drawn.get_ticks(), scale["levels"])
        space = plot_surface(Landscape(data))
        low, high = heights(scale["kind"], scale["threshold"], [scale["bottom"], scale["top"]])
        bottom, top = space.get_zlim()
        assert top == pytest.approx(high)
        assert bottom < low
        for text, place in zip(space.get_zticklabels(), space.get_zticks(), strict=True):
            if text.get_text():
                assert heights(scale["kind"], scale["threshold"], float(text.get_text())) == pytest.approx(place)

    @pytest.mark.parametrize("name", LINES)
    def test_a_line(self, example, name):
        data = made(example, name)
        scale = landscape_content(Landscape(data), "a")["scales"]["loss"]["auto"]
        ax = plot_profile(Landscape(data))
        assert ax.get_yscale() == scale["kind"]
        low, high = ax.get_ylim()
        assert low < scale["bottom"] <= scale["top"] < high

    def test_a_deep_origin_changes_heights_but_no_colours(self, example):
        data = made(example, "deep_origin")
        deep = landscape_content(Landscape(data), "a")["scales"]["loss"]["auto"]
        data.origin.metrics["loss"] = 2.0
        plain = landscape_content(Landscape(data), "a")["scales"]["loss"]["auto"]
        same = ("kind", "low", "high", "threshold", "levels", "top")
        assert [deep[name] for name in same] == [plain[name] for name in same]
        assert (deep["bottom"], plain["bottom"]) == (1e-4, plain["low"])


@pytest.mark.slow
class TestInTheBrowser:
    @pytest.mark.parametrize(
        "names",
        [("steep", "deep_origin", "both_signs", "line"), ("smooth", "outliers", "negative", "holes")],
    )
    def test_each_file_has_the_scale_of_its_figures(self, open_page, example, names):
        files = [made(example, name) for name in names]
        opened = open_page(*files, webgl=False)
        opened.page.uncheck("#shared")
        for card, (name, data) in enumerate(zip(names, files, strict=True)):
            if name in LINES:
                axis = opened.page.evaluate(f"document.querySelectorAll('.profile')[{card}].layout.yaxis.type")
                assert axis == plot_profile(Landscape(data)).get_yscale()
                continue
            drawn = bar(plot_contour(Landscape(data)))
            kind, threshold = scale_of(drawn.norm)
            ends = opened.data("map", "grid", "zmin", "zmax", card=card)
            expected = heights(kind, threshold, [drawn.norm.vmin, drawn.norm.vmax])
            np.testing.assert_allclose(ends, expected, rtol=1e-12)
            (colorbar,) = opened.data("map", "grid", "colorbar", card=card)
            ticks = [
                place for place, text in zip(colorbar["tickvals"], colorbar["ticktext"], strict=True)
                if text and text[0] not in "≤≥"
            ]  # fmt: skip
            levels = heights(kind, threshold, drawn.get_ticks())
            assert all(np.abs(levels - tick).min() < 1e-9 * max(np.ptp(levels), 1) for tick in ticks)
            assert len(ticks) >= 3

    @pytest.mark.parametrize(
        "names",
        [("smooth", "steep", "share"), ("both_signs", "smooth", "negative"), ("path_below_zero", "steep"), LINES],
    )
    def test_one_scale_for_all_is_that_of_the_small_multiples(self, open_page, example, names):
        files = [made(example, name) for name in names]
        opened = open_page(*files, webgl=False)
        axes = plot_multiples([Landscape(data) for data in files])
        if names is LINES:
            layouts = opened.page.evaluate("Array.from(document.querySelectorAll('.profile'), (p) => p.layout.yaxis)")
            assert {layout["type"] for layout in layouts} == {axes[0].get_yscale()} == {"log"}
            assert len({tuple(layout["range"]) for layout in layouts}) == 1
            return
        drawn = bar(axes[0])
        kind, threshold = scale_of(drawn.norm)
        expected = heights(kind, threshold, [drawn.norm.vmin, drawn.norm.vmax])
        common = opened.page.evaluate("document.querySelector('.overlay .profile').layout.yaxis")
        opened.page.uncheck("#overlay")
        ranges = []
        for card in range(len(files)):
            ends = opened.data("map", "grid", "zmin", "zmax", card=card)
            np.testing.assert_allclose(ends, expected, rtol=1e-12)
            layout = opened.page.evaluate(f"document.querySelectorAll('.profile')[{card}].layout.yaxis")
            assert layout["type"] == common["type"] == ("log" if kind == "log" else "linear")
            ranges.append(layout.get("range"))
        # The profiles, too, have one axis, alone as together.
        ranges.append(common.get("range"))
        assert ranges[0] is not None
        assert np.isfinite(ranges[0]).all()
        assert all(each == ranges[0] for each in ranges)

    def test_shares_at_chance_level_are_shares_beside_others(self, open_page, example, metric):
        """Alone they are small numbers; beside an accuracy of 70 % they are no reason for a logarithm."""
        files = [example(seed=seed) for seed in (1, 2)]
        for data, high in zip(files, (0.06, 0.7), strict=True):
            data.metrics[metric][...] = np.linspace(0.012, high, data.metrics[metric].size).reshape(data.shape)
        opened = open_page(*files, webgl=False)
        opened.choose("metric", metric)
        drawn = bar(plot_multiples([Landscape(data) for data in files], metric=metric)[0])
        assert scale_of(drawn.norm)[0] == "linear"
        assert opened.data("map", "grid", "zmin", "zmax") == [drawn.norm.vmin, drawn.norm.vmax]

    def test_the_difference(self, open_page, example):
        first, second = made(example, "steep"), made(example, "smooth")
        second.metrics["loss"][0, 0], second.status[0, 0] = np.nan, PointStatus.FAILED
        first.status[0, 0] = PointStatus.PENDING
        opened = open_page(first, second, webgl=False)
        for one, two in itertools.permutations(range(2)):
            opened.choose("difference", f"{one} {two}")
            pair = [Landscape(data) for data in ((first, second) if one == 0 else (second, first))]
            drawn = bar(plot_difference(*pair))
            # Both leave out the colours of a sign that does not occur.
            expected = heights(*scale_of(drawn.norm), drawn.ax.get_ylim())
            np.testing.assert_allclose(opened.data("map", "grid", "zmin", "zmax"), expected, rtol=1e-12, atol=1e-300)
            (on_page,) = opened.data("map", "grid", "colorbar")
            assert on_page["title"]["text"].partition(" (")[0] == drawn.ax.get_ylabel().partition(" (")[0]
            # Failed counts more than pending, as in the figures.
            assert opened.data("map", "gaps", "z")[0][0][0] == 1


@pytest.mark.slow
def test_both_say_in_which_precision_it_was_measured(open_page, example):
    full, low = (made(example, name) for name in ("steep", "smooth"))
    for data, precision in ((full, "float32"), (low, "bfloat16")):
        data.attributes["measurement_plan"] = MeasurementPlan(precision=precision).to_json()
    opened = open_page(full, low, webgl=False)
    said = opened.page.locator(".note").all_inner_texts()
    opened.choose("difference", "0 1")
    said += opened.page.locator(".note").all_inner_texts()
    full, low = Landscape(full), Landscape(low)
    drawn = plot_contour(full), plot_contour(low), plot_difference(full, low)
    expected = {axes.get_title().partition("measured in ")[2] for axes in drawn}
    assert {text.partition("measured in ")[2] for text in said} == expected == {"", "bfloat16", "float32 and bfloat16"}
