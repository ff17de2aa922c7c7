"""A real browser, and landscape files to open in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from landscape import Landscape
from landscape.file.checkpoints import CheckpointsData
from landscape.file.checks import PointStatus
from landscape.file.data import DirectionsData, LandscapeData
from landscape.file.landscape_file import write_landscape
from landscape.interactive import save_page

METRIC = 'acc <b>$x_1$ & "q"'
NETWORK = "Le<script>document.title='taken'</script>Net & $\\alpha$ {{script}} \u2028"
_NO_WEBGL = """
const original = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...more) {
  return kind.includes("webgl") ? null : original.call(this, kind, ...more);
};
"""
# The graphics driver's remarks on speed, which no page can prevent.
_HARMLESS = ("GPU stall due to ReadPixels", "willReadFrequently")


def example(
    *, rows: int = 9, columns: int = 13, checkpoints: int = 6, line: bool = False, seed: int = 0, **attributes: Any
) -> LandscapeData:
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

    def data(self, plot: str, name: str, *fields: str, card: int = 0) -> list[Any]:
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

    def shapes(self, name: str) -> list[dict[str, Any]]:
        """Returns what is drawn on the map under a name."""
        return self.page.evaluate(
            "(name) => document.querySelector('.plot.map').layout.shapes.filter((shape) => shape.name === name)", name
        )

    def pixel(self, x: float, y: float, plot: str = "map") -> tuple[float, float]:
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

    def facts(self, box: str) -> dict[str, str]:
        """Returns names and values that a box shows."""
        return dict(
            self.page.evaluate(
                """(box) => Array.from(document.querySelectorAll(`${box} .fact`),
                    (fact) => [fact.querySelector(".name").textContent, fact.querySelector(".value").textContent])""",
                box,
            )
        )

    def wait(self, condition: str) -> None:
        """Waits until a JavaScript expression is true; the page's policy forbids Playwright's own way of waiting."""
        assert self._comes_true(condition, 60), f"{condition} did not come true"

    def click(self, place: tuple[float, float], condition: str) -> None:
        """Clicks on a plot until a JavaScript expression is true; Plotly loses some clicks right after the pointer.

        A click is reported a moment later, and not at all once the pointer has left.
        """
        for _ in range(10):
            self.page.mouse.move(*place)
            self.page.wait_for_timeout(200)
            self.page.mouse.click(*place)
            if self._comes_true(condition, 5):
                return
        raise AssertionError(f"{condition} did not come true")

    def _comes_true(self, condition: str, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            if time.monotonic() > end:
                return False
            self.page.wait_for_timeout(30)
        return True

    def check(self) -> None:
        """Fails where the page complained, or asked for anything but itself."""
        assert self.messages == []
        # A view stands behind "#" in the address, and a reload asks for the page again.
        asked = {request.split("#")[0] for request in self.requests if not request.startswith(("data:", "blob:"))}
        assert asked == {self.page.url.split("#")[0]}


@pytest.fixture(scope="session")
def browser(browser: Any) -> Any:
    pytest.importorskip("plotly", reason="the interactive page needs plotly")
    return browser


def opening(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Yields a function that opens an address, and closes all that it opened."""
    contexts = []

    def open_(address: str, *, ready: str = ".plot .main-svg", webgl: bool = True, **context: Any) -> Opened:
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **context}))
        opened = Opened(contexts[-1].new_page())
        page = opened.page
        page.set_default_timeout(60_000)
        page.on("console", lambda message: _note(opened.messages, message.text))
        page.on("pageerror", lambda error: opened.messages.append(str(error)))
        page.on("request", lambda request: opened.requests.append(request.url))
        if not webgl:  # software rendering is slow, and not every test looks at the surface
            page.add_init_script(_NO_WEBGL)
        page.goto(address)
        page.wait_for_selector(ready, state="attached")
        return opened

    yield open_
    for context in contexts:
        context.close()


@pytest.fixture
def open_address(browser: Any) -> Iterator[Callable[..., Opened]]:
    yield from opening(browser)


@pytest.fixture(scope="module")
def open_for_all(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens pages that all tests of a module share."""
    yield from opening(browser)


@pytest.fixture
def open_page(open_address: Callable[..., Opened], tmp_path: Path) -> Callable[..., Opened]:
    def open_(*data: LandscapeData, **context: Any) -> Opened:
        files = []
        for number, item in enumerate(data):
            files.append(tmp_path / f"run_{number}.h5")
            write_landscape(files[-1], item)
        page = save_page([Landscape.load(file) for file in files], tmp_path / "page.html")
        return open_address(page.as_uri(), **context)

    return open_


def _note(messages: list[str], text: str) -> None:
    if not any(part in text for part in _HARMLESS):
        messages.append(text)


@pytest.fixture(name="example", scope="session")
def example_fixture() -> Callable[..., LandscapeData]:
    return example


@pytest.fixture
def metric() -> str:
    return METRIC
