"""``landscape plot``, as a user types it."""

import contextlib
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from command_line import invoke
from curvature_cases import build_curvature, leave_out
from data_sets import with_test_set
from figure_cases import build, build_line, build_unfinished
from landscape_examples import write_landscape
from marked_cases import marked
from matplotlib.figure import Figure
from PIL import Image
from remote_stores import web_server

from collectors.errors import LandscapeError
from landscape.captions import barriers_caption, multiples_captions
from landscape.comparison.comparison import Comparison
from landscape.comparison.data import ComparisonData
from landscape.curvature.curvature import Curvature
from landscape.errors import LandscapeRenderingError
from landscape.figures import figure_pixels, plot_sharpness
from landscape.landscape import Landscape
from landscape.record.checks import PointStatus
from landscape.record.record import record_bytes
from landscape.record.whole_file import read_file_attributes

plot = partial(invoke, "plot")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    other = build(network="ResNet")
    other.metrics["loss"] *= 3
    line = build_line(np.linspace(-1, 2, 7) ** 2)
    line.metrics["accuracy"] = np.linspace(0.2, 0.9, 7)
    still = build(points=0)
    one = build(np.ones((1, 1)), points=0)
    tested = with_test_set(build(rows=6, columns=7, points=0, num_samples=256, samples="first"))
    tested.metrics["loss_stderr@test"] = np.full((6, 7), 0.1)
    datas = {
        "a": build(), "b": other, "line": line, "unfinished": build_unfinished(), "still": still, "one": one,
        "wide": build(rows=4, columns=5), "tested": tested, "straight": build_line([1.0, 3.0, 1.0]),
        "curved": build_line([1.0, 100.0, 1.0]),
    }  # fmt: skip
    for name in ("straight", "curved"):
        datas[name].x[:] = [0.0, 0.5, 1.0]
    for name, data in datas.items():
        write_landscape(folder / f"{name}.h5", data)
    (folder / "curvature.h5").write_bytes(record_bytes(curvature_data()))
    known = {"recipe": ["a", "b"], "name": ["1", "2"], "sha256": ["0" * 64, "1" * 64], "t": [-1.0, 0.0, 1.0]}
    (folder / "comparison.h5").write_bytes(record_bytes(ComparisonData.empty(
        {**known, "block_size": ()}, {"direction": 1},
        {"radius": 1.0, "confidence": 0.95, "rise": 0.1, "normalization": "filter", "seed": 0, "num_samples": 8,
         "directions": 1, "recipes": ["a", "b"], "paired": []},
    )))  # fmt: skip
    return folder


def curvature_data():
    """Returns a curvature whose fifth row failed."""
    made = build_curvature(bottom=1)
    leave_out(made, [4], PointStatus.FAILED)
    return made


@pytest.mark.parametrize(
    ("files", "options", "size"),
    marked(
        [
            ("a", "", (1675, 913)),
            ("a", "--style paper --levels quantile", (1360, 1230)),
            ("unfinished", "", (1675, 867)),
            ("one", "", (1280, 1333)),
            ("line", "--metric loss --metric accuracy", (1280, 880)),
            ("a b", "--kind difference", (1675, 950)),
        ],
        pytest.mark.slow,
    ),
)
def test_every_kind(folder, tmp_path, files, options, size):
    output = tmp_path / "picture.png"
    result = plot(*(folder / f"{name}.h5" for name in files.split()), "-o", output, *options.split())
    assert result.stdout.split() == [str(output)]
    with Image.open(output) as picture:
        assert picture.size[0] == size[0]
        # Older versions of matplotlib lay text out a little higher.
        assert picture.size[1] == pytest.approx(size[1], rel=0.02)
        colors = picture.convert("RGB").getcolors(picture.width * picture.height)
    assert len(colors) > 50


@pytest.mark.slow
def test_a_gif_is_an_animation(folder, tmp_path):
    plot(folder / "a.h5", "-o", tmp_path / "a.gif", "--over", "lines", "--theme", "dark")
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 120
        assert np.asarray(film.convert("RGB"))[0, 0].mean() < 50


TWO = ["loss", "loss@test"]
FLAT = "Flat: standard error of loss on test over samples is 0.1 at all 42 finite points."
CAPTIONS = [
    ("line", "", lambda line: line.caption(), "A curve of loss"),
    ("a", "", lambda plane: plane.caption(), "Filled contours of loss"),
    ("curvature", "", lambda made: made.caption(), "Curves over checkpoints"),
    ("curvature", "--learning-rate 0.05", lambda made: made.caption(learning_rate=0.05), "Curves over checkpoints"),
    ("curvature", "--kind spectrum --number 3", lambda made: made.caption("spectrum", 3), "A density over eigenvalues"),
    ("comparison", "", lambda made: made.caption(), "A curve for each recipe"),
    ("tested", "--kind difference --metric loss@test --metric loss",
     lambda plane: plane.caption_difference("loss@test", "loss"),
     "Filled contours of the loss on test minus loss on train of LeNet. The difference ranges"),
    ("straight curved", "--kind barriers",
     lambda *ways: barriers_caption(dict(zip(("straight", "curved"), ways, strict=True))),
     "2 curves of loss between two networks. straight: The loss ranges from 1 to 3."),
    pytest.param("tested", "--metric loss --metric loss@test", lambda plane: multiples_captions([plane], TWO),
                 "Picture 1 of 2: Filled contours of loss on", marks=pytest.mark.slow),
    ("tested", "--kind uncertainty --metric loss@test",
     lambda plane: plane.caption("uncertainty", metric="loss@test"),
     f"A heat map of the errors of loss on test of LeNet. {FLAT}"),
    ("tested", "--kind merge_tree --persistence 0.5", lambda plane: plane.caption("merge_tree", persistence=0.5),
     "A merge tree of the minima of loss on train of LeNet."),
]  # fmt: skip


@pytest.mark.parametrize(("files", "typed", "caption", "shown"), marked(CAPTIONS, pytest.mark.slow))
def test_the_caption_is_that_of_python(folder, tmp_path, files, typed, caption, shown):
    paths = [folder / f"{name}.h5" for name in files.split()]
    plot(*paths, "-o", tmp_path / "a.png", "--caption", "--dpi", "60", *typed.split())
    text = (tmp_path / "a_caption.txt").read_text()
    load = {"curvature": Curvature, "comparison": Comparison}.get(files, Landscape).load
    expected = caption(*map(load, paths))
    several = expected if isinstance(expected, list) else [expected]
    assert text == "\n".join(map(str, several))
    assert f"Alternative text: {shown}" in text
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.text["Description"] == " ".join(item.alt for item in several)


def test_the_caption_of_a_walk_over_a_surface_is_about_heights(folder, tmp_path):
    typed = ["--over", "surface", "--caption", "--seconds", "0.1", "--dpi", "40"]
    plot(folder / "a.h5", "-o", tmp_path / "a.gif", *typed)
    assert (tmp_path / "a_caption.txt").read_text() == str(Landscape.load(folder / "a.h5").caption("orbit"))


@pytest.mark.slow
def test_nothing_is_loaded_that_a_picture_does_not_need(folder, tmp_path):
    script = (
        "import sys; from landscape.cli import app; app(['plot', *sys.argv[1:]], standalone_mode=False); "
        "print([name for name in ('torch', 'ray', 'sklearn', 'scipy', 'plotly', 'xarray', 'matplotlib.pyplot') "
        "if name in sys.modules])"
    )
    command = [sys.executable, "-c", script, str(folder / "a.h5"), "-o", str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ("", 1280),
        ("--kind sharpness --scale symlog --learning-rate 0.05 --theme dark", 1280),
        ("--kind spectrum --number 7 --width 0.4 --title mine", 1280),
        ("--kind spectrum --style paper", 1360),
        ("--inches 8x5 --dpi 50", 400),
    ],
)
def test_pictures_of_a_curvature(folder, tmp_path, options, width):
    output = tmp_path / "picture.png"
    result = plot(folder / "curvature.h5", "-o", output, *options.split())
    assert result.stdout.split() == [str(output)]
    with Image.open(output) as picture:
        assert picture.size[0] == width


def test_the_file_says_what_the_arrays_say(folder):
    loaded = Curvature.load(folder / "curvature.h5")
    one, other = (Figure().add_subplot() for _ in range(2))
    pixels = [figure_pixels(ax) for ax in (loaded.plot_sharpness(one), plot_sharpness(curvature_data(), other))]
    np.testing.assert_array_equal(*pixels)
    assert "epoch 7" in loaded.plot_spectrum(7, Figure().add_subplot(), width=0.4).get_title()


@pytest.mark.slow
def test_a_hero_is_the_picture_of_python_and_its_caption_goes_to_standard_error(folder, tmp_path):
    output = tmp_path / "hero.png"
    options = ["--pixels", "640x480", "--labels", "--background", "white", "--interpolation", "linear", "--dpi", "200"]
    try:
        found = plot(folder / "a.h5", "-o", output, "--kind", "hero", "--camera", "low", "--caption", *options)
    except LandscapeRenderingError as error:
        pytest.skip(str(error))
    expected = Landscape.load(folder / "a.h5").plot_hero(
        pixels=(640, 480), labels=True, background="white", interpolation="linear", dpi=200, camera="low", theme="light"
    )
    with Image.open(output) as stored:
        np.testing.assert_array_equal(np.asarray(stored), expected.pixels)
        assert stored.info["dpi"] == pytest.approx((200, 200), abs=0.1)
        described = stored.info["Description"].splitlines()
    alt = Landscape.load(folder / "a.h5").caption("hero", camera="low", theme="light").alt
    assert described == [alt, *expected.caption]
    assert found.stdout.splitlines() == [str(output), str(tmp_path / "hero_caption.txt")]
    assert found.stderr.splitlines() == list(expected.caption)


# What belongs to which picture: files, options, and the option that is in the wrong place with its owner.
OWNED = [
    *(("a", f"--{name}=2", f"--{name} must be left out for a contour; it belongs to --kind {owner}")
      for name, owner in (
          ("columns", "multiples"), ("significance", "difference"), ("turn", "animation"), ("seconds", "animation"),
          ("rate", "animation"), ("move", "animation"), ("background", "hero"),
          ("interpolation", "hero"))),
    *(("a", option, f"{option.partition('=')[0]} must be left out for a contour; it belongs to --kind hero")
      for option in ("--labels", "--pixels=640x480")),
    ("a", "--kind=uncertainty --significance=2", "--significance must be left out for an uncertainty; it belongs"),
    ("a", "--kind=hero --seconds=3", "--seconds must be left out for a hero"),
    ("a", "--kind=hero --style=paper", "--style must be left out for --kind hero"),
    *(("a", f"--{name}=7", f"--{name} must be left out for a contour; it belongs to --kind {owner}")
      for name, owner in (("number", "spectrum"), ("width", "spectrum"), ("learning-rate", "sharpness"))),
    *(("curvature", option, f"{option.partition('=')[0]} must be left out for a sharpness; it belongs to {owner}")
      for owner, options in (
          ("pictures of landscapes", ("--clip=3", "--no-trajectory", "--metric=loss", "--topology",
           "--aspect=fill", "--levels=3", "--colormap=cividis", "--camera=low")),
          ("--kind multiples or --kind animation", ("--over=surface",)), ("--kind multiples", ("--columns=2",)),
          ("--kind hero", ("--labels",)))
      for option in options),
    ("curvature", "--number=7", "--number must be left out for a sharpness; it belongs to --kind spectrum"),
    ("curvature", "--kind=spectrum --scale=log", "--scale must be left out for a spectrum; it belongs to --kind sharp"),
    *(("comparison", option, f"{option.partition('=')[0]} must be left out for a comparison; it belongs to {owner}")
      for option, owner in (
          ("--metric=loss", "pictures of landscapes"), ("--number=3", "--kind spectrum"), ("--scale=log", "other"),
          ("--clip=3", "pictures of landscapes"), ("--learning-rate=1", "--kind sharpness"),
          ("--no-trajectory", "pictures of landscapes"))),
    ("a", "--over=surface", "--over must be left out for a contour; .* Use --kind surface"),
    ("line", "--persistence=1", "--persistence must be left out for a profile without --topology"),
    ("line", "--topology --kind=merge_tree", "--topology must be left out for --kind merge_tree"),
    ("a", "--topology --kind=surface", "--topology must be left out for --kind surface: --kind contour, "),
    ("a", "--camera=1,2", "--camera must be left out for --kind contour, which is flat; --kind surface has"),
]  # fmt: skip
FILES = [
    ("line", "--kind=surface", "--kind surface needs a plane, but the landscape is a line; use --kind profile"),
    ("line", "--kind=contour --caption", "--kind contour needs a plane, .* use --kind profile"),
    ("line", "--kind=hero", "--kind hero needs a plane, but the landscape is a line; use --kind profile"),
    ("a", "--kind=profile", "--kind profile needs a line"),
    ("a", "--kind=profile --caption", "--kind profile needs a line, .* use --kind contour"),
    ("a", "--kind=difference", "--kind difference needs two landscapes, or two metrics of one"),
    ("a b", "--kind=contour", "--kind contour needs one plane; several make multiples"),
    ("a b", "--kind=merge_tree", "--kind merge_tree needs one landscape"),
    ("a b", "--metric=loss --metric=accuracy --kind=difference",
     "--kind difference needs two landscapes, or two metrics of one .* but got 2 landscapes and 2 metrics"),
    ("a wide", "--kind=difference", ".*must have the same grid, but along x the first has 30"),
    ("a line", "", ".*all planes or all lines"),
    ("curvature curvature", "--kind=sharpness", "--kind sharpness needs one curvature, but got 2"),
    ("comparison", "--kind=contour", ".*is a comparison file, which Comparison.load reads"),
    ("curvature", "--kind=contour", ".*is a curvature file, which Curvature.load reads"),
    ("a", "--kind=sharpness", ".*is a landscape file, which Landscape.load reads"),
    ("still", "-o a.gif", ".*needs a run's path of at least two checkpoints"),
    ("a", "-o a.gif --kind=contour", r"--output must end in .* for a contour, but got .*, the name of an animation"),
    ("a", "-o a.pdf --kind=hero", r"--output must be a name that ends in \.png, because a hero"),
    ("a", "--kind=animation", r"--output must end in \.gif or \.mp4 for an animation, but got .*png'\.$"),
    ("curvature", "-o a.gif", r"--output must end in \.png, \.pdf, \.svg or \.pgf for a sharpness"),
    ("comparison", "-o a.gif", r"--output must end in \.png, \.pdf, \.svg or \.pgf for a comparison"),
]  # fmt: skip
VALUES = [
    ("a", "--kind=map", "--kind must be one of 'auto', 'contour', 'lines', 'heatmap'"),
    ("a", "--over=hills", "--over must be one of 'auto', 'contour'"),
    ("a", "--theme=blue", "--theme must be one of 'light', 'dark'"),
    ("a", "--style=poster", "--style must be one of 'screen', 'paper'"),
    ("a", "--scale=cubic", "--scale must be one of 'auto', 'log'"),
    ("a", "--metric=speed", "--metric must be one of 'loss', 'accuracy'"),
    ("a", "--metric=loss --metric=accuracy --kind=surface",
     "--metric must be given once for a surface; a profile, multiples and a difference show several"),
    ("a", "--kind=uncertainty --metric=accuracy", "no error of 'accuracy' is known"),
    ("a", "--levels=many", "--levels must be an int from 2 to 100, one of 'auto'"),
    ("a", "--levels=1,b", "--levels must be numbers with commas between them"),
    ("a", "--kind=surface --camera=30", "--camera must be one of default, .* or azimuth and elevation in degrees such"),
    ("a", "--kind=surface --camera=30,99", "--camera must be .*the elevation from -90 to 90"),
    ("a", "--inches=8", "--inches must be width and height in inches such as 8x5, but got '8'"),
    ("a", "--inches=800x500", r"--inches must be \(width, height\) in inches, each from 1 to 100, but got"),
    ("a", "--inches=1x1", r"--inches must leave room for the axes .* \(1, 1\) inches do not"),
    ("a", "--clip=low", "--clip must be the largest value, or smallest,largest such as 0.1,2, but got 'low'"),
    ("a", "--clip=2,1", "--clip must be a pair whose first number is the smaller"),
    ("a", "--colormap=rainbows", "--colormap must be"),
    *((file, "--dpi=1", "--dpi must be an int from 20 to 2400, but got 1") for file in ("a", "curvature")),
    ("a", "--title=a --title=b", "--title must be given once for a contour; only multiples"),
    ("curvature", "--title=a --title=b", "--title must be given once for a sharpness; only multiples"),
    ("a b", "--title=a", "--title must be a list of 2 texts"),
    ("line", "--topology --persistence=-1", "--persistence must be a finite number of at least 0, but got -1"),
    ("a", "--kind=hero --pixels=large", "--pixels must be width and height such as 1920x1080"),
    ("a", "--kind=hero --pixels=90000x10", "--pixels must be .* from 64 to 8192"),
    ("a", "--kind=hero --inches=40x40", "--inches times dpi must be from 64 to 8192 pixels a side"),
    ("curvature", "--kind=spectrum --number=4", "--number must be .* but 4 is failed"),
    ("curvature", "--kind=spectrum --width=-1", "--width must be a positive number"),
    ("curvature", "--learning-rate=0", "--learning-rate must be a positive number"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "options", "message"), [*OWNED, *FILES, *VALUES])
def test_it_is_named_as_it_was_typed(folder, tmp_path, files, options, message):
    typed = [folder / f"{name}.h5" for name in files.split()]
    with contextlib.chdir(tmp_path), pytest.raises((ValueError, TypeError, LandscapeError), match=f"^{message}"):
        plot(*typed, "-o", "a.png", *options.split())
    assert list(tmp_path.iterdir()) == []


def test_a_file_behind_a_url_is_fetched_once(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with web_server(folder) as (address, fetched):
        for files, options in (
            (["a.h5"], ["--no-open", "--page", "small"]),
            (["a.h5", "b.h5"], ["--no-open", "--page", "small"]),
            (["comparison.h5"], []),
            (["curvature.h5"], ["-o", "sharpness.png"]),
            (["line.h5"], ["-o", "line.png"]),
        ):
            plot(*(f"{address}/{file}" for file in files), *options)
            assert fetched == files
            fetched.clear()
        for file in ("a.h5", "curvature.h5"):
            invoke("info", f"{address}/{file}")
            assert read_file_attributes(f"{address}/{file}")
            # The third is for whether it is a directory.
            assert fetched == [file] * 3
            fetched.clear()
