"""Pictures for venues: as wide as they ask, in type that can be read, with fonts that are in the file."""

import io
import re
import zlib

import numpy as np
import pytest
from figure_cases import build, build_line
from matplotlib.text import Text
from PIL import Image

from landscape.figures import (
    plot_contour,
    plot_difference,
    plot_heatmap,
    plot_multiples,
    plot_profile,
    plot_surface,
    save_figure,
)

WIDTHS = {
    "paper": (3.4, 7.0),
    "neurips": (5.5, 5.5),
    "icml": (3.25, 6.75),
    "nature": (3.504, 7.205),
    "slides": (10, 12),
}
PLANES = {"contour": plot_contour, "heatmap": plot_heatmap, "surface": plot_surface}


def drawn(style, kind, **look):
    if kind == "profile":
        return plot_profile(build_line([3.0, 1.0, 0.2, 1.5, 4.0]), style=style, **look)
    if kind == "multiples":
        return plot_multiples([build(), build(network="B")], style=style, **look)[0]
    if kind == "difference":
        return plot_difference(build(), build(network="B"), style=style, **look)
    return PLANES[kind](build(), style=style, **look)


def sizes_of_type(figure):
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    assert len(texts) > 5
    return [text.get_fontsize() for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("style", WIDTHS)
@pytest.mark.parametrize("kind", ["contour", "surface", "profile", "multiples"])
def test_as_wide_as_the_venue_asks_in_type_of_at_least_6_points(style, kind):
    figure = drawn(style, kind).figure
    assert abs(figure.get_figwidth() - WIDTHS[style][kind == "multiples"]) < 0.01
    assert min(sizes_of_type(figure)) >= 6
    if style == "slides":
        assert min(sizes_of_type(figure)) >= 12
        assert figure.get_figheight() <= 7.5
    picture = io.BytesIO()
    save_figure(figure, picture, dpi=100)
    with Image.open(picture) as image:
        assert abs(image.width / 100 - WIDTHS[style][kind == "multiples"]) <= 0.01


def test_all_type_is_in_the_pdf_as_outlines(tmp_path):
    save_figure(drawn("icml", "contour", font="serif"), tmp_path / "a.pdf")
    raw = (tmp_path / "a.pdf").read_bytes()
    parts = [raw]
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", raw, re.DOTALL):
        try:
            parts.append(zlib.decompress(stream))
        except zlib.error:
            continue
    whole = b"".join(parts)
    names = re.findall(rb"/FontName /([\w+-]+)", whole)
    assert names
    assert all(b"STIX" in name for name in names)
    assert whole.count(b"/FontFile2") == len(names)
    assert b"/Type3" not in whole


def test_serif_is_another_face_and_leaves_the_users_settings_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    faces = {
        font: {text.get_fontname() for text in drawn("paper", "contour", font=font).figure.findobj(Text)}
        for font in ("sans", "serif")
    }
    assert faces == {"sans": {"DejaVu Sans"}, "serif": {"STIXGeneral"}}
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("kind", ["difference", "multiples", "surface", "profile"])
def test_serif_has_every_letter(kind):
    drawn("icml", kind, font="serif").figure.canvas.draw()  # a missing letter would warn


@pytest.mark.slow
def test_the_description_is_in_each_kind_of_file(tmp_path):
    ax = drawn("paper", "contour")
    for name in ("a.png", "a.svg", "a.pdf"):
        save_figure(ax, tmp_path / name, description="A valley that bends.")
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.info["Description"] == "A valley that bends."
    assert "A valley that bends." in (tmp_path / "a.svg").read_text()
    assert b"A valley that bends." in (tmp_path / "a.pdf").read_bytes()
    with pytest.raises(TypeError, match=r"^description must be a str or None"):
        save_figure(ax, tmp_path / "b.png", description=3)  # type: ignore[arg-type]
    assert not (tmp_path / "b.png").exists()


def test_wrong_names_are_errors():
    with pytest.raises(ValueError, match=r"^style must be .*neurips"):
        plot_contour(build(), style="cvpr")
    with pytest.raises(ValueError, match=r"^font must be"):
        plot_contour(build(), font="comic")
    assert np.isfinite(build().loss).all()
