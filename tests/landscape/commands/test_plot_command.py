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
from landscape.file.landscape_file import write_landscape


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
        (["a"], [], (1675, 883)),
        (["a"], ["--kind", "lines"], (1675, 883)),
        (["a"], ["--kind", "heatmap", "--theme", "dark"], (1675, 883)),
        (["a"], ["--kind", "surface", "--levels", "5"], (1440, 1200)),
        (["a"], ["--style", "paper", "--levels", "quantile"], (1360, 1236)),
        (["a"], ["--levels", "0.1,0.5,2", "--scale", "linear"], (1675, 883)),
        (["unfinished"], [], (1675, 883)),
        (["one"], [], (1280, 1160)),
        (["a"], ["--aspect", "fill"], (1280, 1160)),
        (["line"], [], (1280, 880)),
        (["line"], ["--metric", "loss", "--metric", "accuracy"], (1280, 880)),
        (["a", "b"], ["--kind", "difference"], (1675, 883)),
    ],
)
def test_every_kind(folder: Path, tmp_path: Path, files: list[str], options: list[str], size: tuple[int, int]) -> None:
    output = tmp_path / "picture.png"
    result = plot(*(folder / f"{name}.h5" for name in files), "-o", output, *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(output)]
    with Image.open(output) as picture:
        assert picture.size == size
        colors = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)
    assert len(colors) > 50


def test_several_files_stand_side_by_side(folder: Path, tmp_path: Path) -> None:
    plot(folder / "a.h5", folder / "b.h5", "-o", tmp_path / "two.png")
    plot(folder / "a.h5", folder / "b.h5", folder / "wide.h5", "-o", tmp_path / "three.png", "--over", "heatmap")
    for name, width in (("two", 1640), ("three", 2360)):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size[0] == width


def test_a_gif_is_an_animation(folder: Path, tmp_path: Path) -> None:
    plot(folder / "a.h5", "-o", tmp_path / "a.gif", "--over", "lines", "--theme", "dark")
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 120
        assert np.asarray(film.convert("RGB"))[0, 0].mean() < 50


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
        (["a"], ["--kind", "map"], ValueError, "--kind must be one of 'auto', 'contour', 'lines', 'heatmap'"),
        (["a"], ["--kind", "difference"], ValueError, "--kind difference needs two files, but got 1"),
        (["a", "b"], ["--kind", "contour"], ValueError, "--kind contour needs one file; several make multiples"),
        (["a", "wide"], ["--kind", "difference"], ValueError, "must have the same grid, but along x the first has 30"),
        (["a", "line"], [], ValueError, "all planes or all lines"),
        (["a"], ["--kind", "animation"], ValueError, r"--output must end in \.gif or \.mp4 for an animation"),
        (["a"], ["--metric", "speed"], ValueError, "--metric must be one of 'loss', 'accuracy'"),
        (["a"], ["--metric", "loss", "--metric", "accuracy"], ValueError, "only a profile has a second axis"),
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


def test_a_file_without_a_path_cannot_walk(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a run's path of at least two checkpoints"):
        plot(folder / "still.h5", "-o", tmp_path / "a.gif")
    with pytest.raises(ValueError, match=r"is an animation, but --kind is contour; leave --kind out"):
        plot(folder / "a.h5", "-o", tmp_path / "a.gif", "--kind", "contour")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_loaded_that_a_picture_does_not_need(folder: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from landscape.cli import app; app(['plot', *sys.argv[1:]], standalone_mode=False); "
        "print([name for name in ('torch', 'ray', 'sklearn', 'scipy', 'plotly', 'xarray', 'matplotlib.pyplot') "
        "if name in sys.modules])"
    )
    command = [sys.executable, "-c", script, str(folder / "a.h5"), "-o", str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
