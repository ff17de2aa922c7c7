"""``landscape plot`` of a curvature file, as a user types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from curvature_cases import build_curvature, leave_out
from figure_cases import build
from matplotlib.figure import Figure
from PIL import Image
from typer.testing import CliRunner

from landscape.cli import app
from landscape.curvature.curvature import Curvature
from landscape.curvature.data import CurvatureData
from landscape.errors import LandscapeFormatError
from landscape.figures import figure_pixels, plot_sharpness
from landscape.grid.landscape_file import write_landscape
from landscape.record.checks import PointStatus
from landscape.record.record_file import record_bytes


def plot(*arguments: Any) -> Any:
    """Returns the result; an error is raised again as the command line's ``main`` gets it."""
    result = CliRunner().invoke(app, ["plot", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plots")
    made = build_curvature(bottom=1)
    leave_out(made, [4], PointStatus.FAILED)
    data = CurvatureData.empty(
        {"number": made.number, "sha256": [""] * 21},
        {"pair": 6, "probe": 4, "step": 40},
        {**made.attributes, "bottom": 1},
    )
    for name in ("status", "eigenvalues", "residuals", "converged", "trace", "density_nodes", "density_weights"):
        getattr(data, name)[:] = getattr(made, name)
    data.trace_low[:], data.trace_high[:] = made.trace_interval.T
    (folder / "curvature.h5").write_bytes(record_bytes(data))
    write_landscape(folder / "landscape.h5", build())
    return folder


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ([], 1280),
        (
            ["--kind", "sharpness", "--scale", "symlog", "--learning-rate", "0.05", "--theme", "dark"],
            1280,
        ),
        (["--kind", "spectrum", "--number", "7", "--width", "0.4", "--title", "mine"], 1280),
        (["--kind", "spectrum", "--style", "paper"], 1360),
        (["--size", "8x5", "--dpi", "50"], 400),
    ],
)
def test_both_kinds(folder: Path, tmp_path: Path, options: list[str], width: int) -> None:
    output = tmp_path / "picture.png"
    result = plot(folder / "curvature.h5", "-o", output, *options)
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(output)]
    with Image.open(output) as picture:
        assert picture.size[0] == width


def test_the_file_says_what_the_arrays_say(folder: Path) -> None:
    made = build_curvature(bottom=1)
    leave_out(made, [4], PointStatus.FAILED)
    loaded = Curvature.load(folder / "curvature.h5")
    one, other = (Figure().add_subplot() for _ in range(2))
    pixels = [figure_pixels(ax) for ax in (loaded.plot_sharpness(one), plot_sharpness(made, other))]
    np.testing.assert_array_equal(*pixels)
    assert "epoch 7" in loaded.plot_spectrum(7, Figure().add_subplot(), width=0.4).get_title()


@pytest.mark.parametrize(
    ("file", "options", "text"),
    [
        ("curvature", ["--number", "7"], "--number must be left out for a sharpness; it belongs to --kind spectrum"),
        ("curvature", ["--kind", "spectrum", "--scale", "log"], "--scale must be left out for a spectrum"),
        ("curvature", ["--kind", "spectrum", "--number", "4"], "--number must be .* but 4 is failed"),
        ("curvature", ["--kind", "spectrum", "--width", "-1"], "--width must be a positive number"),
        ("curvature", ["--learning-rate", "0"], "--learning-rate must be a positive number"),
        ("curvature", ["--clip", "3"], "--clip must be left out for a sharpness; it belongs to pictures of landscapes"),
        ("curvature", ["--no-trajectory"], "--no-trajectory must be left out"),
        ("curvature", ["--dpi", "3"], "--dpi must be"),
        ("curvature", ["--title", "a", "--title", "b"], "--title must be given once"),
        ("landscape", ["--number", "7"], "--number must be left out for a landscape; it belongs to --kind spectrum"),
    ],
)
def test_wrong_options_are_named_as_typed(
    folder: Path, tmp_path: Path, file: str, options: list[str], text: str
) -> None:
    with pytest.raises(ValueError, match=f"^{text}"):
        plot(folder / f"{file}.h5", "-o", tmp_path / "picture.png", *options)
    assert list(tmp_path.iterdir()) == []


def test_other_files_and_names_are_refused(folder: Path, tmp_path: Path) -> None:
    curvature, landscape = folder / "curvature.h5", folder / "landscape.h5"
    with pytest.raises(LandscapeFormatError, match=r"is a landscape file, which Landscape.load reads"):
        plot(landscape, "-o", tmp_path / "a.png", "--kind", "sharpness")
    with pytest.raises(LandscapeFormatError, match=r"is a curvature file, which Curvature.load reads"):
        plot(curvature, "-o", tmp_path / "a.png", "--kind", "contour")
    with pytest.raises(ValueError, match="--kind sharpness needs one file, but got 2"):
        plot(curvature, curvature, "-o", tmp_path / "a.png", "--kind", "sharpness")
    with pytest.raises(ValueError, match=r"--output must end in .png, .pdf or .svg for a sharpness"):
        plot(curvature, "-o", tmp_path / "a.gif")
