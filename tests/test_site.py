"""The documentation's site, built and opened from disk in a real browser."""

import inspect
import os
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
import typer
from places import ROOT
from scripts import run_python
from waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.room("docs", "mkdocs.yml", "collectors", "workers", "landscape")]

# In pixels. A page of measurements is not read from end to end.
TALLEST = 12_000
MAY_BE_TALLER = {"benchmarks.html"}
VIEWPORT = {"width": 1400, "height": 900}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documentation") / "site"
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    patience = PATIENCE * 2  # a page for each room of the product, and one for each command
    run_python("-m", "mkdocs", "build", "--strict", "--site-dir", folder, cwd=ROOT, env=variables, patience=patience)
    return folder


@pytest.fixture
def open_file(browser):
    context = browser.new_context(viewport=VIEWPORT)
    context.set_default_timeout(1000 * PATIENCE / 2)

    def open_(path, **more):
        page = context.new_page()
        page.goto(path.as_uri(), **more)
        return page

    yield open_
    context.close()


class Page(HTMLParser):
    """The addresses that a page leads to or shows, and the places in it that can be led to."""

    def __init__(self, file):
        super().__init__()
        self.addresses = set()
        self.places = set()
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value and tag != "base":
                self.addresses.add(value)
            elif name == "id" and value:
                self.places.add(value)


def written(site):
    """The pages of the documentation, without those for addresses that do not exist and the interactive one."""
    return [file for file in sorted(site.rglob("*.html")) if file.name != "404.html" and file.parent.name != "pages"]


def search(page, text):
    """Returns what the search finds."""
    page.locator("input[name=query]").click()
    page.locator("input[name=query]").press_sequentially(text)
    found = page.locator(".md-search-result__link")
    found.first.wait_for(state="attached")
    return found


def test_commands_and_functions_are_on_their_pages(site):
    from landscape.cli import app

    pages = "".join(file.read_text() for file in (site / "commands").glob("*.html"))
    commands = typer.main.get_command(app).commands
    assert len(commands) > 10
    assert [name for name in commands if f'id="landscape-{name}"' not in pages] == []
    python = "".join(file.read_text() for file in (site / "api").glob("*.html"))
    assert "gen_landscapes_with_multi_process" in python
    assert python.count("<code>recalibration_batch_size</code>") == 3, (
        "Measure and both doors of a run list their options"
    )


def test_every_public_name_is_documented(site):
    import collectors
    import landscape.exchange
    import landscape.figures
    import landscape.interactive
    import landscape.planes
    import workers

    places = set().union(*(Page(file).places for file in (site / "api").glob("*.html")))
    documented = {place.rpartition(".")[2] for place in places}
    for package in (collectors, workers, landscape, landscape.figures, landscape.interactive):
        assert set(package.__all__) <= documented, f"docs/api lacks {sorted(set(package.__all__) - documented)}"
    for room in (landscape.planes, landscape.exchange):
        functions = {name for name, value in vars(room).items() if inspect.isfunction(value)}
        assert functions
        assert functions <= documented, f"docs/api lacks {sorted(functions - documented)}"


def test_no_link_is_broken(site):
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    broken = []
    for file, page in pages.items():
        for address in page.addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            place = unquote(parts.fragment)
            if not target.is_file() or (place and target in pages and place not in pages[target].places | {"__"}):
                broken.append(f"{file.relative_to(site)}: {address}")
    assert broken == []


@pytest.mark.timeout(400)  # a browser lays out 82 pages
def test_no_page_is_endless(site, browser):
    heights = {}
    # The theme's scripts take fifteen times as long as laying out a page, and move its end by less than 100 pixels.
    with browser.new_context(viewport=VIEWPORT, java_script_enabled=False) as context:
        page = context.new_page()
        for file in written(site):
            page.goto(file.as_uri())  # and its styles and pictures, which say how high it is
            heights[str(file.relative_to(site))] = page.evaluate("document.documentElement.scrollHeight")
    assert {name: height for name, height in heights.items() if height > TALLEST and name not in MAY_BE_TALLER} == {}


def test_search_works_from_disk_and_asks_for_nothing_else(site, open_file):
    page = open_file(site / "api" / "planes.html")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    found = search(page, "barrier")
    titles = " ".join(found.locator("h1, h2").all_inner_texts()).lower()
    assert "barrier" in titles, titles
    assert all(re.match("file:|data:|blob:|about:", url) for url in asked), asked
    found.first.click()
    page.wait_for_url(lambda url: "planes.html" not in url)
    assert "barrier" in page.locator(".md-content").inner_text().lower()


@pytest.mark.parametrize("option", ["--caption", "--keep-samples"])
def test_options_are_found_as_they_are_typed(site, open_file, option):
    texts = search(open_file(site / "index.html"), option).all_inner_texts()
    assert option in " ".join(texts), texts


def test_the_gallery_holds_the_interactive_page(site, open_file):
    page = open_file(site / "gallery.html")
    page.locator("iframe.landscape").scroll_into_view_if_needed()
    frame = page.frame_locator("iframe.landscape")
    frame.locator(".plot .main-svg").first.wait_for(state="attached")
    assert "epoch" in frame.locator("body").inner_text()
