"""The options of pictures from the command line: each does what it does in Python, or says where it belongs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from figure_cases import build
from PIL import Image
from typer.testing import CliRunner

from landscape import Landscape, figures
from landscape.cli import app
from landscape.grid.landscape_file import write_landscape


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    for name, network in (("a", "LeNet"), ("b", "ResNet")):
        write_landscape(folder / f"{name}.h5", build(network=network))
    return folder


def plot(*arguments: Any) -> None:
    result = CliRunner().invoke(app, ["plot", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception


CASES = [
    (["--clip", "0.1,2", "--colormap", "cividis", "--no-trajectory"], "heatmap",
     {"clip": (0.1, 2.0), "colormap": "cividis", "trajectory": False}),
    (["--camera", "-60,30", "--title", "Adam $x^2$"], "surface", {"camera": "-60,30", "title": "Adam $x^2$"}),
    (["--clip", "1.5"], "heatmap", {"clip": 1.5}),
    (["--clip", "0.1,", "--title", "", "--size", "9x4"], "lines", {"clip": (0.1, None), "title": "", "size": (9, 4)}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "kind", "look"), CASES)
def test_the_same_as_from_python(
    folder: Path, tmp_path: Path, typed: list[str], kind: str, look: dict[str, Any]
) -> None:
    plot(folder / "a.h5", "-o", tmp_path / "a.png", "--kind", kind, *typed, "--dpi", "60")
    name = {"lines": "plot_contour_lines"}.get(kind, f"plot_{kind}")
    ax = getattr(Landscape.load(folder / "a.h5"), name)(**look, theme="light")
    figures.save_figure(ax, tmp_path / "b.png", dpi=60)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("files", "kind", "pixels"),
    [
        (["a"], "heatmap", (400, 250)),
        # Its legend needs room below.
        (["a"], "surface", (400, None)),
        (["a", "b"], "multiples", (400, 250)),
    ],
)
def test_a_picture_has_the_size_that_is_asked_for(
    folder: Path, tmp_path: Path, files: list[str], kind: str, pixels: tuple[int, int | None]
) -> None:
    plot(*(folder / f"{name}.h5" for name in files), "-o", tmp_path / "a.png", "--kind", kind, "--size", "8x5",
         "--dpi", "50")  # fmt: skip
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == pixels if pixels[1] is not None else picture.width == pixels[0]


@pytest.mark.slow
def test_multiples_in_a_column_with_titles(folder: Path, tmp_path: Path) -> None:
    arguments = ["--columns", "1", "--title", "first", "--title", "second", "--over", "heatmap", "--dpi", "60"]
    plot(folder / "a.h5", folder / "b.h5", "-o", tmp_path / "a.png", *arguments)
    both = [Landscape.load(folder / f"{name}.h5") for name in "ab"]
    axes = figures.plot_multiples(both, ["first", "second"], "heatmap", 1, theme="light")
    assert [ax.get_title() for ax in axes] == ["first", "second"]
    figures.save_figure(axes[0], tmp_path / "b.png", dpi=60)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_an_animation_as_long_and_as_large_as_asked(folder: Path, tmp_path: Path) -> None:
    arguments = ["--seconds", "0.5", "--rate", "10", "--dpi", "40", "--size", "6x3", "--title", "walk"]
    plot(folder / "a.h5", "-o", tmp_path / "a.gif", *arguments)
    with Image.open(tmp_path / "a.gif") as film:
        assert (film.n_frames, film.size) == (5, (240, 120))


def test_the_camera_and_the_title_are_those_that_were_given() -> None:
    ax: Any = figures.plot_surface(build(), camera=(12, 70), title="two\nlines")
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
def test_wrong_arguments_in_python(look: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        figures.plot_contour(build(), **look)
    from matplotlib.figure import Figure

    with pytest.raises(ValueError, match="size must be left out where ax is given"):
        figures.plot_contour(build(), Figure().add_subplot(), size=(3, 3))
    with pytest.raises(ValueError, match=r"title must be left out for plot_multiples, whose pictures have titles=\["):
        figures.plot_multiples([build(), build()], title="x")
