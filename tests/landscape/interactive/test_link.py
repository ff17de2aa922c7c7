"""A link to a view: what stands in the page's address opens the same view elsewhere."""

import pytest
from data_sets import with_test_set

from landscape import Landscape
from landscape.interactive import save_page

CAMERA = "document.querySelector('.plot.surface')._fullLayout.scene._scene?.getCamera().eye"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def page(folder, example):
    """The address of a page that each test opens anew."""
    return save_page(Landscape(with_test_set(example())), folder / "shared.html").as_uri()


@pytest.fixture(scope="module")
def usual(page, open_for_all):
    """The page as nobody touched it."""
    return open_for_all(page, webgl=False)


def seen(opened):
    """Returns what a page shows."""
    return opened.page.evaluate(
        """() => ({
            heads: Array.from(document.querySelectorAll(".card h2"), (each) => each.textContent),
            controls: Array.from(document.querySelectorAll(".toolbar select, .toolbar input"),
                (each) => [each.id, each.type === "checkbox" ? each.checked : each.value]),
            line: Array.from(document.querySelectorAll(".ends input"))
                .filter((each) => each.offsetParent).map((each) => each.value),
            step: document.querySelector(".player input").value,
            readout: document.querySelector(".readout").textContent,
            theme: document.documentElement.dataset.theme,
            ends: Array.from(document.querySelectorAll(".plot.map"), (plot) => [plot.data[0].zmin, plot.data[0].zmax]),
        })"""
    )


def change(opened):
    """Does all that a reader can do."""
    page = opened.page
    choices = {"metric": "loss@test", "beside": "loss", "scale": "linear", "colours": "Magma"}
    for control, value in (choices | {"map": "cells", "aspect": "fill"}).items():
        opened.choose(control, value)
    opened.fill("#high", "7.5")
    page.uncheck("#shared")
    page.click("button.theme")
    page.click("text=Upwards >> visible=true")
    page.locator(".player input").first.fill("2")
    page.locator(".plot.map").first.focus()
    page.keyboard.press("ArrowRight")
    opened.wait("location.hash.includes('point.0')")


@pytest.mark.slow
def test_a_link_keeps_how_a_surface_is_turned(page, open_address):
    opened = open_address(page)
    opened.wait(f"{CAMERA}?.x")
    opened.page.evaluate(
        "Plotly.relayout(document.querySelector('.plot.surface'), {'scene.camera.eye': {x: -0.7, y: 1.9, z: 0.4}})"
    )
    opened.wait("location.hash.startsWith('#camera.0=-0.7%2C1.9%2C0.4')")
    opened.open(opened.page.url)
    opened.wait(f"{CAMERA}?.x")
    eye = opened.page.evaluate(f"Object.values({CAMERA})")
    assert eye == pytest.approx([-0.7, 1.9, 0.4], abs=1e-4)
    opened.check()


@pytest.mark.slow
@pytest.mark.usefixtures("page")
def test_a_copied_link_opens_the_same_view(folder, address_of, open_address):
    address = address_of(folder / "shared.html")
    opened = open_address(address, permissions=["clipboard-read", "clipboard-write"], webgl=False)
    change(opened)
    opened.page.click("#link")
    opened.wait("document.querySelector('.said').textContent.startsWith('Copied.')")
    assert ("opens this file on this computer" in opened.page.inner_text(".said")) == address.startswith("file:")
    link = opened.page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{address}#metric=loss%40test&beside=loss&scale=linear&high=7.5&colours=Magma")
    before = seen(opened)
    # Somebody else, with nothing but the page and the link.
    opened.open(link)
    assert seen(opened) == before
    assert before["heads"] == ["loss on test", "loss on train"]
    # Both have one line, upwards through the origin.
    assert len(before["line"]) == 4
    assert before["line"][0] == before["line"][2]
    assert "x" in before["readout"]
    opened.check()


@pytest.mark.slow
def test_the_address_follows_the_view_and_a_reload_keeps_it(page, open_address):
    opened = open_address(page, webgl=False, clock=True)
    # A page that nobody touched has its plain address, even after all that it does later.
    opened.page.clock.run_for(60_000)
    assert opened.page.url == page
    opened.choose("metric", "loss@test")
    opened.wait("location.hash === '#metric=loss%40test'")
    opened.reload()
    assert opened.page.input_value("#metric") == "loss@test"
    opened.choose("metric", "loss")
    opened.wait("location.hash === ''")
    # A link that is opened in the page itself.
    opened.page.evaluate("location.hash = '#difference=0+m0&map=cells'")
    opened.wait("document.querySelector('.card h2')?.textContent === 'loss on test \u2212 loss on train'")
    assert opened.page.input_value("#map") == "cells"
    opened.page.evaluate("location.hash = ''")
    opened.wait("document.querySelectorAll('.card').length === 1")
    assert opened.page.input_value("#difference") == ""
    opened.check()


@pytest.mark.slow
def test_an_address_that_means_nothing_opens_the_usual_view(page, usual, open_address):
    fragments = [
        "metric=nothing&beside=__proto__&scale=cubic&colours=constructor&map=<b>&aspect=&low=9&high=1",
        "difference=0+0&shown=7,-1,a&theme=blue&step.0=1e99&line.0=1,2&camera.0=NaN,1,1,0,0,0,0,0,1",
        "difference=0+m99&step.__proto__=1&camera.toString=1,1,1,0,0,0,0,0,1&point.difference=1,2&line.5=1,1,1,1",
        "%E0%A4%A&=&&&..=1&low=Infinity&high=&shared=maybe&<script>alert(1)</script>",
    ]
    opened = open_address(f"{page}#{fragments[0]}", webgl=False)
    for fragment in fragments:
        # The page reads its address in the same way when it is opened and when it is changed.
        opened.page.evaluate(
            """(fragment) => new Promise((resolve) => {
                addEventListener("hashchange", resolve, { once: true });
                location.hash = fragment;
                if (location.hash === `#${fragment}`) resolve();
            })""",
            fragment,
        )
        for place in ("select, input[type=number]", ".card h2"):
            read = f"Array.from(document.querySelectorAll('{place}'), (each) => each.value ?? each.textContent)"
            found, expected = opened.page.evaluate(read), usual.page.evaluate(read)
            if "shown" not in fragment:
                assert found == expected, fragment
    opened.check()


@pytest.mark.slow
def test_which_files_are_shown(open_page, example):
    opened = open_page(example(), example(seed=1), example(seed=2), webgl=False)
    opened.page.click(".chip >> text=run_1.h5")
    opened.choose("difference", "2 0")
    opened.wait("location.hash.includes('shown=0%2C2') && location.hash.includes('difference=2+0')")
    opened.reload()
    assert opened.page.locator(".card").count() == 3
    assert opened.page.locator(".chip[aria-pressed=true]").all_inner_texts() == ["run_0.h5", "run_2.h5"]
    assert opened.page.locator(".card h2").first.inner_text() == "run_2.h5 − run_0.h5"


@pytest.mark.slow
def test_a_page_without_a_clipboard_shows_the_link(page, open_address):
    opened = open_address(page, webgl=False)
    opened.page.evaluate(
        "() => { document.execCommand = () => false; navigator.clipboard.writeText = () => Promise.reject(); }"
    )
    opened.choose("scale", "linear")
    opened.page.click("#link")
    opened.wait("document.querySelector('.said input')")
    assert opened.page.input_value(".said input") == f"{page}#scale=linear"
    opened.check()


def test_a_shared_page_says_no_folder(tmp_path, example):
    folder = tmp_path / "home_of_somebody"
    folder.mkdir()
    file = Landscape(example()).save(folder / "plane.h5")
    text = save_page(Landscape.load(file), tmp_path / "page.html").read_text()
    assert "plane.h5" in text
    assert "home_of_somebody" not in text
