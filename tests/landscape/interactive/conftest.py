"""A real browser, and landscape files to open in it."""

from __future__ import annotations

import io
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from landscape_examples import write_landscape
from PIL import Image
from waiting import PATIENCE

from landscape import Landscape
from landscape.grid.checkpoints import CheckpointsData
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.interactive import save_page
from landscape.record.checks import PointStatus

METRIC = 'acc <b>$x_1$ & "q"'
NETWORK = "Le<script>document.title='taken'</script>Net & $\\alpha$ {{script}} \u2028"
SIZE = {"width": 1280, "height": 800}
_NO_WEBGL = """
const original = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
  return kind.includes("webgl") ? null : original.call(this, kind, ...more);
};
"""
# Plotly draws surfaces with four pixels for each of the screen's: without a graphics card, a tenth of a test's time.
_ONE_PIXEL = """
let plotly;
Object.defineProperty(window, "Plotly", {
  configurable: true,
  get: () => plotly,
  set(value) { plotly = value; value.setPlotConfig?.({ plotGlPixelRatio: 1 }); },
});
"""
# Plots take the size of their boxes a moment after these have got it.
_ALL_FIT = """[...document.querySelectorAll(".plot")].every(({ _fullLayout: drawn, clientWidth, clientHeight }) =>
    !drawn || !clientWidth || (Math.abs(drawn.width - clientWidth) < 1 && Math.abs(drawn.height - clientHeight) < 1))"""
# The graphics driver's remarks on speed, which no page can prevent.
_HARMLESS = ("GPU stall due to ReadPixels", "willReadFrequently")


def example(*, rows=9, columns=13, checkpoints=6, line=False, seed=0, **attributes):
    """Returns a landscape whose values have all their digits; its axes differ in length and in range."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-1.5, 2.5, columns) if columns > 1 else np.array([0.25])
    y = None if line else np.linspace(-0.7, 1.1, rows) if rows > 1 else np.array([0.5])
    path = None
    if checkpoints:
        share = np.linspace(0, 1, checkpoints)
        path = CheckpointsData.empty(
            range(3, 3 + checkpoints), 2 * (1 - share), None if line else 0.9 * (1 - share) ** 2, 0.3 * (1 - share),
            1 - share, ("loss", METRIC),
        )  # fmt: skip
        for values in (path.metrics, path.projected):
            values["loss"][:] = 4 - 3 * share + 0.1 * rng.random(checkpoints)
            values[METRIC][:] = rng.random(checkpoints)
        path.status[:] = path.projected_status[:] = PointStatus.MEASURED
    data = LandscapeData.empty(
        x, y, DirectionsData(np.ones(1 if line else 2), None, None if line else 0.0), ("loss", "loss_stderr", METRIC),
        path, {"decomposition": "pca", "network": NETWORK, "unit": "epoch", "seed": 7, **attributes},
    )  # fmt: skip
    squares = x**2 if y is None else x[None] ** 2 + 3 * y[:, None] ** 2
    data.metrics["loss"][...] = 0.01 + squares + 0.01 * rng.random(data.shape)
    data.metrics["loss_stderr"][...] = 0.02 * data.metrics["loss"]
    data.metrics[METRIC][...] = rng.random(data.shape)
    data.status[...] = PointStatus.MEASURED
    data.origin.metrics = {"loss": 0.0125, METRIC: 0.5}
    data.origin.status = PointStatus.MEASURED
    return data


@dataclass
class Opened:
    """A page in the browser, with all that it said and asked for."""

    page: Any
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def data(self, plot, name, *fields, card=0):
        """Returns fields of a trace by its name, as they were handed to Plotly."""
        return self.page.evaluate(
            """([plot, name, fields, card]) => {
                const found = document.querySelectorAll(".card")[card].querySelector(`.plot.${plot}`);
                const trace = found.data.find((item) => item.name === name);
                const listed = (value) => value && value.length !== undefined && typeof value !== "string";
                const plain = (value) => (listed(value) ? Array.from(value, plain) : value);
                return fields.map((name) => plain(trace[name]));
            }""",
            [plot, name, list(fields), card],
        )  # fmt: skip

    def drawn(self, plot="map", card=0):
        """Returns the heights of a map or a surface, NaN where there are none."""
        return np.array(self.data(plot, "surface" if plot == "surface" else "grid", "z", card=card)[0], np.float64)

    def choose(self, control, value):
        """Chooses a value of the control that has this name."""
        self.page.select_option(f"#{control}", value)

    def fill(self, field, text):
        """Types into a field, and leaves it."""
        self.page.locator(field).fill(text)
        self.page.keyboard.press("Tab")

    def shapes(self, name):
        """Returns what is drawn on the map under a name."""
        return self.page.evaluate(
            "(name) => document.querySelector('.plot.map').layout.shapes.filter((shape) => shape.name === name)", name
        )

    @staticmethod
    def shape(name, card=0):
        """Returns an expression for what is drawn on a map under a name, which is false while there is nothing."""
        return f"document.querySelectorAll('.map')[{card}].layout.shapes.find((shape) => shape.name === '{name}')"

    @staticmethod
    def trace(plot, name):
        """Returns an expression for a trace of the first plot of a kind."""
        return f"document.querySelector('.{plot}').data.find((trace) => trace.name === '{name}')"

    def pointed(self, x, y, text="", plot="map"):
        """Points at a place of a plot; returns what stands beside the pointer, once that has a text in it."""
        self.page.mouse.move(*self.pixel(x, y, plot))
        tooltip = "document.querySelector('.tooltip')"
        self.wait(f"!{tooltip}.hidden && {tooltip}.textContent.includes('{text}')")
        return self.facts(".tooltip")

    def reload(self):
        self.page.reload()
        self.page.wait_for_selector(".plot .main-svg", state="attached")

    def pixel(self, x, y, plot="map"):
        """Returns where a point of a plot lies in the window."""
        return tuple(
            self.page.evaluate(
                """([x, y, plot]) => {
                    const found = document.querySelector(`.plot.${plot}`);
                    found.scrollIntoView({block: "center"});
                    const box = found.getBoundingClientRect();
                    const {xaxis, yaxis} = found._fullLayout;
                    return [box.left + xaxis._offset + xaxis.d2p(x), box.top + yaxis._offset + yaxis.d2p(y)];
                }""",
                [x, y, plot],
            )
        )

    def projection(self):
        """Returns the matrix of the scene that the browser draws, from the axes' coordinates to the screen's."""
        matrices, scale = self.page.evaluate(
            """() => {
                const scene = document.querySelector(".surface")._fullLayout.scene._scene;
                const { projection, view, model } = scene.glplot.cameraParams;
                return [[projection, view, model].map((each) => Array.from(each)), Array.from(scene.dataScale)];
            }"""
        )
        project, view, model = (np.reshape(matrix, (4, 4)).T for matrix in matrices)
        return project @ view @ model @ np.diag([*scale, 1.0])

    def on_screen(self, points):
        """Returns where that matrix takes points, shape (n, 2)."""
        places = np.column_stack([points, np.ones(len(points))]) @ self.projection().T
        return places[:, :2] / places[:, 3:]

    def facts(self, box):
        """Returns names and values that a box shows."""
        return dict(
            self.page.evaluate(
                """(box) => Array.from(document.querySelectorAll(`${box} .fact`),
                    (fact) => [fact.querySelector(".name").textContent, fact.querySelector(".value").textContent])""",
                box,
            )
        )

    def wait(self, condition):
        """Waits until a JavaScript expression is true; the page's policy forbids Playwright's own way of waiting.

        The page asks itself before each of its frames.
        """
        came = self.page.evaluate(
            f"""() => new Promise((resolve, reject) => {{
                const limit = setTimeout(() => resolve(false), {1000 * PATIENCE});
                const look = () => {{
                    try {{
                        if (!({condition})) requestAnimationFrame(look);
                        else {{ clearTimeout(limit); resolve(true); }}
                    }} catch (error) {{ reject(error); }}
                }};
                look();
            }})"""
        )
        assert came, f"{condition} did not come true"

    @contextmanager
    def redrawing(self, plot="map"):
        """Waits at its end until Plotly says that it has drawn a plot again."""
        self.page.evaluate(
            """(plot) => {
                window.redrawn = false;
                const found = document.querySelector(`.plot.${plot}`);
                found.once("plotly_afterplot", () => { window.redrawn = true; });
            }""",
            plot,
        )
        yield
        self.wait("window.redrawn")

    def painted(self, plot="map"):
        """Waits until all that a plot holds is on the screen."""
        self.wait(_ALL_FIT)
        self.page.evaluate(
            """async (plot) => {
                const found = document.querySelector(`.plot.${plot}`);
                found._fullLayout.scene?._scene.glplot.redraw();
                await Promise.all([...found.querySelectorAll("image")].map((image) => image.decode()));
                // The second frame begins once the first one is painted.
                for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
            }""",
            plot,
        )

    def screenshot(self, plot="map"):
        """Returns the pixels of a plot, shape (height, width, 3)."""
        self.painted(plot)
        shot = self.page.locator(f".plot.{plot}").first.screenshot()
        return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB"), int)

    def click(self, place, condition):
        """Clicks on a point of the map, and waits until a JavaScript expression is true.

        Plotly looks for the point under the pointer a moment after the pointer has moved, and loses a click before that
        or during it. So the pointer rests while it clicks, as ``mouse.click`` would not let it, and a click that Plotly
        has not told of is made again, as its user would.
        """
        self.page.evaluate(
            """() => {
                const found = document.querySelector(".plot.map");
                found.on("plotly_beforehover", () => { window.looked = true; return true; });
                found.on("plotly_click", () => { window.clicked = true; });
            }"""
        )
        for _ in range(10):
            self.page.evaluate("() => { window.looked = window.clicked = false; }")
            self.page.mouse.move(place[0] + 1, place[1])
            self.page.mouse.move(*place)
            self.wait("window.looked && document.querySelector('.plot.map')._hoverdata?.length > 0")
            self.page.mouse.down()
            self.page.mouse.up()
            if self.page.evaluate("() => window.clicked"):
                break
        self.wait(condition)

    def open(self, address, ready=".plot .main-svg"):
        """Opens an address as somebody does who has nothing but the address."""
        # Where only the part behind "#" differs, the browser would keep what it has.
        self.page.goto("about:blank")
        self.page.goto(address)
        self.page.wait_for_selector(ready, state="attached")
        self.wait(_ALL_FIT)

    def check(self):
        """Fails where the page complained, or asked for anything but itself."""
        assert self.messages == []
        # A view stands behind "#" in the address, and a reload asks for the page again.
        asked = {request.split("#")[0] for request in self.requests if not request.startswith(("data:", "blob:"))}
        assert asked == {self.page.url.split("#")[0]}


@pytest.fixture(scope="session")
def browser(browser):
    pytest.importorskip("plotly", reason="the interactive page needs plotly")
    return browser


class Pages:
    """Browser pages, each with a context of its own, and those that wait for the next test.

    A page is used again with the same options, and with nothing in it: the renderer has compiled the scripts by then,
    if they came from the same address.
    """

    def __init__(self, browser):
        self._browser = browser
        self._free = []

    def take(self, options):
        """Returns an empty page, which may have been used before."""
        webgl, clock, context = options
        for each in reversed(self._free):
            if each[0] == options:
                self._free.remove(each)
                return each[1]
        page = self._browser.new_context(**{"viewport": SIZE, **context}).new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.add_init_script(_ONE_PIXEL)
        if not webgl:  # software rendering is slow, and not every test looks at the surface
            page.add_init_script(_NO_WEBGL)
        if clock:  # the test can then let time pass
            page.clock.install()
        return page

    def give_back(self, options, page):
        """Empties a page and keeps it for the next test, or closes it."""
        _, clock, context = options
        if clock or page.is_closed():
            page.context.close()
            return
        page.mouse.up()
        page.mouse.move(0, 0)
        page.goto("about:blank")
        page.set_viewport_size(context.get("viewport", SIZE))
        self._free.append((options, page))
        # More would only fill the memory.
        if len(self._free) > 4:
            self._free.pop(0)[1].context.close()

    def close(self):
        for _, page in self._free:
            page.context.close()


@pytest.fixture(scope="session")
def pages(browser):
    found = Pages(browser)
    yield found
    found.close()


def opening(pages):
    """Yields a function that opens an address, and gives back all pages that it opened."""
    taken = []

    def open_(address, *, ready=".plot .main-svg", webgl=True, clock=False, color_scheme="light", **context):
        options = (webgl, clock, context)
        page = pages.take(options)
        page.emulate_media(color_scheme=color_scheme)
        opened = Opened(page)
        listeners = {
            "console": lambda message: _note(opened.messages, message.text),
            "pageerror": lambda error: opened.messages.append(str(error)),
            "request": lambda request: opened.requests.append(request.url),
        }
        for event, listener in listeners.items():
            page.on(event, listener)
        taken.append((page, listeners, options))
        opened.open(address, ready)
        return opened

    yield open_
    for page, listeners, options in taken:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        pages.give_back(options, page)


@pytest.fixture
def open_address(pages):
    yield from opening(pages)


@pytest.fixture(scope="module")
def open_for_all(pages):
    """Opens pages that all tests of a module share."""
    yield from opening(pages)


@contextmanager
def serving(page):
    """Gives the address of a page on a server, which gives nothing but its folder."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(page.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/{page.name}"
        server.shutdown()


@pytest.fixture(params=["file", "http"])
def address_of(request):
    """Gives a function that returns the address of a page, as a file or on a server."""
    with ExitStack() as servers:
        yield lambda page: page.as_uri() if request.param == "file" else servers.enter_context(serving(page))


@pytest.fixture(scope="session")
def page_path(tmp_path_factory):
    """Where pages go, one after another: what a browser has compiled it finds again at the same address only."""
    return tmp_path_factory.mktemp("page") / "page.html"


@pytest.fixture
def open_page(open_address, page_path, tmp_path):
    """Opens pages, each of which must have complained of nothing and asked for nothing but itself in the end."""
    pages = []

    def open_(*data, **context):
        files = []
        for number, item in enumerate(data):
            files.append(tmp_path / f"run_{number}.h5")
            write_landscape(files[-1], item)
        page = save_page([Landscape.load(file) for file in files], page_path)
        pages.append(open_address(page.as_uri(), **context))
        return pages[-1]

    yield open_
    for page in pages:
        page.check()


def _note(messages, text):
    if not any(part in text for part in _HARMLESS):
        messages.append(text)


@pytest.fixture(name="example", scope="session")
def example_fixture():
    return example


@pytest.fixture
def metric():
    return METRIC
