"""Nothing that a figure says leaves it, or covers something else: every kind, style, theme, name and state.

The slow test takes an eleventh of the states and names, and styles and themes in turn; ``EVERY_PICTURE=1`` tries each
(``make stress``).
"""

import itertools
import os

import numpy as np
import pytest
from curvature_cases import build_curvature, leave_out
from figure_cases import build, build_line, build_unfinished
from matplotlib.backends.backend_agg import FigureCanvasAgg

from landscape import figures
from landscape.record.checks import PointStatus, SamplingReport

LONG = {
    "network": "ResNet-110-without-shortcuts-on-CIFAR-100-with-mixup-and-cutout-augmentation",
    "unit": "optimizer_step_after_warm_up",
}
NAMES = {
    "short": {},
    "long": LONG,
    "title": {"title": "A title in many words, which says more about the network than any axis could hold"},
}
PLANES = {
    "contour": figures.plot_contour,
    "lines": figures.plot_contour_lines,
    "heatmap": figures.plot_heatmap,
    "surface": figures.plot_surface,
    "difference": lambda data, **look: figures.plot_difference(data, build(data.loss * 0.7, **NAMES["title"]), **look),
    "two contours": lambda data, **look: figures.plot_multiples([data, build(**NAMES["title"])], **look)[0],
    "four surfaces": lambda data, **look: figures.plot_multiples(
        [data, build(), data, build()], kind="surface", **look
    )[0],
}
LINES = {
    "profile": figures.plot_profile,
    "profile with others": lambda data, **look: figures.plot_profile(data, others=["accuracy", "loss_stderr"], **look),
    "three profiles": lambda data, **look: figures.plot_multiples([data, data, data], **look)[0],
}
REPORT = SamplingReport(
    tolerance=0.01, relative=False, measured=40, interpolated=59, rounds=3, estimated_error=0.012, checks=1, held_out=8,
    held_out_error=0.003, held_out_rms=0.001, reached=False, share_beyond_95=0.3, largest_gap=4,
).to_json()  # fmt: skip
STATES = ("measured", "interpolated", "pending", "failed", "unfinished", "flat", "steep", "nothing")
STYLES = [*itertools.product(("screen", "paper"), ("light", "dark")), ("screen", None)]


def landscape(state, *, line, **attributes):
    if line:
        data = build_line(np.linspace(-1, 1, 15) ** 2 + 0.013, **attributes)
        data.metrics["loss_stderr"] = np.full(15, 0.05)
        data.metrics["accuracy"] = np.linspace(0.5, 1.0, 15)
    elif state == "unfinished":
        data = build_unfinished()
        data.attributes |= attributes
    else:
        data = build(rows=9, columns=11, points=8, **attributes)
    loss, status = data.metrics["loss"], data.status
    some = np.random.default_rng(0).random(status.shape) < 0.6
    if state == "interpolated" or (line and state == "unfinished"):
        status[some] = PointStatus.INTERPOLATED
        data.attributes["sampling"] = {"mode": "adaptive", "finished": True} | REPORT
    if state in ("pending", "failed") or (line and state == "unfinished"):
        kind = PointStatus.FAILED if state == "failed" else PointStatus.PENDING
        loss[..., :4], status[..., :4] = np.nan, kind
    if state == "flat":
        loss[:] = 0.123456
    if state == "steep":
        loss *= np.exp(30 * np.linspace(0, 1, status.shape[-1]))
    if state == "nothing":
        loss[:], status[:] = np.nan, PointStatus.PENDING
    return data


def visible_boxes(ax, dpi):
    """Returns name and extent in pixels of all that a figure shows, as it is drawn at a resolution."""
    figure = ax.figure
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [("legend", legend.get_window_extent(renderer)) for legend in figure.legends]
    for each in figure.axes:
        labels = [each.xaxis.label, each.yaxis.label, each.title, *each.texts]
        if each.name == "3d":
            boxes += [("ticks", axis.get_tightbbox(renderer)) for axis in (each.xaxis, each.yaxis, each.zaxis)]
        else:
            boxes.append(("axes", each.get_tightbbox(renderer)))
        boxes += [(repr(text.get_text()), text.get_window_extent(renderer)) for text in labels if text.get_text()]
    return [(name, box) for name, box in boxes if box is not None and box.width and box.height]


def check(ax, where):
    figure = ax.figure
    for dpi in (100, 200):  # as notebooks show it, and as it is saved
        boxes = visible_boxes(ax, dpi)
        width, height = figure.get_size_inches() * dpi
        for name, box in boxes:
            over = max(-box.x0, -box.y0, box.x1 - width, box.y1 - height)
            assert over < 1, f"{where}: {name} leaves the figure by {over:.0f} of {width:.0f} x {height:.0f} pixels"
        legends = [box for name, box in boxes if name == "legend"]
        for legend, (name, box) in itertools.product(legends, boxes):
            apart = name == "legend" or not legend.overlaps(box.padded(-1))
            assert apart, f"{where}: the legend covers {name}"
        titles = [(each, each.title.get_window_extent()) for each in figure.axes if each.title.get_text()]
        for (each, title), other in itertools.product(titles, figure.axes):
            covered = title.overlaps(other.get_window_extent().padded(-2)) if other.name != "3d" else False
            assert each is other or not covered, f"{where}: a title covers other axes"
        for (_, one), (_, two) in itertools.combinations(titles, 2):
            assert not one.overlaps(two), f"{where}: two titles overlap"
    check_border(figures.figure_pixels(ax, dpi=100), where)


def check_border(pixels, where):
    """Ink that reaches the outermost pixels was cut off, whatever drew it."""
    page = pixels[0, 0].astype(int)
    for name, edge in (("top", pixels[0]), ("bottom", pixels[-1]), ("left", pixels[:, 0]), ("right", pixels[:, -1])):
        assert abs(edge.astype(int) - page).max() < 40, f"{where}: something is cut off at the {name}"


EVERY_PICTURE = os.environ.get("EVERY_PICTURE") == "1"
KINDS = {**PLANES, **LINES}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_everything_lies_inside_the_figure(kind):
    # Each kind of picture takes an eleventh of all states and names, and its neighbours others.
    place = [*KINDS].index(kind)
    for turn, (state, name, style) in enumerate(itertools.product(STATES, NAMES, STYLES)):
        pair, which = divmod(turn, len(STYLES))
        in_turn = pair % 11 == place % 11 and which == (pair // 11 + place % 11) % len(STYLES)
        # And a few of all, which differ in every choice.
        few = (place * len(STATES) * len(NAMES) * len(STYLES) + turn) % 97 == 0
        if EVERY_PICTURE or in_turn or few:
            data = landscape(state, line=kind in LINES, **NAMES[name])
            check(KINDS[kind](data, style=style[0], theme=style[1]), f"{kind}, {state}, {name}, {style}")


def curvature_picture(kind, name, style):
    found = build_curvature(bottom=2, probes=0 if style[1] == "dark" else 4, **{**NAMES[name], "matrix": "ggn"})
    leave_out(found, [4], PointStatus.FAILED)
    leave_out(found, [20], PointStatus.PENDING)
    found.residuals[9], found.converged[9] = 3.0, 0
    more = {"style": style[0], "theme": style[1], "title": NAMES[name].get("title")}
    if kind == "sharpness":
        return figures.plot_sharpness(found, learning_rate=0.05, **more)
    return figures.plot_spectrum(found, **more)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "always"), [("sharpness", "long"), ("spectrum", "title")])
def test_pictures_of_curvature_lie_inside_the_figure(kind, always):
    for turn, (name, style) in enumerate(itertools.product(NAMES, STYLES)):
        if EVERY_PICTURE or turn % 4 == (kind == "spectrum") or (name, style) == (always, ("paper", "light")):
            check(curvature_picture(kind, name, style), f"{kind}, {name}, {style}")


@pytest.mark.parametrize(("kind", "name"), [("contour", "long"), ("surface", "title"), ("surface", "short")])
def test_frames_of_an_animation_are_whole(kind, name):
    (frame, _) = figures.walk_frames(landscape("interpolated", line=False, **NAMES[name]), kind, seconds=0.1, rate=20)
    check_border(frame, f"animation, {kind}, {name}")
