"""Choices are shown as such: in the help, by a shell's completion, and by the error of a wrong one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from waiting import PATIENCE

from landscape.cli import app
from landscape.commands.measure import OPTIONS
from landscape.commands.survey_options import SURVEY_OPTIONS
from landscape.figures import Look
from landscape.record.options import RunOptions, SurveyOptions

COMMANDS = typer.main.get_command(app).commands
CHOICES = {
    ("run", "--sampling"): "[full|adaptive]",
    ("run", "--buffers"): "[auto|fixed|recalibrate|interpolate]",
    ("run", "--precision"): "[float32|tf32|bfloat16]",
    ("run", "--sample-choice"): "[first|random]",
    ("run", "--normalization"): "[filter|layer|weight|none]",
    ("run", "--centering"): "[none|mean]",
    ("run", "--directions"): "[random|hessian|ggn|pca]",
    ("evaluate", "--normalization"): "[filter|layer|weight|none]",
    ("evaluate", "--kind"): "[auto|random|random-line|line|through|pca|saved|hessian|ggn|own]",
    (
        "plot",
        "--kind",
    ): "[auto|contour|lines|heatmap|surface|hero|profile|barriers|difference|multiples|uncertainty|animation"
    "|persistence|merge_tree|sharpness|spectrum|comparison]",
    ("plot", "--scale"): "[auto|log|linear|symlog]",
    ("plot", "--style"): "[screen|paper|neurips|icml|nature|slides]",
    ("plot", "--font"): "[sans|serif]",
    ("plot", "--theme"): "[light|dark]",
    ("plot", "--aspect"): "[equal|fill]",
    ("view", "--size"): "[full|small]",
    ("import-checkpoints", "--unit"): "[step|epoch]",
}


@pytest.mark.parametrize(("command", "option"), CHOICES)
def test_the_help_lists_them(command, option):
    told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "500", "TERMINAL_WIDTH": "500"}).stdout
    assert any(option in line and CHOICES[command, option] in line for line in told.splitlines())


def test_a_shell_completes_them():
    words = "landscape plot a.h5 --kind "
    asked = {"_LANDSCAPE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    told = subprocess.run(
        [Path(sys.executable).parent / "landscape"],
        env={**os.environ, **asked}, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert told.stdout.split() == CHOICES["plot", "--kind"].strip("[]").split("|")


def flags(command):
    return {flag for parameter in COMMANDS[command].params for flag in parameter.opts}


def test_a_run_offers_everything_that_python_has():
    """What is left out has its reason here."""
    assert {OPTIONS[name] for name in RunOptions.__annotations__} <= flags("run")


def test_evaluate_offers_everything_that_python_has():
    left_out = set(SurveyOptions.__annotations__) - set(SURVEY_OPTIONS)
    assert left_out == set()
    assert {OPTIONS[name] for name in SURVEY_OPTIONS} <= flags("evaluate")
    # Of Python's planes: names are typed as NAME=FILE.
    planes = {"--normalization", "--perturb-one-dimensional", "--centering", "--numbers", "--directions", "--seed"}
    assert planes <= flags("evaluate")


def test_a_picture_offers_everything_that_python_has():
    assert {f"--{name}" for name in Look.__annotations__} <= flags("plot")
    assert {"--over", "--columns", "--seconds", "--rate", "--dpi", "--number", "--width", "--learning-rate"} <= flags(
        "plot"
    )


@pytest.mark.slow
def test_without_docstrings_the_help_still_lists_every_option():
    """As Python -OO leaves them, from which the explanations of options are read."""
    code = (
        "import sys; from landscape.cli import main\n"
        "for command in ('evaluate', 'compare', 'curvature'):\n"
        "    sys.argv = ['landscape', command, '--help']\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code == 0\n"
    )
    environment = {**os.environ, "COLUMNS": "200"}
    command = [sys.executable, "-OO", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert all(option in done.stdout for option in ("--budget", "--rise", "--max-products"))
