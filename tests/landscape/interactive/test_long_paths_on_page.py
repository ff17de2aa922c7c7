"""Paths of many checkpoints on the page and in a notebook's figure look as in the figures."""

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the interactive page needs plotly")

from long_paths import SHAPES, build_path

from landscape.drawing.path import RAMPS, Times
from landscape.interactive.notebook import notebook_figure
from landscape.interactive.timed_paths import hex_colors, map_marks, map_place, path_numbers
from landscape.landscape import Landscape

SLIDER = "document.querySelector('.player input')"


def traces(opened, plot, name, card=0):
    return opened.page.evaluate(
        """([plot, name, card]) => document.querySelectorAll(`.plot.${plot}`)[card].data.filter(
            (trace) => trace.name === name).map(({ x, y, line, marker }) => {
                const plain = JSON.parse(JSON.stringify(marker ?? {}));
                return { x: Array.from(x), y: Array.from(y), line, marker: plain };
            })""",
        [plot, name, card],
    )  # fmt: skip


@pytest.mark.slow
def test_a_thousand_checkpoints_have_a_bar_arrowheads_and_every_place(open_page):
    data = build_path("spiral", 1000)
    opened = open_page(data, webgl=False)
    lines = traces(opened, "map", "time")
    x = [*lines[0]["x"][:1], *(value for line in lines for value in line["x"][1:])]
    assert len(x) == 1000
    assert len(lines) == 40
    (arrows,) = traces(opened, "map", "arrows")
    assert 3 <= len(arrows["x"]) <= 8
    (bar,) = traces(opened, "map", "time bar")
    assert (bar["marker"]["cmin"], bar["marker"]["cmax"]) == (0, 999)
    assert bar["marker"]["colorbar"]["title"]["text"] == "epoch along the path"
    (path,) = traces(opened, "map", "path")
    assert len(path["x"]) == 1000
    dots = np.count_nonzero(path["marker"]["size"])
    assert 5 < dots < 200
    # As in the figures, a text says that not every checkpoint has a dot.
    said = opened.page.inner_text(".warning")
    assert f"{dots} of 1,000 checkpoints marked." in said or f"Every {round(1000 / dots)}th checkpoint marked." in said
    # At its end the path shows its own colours; before it, how far the player has come.
    assert opened.shapes("walked") == []
    opened.page.evaluate(f"{SLIDER}.value = 500; {SLIDER}.dispatchEvent(new Event('input'))")
    opened.wait(opened.shape("walked"))


@pytest.mark.slow
def test_the_ends_and_round_checkpoints_have_numbers(open_page):
    data = build_path("spiral", 200)
    opened = open_page(data, webgl=False)
    found = opened.page.evaluate(
        "document.querySelector('.plot.map').layout.annotations.map(({ x, y, text }) => [x, y, text])"
    )
    x, y, texts = zip(*found, strict=True)
    assert {"0", "199"} <= set(texts)
    assert len(texts) >= 4
    assert all(int(text) % 20 == 0 for text in texts if text != "199")
    for across, up, text in zip(x, y, texts, strict=True):
        assert (across, up) == (data.checkpoints.x[int(text)], data.checkpoints.y[int(text)])
    # The browser draws them, and none on another, nor on the dashed line.
    boxes = opened.page.evaluate(
        """[...document.querySelectorAll('.plot.map .annotation-text')].map((each) => {
            const { left, right, top, bottom } = each.getBoundingClientRect();
            return [left, right, top, bottom]; })"""
    )
    assert len(boxes) == len(texts)
    for index, (left, right, top, bottom) in enumerate(boxes):
        for other in boxes[:index]:
            assert left >= other[1] or right <= other[0] or top >= other[3] or bottom <= other[2]
    _, line = opened.pixel(0, 0)
    assert not any(top < line < bottom for _, _, top, bottom in boxes)
    # Where the browser draws a number, no checkpoint is nearer than its own. (Those of the ends stand at large marks.)
    pixels = np.array([opened.pixel(*place) for place in zip(data.checkpoints.x, data.checkpoints.y, strict=True)])
    inner = [(box, text) for box, text in zip(boxes, texts, strict=True) if text not in ("0", "199")]
    for (left, right, top, bottom), text in inner:
        distances = np.hypot(*(pixels - [(left + right) / 2, (top + bottom) / 2]).T)
        assert np.hypot(*(pixels[distances.argmin()] - pixels[int(text)])) <= 8


@pytest.mark.parametrize(("shape", "count"), [(shape, count) for shape in SHAPES for count in (17, 200)])
def test_a_number_stands_at_its_own_checkpoint_which_has_a_mark(shape, count):
    data = build_path(shape, count)
    place = map_place(data, lambda x, y: (x, y))
    dots, _, _ = map_marks(data, 0, place)
    found = path_numbers(data, place, [dots])
    # The map is larger where there is room, and at least two thirds of its usual size.
    for size in (0.65, 1.0, 3.0):
        pixels = size * 96 / 72 * np.column_stack(place(data.checkpoints.x, data.checkpoints.y))
        for row, right, up in found[2:]:
            assert row in [*dots.rows, 0, count - 1]
            nearest = np.hypot(*(pixels - pixels[row] - [right, up]).T).argmin()
            # Two dots are never so near: 8 of 72 points to an inch.
            assert np.hypot(*(pixels[nearest] - pixels[row])) <= 6.7 * size
    assert [row for row, _, _ in found][:2] == [0, count - 1]


def test_several_runs_have_no_numbers():
    data = build_path("walk", 60, runs=2)
    place = map_place(data, lambda x, y: (x, y))
    assert path_numbers(data, place, [map_marks(data, run, place)[0] for run in (0, 1)]) == []


@pytest.mark.slow
def test_each_run_has_a_bar_and_short_paths_are_as_before(open_page, example):
    opened = open_page(build_path("walk", 60, runs=2), example(checkpoints=9), webgl=False)
    bars = traces(opened, "map", "time bar")
    assert [bar["marker"]["colorscale"][-1][1] for bar in bars] == [ramp[-1] for ramp in RAMPS[:2]]
    assert traces(opened, "map", "path", 1)
    assert traces(opened, "map", "time", 1) == traces(opened, "map", "time bar", 1) == []


@pytest.mark.slow
def test_the_surface_has_the_colours_and_chevrons(open_page):
    opened = open_page(build_path("spiral", 200))
    opened.wait("Boolean(document.querySelector('.plot.surface').data)")
    (walk,) = traces(opened, "surface", "walk")
    assert set(walk["line"]["color"]) == set(hex_colors(Times(0, 199, "epoch"), 0, np.arange(200)))
    (arrows,) = traces(opened, "surface", "arrows")
    assert len(arrows["x"]) % 4 == 0


def test_chevrons_point_along_the_path():
    data = build_path("spiral", 300)
    found = data.checkpoints
    place = map_place(data, lambda x, y: (x, y))
    _, arrows, chevrons = map_marks(data, 0, place)
    assert len(arrows) == len(chevrons) >= 3
    for (at, x, y, angle), (one, tip, two) in zip(arrows, chevrons, strict=True):
        np.testing.assert_allclose([x, y], tip)
        way = tip - (one + two) / 2
        clockwise = np.radians(90 - angle)
        np.testing.assert_allclose(way / np.hypot(*way), [np.cos(clockwise), np.sin(clockwise)], atol=1e-9)
        ahead = np.array([found.x[int(at) + 5] - x, found.y[int(at) + 5] - y])
        assert way @ ahead > 0


def test_the_notebooks_figure_has_the_colours_arrowheads_and_bars():
    figure = notebook_figure(Landscape(build_path("spiral", 120, runs=2)))
    markers = [trace.get("marker", {}) for trace in figure["data"]]
    bars = [marker["colorbar"] for marker in markers if marker.get("showscale")]
    assert len(bars) == 2
    assert [bar["title"]["text"] for bar in bars] == ["", "epoch along the path"]
    arrows = [marker for marker in markers if marker.get("symbol") == "arrow"]
    assert len(arrows) == 2
    names = [trace.get("name", "") for trace in figure["data"]]
    assert sum("checkpoints marked" in name or "checkpoint marked" in name for name in names) == 2
    short = notebook_figure(Landscape(build_path("spiral", 9)))
    assert not any(trace.get("marker", {}).get("showscale") for trace in short["data"])
