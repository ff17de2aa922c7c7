"""Several data sets on the page and in a notebook: which metric, two of them on one scale, their difference."""

import copy
import json

import numpy as np
import plotly.graph_objects
import pytest
from data_sets import with_test_set

from landscape import Landscape
from landscape.interactive.notebook import notebook_figure
from landscape.interactive.page import plotly_script


def colour_title(opened, card=0):
    return opened.page.evaluate("(card) => document.querySelectorAll('.map')[card].data[0].colorbar.title.text", card)


@pytest.mark.slow
class TestPage:
    def test_metrics_stand_by_data_set(self, open_page, example, metric):
        data = with_test_set(example())
        opened = open_page(data, webgl=False)
        groups = opened.page.evaluate(
            """Array.from(document.querySelectorAll("#metric optgroup"),
                (group) => [group.label, Array.from(group.children, (each) => each.textContent)])"""
        )
        assert groups == [
            ["train", ["loss on train", f"{metric} on train", "loss_stderr on train (standard error)"]],
            ["test", [f"{metric} on test", "loss on test", "loss_stderr on test (standard error)"]],
        ]
        opened.choose("scale", "linear")
        opened.choose("metric", "loss@test")
        np.testing.assert_array_equal(opened.drawn(), data.metrics["loss@test"])
        assert colour_title(opened) == "loss on test"
        facts = opened.pointed(data.x[3], data.y[2])
        for name, text in (("loss", "loss on train"), ("loss@test", "loss on test")):
            value, error = map(float, facts[text].split(" ± "))
            assert value == pytest.approx(data.metrics[name][2, 3], rel=1e-5)
            assert error == pytest.approx(data.metrics[name.replace("loss", "loss_stderr")][2, 3], rel=1e-2)
        assert not any("stderr" in name for name in facts)
        walked = opened.facts(".player")
        assert {"own loss on train", "own loss on test", "loss on test at its foot on the plane"} <= set(walked)

    def test_surfaces_have_the_scales_and_values_of_their_maps(self, open_page, example):
        data = with_test_set(example(rows=5, columns=6))
        opened = open_page(data)
        opened.choose("beside", "loss@test")
        for card in range(2):
            ends = opened.data("map", "grid", "zmin", "zmax", card=card)
            assert ends == opened.data("surface", "surface", "cmin", "cmax", card=card)
        opened.choose("beside", "")
        opened.choose("difference", "0 m0")
        np.testing.assert_array_equal(opened.drawn("surface"), data.metrics["loss@test"] - data.metrics["loss"])

    def test_both_maps_on_one_scale_and_the_difference(self, open_page, example, metric):
        data = with_test_set(example())
        opened = open_page(data, webgl=False)
        assert opened.page.locator(".card").count() == 1
        opened.choose("beside", "loss@test")
        assert opened.page.locator(".card h2").all_inner_texts() == ["loss on train", "loss on test"]
        both = np.concatenate([data.metrics["loss"].ravel(), data.metrics["loss@test"].ravel()])
        for card in range(2):
            ends = opened.data("map", "grid", "zmin", "zmax", card=card)
            np.testing.assert_allclose(ends, np.log10([both.min(), both.max()]))
        np.testing.assert_allclose(opened.drawn(card=1), np.log10(data.metrics["loss@test"]), rtol=1e-14)
        opened.page.uncheck("#shared")
        assert opened.data("map", "grid", "zmin") != opened.data("map", "grid", "zmin", card=1)
        opened.page.check("#shared")
        # Another quantity never shares its scale.
        opened.choose("beside", f"{metric}@test")
        assert opened.data("map", "grid", "zmax", card=1)[0] <= 0.9
        opened.choose("beside", "")
        assert opened.page.locator(".card").count() == 1
        texts = opened.page.locator("#difference option").all_inner_texts()
        assert texts[:3] == ["none", "loss on test − loss on train", "loss on train − loss on test"]
        opened.choose("difference", "0 r0")
        np.testing.assert_array_equal(opened.drawn(), data.metrics["loss"] - data.metrics["loss@test"])
        opened.choose("difference", "0 m0")
        assert opened.page.locator(".card h2").first.inner_text() == "loss on test − loss on train"
        np.testing.assert_array_equal(opened.drawn(), data.metrics["loss@test"] - data.metrics["loss"])
        assert colour_title(opened) == "loss on test − loss on train"

    def test_lines_and_two_files(self, open_page, example):
        first, second = (with_test_set(example(line=True, seed=seed)) for seed in (0, 1))
        opened = open_page(first, second, webgl=False)
        opened.choose("metric", "loss@test")
        opened.choose("beside", "loss")
        ranges = opened.page.evaluate(
            """Array.from(document.querySelectorAll(".overlay .plot, .card .plot.profile"),
                (plot) => [plot._fullLayout.yaxis.title.text, plot._fullLayout.yaxis.range])"""
        )
        both = ["loss on test (log scale)", "loss on train (log scale)"]
        assert [text for text, _ in ranges] == ["loss (log scale)", *both, *both]
        assert len({tuple(ends) for _, ends in ranges}) == 1
        assert "run_1.h5: loss on test − loss on train" in opened.page.locator("#difference option").all_inner_texts()
        opened.choose("difference", "1 m0")
        (values,) = opened.data("profile", "grid", "y")
        np.testing.assert_array_equal(values, second.metrics["loss@test"] - second.metrics["loss"])

    def test_a_landscape_of_one_data_set_has_neither(self, open_page, example):
        opened = open_page(example(), webgl=False)
        assert opened.page.locator("#metric optgroup").count() == 0
        assert opened.page.locator("#beside, #difference, #shared").count() == 0


class TestNotebook:
    @pytest.mark.slow
    def test_the_menu_shows_what_a_figure_of_that_metric_shows(self, open_address, example, tmp_path):
        data = with_test_set(example())
        figure = notebook_figure(Landscape(data))
        plotly.graph_objects.Figure(copy.deepcopy(figure))  # plotly's own check of every name and value
        (menu,) = figure["layout"]["updatemenus"]
        labels = [button["label"] for button in menu["buttons"]]
        assert labels[0] == "loss on train"
        assert {"loss on test", "loss on test − loss on train"} <= set(labels)
        (tmp_path / "plotly.min.js").write_text(plotly_script())
        page = tmp_path / "cell.html"
        page.write_text(
            '<!doctype html><meta charset="utf-8"><div id="plot"></div><script src="plotly.min.js"></script><script>'
            f"const figure = {json.dumps(figure)}; Plotly.newPlot('plot', figure.data, figure.layout);"
            "const shown = () => Array.from(document.getElementById('plot').data[0].z, (row) => Array.from(row));"
            "const { buttons } = figure.layout.updatemenus[0];"
            "const press = (index) => Plotly.update('plot', ...buttons[index].args);</script>"
        )
        opened = open_address(page.as_uri(), ready="#plot .main-svg", webgl=False)

        def press(label):
            index = labels.index(label)
            after = "document.getElementById('plot').layout.coloraxis"
            layout = opened.page.evaluate(f"press({index}).then(() => {after})")
            return np.array(opened.page.evaluate("shown()"), float), layout

        values, test = press("loss on test")
        np.testing.assert_allclose(values, np.log10(data.metrics["loss@test"]), rtol=1e-6, atol=1e-6)
        assert test["colorbar"]["title"]["text"] == "loss on test (log scale)"
        values, train = press("loss on train")
        np.testing.assert_allclose(values, np.log10(data.metrics["loss"]), rtol=1e-6, atol=1e-6)
        # Both data sets have the same colours for the same values.
        assert (train["cmin"], train["cmax"]) == (test["cmin"], test["cmax"])
        values, gap = press("loss on test − loss on train")
        np.testing.assert_allclose(values, data.metrics["loss@test"] - data.metrics["loss"], rtol=1e-5, atol=1e-5)
        assert gap["colorscale"] != train["colorscale"]
        assert gap["cmin"] == -gap["cmax"]
        values, again = press("loss on train")
        assert (again["cmin"], again["colorscale"]) == (train["cmin"], train["colorscale"])
        # Without WebGL, Plotly says that the surface cannot be drawn.
        assert all("webgl" in message.lower() for message in opened.messages)

    def test_a_line_has_one_too(self, example):
        figure = notebook_figure(Landscape(with_test_set(example(line=True))))
        button = next(each for each in figure["layout"]["updatemenus"][0]["buttons"] if each["label"] == "loss on test")
        assert button["args"][1]["yaxis.title.text"] == "loss on test (log scale)"

    def test_a_cell_of_two_data_sets_stays_small(self, example):
        data = with_test_set(example(rows=40, columns=40))
        assert len(json.dumps(notebook_figure(Landscape(data)))) < 400_000
        assert "updatemenus" not in notebook_figure(Landscape(example()))["layout"]
