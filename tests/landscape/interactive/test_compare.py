"""Several landscapes beside each other: one cursor, profiles on one axis, cameras and players that go together."""

import numpy as np
import pytest
from isotropic_planes import isotropic_plane
from landscape_examples import write_landscape
from scipy.interpolate import RegularGridInterpolator

from landscape import Landscape
from landscape.interactive import save_page

pytestmark = pytest.mark.slow
EYE = "Object.values(document.querySelectorAll('.plot.surface')[{}]._fullLayout.scene._scene.getCamera().eye)"


def saved(folder, *data):
    files = [folder / f"run_{number}.h5" for number in range(len(data))]
    for file, item in zip(files, data, strict=True):
        write_landscape(file, item)
    return save_page([Landscape.load(file) for file in files], folder / "page.html").as_uri()


@pytest.fixture(scope="module")
def two(tmp_path_factory, open_for_all, example):
    data = [example(), example(columns=7, rows=5, seed=1)]
    data[1].metrics["loss"] *= 3
    opened = open_for_all(saved(tmp_path_factory.mktemp("two"), *data), webgl=False)
    opened.landscapes = data
    return opened


def curves(opened):
    """Returns the curves of the common axis by name."""
    found = opened.page.evaluate(
        """() => document.querySelector(".overlay .plot").data.map(
            (each) => [each.name, Array.from(each.x), Array.from(each.y)])"""
    )
    return {name: (np.array(x, np.float64), np.array(y, np.float64)) for name, x, y in found}


class TestSideBySide:
    def test_stands_side_by_side_where_there_is_room(self, two):
        def places():
            return [card.bounding_box() for card in two.page.locator(".card").all()]

        try:
            first, second = places()
            assert first["y"] == second["y"]
            assert first["x"] + first["width"] < second["x"]
            two.page.set_viewport_size({"width": 390, "height": 844})
            # The plots follow a moment later.
            two.wait("innerWidth === 390 && document.documentElement.scrollWidth <= innerWidth")
            first, second = places()
            assert first["x"] == second["x"]
            assert first["y"] + first["height"] < second["y"]
        finally:
            two.page.set_viewport_size({"width": 1280, "height": 800})
        assert "No two landscapes lie on the same grid" in two.page.inner_text(".toolbar")
        two.check()

    def test_a_bar_of_time_takes_no_room_from_a_map(self, open_page, example):
        opened = open_page(example(), example(checkpoints=60), webgl=False)
        lengths = opened.page.evaluate(
            "[...document.querySelectorAll('.plot.map')].map(({ _fullLayout: shown }) => shown.yaxis._length)"
        )
        assert lengths[1] == pytest.approx(lengths[0], rel=0.1)
        assert lengths[0] > 80

    def test_a_point_of_one_is_marked_in_all(self, two):
        second = two.landscapes[1]
        two.page.locator(".plot.map").first.focus()
        two.page.keyboard.press("ArrowRight")
        two.wait("document.querySelectorAll('.readout .fact').length > 5")
        x, y = [float(two.facts(".card:nth-of-type(1) .readout")[name].replace("\u2212", "-")) for name in ("x", "y")]
        mark = two.shape("mark", card=1)
        two.wait(mark)
        place = two.page.evaluate(f"[{mark}.xanchor, {mark}.yanchor]")
        assert place == pytest.approx([x, y], rel=1e-4)
        exact = RegularGridInterpolator((second.y, second.x), second.metrics["loss"])([[place[1], place[0]]])
        said = two.facts(".card:nth-of-type(2) .readout")
        value = said.get("loss (interpolated)") or said["loss"].split()[0]
        assert float(value) == pytest.approx(exact[0], rel=1e-4)
        # Only one of them speaks.
        spoken = two.page.evaluate("[...document.querySelectorAll('.readout')].map((each) => each.ariaLive)")
        assert spoken == ["polite", "off"]
        two.page.uncheck("#linked")
        two.wait(f"!{mark}")
        two.page.keyboard.press("Tab")
        two.page.check("#linked")
        two.check()

    def test_profiles_of_one_line_stand_on_one_axis(self, two):
        two.page.click(".overlay >> text=Across")
        found = curves(two)
        assert set(found) == {"run_0.h5", "run_1.h5"}
        for (position, values), data in zip(found.values(), two.landscapes, strict=True):
            # The line runs through the origin, so positions are distances from it.
            assert position[0] == pytest.approx(data.x[0])
            exact = RegularGridInterpolator((data.y, data.x), data.metrics["loss"])
            points = np.stack([np.zeros_like(position), np.clip(position, data.x[0], data.x[-1])], axis=1)
            np.testing.assert_allclose(values, exact(points), rtol=1e-9)
        assert two.page.locator(".card .plot.profile:visible").count() == 0
        assert two.page.locator(".legend > li").all_inner_texts() == ["run_0.h5", "run_1.h5"]
        two.page.uncheck("#overlay")
        assert two.page.locator(".overlay").count() == 0
        assert two.page.locator(".card .plot.profile:visible").count() == 2
        two.page.check("#overlay")
        two.check()

    def test_the_point_nearest_the_origin_is_nearest_in_weight_space(self, open_page):
        """Where directions are not at right angles, or not as long as each other, coordinates tell another one."""
        planes = [isotropic_plane(cosine, (3.0, 8.0), columns=41, rows=31) for cosine in (0.6, 0.0)]
        opened = open_page(*planes, webgl=False)
        ends = {"x of the start": -0.8, "y of the start": 0.4, "x of the end": 0.6, "y of the end": 0.9}
        for text, value in ends.items():
            opened.fill(f".overlay [aria-label='{text}']", str(value))
        # Of these planes the loss is the square of the distance, and so is least where that is.
        for position, values in curves(opened).values():
            assert position[values.argmin()] == pytest.approx(0, abs=0.02 * np.ptp(position))

    def test_the_address_keeps_how_they_are_compared(self, two):
        two.choose("layout", "rows")
        two.page.uncheck("#linked")
        two.wait("location.hash.includes('layout=rows') && location.hash.includes('linked=false')")
        two.page.evaluate(
            "Plotly.relayout(document.querySelector('.map'), {'xaxis.range': [0, 1], 'yaxis.range': [0, 0.5]})"
        )
        two.wait("/zoom.0=0%2C1%2C/.test(location.hash)")
        before = two.page.evaluate("location.hash")
        two.reload()
        assert two.page.input_value("#layout") == "rows"
        assert not two.page.is_checked("#linked")
        two.wait("document.querySelector('.map')._fullLayout.xaxis.range[1] === 1")
        assert two.page.evaluate("location.hash") == before
        two.page.evaluate("location.hash = ''")
        two.wait("document.querySelector('#layout').value === 'side'")
        two.check()

    def test_every_plot_is_said_in_words(self, two):
        first = two.landscapes[0]
        said = two.page.evaluate(
            """() => { const map = document.querySelector(".map");
                return [map.ariaLabel, document.getElementById(map.getAttribute("aria-describedby")).textContent]; }"""
        )
        low, high = first.metrics["loss"].min(), first.metrics["loss"].max()
        row, column = np.unravel_index(first.metrics["loss"].argmin(), first.shape)
        assert said[0].startswith("Map of loss, run_0.h5")
        assert f"from {low:.4g} to {high:.4g}" in said[1]
        place = f"({first.x[column]:.3g}, {first.y[row]:.3g})".replace("-", "\u2212")
        assert f"minimum on the grid is at {place}" in said[1]
        assert "The path has 6 checkpoints, from epoch 3 at (2, 0.9)" in said[1]


class TestPlayers:
    def test_all_go_to_the_same_epoch(self, open_page, example):
        # Epochs 3 to 8, 3 to 62, and as many numbers of another unit.
        opened = open_page(example(), example(checkpoints=60, seed=1), example(seed=2, unit="step"), webgl=False)
        sliders = opened.page.locator(".player input")

        def standing():
            return opened.page.locator(".player output").all_inner_texts()

        assert standing() == ["epoch 8", "epoch 62", "step 8"]
        sliders.nth(0).fill("2")
        assert standing() == ["epoch 5", "epoch 5", "step 8"]
        opened.wait(opened.shape("walked", card=1))
        assert opened.page.evaluate(f"{opened.shape('walked', card=1)}.path").count("L") == 2
        spoken = opened.page.evaluate("[...document.querySelectorAll('.player output')].map((each) => each.ariaLive)")
        assert spoken[:2] == ["polite", "off"]
        # A shorter run waits at its end.
        sliders.nth(1).fill("40")
        assert standing() == ["epoch 8", "epoch 43", "step 8"]
        opened.wait("/step.1=40/.test(location.hash)")
        opened.page.uncheck("#players")
        sliders.nth(0).fill("1")
        assert standing() == ["epoch 4", "epoch 43", "step 8"]
        opened.wait("/players=false/.test(location.hash) && /step.0=1&/.test(location.hash)")
        opened.reload()
        assert standing() == ["epoch 4", "epoch 43", "step 8"]
        opened.page.check("#players")
        assert standing() == ["epoch 4", "epoch 4", "step 8"]

    def test_one_plays_for_all(self, open_page, example):
        opened = open_page(example(), example(checkpoints=60, seed=1), webgl=False)
        playing = "[...document.querySelectorAll('.play')].map((each) => each.ariaLabel === 'Pause').join()"
        press = "document.querySelectorAll('.play')[{}].click()"
        assert opened.page.evaluate(f"({press.format(1)}, {playing})") == "false,true"
        # The other one takes over, from where it stands, and both come to its end.
        assert opened.page.evaluate(f"({press.format(0)}, {playing})") == "true,false"
        opened.wait(f"{playing} === 'false,false'")
        assert opened.page.locator(".player output").all_inner_texts() == ["epoch 8", "epoch 8"]

    def test_paths_that_are_not_counted_alike_have_no_switch(self, open_page, example):
        opened = open_page(example(), example(seed=1, unit="step"), example(seed=2, checkpoints=0), webgl=False)
        assert opened.page.locator("#linked").is_visible()
        assert opened.page.locator("#players").is_hidden()


class TestLines:
    def test_a_line_has_no_control_that_does_nothing(self, open_page, example):
        data = example(line=True)
        opened = open_page(data, webgl=False)
        shown = opened.page.evaluate(
            "[...document.querySelectorAll('.toolbar select, .toolbar input')].filter((each) => each.offsetParent)"
            ".map((each) => each.id)"
        )
        assert shown == ["metric", "scale", "low", "high"]
        opened.fill("#high", "2")
        top = opened.page.evaluate("document.querySelector('.profile')._fullLayout.yaxis.range[1]")
        assert 10**top == pytest.approx(2, rel=0.5)
        # The player and the arrow keys mark the curve.
        opened.page.locator(".player input").fill("1")
        opened.wait(f"document.querySelector('.profile').data.at(-2).x[0] === {float(data.checkpoints.x[1])!r}")
        opened.page.focus(".plot.profile")
        opened.page.keyboard.press("ArrowRight")
        opened.wait("document.querySelector('.profile').data.at(-1).x.length === 1")
        (x,) = opened.data("profile", "mark", "x")[0]
        assert x == data.x[abs(data.x).argmin() + 1]

    def test_lines_stand_on_one_axis(self, open_page, example):
        data = [example(line=True), example(line=True, columns=5, seed=1)]
        opened = open_page(*data, webgl=False)
        found = curves(opened)
        for number, item in enumerate(data):
            position, values = found[f"run_{number}.h5"]
            np.testing.assert_array_equal(position, item.x)
            np.testing.assert_array_equal(values, item.metrics["loss"])
        assert "band" in found


class TestTurning:
    def test_keys_turn_all_surfaces_together(self, open_page, example):
        opened = open_page(example(rows=5, columns=6), example(rows=5, columns=6, seed=1), ready=".plot.surface canvas")
        for number in (0, 1):
            opened.wait(f"Boolean(document.querySelectorAll('.plot.surface')[{number}]._fullLayout.scene?._scene)")
        before = np.array(opened.page.evaluate(EYE.format(0)))
        opened.page.locator(".plot.surface").first.focus()
        opened.page.keyboard.press("ArrowRight")
        opened.wait("document.querySelector('header .spoken').textContent.startsWith('azimuth')")
        after = f"Math.abs({EYE.format(1)}[0] - ({before[0]})) > 0.05"
        opened.wait(after)
        one, other = (np.array(opened.page.evaluate(EYE.format(number))) for number in (0, 1))
        np.testing.assert_allclose(one, other, atol=1e-3)
        angles = [np.degrees(np.arctan2(eye[1], eye[0])) for eye in (before, one)]
        assert (angles[1] - angles[0]) % 360 == pytest.approx(10, abs=0.5)
        opened.page.uncheck("#locked")
        opened.wait("location.hash.includes('locked=false')")
        before_zoom = opened.page.evaluate("location.hash")
        opened.page.locator(".plot.surface").first.focus()
        opened.page.keyboard.press("+")
        opened.wait(f"Math.hypot(...{EYE.format(0)}) < {0.95 * np.linalg.norm(one)}")
        # What follows a turn begins before the address is told of it.
        opened.wait(f"location.hash !== {before_zoom!r}")
        np.testing.assert_allclose(opened.page.evaluate(EYE.format(1)), other, atol=1e-6)
        assert not np.allclose(opened.page.evaluate(EYE.format(0)), one, atol=1e-2)
