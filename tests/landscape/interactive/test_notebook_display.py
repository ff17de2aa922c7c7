"""How a landscape shows itself in a notebook, and its progress bar."""

import base64
import copy
import io
import json
import sys

import nbformat
import numpy as np
import plotly.graph_objects
import pytest
from figure_cases import begun
from isotropic_planes import isotropic_plane
from landscape_examples import build
from nbclient import NotebookClient
from waiting import PATIENCE
from who_is_there import with_ends, with_networks

from landscape import Landscape
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.interactive.notebook import MIME_TYPE, literal, notebook_figure
from landscape.record.checks import PointStatus

HOSTILE = 'a <a href="x">$x_1$ & <br>%{x}'


def bowl(rows=7, columns=9):
    x, y = np.linspace(-1, 3, columns), None if rows is None else np.linspace(10, 40, rows)
    data = LandscapeData.empty(
        x, y, DirectionsData(np.ones(1 if y is None else 2)), ("loss", HOSTILE), None, {"title": HOSTILE}
    )
    data.metrics["loss"][...] = 10.0 ** (x if y is None else x + y[:, None] / 20)
    data.metrics[HOSTILE][...] = np.arange(data.status.size).reshape(data.shape)
    data.status[...] = PointStatus.MEASURED
    data.origin.metrics["loss"] = 1.0
    data.origin.status = PointStatus.MEASURED
    return data


def test_dollar_signs_of_names_have_no_backslash():
    assert "\\" not in json.dumps(
        notebook_figure(Landscape(with_networks()))["layout"], default=str, ensure_ascii=False
    )
    line = notebook_figure(Landscape(with_ends()))["layout"]
    assert line["xaxis"]["title"]["text"] == literal("from SGD to Adam $x_1$")


def array(coded):
    """Returns an array as plotly's script reads it."""
    if not isinstance(coded, dict):
        return np.array(coded, float)
    values = np.frombuffer(base64.b64decode(coded["bdata"]), coded["dtype"])
    return values.reshape([int(length) for length in str(coded["shape"]).split(",")]) if "shape" in coded else values


def traces(data, kind):
    figure = notebook_figure(Landscape(data))
    plotly.graph_objects.Figure(copy.deepcopy(figure))  # plotly's own check of every name and value
    return [trace for trace in figure["data"] if trace["type"] == kind]


class TestFigure:
    def test_map_and_surface_lie_where_the_values_were_measured(self):
        data = bowl()
        for kind in ("contour", "surface"):
            (trace,) = traces(data, kind)
            np.testing.assert_array_equal(array(trace["x"]), data.x)
            np.testing.assert_array_equal(array(trace["y"]), data.y)
            np.testing.assert_allclose(array(trace["z"]), np.log10(data.metrics["loss"]), rtol=1e-6, atol=1e-6)

    def test_the_mouse_meets_every_metric_as_stored(self):
        data = bowl()
        (trace,) = traces(data, "contour")
        shown = array(trace["customdata"])
        np.testing.assert_allclose(shown[..., 0], data.metrics["loss"], rtol=1e-7)
        np.testing.assert_array_equal(shown[..., 1], data.metrics[HOSTILE])
        assert "loss %{customdata[0]:.6g}" in trace["hovertemplate"]

    def test_values_that_single_precision_cannot_hold_keep_their_size(self):
        data = bowl()
        data.metrics[HOSTILE][0, :2] = 1e-60, 1e200
        (trace,) = traces(data, "contour")
        assert array(trace["customdata"])[0, :2, 1].tolist() == [1e-60, 1e200]

    def test_missing_points_are_gaps_and_failed_ones_marked(self):
        data = bowl()
        data.metrics["loss"][2, 3] = data.metrics["loss"][4, 1] = np.nan
        data.status[2, 3] = PointStatus.FAILED
        (trace,) = traces(data, "surface")
        assert np.argwhere(np.isnan(array(trace["z"]))).tolist() == [[2, 3], [4, 1]]
        (failed,) = (trace for trace in traces(data, "scatter") if trace["name"] == "failed")
        assert [*array(failed["x"]), *array(failed["y"])] == [data.x[3], data.y[2]]

    @pytest.mark.parametrize("interpolated", [5, 60])
    def test_interpolated_points_are_marked_or_the_measured_ones_where_these_are_fewer(self, interpolated):
        data = bowl()
        data.status.flat[:interpolated] = PointStatus.INTERPOLATED
        names = [trace["name"] for trace in traces(data, "scatter")]
        assert ("interpolated (5)" if interpolated == 5 else "measured (3, all others interpolated)") in names

    def test_the_path_is_on_the_map_and_on_the_surface(self):
        data = build()
        for name in ("loss", "aa"):
            data.metrics[name][...] = np.arange(data.status.size).reshape(data.shape) + 1.0
        data.status[...] = PointStatus.MEASURED
        by_name = {trace.get("name"): trace for trace in traces(data, "scatter")}
        flat = by_name["SGD é"]
        np.testing.assert_array_equal(array(flat["x"]), data.checkpoints.x[:2])
        assert flat["customdata"][1][0] == "SGD é, checkpoint 5"
        # A run of one checkpoint is no path, and nothing joins it with another run or a network.
        np.testing.assert_array_equal(array(by_name["&#36;adam"]["x"]), data.checkpoints.x[2:3])
        np.testing.assert_array_equal(array(by_name["average of both ☕"]["x"]), data.checkpoints.x[3:])
        assert [len(array(by_name[name]["x"])) for name in ("start", "end")] == [1, 1]
        assert "final weights of SGD é (checkpoint 5)" in by_name
        line, dots, _, second, network, _ = traces(data, "scatter3d")
        np.testing.assert_array_equal(array(dots["y"]), data.checkpoints.y[:2])
        assert [len(array(trace["x"])) for trace in (line, second, network)] == [12 + 1, 1, 1]

    def test_a_line_is_a_profile(self):
        data = bowl(rows=None)
        curve = traces(data, "scatter")[0]
        np.testing.assert_array_equal(array(curve["x"]), data.x)
        np.testing.assert_allclose(array(curve["y"]), data.x, atol=1e-6)

    def test_texts_are_written_as_they_are(self):
        figure = notebook_figure(Landscape(bowl()))
        said = [figure["layout"]["title"]["text"].split("<br><sub>")[0], figure["data"][0]["hovertemplate"]]
        assert said[0] == literal(HOSTILE) == 'a &lt;a href="x"&gt;&#36;x_1&#36; &amp; &lt;br&gt;%&#123;x}'
        assert literal(HOSTILE, 32) in said[1]
        assert "<a" not in json.dumps(figure)

    @pytest.mark.parametrize("case", ["flat", "almost flat", "nothing finite", "one row", "one point", "unfinished"])
    def test_where_there_is_nothing_to_explore_the_picture_speaks(self, case):
        data = bowl(*{"one row": (1, 9), "one point": (1, 1)}.get(case, (7, 9)))
        if case in ("flat", "nothing finite"):
            data.metrics["loss"][...] = 2.0 if case == "flat" else np.nan
        if case == "almost flat":
            data.metrics["loss"][...] = 1e4 + 1e-3 * data.x
        if case == "unfinished":
            data = begun(data, 16)
        landscape = Landscape(data)
        assert notebook_figure(landscape) is None
        assert landscape._repr_mimebundle_() == {}
        assert landscape._repr_png_()[:4] == b"\x89PNG"

    def test_an_unfinished_line_is_a_profile(self):
        assert traces(begun(bowl(rows=None), 3), "scatter")[0]["mode"] == "lines+markers"

    def test_a_narrow_range_keeps_its_digits(self):
        for data, spread in ((bowl(), 1e-4), (bowl(rows=None), 1e-6)):
            y = 0 if data.y is None else data.y[:, None]
            data.metrics["loss"][...] = 1e4 + spread * (data.x**2 + y**2)
            data.metrics["loss@test"] = data.metrics["loss"] + 100 * spread
            data.attributes["datasets"] = [{"name": name, "num_samples": 8} for name in ("train", "test")]
            figure = notebook_figure(Landscape(data))
            name, count = ("y", 1) if data.y is None else ("z", 2)
            again = figure["layout"]["updatemenus"][0]["buttons"][0]["args"][0][name]
            for values in (*(trace[name] for trace in figure["data"][:count]), *again[:count]):
                np.testing.assert_allclose(array(values), data.metrics["loss"], rtol=1e-11)

    def test_a_cell_stays_small(self):
        assert len(json.dumps(notebook_figure(Landscape(bowl(40, 40))))) < 100_000


class TestDisplay:
    def test_a_notebook_gets_figure_picture_and_text(self):
        from IPython.core.formatters import DisplayFormatter

        shown, _ = DisplayFormatter().format(Landscape(bowl()))
        assert set(shown) == {MIME_TYPE, "image/png", "text/plain"}

    def test_without_plotly_it_gets_the_picture(self, monkeypatch):
        from IPython.core.formatters import DisplayFormatter

        monkeypatch.setitem(sys.modules, "plotly", None)
        shown, _ = DisplayFormatter().format(Landscape(bowl()))
        assert set(shown) == {"image/png", "text/plain"}

    def test_the_picture_fits_a_cell(self):
        from PIL import Image

        with Image.open(io.BytesIO(Landscape(bowl())._repr_png_())) as picture:
            assert picture.width < 900


SURVEY = """
import numpy as np
from torch import nn
import torch
from landscape import evaluate, random_plane

network = nn.Linear(300, 20)
data = torch.ones(8, 300), torch.zeros(8, 20)
callback_fn = lambda: (nn.MSELoss(), nn.Linear(300, 20), data, {})
evaluate(random_plane(network), callback_fn, size=3, device_ids=[0]).loss.shape
"""


@pytest.mark.slow
# The kernel's client is not ours, and warns about its own event loop.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("widgets", [True, False])
def test_the_progress_bar_is_a_widget_or_else_a_line_of_text(widgets, tmp_path):
    absent = "" if widgets else "import sys; sys.modules['ipywidgets'] = None\n"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(absent + SURVEY)])
    NotebookClient(
        notebook, timeout=PATIENCE, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = notebook.cells[0].outputs
    assert outputs[-1].data["text/plain"] == "(3, 3)"
    assert not [output for output in outputs if output.get("name") == "stderr"]
    bars = [output for output in outputs if "application/vnd.jupyter.widget-view+json" in output.get("data", {})]
    text = "".join(output.text for output in outputs if output.output_type == "stream")
    assert len(bars) == (1 if widgets else 0)
    assert ("9/9" in text) != widgets
    assert "random landscape" in text


@pytest.mark.parametrize(("cosine", "norms"), [(0.0, (12.0, 5.0)), (-0.7, (12.0, 5.0)), (0.0, (60.0, 5.0))])
def test_the_figure_is_to_scale_or_says_so(cosine, norms):
    figure = notebook_figure(isotropic_plane(cosine, norms))
    said, axis = figure["layout"]["title"]["text"], figure["layout"]["yaxis"]
    assert axis["scaleanchor"] == "x"
    assert ("sheared" in said) == (cosine != 0)
    strip = norms[0] / norms[1] > 6
    assert ("axes stretched × 12" in said) == strip
    assert axis["scaleratio"] == pytest.approx(1 if strip else norms[1] / norms[0], rel=0.01)
    box = figure["layout"]["scene"]["aspectratio"]
    assert box["x"] / box["y"] == pytest.approx(1 if strip else norms[0] / norms[1], rel=0.01)
