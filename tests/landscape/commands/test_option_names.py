"""Errors of the command line name what was typed, not the argument that it became."""

import re
import sys
from pathlib import Path

import pytest
from examples import train_run
from typer.testing import CliRunner

from collectors.errors import RunDirectoryError
from landscape.cli import app
from landscape.commands.arguments import options_named
from landscape.commands.measure import OPTIONS
from landscape.errors import LandscapeWriteError
from landscape.file.saving import make_output_folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options") / "run"
    train_run(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--size", "2"], "^--size must be an int from 3 to 256, but got 2"),
        (["--samples", "0"], "^--samples must be an int of at least 1, but got 0"),
        (["--sample-choice", "last"], "^--sample-choice must be one of 'first', 'random', but got 'last'"),
        (["--seed", "-1"], "^--seed must be an int of at least 0"),
        (["--normalization", "none at all"], "^--normalization must be one of 'filter'"),
        (["--buffers", "moving"], "^--buffers must be one of 'fixed'"),
        (["--centering", "left"], "^--centering must be one of 'none'"),
        (["--sampling", "half"], "^--sampling must be one of 'full'"),
        (["--tolerance", "0"], "^--tolerance must be a number above 0"),
        (["--budget", "soon"], "^--budget must be a number of seconds above 0"),
        (["--devices", "-1"], "^--devices must be an int of at least 0"),
        (["--devices", "0,0"], "^--devices must be a list in which no device id is repeated"),
        (["--devices-per-worker", "0"], "^--devices-per-worker must be an int of at least 1"),
        (
            ["--devices-per-worker", "99"],
            "^--devices must be ids .* a multiple of --devices-per-worker=99",
        ),
        (
            ["--devices-per-worker", "2", "--workers-per-device", "2"],
            "^only one of --devices-per-worker and --workers-per-device may exceed 1",
        ),
        (["--name", "a/b"], "^--name must be the beginning of a file name"),
        (["-o", __file__], "^--output must be a directory, but .*test_option_names.py is a file"),
        (["--no-train", "--no-result"], "^--no-train and --no-result leave no landscape to measure; leave one of them"),
    ],
)
def test_run(run, options, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    arguments = ["run", str(run), "--function", "examples:batch_norm", "--no-progress", *options]
    result = CliRunner().invoke(app, arguments)
    with pytest.raises((TypeError, ValueError, NotADirectoryError), match=text):
        raise result.exception
    assert list(tmp_path.iterdir()) == []


def test_import_checkpoints(tmp_path):
    files = [str(tmp_path / name) for name in ("a", "b", "c")]
    for options, text in (
        ([*files[:2]], r"^CHECKPOINTS must hold at least three files"),
        ([*files, "--numbers", "1,2"], "^--numbers must hold at least three numbers"),
        ([*files, "--unit", "hour"], "^--unit must be one of 'step', 'epoch'"),
    ):
        result = CliRunner().invoke(app, ["import-checkpoints", str(tmp_path / "run"), *options])
        with pytest.raises(ValueError, match=text):
            raise result.exception


def test_only_what_an_error_names_as_an_argument_becomes_an_option():
    options = {"samples": "--sample-choice", "num_samples": "--samples", "device_ids": "--devices"}
    for text, expected in (
        ("samples must be few; use other samples.", "--sample-choice must be few; use other samples."),
        ("num_samples[3] must be odd.", "--samples must be odd."),
        ("ask for fewer device_ids or free some", "ask for fewer --devices or free some"),
        ("samples_sha256 differs", "samples_sha256 differs"),
        ("the samples' sum; my_device_ids", "the samples' sum; my_device_ids"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"), options_named(options):
            raise ValueError(text)
    with pytest.raises(OSError, match="Input/output error") as told, options_named(options):
        raise OSError(5, "Input/output error")
    assert told.value.errno == 5


def test_a_run_directory_that_cannot_be_read_is_the_argument():
    with pytest.raises(RunDirectoryError, match=r"^RUN_DIRECTORY s3://a/b cannot be read"), options_named(OPTIONS):
        raise RunDirectoryError("summary_dir s3://a/b cannot be read: it is gone.")


def test_a_remedy_that_has_no_option_says_so():
    with pytest.raises(RunDirectoryError) as caught, options_named({}):
        raise RunDirectoryError("pass collect_landscape={'intervals': [[...]]}.")
    assert caught.value.__notes__ == [
        "The command line has no option for that; collect_landscape is an argument in Python."
    ]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    assert make_output_folder("output", tmp_path / "a" / "b").is_dir()
    assert make_output_folder("output", tmp_path / "a") == tmp_path / "a"
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "below", tmp_path / "file"):
        with pytest.raises(NotADirectoryError, match=rf"^output must be a directory, but {tmp_path}/file is a file"):
            make_output_folder("output", folder)
    with pytest.raises(LandscapeWriteError, match=r"^output /proc/run cannot be made: No such file or directory\."):
        make_output_folder("output", Path("/proc/run"))


def test_the_demo_says_at_once_that_its_folder_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "file" / "demo")])
    with pytest.raises(NotADirectoryError, match=r"^--output must be a directory, but .*file is a file"):
        raise result.exception
    assert result.output == ""
