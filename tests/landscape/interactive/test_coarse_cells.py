"""Unfinished landscapes on the page: the same coarse cells as in the figures, and no number of theirs anywhere else."""

import figure_cases
import numpy as np
import pytest

from landscape.record.checks import PointStatus
from landscape.sampling.grids import coarse_values

pytestmark = pytest.mark.slow


def begun(example, share, **options):
    data = example(**options)
    return figure_cases.begun(data, round(share * data.status.size))


def numbers(rows):
    return np.array([[np.nan if value is None else value for value in row] for row in rows], float)


@pytest.mark.parametrize("kind", ["contour", "cells"])
def test_the_map_shows_the_cells_of_the_figures(open_page, example, kind):
    data = begun(example, 0.1, rows=20, columns=24)
    data.status[0, 0], data.metrics["loss"][0, 0] = PointStatus.FAILED, np.nan
    opened = open_page(data, webgl=False)
    opened.choose("scale", "linear")
    opened.choose("map", kind)
    expected = coarse_values(data.metrics["loss"], data.status)
    (shown,) = opened.data("map", "coarse", "z")
    np.testing.assert_array_equal(numbers(shown), expected)
    (grid,) = opened.data("map", "grid", "z")
    np.testing.assert_array_equal(numbers(grid), data.metrics["loss"])
    (opacity,) = opened.data("map", "coarse", "opacity")
    assert opacity < 0.7
    # Hatching lies on coarse cells alone.
    x, y = opened.data("map", "hatching", "x", "y")
    middles = [
        ((x[at] + x[at + 1]) / 2, (y[at] + y[at + 1]) / 2)
        for at in range(0, len(x), 3)
        if abs(x[at + 1] - x[at]) > 1e-9
    ]
    assert len(middles) > 20
    count = int(np.isfinite(expected).sum())
    said = opened.page.inner_text(".warning")
    assert f"coarse: value of the nearest measured point ({count})" in said
    assert f"Dots are the {int((data.status == PointStatus.MEASURED).sum())} measured points." in said
    pending = int((data.status == PointStatus.PENDING).sum()) - count
    assert pending > 0
    assert f"pending ({pending})" in said
    (gaps,) = opened.data("map", "gaps", "z")
    np.testing.assert_array_equal(
        np.isfinite(numbers(gaps)), np.isnan(expected) & (data.status != PointStatus.MEASURED)
    )


def test_pointing_says_that_it_is_not_measured_and_whose_colour_it_is(open_page, example):
    data = begun(example, 0.1, rows=20, columns=24)
    opened = open_page(data, webgl=False)
    shown = coarse_values(data.metrics["loss"], data.status)
    row, column = np.argwhere(np.isfinite(shown))[40]
    place = opened.pixel(data.x[column], data.y[row])
    opened.click(place, "document.querySelector('.readout').textContent.includes('not measured')")
    facts = opened.facts(".readout")
    assert facts["status"] == "pending"
    assert facts["loss"].startswith("NaN")
    assert facts["not measured"].startswith("the colour is that of (")
    assert float(facts["not measured"].split(": ")[1]) == pytest.approx(shown[row, column], rel=1e-4)
    assert "not measured" not in opened.facts(".player")


def test_the_surface_has_flat_plateaus_of_measured_heights(open_page, example):
    data = begun(example, 0.06, rows=20, columns=24)
    opened = open_page(data)
    opened.choose("scale", "linear")
    opened.choose("aspect", "fill")
    x, y, z = opened.data("surface", "coarse", "x", "y", "z")
    corners = np.stack([x, y, z], axis=1).reshape(-1, 4, 3)
    np.testing.assert_array_equal(np.ptp(corners[..., 2], axis=1), 0)
    assert set(corners[:, 0, 2]) <= set(data.metrics["loss"][data.status == PointStatus.MEASURED])
    shown = np.isfinite(coarse_values(data.metrics["loss"], data.status))
    assert len(corners) >= len(np.unique(corners[:, 0, 2]))
    assert shown.any()
    assert opened.data("surface", "surface", "visible") == [True]


def test_a_line_has_dotted_steps(open_page, example):
    data = begun(example, 0.3, line=True, columns=101)
    opened = open_page(data, webgl=False)
    (y,) = opened.data("profile", "coarse", "y")
    shown = coarse_values(data.metrics["loss"], data.status)
    np.testing.assert_array_equal(y[::3], shown[np.isfinite(shown)])


def test_a_finished_landscape_has_none_and_a_difference_is_coarse_where_either_is_pending(open_page, example):
    first, second = begun(example, 0.1, rows=20, columns=24), example(rows=20, columns=24, seed=1)
    opened = open_page(first, second, webgl=False)
    names = opened.page.evaluate("document.querySelectorAll('.map')[1].data.map((trace) => trace.name)")
    assert "grid" in names
    assert not {"coarse", "hatching"} & set(names)
    opened.choose("difference", "1 0")
    expected = coarse_values(second.metrics["loss"] - first.metrics["loss"], first.status)
    (shown,) = opened.data("map", "coarse", "z")
    np.testing.assert_array_equal(np.isfinite(numbers(shown)), np.isfinite(expected))
