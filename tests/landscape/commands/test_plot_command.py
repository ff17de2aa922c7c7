"""``landscape plot``, as a user types it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_cases import build, build_line, build_unfinished
from PIL import Image
from typer.testing import CliRunner

from landscape.cli import app
from landscape.figures import save_figure
from landscape.grid.landscape_file import write_landscape
from landscape.landscape import Landscape


def plot(*arguments: Any) -> Any:
    """Returns the result; an error is raised again as the command line's ``main`` gets it."""
    result = CliRunner().invoke(app, ["plot", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plots")
    other = build(network="ResNet")
    other.metrics["loss"] *= 3
    line = build_line(np.linspace(-1, 2, 7) ** 2)
    line.metrics["accuracy"] = np.linspace(0.2, 0.9, 7)
    still = build(points=0)
    one = build(np.ones((1, 1)), points=0)
    datas = {
        "a": build(), "b": other, "line": line, "unfinished": build_unfinished(), "still": still, "one": one,
        "wide": build(rows=4, columns=5),
    }  # fmt: skip
    for name, data in datas.items():
        write_landscape(folder / f"{name}.h5", data)
    return folder


@pytest.mark.parametrize(
    ("files", "options", "size"),
    [
        (["a"], [], (1675, 993)),
        (["a"], ["--kind", "lines"], (1675, 993)),
        (["a"], ["--kind", "heatmap", "--theme", "dark"], (1675, 993)),
        (["a"], ["--kind", "surface", "--levels", "5"], (1440, 1310)),
        (["a"], ["--style", "paper", "--levels", "quantile"], (1360, 1410)),
        (["a"], ["--levels", "0.1,0.5,2", "--scale", "linear"], (1675, 993)),
        (["unfinished"], [], (1675, 883)),
        (["one"], [], (1280, 1160)),
        (["a"], ["--aspect", "fill"], (1280, 1270)),
        (["line"], [], (1280, 880)),
        (["line"], ["--metric", "loss", "--metric", "accuracy"], (1280, 880)),
        (["a", "b"], ["--kind", "difference"], (1675, 993)),
    ],
)
def test_every_kind(folder: Path, tmp_path: Path, files: list[str], options: list[str], size: tuple[int, int]) -> None:
    output = tmp_path / "picture.png"
    result = plot(*(folder / f"{name}.h5" for name in files), "-o", output, *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(output)]
    with Image.open(output) as picture:
        assert picture.size == size
        colors = picture.convert("RGB").getcolors(picture.width * picture.height)
    assert len(colors) > 50


@pytest.mark.slow
def test_several_files_stand_side_by_side(folder: Path, tmp_path: Path) -> None:
    plot(folder / "a.h5", folder / "b.h5", "-o", tmp_path / "two.png")
    plot(folder / "a.h5", folder / "b.h5", folder / "wide.h5", "-o", tmp_path / "three.png", "--over", "heatmap")
    for name, width in (("two", 1640), ("three", 2360)):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size[0] == width


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "draw"),
    [
        ([], lambda landscape, look: landscape.plot_multiples(["loss@test", "loss"], **look)[0]),
        (
            ["--kind", "multiples", "--over", "surface"],
            lambda landscape, look: landscape.plot_multiples(["loss@test", "loss"], "surface", **look)[0],
        ),
        (["--kind", "difference"], lambda landscape, look: landscape.plot_difference("loss@test", "loss", **look)),
    ],
)
def test_two_data_sets_of_one_file(folder: Path, tmp_path: Path, options: list[str], draw: Any) -> None:
    from data_sets import with_test_set

    from landscape import Landscape
    from landscape.figures import save_figure

    file = Landscape(with_test_set(build())).save(tmp_path / "both.h5")
    result = plot(file, "-o", tmp_path / "a.png", "--metric", "loss@test", "--metric", "loss", "--dpi", 60, *options)
    assert result.exit_code == 0, result.output
    save_figure(draw(Landscape.load(file), {"theme": "light"}), tmp_path / "b.png", dpi=60)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.slow
def test_a_gif_is_an_animation(folder: Path, tmp_path: Path) -> None:
    plot(folder / "a.h5", "-o", tmp_path / "a.gif", "--over", "lines", "--theme", "dark")
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 120
        assert np.asarray(film.convert("RGB"))[0, 0].mean() < 50


@pytest.mark.slow
def test_the_same_as_from_python(folder: Path, tmp_path: Path) -> None:
    from landscape import Landscape
    from landscape.figures import save_figure

    plot(folder / "a.h5", "-o", tmp_path / "a.png", "--kind", "lines", "--scale", "symlog", "--metric", "accuracy")
    landscape = Landscape.load(folder / "a.h5")
    ax = landscape.plot_contour_lines(scale="symlog", metric="accuracy", theme="light")
    save_figure(ax, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("files", "options", "error", "message"),
    [
        (
            ["line"],
            ["--kind", "surface"],
            ValueError,
            "--kind surface needs a plane, but the landscape is a line; use --kind profile",
        ),
        (["line"], ["--kind", "contour"], ValueError, "--kind contour needs a plane"),
        (["a"], ["--kind", "profile"], ValueError, "--kind profile needs a line"),
        (
            ["line"],
            ["--kind", "contour", "--caption"],
            ValueError,
            "--kind contour needs a plane, .* use --kind profile",
        ),
        (["a"], ["--kind", "profile", "--caption"], ValueError, "--kind profile needs a line, .* use --kind contour"),
        (["a"], ["--kind", "map"], ValueError, "--kind must be one of 'auto', 'contour', 'lines', 'heatmap'"),
        (
            ["a"],
            ["--kind", "difference"],
            ValueError,
            "--kind difference needs two files, or one file and --metric twice",
        ),
        (["a", "b"], ["--kind", "contour"], ValueError, "--kind contour needs one file; several make multiples"),
        (["a", "wide"], ["--kind", "difference"], ValueError, "must have the same grid, but along x the first has 30"),
        (["a", "line"], [], ValueError, "all planes or all lines"),
        (
            ["a"],
            ["--kind", "animation"],
            ValueError,
            r"--output must end in \.gif or \.mp4 for an animation, but got .*png'\.$",
        ),
        (["a"], ["--metric", "speed"], ValueError, "--metric must be one of 'loss', 'accuracy'"),
        (
            ["a"],
            ["--metric", "loss", "--metric", "accuracy", "--kind", "surface"],
            ValueError,
            "--metric must be given once for a surface; a profile, multiples and a difference show several",
        ),
        (
            ["a", "b"],
            ["--metric", "loss", "--metric", "accuracy", "--kind", "difference"],
            ValueError,
            "--kind difference needs two files, or one file and --metric twice .* but got 2 files and 2 metrics",
        ),
        (["a"], ["--levels", "many"], ValueError, "levels must be an int from 2 to 100, one of 'auto'"),
        (["a"], ["--levels", "1,b"], ValueError, "--levels must be numbers with commas between them"),
        (["a"], ["--theme", "blue"], ValueError, "theme must be one of 'light', 'dark'"),
        (["a"], ["--style", "poster"], ValueError, "style must be one of 'screen', 'paper'"),
        (["a"], ["--scale", "cubic"], ValueError, "scale must be one of 'auto', 'log'"),
        (["a"], ["--over", "surface"], ValueError, "--over must be left out for a contour: .* Use --kind surface"),
        (["a"], ["--over", "hills"], ValueError, "--over must be one of 'auto', 'contour'"),
    ],
)
def test_wrong_arguments(
    folder: Path, tmp_path: Path, files: list[str], options: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plot(*(folder / f"{name}.h5" for name in files), "-o", tmp_path / "a.png", *options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "shown"), [("line", "A curve of loss"), ("a", "Filled contours of loss")])
def test_the_caption_is_that_of_the_landscape_in_python(folder: Path, tmp_path: Path, name: str, shown: str) -> None:
    plot(folder / f"{name}.h5", "-o", tmp_path / "a.png", "--caption", "--dpi", "60")
    text = (tmp_path / "a_caption.txt").read_text()
    assert text == str(Landscape.load(folder / f"{name}.h5").caption())
    assert f"Alternative text: {shown}" in text
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.text["Description"].startswith(shown)


def test_a_file_without_a_path_cannot_walk(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a run's path of at least two checkpoints"):
        plot(folder / "still.h5", "-o", tmp_path / "a.gif")
    with pytest.raises(ValueError, match=r"is an animation, but --kind is contour; leave --kind out"):
        plot(folder / "a.h5", "-o", tmp_path / "a.gif", "--kind", "contour")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_is_loaded_that_a_picture_does_not_need(folder: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from landscape.cli import app; app(['plot', *sys.argv[1:]], standalone_mode=False); "
        "print([name for name in ('torch', 'ray', 'sklearn', 'scipy', 'plotly', 'xarray', 'matplotlib.pyplot') "
        "if name in sys.modules])"
    )
    command = [sys.executable, "-c", script, str(folder / "a.h5"), "-o", str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture(scope="module")
def wells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wells") / "wells.h5"
    write_landscape(path, build_line([0.5, 5, 1, 3, 2, 9, 1.5]))
    return path


class TestTopology:
    @pytest.mark.parametrize(
        "more", [["--kind", "merge_tree"], ["--kind", "persistence", "--persistence", "2"], ["--topology"]]
    )
    def test_a_picture_is_written(self, wells: Path, tmp_path: Path, more: list[str]) -> None:
        plot(wells, "-o", tmp_path / "a.png", "--dpi", 40, *more)
        with Image.open(tmp_path / "a.png") as image:
            assert image.size[0] > 200

    @pytest.mark.slow
    def test_each_option_is_the_one_of_python(self, wells: Path, tmp_path: Path) -> None:
        landscape = Landscape.load(wells)
        for more, drawn in (
            (["--topology", "--persistence", "2"], landscape.plot_profile(topology=2.0, theme="light")),
            (["--kind", "merge_tree", "--persistence", "2"], landscape.plot_merge_tree(persistence=2.0, theme="light")),
            (["--kind", "persistence", "--theme", "dark"], landscape.plot_persistence(theme="dark")),
        ):
            plot(wells, "-o", tmp_path / "typed.png", "--dpi", 40, *more)
            save_figure(drawn, tmp_path / "called.png", dpi=40)
            assert (tmp_path / "typed.png").read_bytes() == (tmp_path / "called.png").read_bytes()

    @pytest.mark.parametrize(
        ("more", "text"),
        [
            (["--persistence", "1"], "--persistence must be left out for a profile without --topology"),
            (["--topology", "--persistence", "-1"], "--persistence must be a finite number of at least 0, but got -1"),
            (["--topology", "--kind", "merge_tree"], "--topology must be left out for --kind merge_tree"),
        ],
    )
    def test_an_option_in_the_wrong_place(self, wells: Path, tmp_path: Path, more: list[str], text: str) -> None:
        with pytest.raises(ValueError, match=text):
            plot(wells, "-o", tmp_path / "a.png", *more)
        assert not (tmp_path / "a.png").exists()

    def test_a_surface_has_none(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="--topology must be left out for --kind surface: --kind contour, "):
            plot(folder / "a.h5", "-o", tmp_path / "a.png", "--topology", "--kind", "surface")
        with pytest.raises(ValueError, match="--kind merge_tree needs one file"):
            plot(folder / "a.h5", folder / "b.h5", "-o", tmp_path / "a.png", "--kind", "merge_tree")
