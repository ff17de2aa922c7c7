"""How pictures look: themes, papers, venues as wide as they ask, fonts that are in the file, legends; and as files."""

import dataclasses
import io
import itertools
import re
import xml.etree.ElementTree
import zlib

import matplotlib
import numpy as np
import pytest
from curvature_cases import build_curvature
from figure_cases import build, build_line, build_unfinished, draw, legend_texts, line
from long_paths import build_path
from marked_cases import marked
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from places import ROOT
from scripts import run_script

from landscape import figures
from landscape.drawing.appearance import STYLES, appearance_of, readable
from landscape.landscape import Landscape

PLANES = [figures.plot_contour, figures.plot_contour_lines, figures.plot_heatmap, figures.plot_surface]
KINDS = ("contour", "lines", "heatmap", "surface", "profile")
PAPERS = [name for name, style in STYLES.items() if style["paper"]]
SCALE = figures.choose_scale(np.array([1.0, 9]))
WIDTHS = {
    "paper": (3.4, 7.0), "neurips": (5.5, 5.5), "icml": (3.25, 6.75), "nature": (3.504, 7.205), "slides": (10, 12),
}  # fmt: skip


def drawn(kind, **look):
    if kind == "sharpness":
        return figures.plot_sharpness(build_curvature(bottom=1), learning_rate=0.05, **look)
    if kind == "spectrum":
        return figures.plot_spectrum(build_curvature(bottom=1), **look)
    data = build_line([3.0, 1.0, 0.2, 1.5, 4.0]) if kind == "profile" else build()
    others = [Landscape(build(network="B"))] if kind in ("multiples", "difference") else []
    axes = Landscape(data).plot(kind, *others, **look)
    return axes[0] if isinstance(axes, list) else axes


def with_own_losses():
    """A path whose checkpoints have other losses than the plane below them, as most real ones do."""
    return Landscape(build_path("spiral", 21))


def sizes_of_type(figure):
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    assert len(texts) > 5
    return [text.get_fontsize() for text in texts]


def brightness(color):
    return float(np.dot(to_rgb(color), [0.299, 0.587, 0.114]))


class TestThemes:
    @pytest.mark.slow
    @pytest.mark.parametrize("plot", PLANES)
    def test_text_stands_out_from_the_page(self, plot):
        for theme, dark in (("light", False), ("dark", True)):
            ax = plot(build(), theme=theme)
            page = brightness(ax.figure.get_facecolor())
            assert (page < 0.2) is dark
            words = [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.figure.legends[0].get_texts()]
            assert len(words) > 6
            for text in words:
                assert abs(brightness(text.get_color()) - page) > 0.6, text
            corner = figures.figure_pixels(ax, dpi=30)[0, 0]
            assert abs(corner.mean() / 255 - page) < 0.02

    def test_without_a_theme_the_users_settings_rule(self):
        with matplotlib.rc_context({"figure.facecolor": "#000022", "text.color": "yellow"}):
            ax = figures.plot_contour(build())
        assert to_hex(ax.figure.get_facecolor()) == "#000022"
        assert ax.title.get_color() == "yellow"
        assert figures.plot_contour(build(), theme="light").figure.get_facecolor() == (1, 1, 1, 1)

    def test_foreign_axes_choose_the_theme(self):
        data = build_unfinished()
        for background, ink in (("white", "#111111"), ("#101010", "#ececec")):
            ax = Figure().add_subplot(facecolor=background)
            assert line(figures.plot_contour_lines(data, ax), "trajectory").get_color() == ink

    def test_settings_are_the_users_again(self):
        before = {name: value for name, value in matplotlib.rcParams.items() if name != "backend"}
        figures.plot_contour(build(), theme="dark", style="paper", font="serif")
        with pytest.raises(KeyError):
            figures.plot_contour(build(), theme="dark", metric="nothing")
        assert {name: value for name, value in matplotlib.rcParams.items() if name != "backend"} == before

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"theme": "sepia"}, ValueError, "theme must be one of 'light', 'dark'"),
            ({"theme": 1}, TypeError, "theme must be one of"),
            ({"style": "poster"}, ValueError, "style must be one of 'screen', 'paper', 'neurips'"),
            ({"style": None}, TypeError, "style must be one of"),
            ({"font": "comic"}, ValueError, "font must be one of 'sans', 'serif'"),
            ({"legend": "no"}, TypeError, "legend must be a bool, but got str: 'no'"),
            ({"aspect": "square"}, ValueError, "aspect must be one of 'equal', 'fill', but got 'square'"),
            ({"metric": "recall"}, KeyError, "no metric 'recall'"),
            ({"trajectory": 1}, TypeError, "trajectory must be a bool"),
            ({"scale": "cubic"}, ValueError, "scale must be one of"),
            ({"levels": "cubic"}, ValueError, "levels must be an int"),
            ({"clip": (2, 1)}, ValueError, "clip must be a pair"),
            ({"scale": SCALE, "levels": 5}, ValueError, "scale is a Scale, which has its levels and its clip already"),
            ({"ax": "axes"}, TypeError, "ax must be matplotlib axes or None"),
            ({"colour": "red"}, TypeError, "{plot} has no argument 'colour'; it has metric, levels"),
            ({"colormap": "nothing"}, ValueError, "colormap must be matplotlib's name of colours, such as 'viridis'"),
        ],
    )
    def test_wrong_options(self, arguments, error, message):
        for plot in (*PLANES, figures.plot_profile):
            landscape = Landscape(build_line([1, 2]) if plot is figures.plot_profile else build())
            with pytest.raises(error, match=message.format(plot=plot.__name__)):
                plot(landscape, **arguments)

    def test_curves_differ_for_every_eye(self):
        for theme in ("light", "dark"):
            look = appearance_of({"theme": theme}, None)
            page = brightness(look.page)
            assert len(set(look.series)) == 5
            assert all(abs(brightness(color) - page) > 0.25 for color in look.series)

    def test_readable_colours_of_any_map(self):
        for name in ("viridis", "gray", "Greys", "RdBu_r"):
            assert readable(matplotlib.colormaps[name], "light").N > 10
        black = readable(matplotlib.colors.ListedColormap(["black"] * 4), "dark")
        assert black(0.5)[:3] == (0, 0, 0)


class TestPaper:
    def test_what_is_special_about_the_data_stays(self):
        title = figures.plot_contour(build_unfinished(), style="paper").get_title()
        assert title == "199 of 320 points measured so far,\n32 interpolated"

    @pytest.mark.parametrize(("font", "face"), [("sans", b"DejaVuSans"), ("serif", b"STIX")])
    def test_all_type_is_in_the_pdf_as_outlines(self, tmp_path, font, face):
        figures.save_figure(drawn("contour", style="icml", font=font), tmp_path / "a.pdf")
        raw = (tmp_path / "a.pdf").read_bytes()
        streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", raw, re.DOTALL)
        whole = raw + b"".join(zlib.decompress(item) for item in streams if item[:1] == b"x")
        names = re.findall(rb"/FontName /([\w+-]+)", whole)
        assert names
        assert all(face in name for name in names)
        assert whole.count(b"/FontFile2") == len(names)
        assert b"/Type3" not in whole

    def test_svg_is_vector_graphics(self, tmp_path):
        figures.save_figure(figures.plot_contour(build(), style="paper"), tmp_path / "a.svg")
        text = (tmp_path / "a.svg").read_text()
        # The gradients of the colour bar and of the path's time alone are images.
        assert text.count("<image") == 2
        assert text.count("<path") > 100


@pytest.mark.parametrize("plot", PLANES)
def test_parts_of_a_figure_can_be_drawn_on(plot):
    figure = Figure()
    part = figure.subfigures(1, 2)[1]
    ax = part.add_subplot(projection="3d" if plot is figures.plot_surface else None)
    assert plot(build(), ax, theme="dark", style="paper") is ax
    draw(ax)


@pytest.mark.parametrize(
    ("style", "kind"),
    marked([*itertools.product(WIDTHS, (*KINDS, "multiples"))], pytest.mark.slow),
)
def test_as_wide_as_the_venue_asks_in_type_of_at_least_6_points(style, kind):
    ax = drawn(kind, style=style)
    figure = ax.figure
    assert abs(figure.get_figwidth() - WIDTHS[style][kind == "multiples"]) < 0.01
    assert min(sizes_of_type(figure)) >= 6
    if style == "paper":
        assert max(sizes_of_type(figure)) <= 8
        assert kind == "multiples" or ax.get_title() == ""
    if style == "slides":
        assert min(sizes_of_type(figure)) >= 12
        assert figure.get_figheight() <= 7.5
    picture = io.BytesIO()
    figures.save_figure(figure, picture, dpi=100)
    with Image.open(picture) as image:
        assert abs(image.width / 100 - WIDTHS[style][kind == "multiples"]) <= 0.01


@pytest.mark.parametrize("kind", ["difference", "multiples", "surface", "profile"])
def test_serif_has_every_letter(kind):
    drawn(kind, style="icml", font="serif").figure.canvas.draw()  # a missing letter would warn


@pytest.mark.slow
def test_the_description_is_in_each_kind_of_file(tmp_path):
    ax = drawn("contour", style="paper")
    for name in ("a.png", "a.svg", "a.pdf"):
        figures.save_figure(ax, tmp_path / name, description="A valley that bends.")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.info["Description"] == "A valley that bends."
    assert "A valley that bends." in (tmp_path / "a.svg").read_text()
    assert b"A valley that bends." in (tmp_path / "a.pdf").read_bytes()
    with pytest.raises(TypeError, match=r"^description must be a str or None"):
        figures.save_figure(ax, tmp_path / "b.png", description=3)
    assert not (tmp_path / "b.png").exists()


@pytest.mark.parametrize("kind", marked([*KINDS, "multiples", "difference", "sharpness", "spectrum"], pytest.mark.slow))
def test_a_picture_without_a_legend(kind):
    usual, plain = drawn(kind), drawn(kind, legend=False)
    assert legend_texts(usual)
    assert not legend_texts(plain)
    assert len(plain.get_lines()) == len(usual.get_lines())


@pytest.mark.parametrize(("style", "legend"), [("screen", False), ("paper", False), ("paper", True)])
@pytest.mark.parametrize("kind", marked(["contour", "heatmap", "profile"], pytest.mark.slow, after=1))
def test_there_is_no_empty_margin(kind, style, legend):
    ax = drawn(kind, legend=legend, style=style)
    pixels = figures.figure_pixels(ax, dpi=100)
    written = np.flatnonzero((pixels != pixels[0, 0]).any(axis=(1, 2)))
    assert written[0] <= 0.04 * len(pixels) + 6
    assert len(pixels) - written[-1] <= 0.04 * len(pixels) + 6


@pytest.mark.parametrize("kind", ["contour", "profile", "sharpness"])
def test_a_size_that_is_asked_for_stays(kind):
    for size, legend in itertools.product(((5, 5), (9, 3)), (True, False)):
        assert tuple(drawn(kind, legend=legend, size=size).figure.get_size_inches()) == size


def test_in_a_small_size_no_number_covers_another():
    figure = drawn("contour", style="paper", size=(5, 2.5)).figure
    figure.draw_without_rendering()
    (bar,) = [ax for ax in figure.axes if ax.get_label() == "<colorbar>"]
    boxes = [label.get_window_extent() for label in bar.get_xticklabels() if label.get_text()]
    assert len(boxes) > 3
    assert all(one.x1 < two.x0 for one, two in itertools.pairwise(boxes))


@pytest.mark.parametrize("kind", marked(KINDS[:4], pytest.mark.slow, after=1))
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


class TestSaving:
    @pytest.mark.slow
    @pytest.mark.parametrize("suffix", ["PNG", "pdf", "svg"])
    @pytest.mark.parametrize("plot", [figures.plot_contour, figures.plot_surface])
    def test_the_same_picture_gives_the_same_bytes(self, tmp_path, suffix, plot):
        files = [tmp_path / f"{index}.{suffix}" for index in range(2)]
        for file in files:
            figures.save_figure(plot(build()), file)
        assert files[0].read_bytes() == files[1].read_bytes()
        start = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix.lower()]
        assert files[0].read_bytes().startswith(start)
        if suffix == "svg":
            xml.etree.ElementTree.parse(files[0])
        assert len(list(tmp_path.iterdir())) == 2

    def test_figures_subfigures_and_streams(self):
        figure = Figure()
        ax = figure.subfigures(1, 2)[1].subplots()
        streams = [io.BytesIO() for _ in range(3)]
        for item, stream in zip((figure, ax.figure, ax), streams, strict=True):
            figures.save_figure(item, stream)
        assert len({stream.getvalue() for stream in streams}) == 1

    def test_other_names_and_things(self, tmp_path):
        ax = Figure().add_subplot()
        other = r"path must be a name that ends in \.png, \.pdf, \.svg or \.pgf"
        nowhere = "path must lie in a directory that exists, but .*none does not"
        for figure, path, error, match in (
            *((ax, tmp_path / name, ValueError, other) for name in ("a.jpg", "a", "a.png.txt")),
            ("picture", tmp_path / "a.png", TypeError, "figure must be a matplotlib figure or axes"),
            (ax, 3, TypeError, "path must be a path or a binary stream"),
            (ax, tmp_path / "none" / "a.png", NotADirectoryError, nowhere),
        ):
            with pytest.raises(error, match=match):
                figures.save_figure(figure, path)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_pyplot_is_never_touched():
    script = """
import sys, matplotlib
names = set(matplotlib.rcParams) - {"backend"}  # asking for the backend imports pyplot
before = {name: matplotlib.rcParams[name] for name in names}
sys.path.insert(0, "tests/support")
import io
from landscape.figures import plot_contour, plot_surface, save_figure
from landscape.landscape import Landscape
from figure_cases import build
for plot in (plot_contour, plot_surface):
    save_figure(plot(Landscape(build())), io.BytesIO())
assert "matplotlib.pyplot" not in sys.modules
assert {name: matplotlib.rcParams[name] for name in names} == before
"""
    run_script(script, cwd=ROOT)
