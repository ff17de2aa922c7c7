"""Files that show little, or nothing, or what was not foreseen."""

import numpy as np
import pytest
from figure_cases import build_line
from landscape_examples import HEADER

from landscape.record.checks import PointStatus
from landscape.scales.landscape_scale import landscape_scale

pytestmark = pytest.mark.slow


def unfinished(example):
    data = example(sampling={"mode": "full", "finished": False})
    data.status[4:] = PointStatus.PENDING
    data.status[1, 2] = PointStatus.FAILED
    for values in data.metrics.values():
        values[data.status != PointStatus.MEASURED] = np.nan
    data.errors["grid/1,2"] = f"{HEADER}  ...\nValueError: <img src=x onerror=alert(1)>"
    data.checkpoints.projected["loss"][3:] = np.nan
    data.checkpoints.projected_status[3:] = PointStatus.PENDING
    return data


def only_nan(example):
    data = example()
    data.metrics["loss"][:] = data.checkpoints.projected["loss"][:] = data.origin.metrics["loss"] = np.nan
    return data


def constant(example):
    data = example(checkpoints=0)
    data.metrics["loss"][:] = data.origin.metrics["loss"] = 2.5
    return data


def one_row(example):
    return example(rows=1)


def nothing_measured(example):
    data = example(checkpoints=0)
    data.status[:] = PointStatus.PENDING
    for values in data.metrics.values():
        values[:] = np.nan
    data.origin.status = PointStatus.PENDING
    data.origin.metrics["loss"] = np.nan
    return data


def both_signs(example):
    data = example()
    data.metrics["loss"][...] = np.where(np.arange(data.shape[1]) % 2, 1, -1) * np.logspace(-3, 4, data.shape[1])
    return data


REASON = "grid/1,2: ValueError: <img src=x onerror=alert(1)>"
CASES = {
    unfinished: ["Failed", REASON, "measured point (26)", "pending (39)", "failed (1)"],
    only_nan: ["There is no finite value of loss.", "not finite (117)"],
    constant: ["The surface is flat: loss is 2.5 at every finite point."],
    lambda example: example(rows=1, columns=1): ["1 × 1 points", "The surface is flat"],
    one_row: ["13 × 1 points"],
    lambda example: example(columns=1): ["1 × 9 points"],
    nothing_measured: ["There is no finite value of loss yet.", "pending (117)"],
    both_signs: ["13 × 9 points"],
    lambda example: example(checkpoints=1): ["epoch 3"],
}


@pytest.mark.parametrize("group", [slice(5), slice(5, None)])
def test_each_is_shown_for_what_it_is(open_page, example, group):
    cases = list(CASES)[group]
    data = [case(example) for case in cases]
    opened = open_page(*data, webgl=False)
    for number in range(4, len(cases)):
        opened.page.click(f".chip >> text=run_{number}.h5")
    opened.page.uncheck("#shared")
    # Beside others, the table with the reasons waits until it is asked for.
    for table in opened.page.locator(".card .about > summary").all():
        table.click()
    for number, (case, item) in enumerate(zip(cases, data, strict=True)):
        card = opened.page.locator(".card").nth(number)
        for text in CASES[case]:
            assert text.lower() in card.inner_text().lower(), CASES[case]
        (z,) = opened.data("map", "grid", "z", card=number)
        np.testing.assert_array_equal(np.isnan(z), np.isnan(item.metrics["loss"]), CASES[case][0])
        assert card.locator(".player").is_visible() == (item.checkpoints is not None)
        assert "no WebGL" in card.inner_text()


@pytest.mark.parametrize("case", [unfinished, one_row])
def test_their_surfaces(open_page, example, case):
    data = case(example)
    opened = open_page(data, ready=".plot.surface .main-svg")
    opened.choose("scale", "linear")
    (z,) = opened.data("surface", "surface", "z")
    np.testing.assert_array_equal(np.array(z, float).reshape(data.shape), data.metrics["loss"])


def test_values_without_a_logarithm_are_counted(open_page, example):
    data = example()
    data.metrics["loss"][0, :2] = [0.0, -3.0]
    opened = open_page(data, webgl=False)
    opened.choose("scale", "log")
    assert "2 values are 0 or less, which has no place on a log scale: drawn at" in opened.page.inner_text(".warning")
    (z,) = opened.data("map", "grid", "z")
    scale = landscape_scale(data, "loss", "log")
    np.testing.assert_allclose(z, scale.heights(data.loss), rtol=1e-6)
    assert z[0][0] == z[0][1] == np.min(z)


@pytest.mark.parametrize("where", ["checkpoint", "origin"])
def test_a_zero_of_a_mark_alone_is_told_too(open_page, example, where):
    data = example()
    values, place = (data.origin.metrics, "loss") if where == "origin" else (data.checkpoints.projected["loss"], 1)
    values[place] = 0.0
    opened = open_page(data, webgl=False)
    opened.choose("scale", "log")
    scale = landscape_scale(data, "loss", "log")
    assert scale.no_place == "0"
    said = "Some marked points are 0, which has no place on a log scale: drawn at"
    assert f"{said} {scale.low:.3g}" in opened.page.inner_text(".warning")
    (z,) = opened.data("map", "grid", "z")
    np.testing.assert_allclose(z, scale.heights(data.loss), rtol=1e-6)


def test_a_zero_on_the_curve_of_a_line_is_drawn_at_the_lower_end_and_told(open_page):
    opened = open_page(build_line([3.0, 0.1, 0.0, 0.02, 2.0]), webgl=False)
    assert "1 value is 0, which has no place on a log scale: drawn at 0.02." in opened.page.inner_text(".warning")
    (y,) = opened.data("profile", "grid", "y")
    np.testing.assert_allclose(y, [3.0, 0.1, 0.02, 0.02, 2.0])


def test_interpolated_points_are_told_apart(open_page, example):
    data = example()
    data.status[1:5, 2:7] = PointStatus.INTERPOLATED
    opened = open_page(data, webgl=False)
    x, y = opened.data("map", "measured", "x", "y")
    rows, columns = np.nonzero(data.status == PointStatus.MEASURED)
    np.testing.assert_array_equal(x, data.x[columns])
    np.testing.assert_array_equal(y, data.y[rows])
    assert f"Dots are the {len(rows)} measured points" in opened.page.inner_text(".warning")
    opened.choose("map", "cells")
    (gaps,) = opened.data("map", "gaps", "z")
    marked = np.array(gaps, object) != None  # noqa: E711
    assert marked.any()
    assert (data.status[marked] == PointStatus.INTERPOLATED).all()
    assert f"interpolated ({20})" in opened.page.inner_text(".warning")


STRANGE = ("__proto__", "constructor", "toString", "hasOwnProperty", "valueOf")


def with_strange_metrics(example):
    """Each named like something that all JavaScript objects have."""
    data = example()
    for index, name in enumerate(STRANGE):
        for metrics in (data.metrics, data.origin.metrics, data.checkpoints.metrics, data.checkpoints.projected):
            metrics[name] = metrics["loss"] + index + 1
    return data


@pytest.mark.parametrize("both", [True, False])
def test_metrics_named_like_what_objects_have(open_page, example, both):
    """The second file may lack them; then its loss is shown."""
    data = [with_strange_metrics(example), with_strange_metrics(example) if both else example()]
    opened = open_page(*data, webgl=False)
    page = opened.page
    listed = page.eval_on_selector_all("#metric option", "(options) => options.map((option) => option.value)")
    assert set(STRANGE) <= set(listed)
    page.select_option("#scale", "linear")
    page.select_option("#map", "cells")
    for name in STRANGE:
        page.select_option("#metric", name)
        for card, own in ((0, True), (1, both)):
            expected = data[card].metrics[name if own else "loss"]
            plot = f"document.querySelectorAll('.card')[{card}].querySelector('.plot.map')"
            first = f"{plot}.data.find((trace) => trace.name === 'grid').z[0][0]"
            opened.wait(f"{first} === {float(expected[0, 0])!r}")
            (rows,) = opened.data("map", "grid", "z", card=card)
            np.testing.assert_array_equal(np.array(rows, float), expected)
    page.select_option("#difference", index=1)
    opened.wait("document.querySelectorAll('.card').length === 3")
