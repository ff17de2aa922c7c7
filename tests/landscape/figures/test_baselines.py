"""Every kind of picture against a stored one, light and dark, on screen and on paper.

Look at the pictures after a wanted change, and store them anew with ``REGENERATE_BASELINES=1 pytest
tests/landscape/figures/test_baselines.py``. What each picture must show is asserted on its artists in the other files
here, so that no wrong picture is stored by mistake.
"""

import copy
import os
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from curvature_cases import build_curvature, leave_out
from figure_cases import begun, build, build_line, build_real, build_unfinished
from PIL import Image

from landscape import figures
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus

BASELINES = Path(__file__).parent / "baselines"
TOLERANCE = 1.0
SCREEN, PAPER = 48, 85
PINNED = "3.11"


def _line():
    data = build_line(0.05 + np.linspace(-1.2, 1, 21) ** 2)
    data.metrics["loss_stderr"][:] = 0.1 * data.metrics["loss"]
    data.metrics["accuracy"] = np.exp(-data.metrics["loss"])
    data.status[4:7], data.metrics["loss"][4:7] = PointStatus.PENDING, np.nan
    data.origin.metrics["loss"] = 0.05
    return Landscape(data)


def _begun(share):
    """A plane of which this share is measured, in the order of a survey."""
    return begun(build(rows=40, columns=40), int(share * 1600))


def _difference(**look):
    first = build()
    second = copy.deepcopy(first)
    second.attributes["network"] = "ResNet"
    second.metrics["loss"] *= np.linspace(0.2, 1.5, 30)
    return figures.plot_difference(first, second, **look)


def _sharpness(**look):
    found = build_curvature(bottom=1)
    leave_out(found, [4], PointStatus.FAILED)
    found.residuals[9, 4], found.converged[9, 4] = 3.0, 0
    return figures.plot_sharpness(found, learning_rate=0.05, **look)


def _wells():
    x, y = np.linspace(-2, 2.5, 46), np.linspace(-1, 1.2, 23)
    waves = 0.5 * np.cos(2.2 * x)[None] + 0.4 * np.cos(4.5 * y)[:, None] + 0.12 * x[None] + 0.1 * y[:, None]
    data = build(1.2 + waves + 0.04 * np.random.default_rng(0).normal(size=waves.shape))
    data.metrics["loss_stderr"] = np.full(waves.shape, 0.1)
    return Landscape(data)


def _multiples(kind):
    def draw(**look):
        planes = [Landscape(data) for data in (build(), build_real("surface_resnet_pca", "ResNet"), build_unfinished())]
        return figures.plot_multiples(planes[: 2 if kind == "surface" else 3], kind=kind, **look)[0]

    return draw


PICTURES = {
    "contour": lambda **look: figures.plot_contour(build(), **look),
    "contour_quantiles": lambda **look: figures.plot_contour(
        build_real("surface_lenet_random", "LeNet"), levels="quantile", **look
    ),
    "unfinished": lambda **look: figures.plot_contour(build_unfinished(), **look),
    "begun_2": lambda **look: figures.plot_contour(_begun(0.02), **look),
    "begun_30": lambda **look: figures.plot_contour(_begun(0.3), **look),
    "begun_surface": lambda **look: figures.plot_surface(_begun(0.02), **look),
    "lines": lambda **look: figures.plot_contour_lines(build(), **look),
    "heatmap": lambda **look: figures.plot_heatmap(build_unfinished(), clip=(0.1, 10), **look),
    "surface": lambda **look: figures.plot_surface(build(), **look),
    "profile": lambda **look: figures.plot_profile(_line(), others="accuracy", **look),
    "sharpness": _sharpness,
    "spectrum": lambda **look: figures.plot_spectrum(build_curvature(bottom=1), **look),
    "minima": lambda **look: figures.plot_contour(_wells(), topology=True, **look),
    "merge_tree": lambda **look: figures.plot_merge_tree(_wells(), **look),
    "persistence": lambda **look: figures.plot_persistence(_wells(), **look),
    "difference": _difference,
    "multiples": _multiples("contour"),
    "multiples_surface": _multiples("surface"),
}
DARK = ("contour", "unfinished", "begun_2", "lines", "surface", "profile")


def difference_from(path, pixels):
    """The root of the mean squared difference, 0 to 255, in the stored picture's own colours."""
    with Image.open(path) as stored:
        assert stored.size == pixels.shape[1::-1]
        drawn = Image.fromarray(pixels).quantize(palette=stored, dither=Image.Dither.NONE)
        pair = [np.asarray(picture.convert("RGB"), float) for picture in (stored, drawn)]
    return float(np.sqrt(np.mean((pair[0] - pair[1]) ** 2)))


def check(name, pixels):
    path = BASELINES / f"{name}.png"
    if os.environ.get("REGENERATE_BASELINES") == "1":
        picture = Image.fromarray(pixels)
        palette = picture.quantize(128)
        picture.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)
    difference = difference_from(path, pixels)
    assert difference < TOLERANCE, f"{name} differs by {difference:.1f}; look at it, then see this file's first lines"


@pytest.mark.skipif(not matplotlib.__version__.startswith(PINNED), reason=f"pictures are of matplotlib {PINNED}")
class TestBaselines:
    @pytest.mark.slow
    @pytest.mark.parametrize("style", ["screen", "paper"])
    @pytest.mark.parametrize("name", PICTURES)
    def test_light(self, name, style):
        look = {"theme": "light", "style": style}
        check(
            f"{name}_{style}", figures.figure_pixels(PICTURES[name](**look), dpi=SCREEN if style == "screen" else PAPER)
        )

    @pytest.mark.parametrize("name", DARK)
    @pytest.mark.slow
    def test_dark(self, name):
        check(f"{name}_dark", figures.figure_pixels(PICTURES[name](theme="dark"), dpi=SCREEN))

    def test_a_frame_of_the_animation(self):
        data = build()
        data.checkpoints.metrics["loss"][:] = 1.1 * data.checkpoints.projected["loss"]
        frames = list(figures.walk_frames(data, seconds=0.5, rate=10, dpi=50))
        check("walk", frames[3])

    @pytest.mark.slow
    def test_other_words_or_colours_would_be_seen(self):
        for change in (lambda ax: ax.set_title("something else"), lambda ax: ax.get_lines()[1].set_color("red")):
            ax = figures.plot_contour(build(), theme="light")
            change(ax)
            pixels = figures.figure_pixels(ax, dpi=SCREEN)
            assert difference_from(BASELINES / "contour_screen.png", pixels) > 1.3 * TOLERANCE


def test_the_baselines_are_those_of_the_tests_and_small():
    stored = {path.stem for path in BASELINES.glob("*.png")}
    light = {f"{name}_{style}" for name in PICTURES for style in ("screen", "paper")}
    assert stored == light | {f"{name}_dark" for name in DARK} | {"walk"}
    assert sum(path.stat().st_size for path in BASELINES.iterdir()) < 550_000
