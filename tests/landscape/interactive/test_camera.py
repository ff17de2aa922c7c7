"""The page shows surfaces from the same place as the figures, and lets the reader choose another one."""

import numpy as np
import pytest
from figure_cases import corners, shape_of
from waiting import wait_until

from landscape import Landscape
from landscape.drawing.camera import CAMERAS, check_camera
from landscape.interactive import page_html, save_page
from landscape.interactive.content import landscape_content

_CAMERA = "document.querySelector('.plot.surface')?._fullLayout?.scene?._scene?.getCamera()"
_EYES = """Array.from(document.querySelectorAll('.plot.surface'),
    (each) => Object.values(each._fullLayout?.scene?._scene?.getCamera()?.eye ?? {}))"""
_ALL_DRAWN = f"{_EYES}.every((eye) => eye.length === 3)"
_SHAPE = "document.querySelector('.surface')._fullLayout.scene._scene.glplot.shape"

# Surfaces are drawn without a graphics card, again for every camera: up to two minutes on a busy machine.
DRAWS_OFTEN = pytest.mark.timeout(600)


@pytest.mark.slow
@DRAWS_OFTEN
def test_every_preset_is_the_same_in_a_figure_and_on_a_page(page_path, example, open_address):
    landscape = Landscape(example())
    opened = open_address(save_page(landscape, page_path, camera=(-75, 20)).as_uri())
    opened.wait(_CAMERA)
    assert opened.page.input_value("#camera") == "-75,20"
    for name in ("-75,20", *CAMERAS, "auto"):
        opened.choose("camera", name)
        figure = landscape.plot_surface(camera=name)
        places, expected = corners(figure)
        expected = shape_of(expected)

        def distance(places=places, expected=expected):
            width, height = opened.page.evaluate(_SHAPE)
            return float(np.abs(shape_of(opened.on_screen(places) * (width / height, 1)) - expected).max())

        # The browser draws a moment later.
        wait_until(lambda distance=distance: distance() < 4e-3, what=f"the view of {name}")
    opened.check()


@pytest.mark.slow
@DRAWS_OFTEN
def test_the_button_of_a_surface_goes_back_to_the_chosen_camera_which_a_link_keeps(open_page, example):
    opened = open_page(example(rows=5, columns=6), example(rows=5, columns=6, seed=1))
    # A slow machine draws the second surface a while after the first.
    opened.wait(_ALL_DRAWN)
    for name in ("default", "low"):
        opened.choose("camera", name)
        opened.page.locator(".plot.surface").first.focus()
        chosen = opened.page.evaluate(_EYES)
        opened.page.keyboard.press("ArrowRight")
        far = f"{_EYES}.every((eye, card) => Math.hypot(...eye.map((value, at) => value - {chosen}[card][at])) > 0.05)"
        opened.wait(far)
        opened.page.locator(".plot.surface .modebar-btn[data-title='Reset camera']").first.click()
        # The cameras are locked, so the other surface goes back too.
        opened.wait(far.replace("> 0.05", "< 1e-4"))
    opened.wait("location.hash === '#camera=low'")
    low = opened.page.evaluate(_EYES)[0]
    opened.open(opened.page.url)
    opened.wait(_ALL_DRAWN)
    assert opened.page.input_value("#camera") == "low"
    opened.wait(f"{_EYES}.flat().every((value, at) => Math.abs(value - {low}[at % 3]) < 1e-6)")
    # A link whose camera nobody knows.
    opened.page.evaluate("location.hash = '#camera=sideways'")
    opened.wait("document.querySelector('#camera').value === 'default'")
    opened.wait(f"{_EYES}.flat().every((value, at) => Math.abs(value - {low}[at % 3]) > 1e-3)")


def test_the_page_holds_the_cameras_that_it_offers(example):
    data = example()
    frames = landscape_content(data, "a")["frames"]
    box = frames["equal"]["box"]
    for name, camera in CAMERAS.items():
        assert frames["equal"]["cameras"][name] == camera.of_plotly(box)
    assert set(frames["fill"]["cameras"]) == {*CAMERAS, "auto"}
    assert '"camera": "-75,20"' in page_html(Landscape(data), camera="-75, 20")
    assert check_camera("-75,20") not in CAMERAS.values()
    with pytest.raises(ValueError, match="camera must be one of default"):
        page_html(Landscape(data), camera="sideways")
