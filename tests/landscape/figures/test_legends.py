"""Legends: small on paper, and left out where nobody wants one."""

import dataclasses

import numpy as np
import pytest
from curvature_cases import build_curvature
from figure_cases import build, build_line, legend_texts
from long_paths import build_path

from landscape.drawing.appearance import STYLES
from landscape.figures import figure_pixels, plot_sharpness, plot_spectrum
from landscape.landscape import Landscape

PLANES = ["contour", "lines", "heatmap", "surface"]
PAPERS = [name for name, style in STYLES.items() if style["paper"]]


def with_own_losses():
    """A path whose checkpoints have other losses than the plane below them, as most real ones do."""
    return Landscape(build_path("spiral", 21))


def drawn(kind, **look):
    if kind == "sharpness":
        return plot_sharpness(build_curvature(bottom=1), learning_rate=0.05, **look)
    if kind == "spectrum":
        return plot_spectrum(build_curvature(bottom=1), **look)
    data = build_line([1.0, 3.0, 2.0]) if kind == "profile" else build()
    others = [Landscape(build())] if kind in ("multiples", "difference") else []
    axes = Landscape(data).plot(kind, *others, **look)
    return axes[0] if isinstance(axes, list) else axes


@pytest.mark.parametrize("kind", [*PLANES, "profile", "multiples", "difference", "sharpness", "spectrum"])
def test_a_picture_without_a_legend(kind):
    usual, plain = drawn(kind), drawn(kind, legend=False)
    assert legend_texts(usual)
    assert not legend_texts(plain)
    assert len(plain.get_lines()) == len(usual.get_lines())


@pytest.mark.parametrize("style", ["screen", "paper"])
@pytest.mark.parametrize("kind", ["contour", "heatmap", "profile"])
def test_without_a_legend_there_is_no_empty_margin(kind, style):
    ax = drawn(kind, legend=False, style=style)
    pixels = figure_pixels(ax, dpi=100)
    written = np.flatnonzero((pixels != pixels[0, 0]).any(axis=(1, 2)))
    assert written[0] <= 0.04 * len(pixels) + 6
    assert len(pixels) - written[-1] <= 0.04 * len(pixels) + 6
    assert tuple(drawn(kind, legend=False, style=style, size=(5, 5)).figure.get_size_inches()) == (5, 5)


@pytest.mark.parametrize("kind", PLANES)
@pytest.mark.parametrize("style", PAPERS)
def test_on_paper_a_legend_takes_a_fifth_of_a_picture_and_says_all_marks(kind, style):
    ax = with_own_losses().plot(kind, style=style)
    (legend,) = ax.figure.legends
    assert legend.get_window_extent().height <= ax.figure.bbox.height / 5
    words = " ".join(legend_texts(ax)).replace("\n", " ")
    for mark in ("trajectory", "start (epoch 0)", "end (epoch 20)", "final weights (epoch 20)"):
        assert mark in words
    assert "own loss differs at 21 of 21 networks" in words


def test_what_a_legend_on_paper_leaves_out_the_caption_says():
    landscape = with_own_losses()
    whole = next(text for text in legend_texts(landscape.plot("contour")) if text.startswith("own loss differs"))
    assert "most at epoch" in whole
    sentence = " ".join(whole.split())
    assert sentence[0].upper() + sentence[1:] in landscape.caption("contour").text
    assert "differs" not in landscape.caption("contour", trajectory=False).text
    (short,) = [text for text in legend_texts(landscape.plot("contour", style="paper")) if text.startswith("own loss")]
    assert "most at epoch" not in short


def test_a_label_that_has_room_in_the_final_picture_is_not_broken():
    data = build(points=0)
    ax = Landscape(dataclasses.replace(data, y=0.5 * data.y)).plot("contour", style="paper")
    assert ax.get_ylabel() == "along PC 2"
    assert ax.get_xlabel() == "distance along PC 1\n(63.2 % of variance)"
