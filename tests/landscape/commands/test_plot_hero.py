"""``landscape plot --kind hero``, as a user types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figure_cases import build, build_line
from PIL import Image
from typer.testing import CliRunner

from landscape.cli import app
from landscape.errors import LandscapeRenderingError
from landscape.grid.landscape_file import write_landscape
from landscape.landscape import Landscape


def plot(*arguments: Any) -> Any:
    result = CliRunner().invoke(app, ["plot", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heroes")
    write_landscape(folder / "a.h5", build())
    write_landscape(folder / "line.h5", build_line([1, 2, 3.0]))
    return folder


@pytest.mark.slow
def test_it_is_the_picture_of_python_and_the_caption_goes_to_standard_error(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "hero.png"
    options = ["--pixels", "640x480", "--labels", "--background", "white", "--interpolation", "linear", "--dpi", "200"]
    try:
        found = plot(folder / "a.h5", "-o", output, "--kind", "hero", "--camera", "low", *options)
    except LandscapeRenderingError as error:
        pytest.skip(str(error))
    expected = Landscape.load(folder / "a.h5").plot_hero(
        pixels=(640, 480), labels=True, background="white", interpolation="linear", dpi=200, camera="low", theme="light"
    )
    with Image.open(output) as stored:
        np.testing.assert_array_equal(np.asarray(stored), expected.pixels)
        assert stored.info["dpi"] == pytest.approx((200, 200), abs=0.1)
    assert found.stdout == f"{output}\n"
    assert found.stderr.splitlines() == list(expected.caption)


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("line", ["--kind", "hero"], "--kind hero needs a plane, but the landscape is a line; use --kind profile"),
        ("a", ["--kind", "hero", "--pixels", "large"], "--pixels must be width and height such as 1920x1080"),
        ("a", ["--kind", "hero", "--pixels", "90000x10"], "--pixels must be .* from 64 to 8192"),
        ("a", ["--kind", "hero", "--size", "40x40"], "--size times dpi must be from 64 to 8192 pixels a side"),
        ("a", ["--kind", "hero", "--style", "paper"], "--style must be left out for --kind hero"),
        ("a", ["--kind", "hero", "--seconds", "3"], "--seconds must be left out for a hero"),
        ("a", ["--labels"], "--labels must be left out for a contour; it belongs to --kind hero"),
        ("a", ["--pixels", "640x480"], "--pixels must be left out for a contour; it belongs to --kind hero"),
    ],
)
def test_wrong_options(folder: Path, tmp_path: Path, file: str, options: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plot(folder / f"{file}.h5", "-o", tmp_path / "a.png", *options)
    assert not list(tmp_path.iterdir())


def test_it_is_made_of_pixels(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--output must be a name that ends in \.png, because a hero"):
        plot(folder / "a.h5", "-o", tmp_path / "a.pdf", "--kind", "hero")
