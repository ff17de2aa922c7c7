"""The page at two sizes, light and dark: everything fits, and everything can be reached by keyboard."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SIZES = {"desk": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844}}


@pytest.mark.parametrize("size", SIZES)
def test_fits(open_page, example, size, tmp_path):
    phone = {"viewport": SIZES["phone"], "has_touch": True, "is_mobile": True} if size == "phone" else {}
    opened = open_page(example(), ready=".plot.surface .main-svg", **phone)
    check_fits(opened.page, size, "light", tmp_path)
    opened.page.emulate_media(color_scheme="dark")
    opened.open(opened.page.url.split("#")[0], ready=".plot.surface .main-svg")
    check_fits(opened.page, size, "dark", tmp_path)


def check_fits(page, size, theme, folder):
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 27)"
    assert dark == (theme == "dark")
    boxes = [page.locator(f".plot.{name}").bounding_box() for name in ("surface", "map")]
    side_by_side = abs(boxes[0]["y"] - boxes[1]["y"]) < 30
    assert side_by_side == (size == "desk")
    assert all(box["height"] >= 300 for box in boxes)
    # With the variable set, the pictures are kept for people to look at.
    folder = Path(os.environ.get("LANDSCAPE_SCREENSHOTS", folder))
    page.screenshot(path=folder / f"page-{size}-{theme}.png", full_page=True)
    assert (folder / f"page-{size}-{theme}.png").stat().st_size > 20_000
    # Plotly's own bar has a button that uploads the data.
    buttons = page.evaluate("[...document.querySelectorAll('.modebar-btn')].map((button) => button.dataset.title)")
    assert set(buttons) == (
        {"Zoom", "Pan", "Reset axes", "Turntable rotation", "Reset camera"} if size == "desk" else set()
    )
    if size == "desk":
        page.click(".theme")
        assert page.evaluate("document.documentElement.dataset.theme") == ("light" if theme == "dark" else "dark")
        fonts = page.evaluate("document.querySelector('.map').layout.font.color")
        assert fonts == ("rgb(27, 33, 48)" if theme == "dark" else "rgb(232, 235, 242)")


def test_every_control_has_a_name_and_takes_the_focus(open_page, example):
    opened = open_page(example(), example(seed=1), webgl=False)
    page = opened.page
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [tabindex]")]
            .filter((control) => !control.closest(".modebar"))
            .filter((control) => !control.getAttribute("aria-label") && !control.textContent.trim())
            .filter((control) => !control.labels?.length)
            .map((control) => control.outerHTML)"""
    )
    assert nameless == []
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("(({ id, className, tagName }) => id || className || tagName)(document.activeElement)")
        )
    controls = {"metric", "scale", "low", "high", "colours", "map", "shared", "difference"}
    assert controls | {"theme", "play", "handle", "chip"} <= reached
    assert any("plot map" in name for name in reached)
