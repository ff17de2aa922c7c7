"""The options of pictures from the command line: each does what it does in Python, or says where it belongs."""

import numpy as np
import pytest
import typer
from command_line import invoke
from data_sets import with_test_set
from figure_cases import build, build_line
from landscape_examples import write_landscape
from matplotlib.figure import Figure
from PIL import Image

from landscape import Landscape, figures
from landscape.cli import app
from landscape.figures.kinds import KINDS, OPTIONS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    wells = build_line([0.5, 5, 1, 3, 2, 9, 1.5])
    planes = {"a": build(network="LeNet"), "b": build(network="ResNet"), "both": with_test_set(build()), "wells": wells}
    for name, data in planes.items():
        write_landscape(folder / f"{name}.h5", data)
    return folder


TWO = ["--metric", "loss@test", "--metric", "loss"]
CASES = [
    ("a", "heatmap", ["--clip", "0.1,2", "--colormap", "cividis", "--no-trajectory"],
     {"clip": (0.1, 2.0), "colormap": "cividis", "trajectory": False}),
    ("a", "surface", ["--camera", "-60,30", "--title", "Adam $x^2$"], {"camera": "-60,30", "title": "Adam $x^2$"}),
    ("a", "heatmap", ["--clip", "1.5"], {"clip": 1.5}),
    ("a", "lines", ["--clip", "0.1,", "--title", "", "--inches", "9x4"],
     {"clip": (0.1, None), "title": "", "size": (9, 4)}),
    ("a", "lines", ["--scale", "symlog", "--metric", "accuracy"], {"scale": "symlog", "metric": "accuracy"}),
    ("a", None, ["--levels", "2e-1"], {"levels": [0.2]}),
    ("a", None, ["--levels", "0.1,0.5,2", "--aspect", "fill"], {"levels": [0.1, 0.5, 2], "aspect": "fill"}),
    ("both", None, TWO, {"metric": ["loss@test", "loss"]}),
    ("both", "multiples", [*TWO, "--over", "surface"], {"metric": ["loss@test", "loss"], "over": "surface"}),
    ("both", "difference", TWO, {"metric": ["loss@test", "loss"]}),
    ("a b", "difference", ["--significance", "0"], {"significance": 0.0}),
    ("a b", None, ["--columns", "1", "--title", "first", "--title", "second", "--over", "heatmap"],
     {"columns": 1, "title": ["first", "second"], "over": "heatmap"}),
    ("wells", None, ["--topology", "--persistence", "2"], {"topology": 2.0}),
    ("wells", "merge_tree", ["--persistence", "2"], {"persistence": 2.0}),
    ("wells", "persistence", ["--theme", "dark"], {"theme": "dark"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("files", "kind", "typed", "options"), CASES)
def test_the_same_as_from_python(folder, tmp_path, files, kind, typed, options):
    paths = [folder / f"{name}.h5" for name in files.split()]
    invoke("plot", *paths, "-o", tmp_path / "a.png", *([] if kind is None else ["--kind", kind]), *typed, "--dpi", "60")
    first, *others = map(Landscape.load, paths)
    drawn = first.plot(kind, *others, **{"theme": "light", **options})
    figures.save_figure(drawn[0] if isinstance(drawn, list) else drawn, tmp_path / "b.png", dpi=60)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_plot_is_the_function_of_its_kind(tmp_path):
    """Names alone decide what is drawn: each kind by its own function, on the axes that are given."""
    landscape, line = Landscape(build()), Landscape(build_line([1.0, 3.0, 2.0]))
    pixels = [figures.figure_pixels(ax, dpi=40) for ax in (landscape.plot("heatmap"), landscape.plot_heatmap())]
    np.testing.assert_array_equal(*pixels)
    ax = Figure().add_subplot()
    assert line.plot(ax=ax) is ax
    assert ax.get_ylabel() == line.plot_profile().get_ylabel()
    path = landscape.plot("animation", path=tmp_path / "a.gif", seconds=0.1, rate=20, dpi=20, over="lines")
    with Image.open(path) as film:
        assert film.n_frames == 2


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        ("map", {}, ValueError, "kind must be one of 'contour', 'lines'"),
        ("sharpness", {}, ValueError, "kind must be one of 'contour', 'lines'"),
        ("contour", {"columns": 2}, ValueError, 'columns must be left out for a contour; it belongs to kind="multip'),
        ("contour", {"number": 2}, ValueError, 'number must be left out for a contour; it belongs to kind="spectrum"'),
        ("contour", {"colour": 2}, TypeError, "kind=\"contour\" has no option 'colour'; it has metric, levels, "),
        ("contour", {"metric": ["a", "b"]}, ValueError, "metric must be given once for a contour; a profile, multip"),
        ("difference", {}, ValueError, 'kind="difference" needs two landscapes, .* got 1 landscape and 1 metric'),
    ],
)
def test_what_a_kind_does_not_take(kind, options, error, message):
    with pytest.raises(error, match=f"^{message}"):
        Landscape(build()).plot(kind, **options)


def test_the_command_offers_everything_that_python_has():
    flags = {flag for parameter in typer.main.get_command(app).commands["plot"].params for flag in parameter.opts}
    assert {f"--{name}" for name in figures.Look.__annotations__ if name != "size"} | {"--inches"} <= flags
    assert {"--over", "--columns", "--seconds", "--rate", "--dpi", "--number", "--width", "--learning-rate"} <= flags


def test_every_option_belongs_to_a_kind_and_every_kind_takes_known_ones():
    taken = {name for picture in KINDS.values() for name in picture.options}
    assert taken - set(OPTIONS) == {"ax", "path"}
    assert set(OPTIONS) <= taken


def test_a_picture_has_the_size_that_is_asked_for(folder, tmp_path):
    # The legend of a surface needs room below.
    for kind, files, size in (("multiples", "ab", (400, 250)), ("surface", "a", (400,))):
        paths = [folder / f"{name}.h5" for name in files]
        invoke("plot", *paths, "-o", tmp_path / "a.png", "--kind", kind, "--inches", "8x5", "--dpi", "50")
        with Image.open(tmp_path / "a.png") as picture:
            assert picture.size[: len(size)] == size


def test_an_animation_as_long_and_as_large_as_asked(folder, tmp_path):
    arguments = ["--seconds", "0.5", "--rate", "10", "--dpi", "40", "--inches", "6x3", "--title", "walk"]
    invoke("plot", folder / "a.h5", "-o", tmp_path / "a.gif", *arguments)
    with Image.open(tmp_path / "a.gif") as film:
        assert (film.n_frames, film.size) == (5, (240, 120))


@pytest.mark.parametrize("unit", ["epoch", "step"])
def test_several_files_in_one_animation(unit, folder, tmp_path):
    how = ["--seconds", "0.2", "--rate", "10", "--dpi", "40", "--over", "lines", "--caption"]
    write_landscape(tmp_path / "b.h5", build(unit=unit))
    invoke("plot", folder / "a.h5", tmp_path / "b.h5", "-o", tmp_path / "a.gif", *how)
    with Image.open(tmp_path / "a.gif") as film:
        assert (film.n_frames, film.size) == (2, (384, 216))
    said = (tmp_path / "a_caption.txt").read_text()
    assert "Picture 2 of 2" in said
    assert said.count("The 2 pictures of this quantity share one scale.") == 2
    # Of different units each goes the same share of its way.
    assert said.count("share one scale. All walk on one clock.") == (2 if unit == "epoch" else 0)


def test_the_camera_and_the_title_are_those_that_were_given():
    ax = figures.plot_surface(build(), camera=(12, 70), title="two\nlines")
    assert (ax.azim, ax.elev) == (12, 70)
    assert ax.get_title().startswith("two\nlines")
    assert figures.plot_heatmap(build(), title="").get_title() == ""
    both = figures.plot_difference(build(), build(network="B"), title="mine")
    assert both.get_title().startswith("mine")


@pytest.mark.parametrize(
    ("look", "error", "message"),
    [
        ({"size": "8x5"}, TypeError, r"size must be \(width, height\) in inches"),
        ({"size": (8, "5")}, TypeError, r"size\[1\] must be"),
        ({"title": 3}, TypeError, "title must be a str or None"),
        ({"camera": (1, 2)}, ValueError, "camera must be left out for plot_contour, which is flat"),
    ],
)
def test_wrong_arguments_in_python(look, error, message):
    with pytest.raises(error, match=message):
        figures.plot_contour(build(), **look)
    with pytest.raises(ValueError, match="size must be left out where ax is given"):
        figures.plot_contour(build(), Figure().add_subplot(), size=(3, 3))
    with pytest.raises(ValueError, match=r"title must be left out for plot_multiples, whose pictures have titles=\["):
        figures.plot_multiples([build(), build()], title="x")
