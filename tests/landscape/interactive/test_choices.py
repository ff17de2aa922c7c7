"""A choice on the page does not make untrue what was chosen before it: zoom, kept point, second metric, range."""

import numpy as np
import pytest
from data_sets import with_test_set
from figure_cases import heights

pytestmark = pytest.mark.slow
AXES = "document.querySelector('.plot.profile')._fullLayout"
TITLES = "Array.from(document.querySelectorAll('.card h2'), (title) => title.textContent)"


def ends(opened):
    """Returns the ends of the axis of values."""
    return opened.page.evaluate(f"{AXES}.yaxis.range")


def zoom(opened, plot):
    """Draws a rectangle with the mouse, as a reader does."""
    left, top, width, height = opened.page.evaluate(
        """(plot) => {
            const found = document.querySelector(`.plot.${plot}`);
            found.scrollIntoView({block: "center"});
            const box = found.getBoundingClientRect();
            const {xaxis, yaxis} = found._fullLayout;
            return [box.left + xaxis._offset, box.top + yaxis._offset, xaxis._length, yaxis._length];
        }""",
        plot,
    )
    mouse = opened.page.mouse
    mouse.move(left + 0.2 * width, top + 0.2 * height)
    mouse.down()
    mouse.move(left + 0.5 * width, top + 0.5 * height, steps=4)
    mouse.move(left + 0.7 * width, top + 0.8 * height, steps=4)
    mouse.up()
    opened.wait("/zoom/.test(location.hash)" if plot == "map" else f"!{AXES}.yaxis.autorange")
    mouse.move(2, 2)


def test_a_metric_stands_beside_another_one_only(open_page, example):
    opened = open_page(with_test_set(example()), webgl=False)
    select = opened.page.select_option
    select("#beside", "loss@test")
    assert opened.page.evaluate(TITLES) == ["loss on train", "loss on test"]
    select("#metric", "loss@test")
    assert opened.page.evaluate(TITLES) == [""]
    select("#metric", "loss")
    assert opened.page.evaluate(TITLES) == ["loss on train", "loss on test"]


def test_the_order_of_choices_does_not_change_the_colours_of_curves(open_page, example):
    opened = open_page(with_test_set(example()), example(seed=1), webgl=False)
    opened.choose("beside", "loss@test")
    names = "document.querySelector('.overlay .plot').data.map((trace) => trace.name)"
    before = opened.page.evaluate(names)
    assert before == ["run_0.h5: loss on train", "run_0.h5: loss on test", "run_1.h5: loss"]
    opened.wait("/beside/.test(location.hash)")
    # The page makes all anew from its address, as it does when it is opened.
    opened.page.evaluate("document.querySelector('.overlay').remove()")
    opened.page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    opened.wait("document.querySelector('.overlay .main-svg')")
    assert opened.page.evaluate(names) == before


def test_a_kept_point_of_a_curve_goes_to_the_other_metric_and_a_zoom_ends_where_its_axis_does(
    open_page, example, metric
):
    """The ends on a logarithmic axis are logarithms, and those of one metric are none of another."""
    data = example(line=True)
    opened = open_page(data, webgl=False)
    opened.page.locator(".plot.profile").focus()
    opened.page.keyboard.press("ArrowRight")
    (x,), (y,) = opened.data("profile", "mark", "x", "y")
    at = list(data.x).index(x)
    assert y == data.loss[at]
    opened.choose("metric", metric)
    assert opened.data("profile", "mark", "x", "y") == [[x], [data.metrics[metric][at]]]
    opened.choose("metric", "loss")
    zoom(opened, "profile")
    opened.wait("/zoom.0/.test(location.hash)")
    opened.choose("scale", "linear")
    low, high = ends(opened)
    assert low <= data.loss.min() < data.loss.max() <= high
    zoom(opened, "profile")
    zoomed = ends(opened)
    opened.choose("metric", metric)
    low, high = ends(opened)
    assert low <= data.metrics[metric].min() < data.metrics[metric].max() <= high < 2
    opened.choose("metric", "loss")
    zoom(opened, "profile")
    opened.fill("#low", "1")
    opened.fill("#high", "3")
    assert ends(opened) == pytest.approx([0.9, 3.1])
    assert zoomed[0] != pytest.approx(0.9)


def test_a_zoom_stays_where_the_axes_do(open_page, example, metric):
    opened = open_page(example(), example(line=True), webgl=False)
    zoom(opened, "map")
    shown = "JSON.stringify(document.querySelector('.plot.map')._fullLayout.xaxis.range)"
    before = opened.page.evaluate(shown)
    for control, value in (("scale", "linear"), ("metric", metric), ("colours", "Magma")):
        opened.choose(control, value)
        assert opened.page.evaluate(shown) == before
    opened.wait("/colours.*zoom.0=/.test(location.hash)")


def test_a_curve_of_both_signs_is_logarithmic_around_zero(open_page, example):
    """As in the figures; the ends that the reader gives hold on that axis, too."""
    data = example(line=True)
    data.metrics["loss"][...] = 0.01 * np.sinh(5 * data.x)
    opened = open_page(data, webgl=False)

    axis = opened.page.evaluate(f"(({{title, tickvals, ticktext}}) => ({{title, tickvals, ticktext}}))({AXES}.yaxis)")
    assert axis["title"]["text"] == "loss (log scale around 0)"
    places = zip(axis["ticktext"], axis["tickvals"], strict=True)
    labels = {float(text.replace("\u2212", "-")): place for text, place in places if text}
    # The threshold is the unit of the axis's labels.
    kind = "symlog", next(abs(value) for value, place in labels.items() if abs(place) == 1)
    (drawn,) = opened.data("profile", "grid", "y")
    np.testing.assert_allclose(drawn, heights(*kind, data.loss), rtol=1e-12)
    opened.fill("#low", "-1")
    opened.fill("#high", "2")
    low, high = heights(*kind, [-1.0, 2.0])
    assert ends(opened) == pytest.approx([low - 0.05 * (high - low), high + 0.05 * (high - low)])
    opened.page.locator(".plot.profile").focus()
    opened.page.keyboard.press("ArrowLeft")
    (x,), (y,) = opened.data("profile", "mark", "x", "y")
    assert y == pytest.approx(heights(*kind, data.loss[data.x == x])[0])
    opened.check()


def test_labels_of_a_narrow_range_differ(open_page, example):
    files = [example(seed=seed) for seed in (0, 1)]
    for data in files:
        data.metrics["loss"][...] = 0.6931 + 1e-4 * np.random.default_rng(3).random(data.shape)
        data.checkpoints.projected["loss"][:] = data.origin.metrics["loss"] = 0.69315
    opened = open_page(*files, webgl=False)
    for card in (0, 1):
        (bar,) = opened.data("map", "grid", "colorbar", card=card)
        texts = [text for text in bar["ticktext"] if text]
        assert len(set(texts)) == len(texts) >= 3
        for text, place in zip(bar["ticktext"], bar["tickvals"], strict=True):
            assert not text or float(text) == pytest.approx(place, abs=1e-9)
