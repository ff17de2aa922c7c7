"""A shell completes words, and a picture has the options that Python has."""

import os
import subprocess
import sys
from pathlib import Path

import typer
from waiting import PATIENCE

from landscape.cli import app
from landscape.figures import Look


def test_a_shell_completes_them():
    words = "landscape plot a.h5 --theme "
    asked = {"_LANDSCAPE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    told = subprocess.run(
        [Path(sys.executable).parent / "landscape"],
        env={**os.environ, **asked}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert told.stdout.split() == ["light", "dark"]


def test_a_picture_offers_everything_that_python_has():
    command = typer.main.get_command(app).commands["plot"]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {f"--{name}" for name in Look.__annotations__ if name != "size"} | {"--inches"} <= flags
    assert {"--over", "--columns", "--seconds", "--rate", "--dpi", "--number", "--width", "--learning-rate"} <= flags
