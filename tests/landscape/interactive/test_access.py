"""The page for everybody: axe-core finds nothing, targets are large enough, and it lies well inside another page."""

from importlib.resources import files

import pytest
from waiting import wait_until

from landscape import Landscape
from landscape.interactive import save_page

pytestmark = pytest.mark.slow
AXE = "axe.run(document, { resultTypes: ['violations'], rules: { 'target-size': { enabled: true } } })"
TARGETS = """() => [...document.querySelectorAll("button, select, input, summary, a, .modebar-btn")]
    .map((each) => each.closest("label") ?? each)
    .filter((each) => each.offsetParent && !each.matches(".said *"))
    .map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect()])
    .filter(([, box]) => Math.min(box.width, box.height) < 23.9).map(([text]) => text)"""


def pages(example):
    return {
        "one": [example()],
        "compared": [example(), example(seed=1)],
        "line": [example(line=True)],
        "lines": [example(line=True), example(line=True, seed=1)],
    }


@pytest.mark.parametrize("kind", ["one", "compared", "line", "lines"])
def test_axe_finds_nothing(kind, open_page, example):
    opened = open_page(*pages(example)[kind], webgl=False)
    opened.page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    for theme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=theme)
        opened.wait(f"document.documentElement.dataset.theme === '{theme}'")
        found = opened.page.evaluate(AXE)
        assert len(found["passes"]) > 20, theme
        assert [(each["id"], each["nodes"][0]["html"][:120]) for each in found["violations"]] == [], theme
        assert opened.page.evaluate(TARGETS) == [], theme


@pytest.fixture
def outer(page_path, example):
    """A page that holds the page of a landscape in a frame, as docs/view.md says, and is longer than the window."""
    save_page(Landscape(example(rows=5, columns=6)), page_path.with_name("share.html"))
    page = page_path.with_name("outer.html")
    page.write_text(
        '<!doctype html><title>outer</title><link rel="icon" href="data:,"><body style="height: 3000px">'
        '<iframe src="share.html" title="Loss landscape" style="width: 100%; height: 600px; border: 0" '
        'allow="fullscreen; clipboard-write"></iframe>'
    )
    return page


def test_inside_another_page(outer, address_of, open_address):
    address = address_of(outer)
    opened = open_address(address, ready="iframe")
    (frame,) = opened.page.frames[1:]
    frame.wait_for_selector(".plot.surface canvas", state="attached")
    assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert frame.evaluate("getComputedStyle(document.querySelector('.toolbar')).position") == "static"
    # A wheel over the surface scrolls, until the reader takes hold of it.
    eye = "JSON.stringify(document.querySelector('.surface')._fullLayout.scene._scene.getCamera().eye)"
    before = frame.evaluate(eye)
    box = frame.locator(".plot.surface").bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.page.mouse.wheel(0, 400)
    wait_until(lambda: opened.page.evaluate("scrollY") + frame.evaluate("scrollY") > 0, what="a page that scrolls")
    assert frame.evaluate(eye) == before
    # The link is that of the page itself.
    frame.select_option("#scale", "linear")
    wait_until(lambda: frame.evaluate("location.hash"), what="a view in the address")
    assert frame.evaluate("location.href") == address.replace("outer.html", "share.html#scale=linear")
    frame.locator(".alone").evaluate("(link) => link.addEventListener('click', (event) => event.preventDefault())")
    frame.click(".alone")
    assert frame.get_attribute(".alone", "href") == address.replace("outer.html", "share.html#scale=linear")
    assert opened.messages == []
