"""The page in a real browser: what it draws is what the file holds, to the last bit."""

import csv
import io
import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator
from who_is_there import with_ends, with_networks, with_runs

from landscape.record.checks import PointStatus, SamplingReport, ordered

pytestmark = pytest.mark.slow


class TestOnePlane:
    def test_values_metrics_and_scales(self, open_page, example, metric):
        data = example()
        opened = open_page(data)
        np.testing.assert_allclose(opened.drawn("map"), np.log10(data.metrics["loss"]), rtol=1e-15)
        assert "(log scale)" in opened.page.evaluate("document.querySelector('.map').data[0].colorbar.title.text")
        opened.choose("scale", "linear")
        for plot in ("map", "surface"):
            np.testing.assert_array_equal(opened.drawn(plot), data.metrics["loss"])
            axes = opened.data(plot, "surface" if plot == "surface" else "grid", "x", "y")
            np.testing.assert_array_equal(axes[0], data.x)
            np.testing.assert_array_equal(axes[1], data.y)
        assert opened.data("map", "grid", "zmin", "zmax") == opened.data("surface", "surface", "cmin", "cmax")
        opened.choose("metric", metric)
        np.testing.assert_array_equal(opened.drawn("map"), data.metrics[metric])
        opened.fill("#high", "0.5")
        for plot in ("map", "surface"):
            np.testing.assert_array_equal(opened.drawn(plot), np.minimum(data.metrics[metric], 0.5))
        opened.choose("colours", "Magma")
        opened.choose("map", "cells")
        kind, colours = opened.data("map", "grid", "type", "colorscale")
        assert kind == "heatmap"
        assert colours == opened.data("surface", "surface", "colorscale")[0]
        assert colours[0][1] == "#000004"
        assert opened.page.title().startswith("Le<script>document.title='taken'</script>Net & $\\alpha$ {{script}}")

    def test_pointing_at_the_map_marks_the_surface(self, open_page, example, metric):
        data = example()
        data.status[2, 3] = PointStatus.INTERPOLATED
        opened = open_page(data)
        opened.choose("scale", "linear")
        opened.page.mouse.move(*opened.pixel(data.x[3], data.y[2]))
        opened.wait(f"{opened.trace('surface', 'mark')}.z.length === 1")
        (place,) = opened.data("surface", "mark", "meta")
        assert place == {"x": [data.x[3]], "y": [data.y[2]], "z": [data.metrics["loss"][2, 3]]}
        for box in (".tooltip", ".readout"):
            shown = opened.facts(box)
            assert list(shown) == ["x", "y", "loss", metric, "status"]
            assert float(shown["x"].replace("\u2212", "-")) == pytest.approx(data.x[3], rel=1e-4)
            loss, error = map(float, shown["loss"].split(" ± "))
            assert loss == pytest.approx(data.metrics["loss"][2, 3], rel=1e-5)
            assert error == pytest.approx(data.metrics["loss_stderr"][2, 3], rel=1e-2)
            assert shown["status"] == "interpolated"

    def test_pointing_at_the_surface_marks_the_map(self, open_page, example):
        data = example(checkpoints=0)
        opened = open_page(data)
        box = opened.page.locator(".plot.surface").bounding_box()
        # The scene finds what is under the pointer in what it has drawn.
        opened.painted("surface")
        opened.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
        opened.wait(opened.shape("mark"))
        (mark,) = opened.shapes("mark")
        row, column = list(data.y).index(mark["yanchor"]), list(data.x).index(mark["xanchor"])
        said = float(opened.facts(".readout")["loss"].split()[0])
        assert said == pytest.approx(data.metrics["loss"][row, column], rel=1e-5)

    def test_a_click_keeps_a_point_and_arrow_keys_move_it_or_goes_to_a_checkpoint(self, open_page, example):
        data = example()
        opened = open_page(data, webgl=False)
        place = opened.pixel(data.x[9], data.y[6])
        opened.page.mouse.move(*place)
        opened.wait("!document.querySelector('.tooltip').hidden")
        opened.click(place, opened.shape("mark"))
        opened.page.mouse.move(2, 2)
        opened.wait("document.querySelector('.tooltip').hidden")
        opened.page.focus(".plot.map")
        for key in ("ArrowLeft", "ArrowLeft", "ArrowDown"):
            opened.page.keyboard.press(key)
        opened.wait(f"document.querySelector('.map').layout.shapes.at(-1).xanchor === {float(data.x[7])!r}")
        opened.wait(f"document.querySelector('.map').layout.shapes.at(-1).yanchor === {float(data.y[5])!r}")
        (mark,) = opened.shapes("mark")
        assert (mark["xanchor"], mark["yanchor"]) == (data.x[7], data.y[5])
        for _ in range(20):
            opened.page.keyboard.press("ArrowRight")
        assert opened.facts(".readout")["x"] == "2.5"
        opened.page.keyboard.press("Escape")
        opened.wait(f"!{opened.shape('mark')}")
        assert opened.facts(".readout") == {}
        path = data.checkpoints
        shown = opened.pointed(path.x[2], path.y[2], "epoch")
        assert shown["checkpoint"] == "epoch 5"
        assert float(shown["loss at its foot on the plane"]) == pytest.approx(path.projected["loss"][2], rel=1e-5)
        there = "document.querySelector('.player output').textContent === 'epoch 5'"
        opened.click(opened.pixel(path.x[2], path.y[2]), there)

    def test_clipping_is_said_and_changes_no_value(self, open_page, example):
        data = example()
        loss = data.metrics["loss"]
        opened = open_page(data, webgl=False)
        opened.page.fill("#low", "0.5")
        opened.fill("#high", "3")
        np.testing.assert_allclose(opened.drawn("map"), np.log10(np.clip(loss, 0.5, 3)), rtol=1e-15)
        note = opened.page.inner_text(".warning")
        assert f"{(loss > 3).sum()} values above 3 are drawn at 3" in note
        assert f"{(loss < 0.5).sum()} values below 0.5 are drawn at 0.5" in note
        ticks = opened.page.evaluate("document.querySelector('.map').data[0].colorbar.ticktext")
        assert {"≤ 0.5", "≥ 3"} <= set(ticks)
        opened.fill("#low", "5")
        said = opened.page.evaluate("document.querySelector('#high').validationMessage")
        assert said == "The highest value must be above the lowest."
        opened.page.click("text=Auto >> visible=true")
        np.testing.assert_allclose(opened.drawn("map"), np.log10(loss), rtol=1e-15)
        assert not opened.page.is_visible(".warning")


class TestPath:
    def test_the_player_walks_over_the_checkpoints(self, open_page, example):
        data = example()
        path = data.checkpoints
        opened = open_page(data)
        opened.choose("scale", "linear")
        slider = opened.page.locator(".player input")
        assert slider.get_attribute("aria-valuetext") == "epoch 8"
        slider.focus()
        opened.page.keyboard.press("Home")
        opened.page.keyboard.press("ArrowRight")
        current = opened.trace("surface", "current")
        opened.wait(f"{current}.meta.x[0] === {float(path.x[1])!r}")
        (place,) = opened.data("surface", "current", "meta")
        assert place == {"x": [path.x[1]], "y": [path.y[1]], "z": [path.projected["loss"][1]]}
        (walked,) = opened.shapes("walked")
        assert walked["path"] == f"M {path.x[0]:g},{path.y[0]:g} L {float(path.x[1])!r},{float(path.y[1])!r}"
        shown = opened.facts(".player")
        assert float(shown["own loss"]) == pytest.approx(path.metrics["loss"][1], rel=1e-5)
        assert float(shown["distance from the plane"]) == pytest.approx(path.residual[1], rel=1e-3)
        opened.page.evaluate(
            """() => {
                const play = document.querySelector(".play");
                window.names = [];
                new MutationObserver(() => window.names.push(play.ariaLabel)).observe(play, { attributes: true });
            }"""
        )
        opened.page.click(".play")
        opened.wait("document.querySelector('.player output').textContent === 'epoch 8'")
        opened.wait("window.names.at(-1) === 'Play the path'")
        assert opened.page.evaluate("window.names[0]") == "Pause"
        opened.wait(f"{current}.meta.z[0] === {float(path.projected['loss'][-1])!r}")


class TestRoles:
    def test_networks_are_not_joined_and_have_their_names(self, open_page):
        data = with_networks()
        opened = open_page(data, webgl=False)
        assert not any(opened.data("map", "halo", "x")[0])
        assert opened.data("map", "ends", "x")[0] == []
        assert opened.data("map", "networks", "x", "y") == [[1, 0], [0, 1]]
        assert opened.data("map", "names", "text") == [["Adam &#36;x_1&#36;", "average", "SGD"]]
        assert opened.page.locator(".player").is_hidden()
        assert opened.page.locator("button", has_text="Start to end").is_hidden()
        assert opened.pointed(1, 0, "Adam")["named network"] == "Adam $x_1$"
        assert opened.pointed(0, 0, "SGD")["origin"] == "SGD"
        assert "convergence" not in opened.page.content()

    def test_each_run_has_its_path_and_the_player_walks_all_at_once(self, open_page):
        data = with_runs()
        path = data.checkpoints
        opened = open_page(data)
        assert opened.data("map", "path", "x") == [path.x[:5].tolist()]
        assert opened.data("map", "path 1", "x") == [path.x[5:13].tolist()]
        (halo,) = opened.data("map", "halo", "x")
        assert halo[5] is None
        assert len(halo) == 14
        (walk,) = opened.data("surface", "walk", "x")
        (meta,) = opened.data("surface", "walk", "meta")
        assert len(meta["x"]) == len(walk)
        assert walk[4 * 12 + 1] is None
        assert len(walk) == 4 * 12 + 1 + 1 + 7 * 12 + 1
        assert opened.data("map", "names", "text") == [["EMA", "SGD", "Adam"]]
        opened.choose("aspect", "fill")
        slider = opened.page.locator(".player input")
        # The player walks the longest path.
        assert (slider.get_attribute("max"), slider.get_attribute("aria-valuetext")) == ("7", "epoch 35")
        current = opened.trace("surface", "current")
        # The first run has ended at epoch 20, and waits there.
        for steps, rows in ((0, (4, 12)), (5, (2, 7)), (2, (0, 5))):
            slider.focus()
            for _ in range(steps):
                opened.page.keyboard.press("ArrowLeft")
            opened.wait(f"{current}.meta.x[1] === {float(path.x[rows[1]])!r}")
            (place,) = opened.data("surface", "current", "meta")
            assert place["x"] == [path.x[row] for row in rows]
            assert place["y"] == [path.y[row] for row in rows]
        facts = opened.facts(".player")
        assert set(facts) == {"SGD", "Adam"}
        assert facts["SGD"].endswith("(epoch 0)")

    def test_the_ends_of_a_line_have_their_names(self, open_page):
        opened = open_page(with_ends(), webgl=False)
        assert opened.data("profile", "networks", "x", "y", "text") == [[1], [3], ["Adam &#36;x_1&#36;"]]
        assert opened.data("profile", "origin", "x", "y", "text") == [[0], [2], ["SGD"]]


class TestProfile:
    def test_dragging_an_end(self, open_page, example):
        data = example()
        data.metrics["loss"][4, 6] = np.nan
        opened = open_page(data, webgl=False)
        opened.pixel(0, 0)
        box = opened.page.locator(".handle").nth(1).bounding_box()
        goal = opened.pixel(1.7, 0.8)
        opened.page.mouse.move(box["x"] + 10, box["y"] + 10)
        opened.page.mouse.down()
        opened.page.mouse.move(*goal, steps=4)
        opened.page.mouse.up()
        (line,) = opened.shapes("line")
        assert (line["x1"], line["y1"]) == pytest.approx((1.7, 0.8), abs=0.02)
        check_profile(opened, data, line)

    def test_keys_numbers_and_usual_lines(self, open_page, example):
        data = example()
        opened = open_page(data, webgl=False)
        opened.page.focus(".handle")
        opened.page.keyboard.press("ArrowUp")
        opened.page.keyboard.press("Shift+ArrowRight")
        (line,) = opened.shapes("line")
        assert (line["x0"], line["y0"]) == pytest.approx((-1.5 + 0.4, 0.018), abs=1e-12)
        opened.page.click("text=Start to end")
        (line,) = opened.shapes("line")
        path = data.checkpoints
        assert [line[name] for name in ("x0", "y0", "x1", "y1")] == [path.x[0], path.y[0], path.x[-1], path.y[-1]]
        opened.page.click("text=Upwards")
        opened.fill("[aria-label='x of the start']", "-1")
        (line,) = opened.shapes("line")
        assert [line[name] for name in ("x0", "y0", "x1", "y1")] == [-1, data.y[0], 0, data.y[-1]]
        check_profile(opened, data, line)
        assert "interpolated bilinearly" in opened.page.inner_text("figcaption")
        # Beyond the grid nothing is known.
        opened.fill("[aria-label='x of the end']", "10")
        (values,) = opened.data("profile", "profile", "y")
        assert values[0] is not None
        assert values[-1] is None

    def test_no_handle_hides_a_number_of_the_axes(self, open_page, example):
        opened = open_page(example(), webgl=False)
        for width, usual in itertools.product((1280, 390), ("Across", "Upwards")):
            opened.page.set_viewport_size({"width": width, "height": 800})
            opened.wait(f"innerWidth === {width}")
            opened.page.click(f"text={usual}")
            opened.painted()
            numbers, hidden = opened.page.evaluate(
                """() => {
                    const boxes = (name) =>
                        [...document.querySelectorAll(name)].map((item) => item.getBoundingClientRect());
                    const numbers = boxes(".plot.map .xtick text, .plot.map .ytick text");
                    const over = (a, b) =>
                        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
                    const hidden = numbers.filter((one) => boxes(".handle").some((other) => over(one, other)));
                    return [numbers.length, hidden.length];
                }"""
            )
            assert numbers > 5, (width, usual)
            assert hidden == 0, (width, usual)


def check_profile(opened, data, line):
    position, values = (np.array(item, np.float64) for item in opened.data("profile", "profile", "x", "y"))
    share = np.linspace(0, 1, len(position))
    ends = np.array([[line["x0"], line["y0"]], [line["x1"], line["y1"]]])
    points = ends[0] + share[:, None] * (ends[1] - ends[0])
    np.testing.assert_allclose(position, share * np.hypot(*(ends[1] - ends[0])), atol=1e-12)
    exact = RegularGridInterpolator((data.y, data.x), data.metrics["loss"])(
        points[:, ::-1].clip([data.y[0], data.x[0]], [data.y[-1], data.x[-1]])
    )
    np.testing.assert_allclose(values, exact, rtol=1e-12)
    assert np.isfinite(values).any()
    assert np.isnan(values).any() == np.isnan(data.metrics["loss"]).any()


class TestInterpolatedPoints:
    def test_the_page_says_what_is_estimated_and_what_may_be_missed(self, open_page, example, metric):
        one, other = example(), example(seed=1)
        for data, gap in ((one, 3), (other, 5)):
            data.status[::2, ::2] = PointStatus.INTERPOLATED
            report = SamplingReport(0.01, False, 82, 35, 3, 0.0042, 1, 2, 0.001, 0.0005, 0.776, gap, True)
            data.attributes["sampling"] = {"mode": "adaptive", "finished": True} | report.to_json()
        opened = open_page(one, other, webgl=False)
        said = opened.page.inner_text(".warning")
        assert "Largest estimated error 0.42 % of the range of losses; features narrower than 3 points may be" in said
        opened.choose("metric", metric)
        said = opened.page.inner_text(".warning")
        assert "Interpolated linearly, error not estimated; features narrower than 3 points may be missed." in said
        opened.choose("metric", "loss")
        opened.choose("difference", "0 1")
        cards = opened.page.locator(".warning").all_inner_texts()
        (difference,) = (text for text in cards if "Features narrower than 5 points may be missed." in text)
        assert "estimated error" not in difference


class TestDownloads:
    def test_the_grid_as_csv_is_exact(self, open_page, example, metric):
        data = example()
        data.metrics["loss"][0, :3] = [np.nan, np.inf, -np.inf]
        data.metrics[metric][1, 1] = -0.0
        data.status[3, 4] = PointStatus.FAILED
        opened = open_page(data, webgl=False)
        with opened.page.expect_download() as download:
            opened.page.click("text=CSV")
        assert download.value.suggested_filename == "run_0.csv"
        rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
        assert list(rows[0]) == ["x", "y", *ordered(data.metrics), "status"]
        for name, values in data.metrics.items():
            read = np.array([float(row[name]) for row in rows]).reshape(data.shape)
            np.testing.assert_array_equal(read, values)
            np.testing.assert_array_equal(np.signbit(read), np.signbit(values))
        np.testing.assert_array_equal([float(row["x"]) for row in rows[:13]], data.x)
        np.testing.assert_array_equal([float(row["y"]) for row in rows[::13]], data.y)
        assert [row["status"] for row in rows].count("failed") == 1
        assert rows[3 * 13 + 4]["status"] == "failed"

    def test_the_view_as_png_and_as_svg(self, open_page, example):
        import matplotlib.image

        opened = open_page(example())
        with opened.page.expect_download() as download:
            opened.page.click("text=PNG")
        assert download.value.suggested_filename == "run_0_loss.png"
        picture = matplotlib.image.imread(download.value.path(), format="png")
        sizes = opened.page.evaluate(
            "[...document.querySelectorAll('.pair:not(.lower) .plot')].map((plot) => plot.clientWidth)"
        )
        assert picture.shape[1] == 2 * (sum(sizes) + 48)
        half = picture.shape[1] // 2
        for side in (picture[100:-80, 40:half], picture[100:-80, half:-40]):
            assert len(np.unique((255 * side[..., :3]).astype(int).reshape(-1, 3), axis=0)) > 200
        with opened.page.expect_download() as download:
            opened.page.click("text=SVG")
        assert download.value.suggested_filename == "run_0_loss.svg"
        names = [item.tag.split("}")[1] for item in ElementTree.parse(download.value.path()).iter()]
        assert names[0] == "svg"
        # The surface is a picture of pixels; the map and all letters are not.
        assert names.count("image") >= 1
        assert names.count("path") > 20
        assert names.count("text") > 10


class TestSeveral:
    def test_one_scale_own_scales_and_the_difference(self, open_page, example):
        first, second, other = example(), example(seed=1), example(columns=7)
        second.metrics["loss"] *= 3
        second.metrics["loss"][1, 2] = np.nan
        second.status[5, 5] = PointStatus.FAILED
        opened = open_page(first, second, other, webgl=False)
        for shared in (True, False):
            opened.page.set_checked("#shared", shared)
            first_ends, *others = (opened.data("map", "grid", "zmin", "zmax", card=card) for card in range(3))
            assert (others[0] == first_ends) == shared
            assert not shared or others[1] == first_ends
        opened.page.click(".chip >> text=run_2.h5")
        assert opened.page.locator(".card").count() == 2
        options = opened.page.locator("#difference option").all_inner_texts()
        assert options == ["none", "run_0.h5 − run_1.h5", "run_1.h5 − run_0.h5"]
        opened.choose("difference", "0 1")
        assert opened.page.locator(".card h2").first.inner_text() == "run_0.h5 − run_1.h5"
        np.testing.assert_array_equal(opened.drawn("map"), first.metrics["loss"] - second.metrics["loss"])
        low, high, colours = opened.data("map", "grid", "zmin", "zmax", "colorscale")
        # This difference is nowhere above zero: its colours end at the middle of the diverging ones.
        assert low < high == 0
        assert colours[0][1] == "#053061"
        assert colours[-1][1] == "#f7f6f6"
        assert "failed (1)" in opened.page.locator(".card").first.inner_text()
        opened.choose("difference", "1 0")
        opposite = opened.data("map", "grid", "zmin", "zmax", "colorscale")
        assert opposite[:2] == pytest.approx([0, -low])
        assert opposite[2][0][1] == "#f7f6f6"
        opened.choose("difference", "")
        assert opened.page.locator(".card").count() == 2


class TestLine:
    def test_a_line_is_a_curve_of_its_points(self, open_page, example, metric):
        data = example(line=True)
        data.metrics["loss"][4] = np.inf
        data.status[6] = PointStatus.PENDING
        data.metrics["loss"][6] = np.nan
        opened = open_page(data, webgl=False)
        x, y = opened.data("profile", "grid", "x", "y")
        np.testing.assert_array_equal(x, data.x)
        expected = data.metrics["loss"].tolist()
        expected[4] = expected[6] = None
        assert y == expected
        assert opened.page.locator(".plot").count() == 1
        assert "coarse: value of the nearest measured point (1)" in opened.page.inner_text(".warning")
        assert "not finite (1)" in opened.page.inner_text(".warning")
        np.testing.assert_array_equal(opened.data("profile", "path", "y")[0], data.checkpoints.projected["loss"])
        shown = opened.pointed(data.x[9], data.metrics["loss"][9], plot="profile")
        assert list(shown) == ["x", "loss", metric, "status"]
        opened.choose("metric", metric)
        np.testing.assert_array_equal(opened.data("profile", "grid", "y")[0], data.metrics[metric])
