"""The page draws planes to scale: in the browser's own pixels an isotropic loss has circles."""

import re

import numpy as np
import pytest
from isotropic_planes import axis_ratio, isotropic_plane
from scipy import ndimage

pytestmark = pytest.mark.slow
PLANES = [(-0.7, (12.0, 5.0)), (0.0, (12.0, 5.0)), (0.7, (3.0, 4.0))]


def longest_ring(opened):
    """Pixels along the longest closed contour line that the browser drew on the map."""
    rings = opened.page.evaluate(
        """Array.from(document.querySelectorAll(".plot.map .contourlevel path.closedline"), (path) => {
            const length = path.getTotalLength();
            const points = Array.from({length: 90}, (_, index) => path.getPointAtLength(length * index / 90));
            return points.map(({x, y}) => [x, y]);
        })"""
    )
    return np.array(max(rings, key=lambda ring: np.ptp(np.array(ring), axis=0).sum()))


def drawn_disc(opened):
    """The ratio of the axes of the dark disc on the map, from a screenshot: its second moments."""
    pixels = opened.screenshot("map")
    dark = np.abs(pixels - (0x44, 0x01, 0x54)).max(axis=2) < 40
    # The profile's line and the path lie over it, the colour bar beside it.
    found, _ = ndimage.label(ndimage.binary_closing(dark[:, : int(0.8 * dark.shape[1])], iterations=14))
    rows, columns = np.nonzero(ndimage.binary_fill_holes(found == np.bincount(found[found > 0]).argmax()))
    low, high = np.linalg.eigvalsh(np.cov(rows, columns))
    return float(np.sqrt(high / low))


@pytest.mark.parametrize(("cosine", "norms"), PLANES)
def test_an_isotropic_loss_has_circles(open_page, cosine, norms):
    """Cells of two colours, so that the screenshot shows a disc; the path lies inside it."""
    data = isotropic_plane(cosine, norms, columns=201, rows=201)
    data.metrics["loss"][:] = np.where(data.metrics["loss"] < 5.6 * min(norms) / 5, 1.0, 2.0)
    data.origin.metrics["loss"] = 1.0
    data.checkpoints.projected["loss"][:] = 1.0
    data.checkpoints.x[:] *= 0.01
    data.checkpoints.y[:] *= 0.01
    opened = open_page(data, webgl=False, device_scale_factor=2)
    with opened.redrawing("map"):
        opened.choose("map", "cells")
    assert drawn_disc(opened) == pytest.approx(1, abs=0.02)
    with opened.redrawing("map"):
        opened.choose("aspect", "fill")
    warning = opened.page.inner_text(".warning")
    assert f"Axes stretched × {max(norms) / min(norms):.3g} along" in warning
    assert ("Sheared" in warning) == (cosine != 0)
    assert drawn_disc(opened) > 1.2


@pytest.mark.parametrize(("cosine", "norms"), PLANES)
def test_contour_lines_are_circles(open_page, cosine, norms):
    opened = open_page(isotropic_plane(cosine, norms), webgl=False)
    assert axis_ratio(longest_ring(opened)) == pytest.approx(1, abs=0.02)


def test_pointing_at_an_oblique_map_and_its_profile(open_page):
    data = isotropic_plane(-0.7, (12.0, 5.0), columns=21, rows=11)
    opened = open_page(data, webgl=False)
    u, v = data.geometry.distances(data.x[6], data.y[8])
    facts = {name: text.replace("\u2212", "-") for name, text in opened.pointed(float(u), float(v)).items()}
    number = {name: float(facts[name]) for name in ("x", "y", "loss")}
    assert number == pytest.approx({"x": data.x[6], "y": data.y[8], "loss": data.loss[8, 6]}, rel=1e-4)
    placed = [float(part) for part in re.findall(r"-?[\d.]+", facts["distances from the origin"])]
    assert placed == pytest.approx([float(u), float(v)], rel=1e-3)
    # In the corner beside the parallelogram there is nothing.
    right, bottom = data.geometry.distances(1, 1)[0], data.geometry.distances(-1, -1)[1]
    opened.page.mouse.move(*opened.pixel(float(-right) * 1.0 - 6, float(bottom) + 0.3))
    opened.wait("document.querySelector('.tooltip').hidden === true")
    # The profile measures distances in weight space.
    positions, losses = opened.data("profile", "profile", "x", "y")
    assert positions[-1] == pytest.approx(24)
    assert "in weight space" in opened.page.evaluate("document.querySelector('.profile').layout.xaxis.title.text")
    assert losses[0] == pytest.approx(144.1)


def test_the_surface_is_the_same_parallelogram(open_page):
    data = isotropic_plane(0.6, (10.0, 5.0), columns=21, rows=11)
    opened = open_page(data)
    x, y = opened.data("surface", "surface", "x", "y")
    u, v = data.geometry.distances(data.x[None, :], data.y[:, None])
    np.testing.assert_allclose(x, u, atol=1e-12)
    np.testing.assert_allclose(y, v, atol=1e-12)
    ratio = opened.page.evaluate("document.querySelector('.surface').layout.scene.aspectratio")
    assert ratio["x"] / ratio["y"] == pytest.approx(26 / 8)


def test_no_white_band_beside_a_gap(open_page):
    """Contours need four values; between them and a hatched cell lies half a cell, which shows its own value."""
    data = isotropic_plane(0.0, (5.0, 5.0), columns=11, rows=11)
    data.metrics["loss"][4:7, 7:9] = np.nan
    opened = open_page(data, webgl=False)
    box = opened.page.query_selector(".plot.map")
    # Between the points in columns 6 and 7, just before the cells that have no value.
    x, y = opened.pixel(5 * 0.35, 5 * 0.25)
    left, top = (box.bounding_box()[side] for side in ("x", "y"))
    pixels = opened.screenshot("map")
    color = pixels[int(y - top), int(x - left - 12)]
    assert color.min() < 120, color
