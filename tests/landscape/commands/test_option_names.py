"""Errors of the command line name what was typed, not the argument that it became."""

import ast
import inspect
import re
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from command_line import command, invoke
from examples import train_run
from surfaces import surface
from typer.testing import CliRunner

import landscape
from collectors.errors import CheckpointError, RunDirectoryError
from landscape import Measure
from landscape.cli import app
from landscape.commands.arguments import as_typed, numbers_of, options_named
from landscape.commands.evaluate import evaluate
from landscape.commands.measure import curvature
from landscape.commands.measure import run as run_command
from landscape.commands.plot import plot
from landscape.errors import (
    OTHER_GRID,
    OTHER_GRID_ALONG_EIGENVECTORS,
    OTHER_GRID_OF_CURVE,
    LandscapeDamagedError,
    LandscapeIdentityError,
    LandscapeWriteError,
    PlaneError,
)
from landscape.grid.differences import ends_of_way
from landscape.record.hdf5 import CURVATURE
from landscape.record.identity import check_identity
from landscape.record.option_kinds import MeasureOptions, RunOptions
from landscape.record.writer import make_output_folder
from workers.errors import CallbackFunctionError

OPTIONS = run_command.spelling


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options") / "run"
    train_run(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--size 2", "^--size must be an int from 3 to 256, but got 2"),
        ("--samples 0", "^--samples must be an int of at least 1, but got 0"),
        ("--devices -1", r"^--devices\[0\] must be an int of at least 0"),
        ("--devices-per-worker 99", "^--devices must be ids .* a multiple of --devices-per-worker 99"),
        (
            "--devices-per-worker 2 --workers-per-device 2",
            "^only one of --devices-per-worker and --workers-per-device may exceed 1",
        ),
        ("--interval early", "^--interval must be whole numbers separated by commas"),
        ("--interval 50-60", "^--interval 50-60 holds no checkpoint of .*, which has .0, 1, 2, 3, 4."),
        ("--interval 1,2", "^--interval.* must hold at least three"),
        (f"-o {__file__}", "^--output must be a directory, but .*test_option_names.py is a file"),
        ("--also nowhere", r"^--also \S*/nowhere does not exist; give the directory that a SummaryCollector wrote"),
        ("--also a=", "^--also must be a path that is not blank"),
        ("--which top", r"^--which must be left out .*; --directions hessian, for one, draws them\.$"),
        ("--rise 2", "^--rise must be left out where no eigenvectors are drawn"),
        ("--no-result --directions hessian", r"^--directions must be left out .*; or pass --result\.$"),
        ("--no-train --also a=a.pt", r"^--also must be left out where no interval is drawn.* or pass --train\.$"),
        ("--directions hessian --normalization none", "^--normalization must be left out where no random directions"),
        ("--no-result --perturb-one-dimensional", "^--perturb-one-dimensional must be left out where no random"),
        ("--no-train --centering mean", "^--centering must be left out where no interval is drawn"),
        ("--plane-of first", "^--plane-of must be left out where no other run or network joins this run"),
        ("--extremes --sampling adaptive", '^--sampling must be "full" with --extremes: '),
        ("--no-train --no-result", "^--no-train and --no-result leave no landscape to measure; leave one of them"),
    ],
)
def test_run(run, options, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises((TypeError, ValueError, NotADirectoryError, RunDirectoryError), match=text):
        invoke("run", run, "--function", "examples:batch_norm", "--quiet", *options.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("default:.*but the data set has")
@pytest.mark.parametrize(
    ("typed", "asks"), [([], "the number of samples that the run asks for"), (["--samples", "2048"], "--samples")]
)
def test_a_number_of_samples_that_nobody_typed_is_the_runs(tmp_path, typed, asks):
    train_run(tmp_path / "run", num_samples=2048)
    measured = ("run", "run", "--function", "examples:batch_norm", "--devices", "0", "--dry-run")
    told = command(*measured, *typed, folder=tmp_path).stderr
    assert f"warning: {asks} is 2048, but the data set has 96; all of them are used." in told


def test_a_range_is_of_the_checkpoints_that_are_there(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run/ckpt_dir/BatchNormNetwork_1_epoch.safetensors").unlink()
    with pytest.warns(UserWarning, match=r"has no checkpoints of epochs \[1\]; --numbers 0-2 means the others\.$"):
        assert numbers_of("--numbers", "0-2", str(tmp_path / "run")) == [0, 2]


def test_import_checkpoints(tmp_path):
    files = [str(tmp_path / name) for name in ("a", "b", "c")]
    for folder, names in (("old", "abc"), ("named", ("ep_1", "ep_2", "ep_3"))):
        (tmp_path / folder).mkdir()
        for name in names:
            torch.save({"a": torch.ones(3)}, tmp_path / folder / f"{name}.pt")
    for options, text in (
        ([*files[:2]], r"^FILE must hold at least three files"),
        ([str(tmp_path / "old")], r"^FILE must say which epoch .*\n  a.pt\n[\s\S]*Pass --numbers with one number for"),
        (
            [str(tmp_path / "old"), "--strip-prefix", "x"],
            r"begins with 'x\.'.* Choose another --strip-prefix, or leave",
        ),
        ([*files, "--numbers", "1,2"], "^--numbers must hold at least three numbers"),
        ([str(tmp_path / "named"), "--unit", "step"], r"The names count epochs; pass --unit epoch\.$"),
        ([*files, "--unit", "hour"], "^--unit must be one of 'step', 'epoch'"),
    ):
        with pytest.raises((ValueError, CheckpointError), match=text):
            invoke("convert", *options, "--from", "checkpoints", "-o", tmp_path / "run")


def test_a_run_directory_is_no_option_of_trackers(run):
    files = sorted(map(str, (run / "ckpt_dir").glob("*.safetensors")))[:3]
    with pytest.raises(RunDirectoryError, match=r"^run directory /proc/run cannot be made"):
        invoke("convert", *files, "--from", "checkpoints", "-o", "/proc/run")


def test_the_table_comes_before_the_import(tmp_path):
    (tmp_path / "old").mkdir()
    for number in (1, 2, 10):
        torch.save({"a": torch.full((3,), float(number))}, tmp_path / "old" / f"ep_{number}.pt")
    files = sorted(map(str, (tmp_path / "old").iterdir()))
    result = invoke("convert", *files, "--from", "checkpoints", "-o", tmp_path / "run")
    assert result.stdout.splitlines() == [
        "   epoch  from  checkpoint", "       1  name  ep_1.pt", "       2  name  ep_2.pt", "      10  name  ep_10.pt",
        f"{tmp_path}/run: epochs [1, 2, 10]",
    ]  # fmt: skip


def test_a_run_that_is_there_is_replaced_by_an_option_that_exists(run, tmp_path):
    files = sorted(str(file) for file in (run / "ckpt_dir").glob("*.safetensors"))[:3]
    arguments = ["convert", *files, "--from", "checkpoints", "-o", tmp_path / "again"]
    invoke(*arguments)
    with pytest.raises(RunDirectoryError, match=r"Choose another run directory, or replace .* with --overwrite\.$"):
        invoke(*arguments)
    invoke(*arguments, "--overwrite")


def test_an_error_of_the_system_keeps_its_number():
    with pytest.raises(OSError, match="Input/output error") as told, options_named(OPTIONS):
        raise OSError(5, "Input/output error")
    assert told.value.errno == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Pass overwrite=True, or output=.", "Pass --overwrite, or --output."),
        ("samples must be few; use other samples.", "--sample-choice must be few; use other samples."),
        ("num_samples[3] must be odd.", "--samples must be odd."),
        ("ask for fewer device_ids or free some", "ask for fewer --devices or free some"),
        ("samples_sha256 differs", "samples_sha256 differs"),
        ("the samples' sum; my_device_ids", "the samples' sum; my_device_ids"),
        ('use samples="first" or buffers="fixed" (the', "use --sample-choice first or --buffers fixed (the"),
        ("compile=True was asked for; say compile=False", "--compile was asked for; say --no-compile"),
        ("a multiple of devices_per_worker=99, but", "a multiple of --devices-per-worker 99, but"),
        ("budget=90 is short, tolerance=0.5.", "--budget 90 is short, --tolerance 0.5."),
        ("num_samples is 9, fewer device_ids.", "--samples is 9, fewer --devices."),
        ("The same call continues, and the same call ends.", "The same command continues, and the same command ends."),
        ("my_seed=3; DataLoader(..., batch_size=4); x.seed=1", "my_seed=3; DataLoader(..., batch_size=4); x.seed=1"),
        ("/data/device_ids/a.h5 has no 'num_samples'", "/data/device_ids/a.h5 has no 'num_samples'"),
        (
            "it failed: overwrite=True\nTraceback (most recent call last):\n  run(overwrite=True)",
            "it failed: --overwrite\nTraceback (most recent call last):\n  run(overwrite=True)",
        ),
    ],
)
def test_advice_is_spelled_as_it_is_typed(text, expected):
    with options_named(OPTIONS):
        assert as_typed(text) == expected
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"), options_named(OPTIONS):
        raise ValueError(text)


def test_what_the_users_function_said_is_quoted_as_it_is():
    with pytest.raises(CallbackFunctionError, match=r"^ValueError: seed=3 and overwrite=True$"), options_named(OPTIONS):
        raise CallbackFunctionError("ValueError: seed=3 and overwrite=True")


ADVICE = re.compile(r"(?<![\w.'\"/(-])([a-z_]{3,})=(?=[\s.,;:)X]|True|False|\"|'|\[|$)")


def texts_of(folder):
    """Returns every text of the files below a folder that is no docstring, with X for what is filled in."""
    for file in sorted(Path(folder).rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        documents = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        inside = {value for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
        for node in ast.walk(tree):
            if node in documents or node in inside:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield file, node.value
            elif isinstance(node, ast.JoinedStr):
                yield file, "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)


def test_no_text_of_a_survey_advises_what_its_front_door_does_not_have():
    """What evaluate reaches names only what evaluate has, and on the command line every option is one of ``run``."""
    root = Path(landscape.__file__).parent
    flags = {
        option for item in typer.main.get_command(app).commands["run"].params
        for option in (*item.opts, *item.secondary_opts)
    }  # fmt: skip
    evaluates = {*MeasureOptions.__annotations__, *inspect.signature(Measure.grid).parameters}
    everywhere = {*RunOptions.__annotations__, *evaluates}
    seen = []
    for place in (root / "grid", root / "record", root / "planes", root.parent / "workers"):
        for file, text in texts_of(place):
            for name in ADVICE.findall(text):
                if name not in everywhere or " " not in text:
                    continue
                seen.append(name)
                assert name in evaluates or file.parent.name == "planes", f"{file}: {text!r} advises {name}="
                with options_named(OPTIONS):
                    typed = as_typed(text)
                assert f"{name}=" not in typed, typed
                assert set(re.findall(r"(?<![\w-])--[a-z-]+", re.sub("`.*?`", "", typed))) <= flags, typed
    assert {"overwrite", "output", "buffers", "samples", "compile", "address"} <= set(seen)


COMMANDS = {command.callback.__name__: command.callback for command in app.registered_commands}


@pytest.fixture(scope="module")
def advising():
    """Every text of a measurement that names an argument."""
    folder = Path(landscape.__file__).parent
    places = [folder / room for room in ("comparison", "curvature", "grid", "interactive", "planes", "record")]
    texts = {text for place in places for _, text in texts_of(place) if " " in text and ADVICE.search(text)}
    return texts - {OTHER_GRID, OTHER_GRID_ALONG_EIGENVECTORS, OTHER_GRID_OF_CURVE}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_argument_in_a_text_becomes_an_option_that_the_command_has(advising, name):
    item = typer.main.get_command(app).commands[name]
    flags = {option for parameter in item.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert len(advising) > 20
    with options_named(COMMANDS[name].spelling):
        for text in advising:
            typed = set(re.findall(r"(?<![\w-])--[a-z-]+", as_typed(text)))
            assert typed - set(re.findall(r"--[a-z-]+", text)) <= flags, text


@pytest.mark.parametrize("typed", [["plot"], ["plot", "-o", "a.png"], ["info"], ["convert", "-o", "a.csv"]])
def test_a_damaged_file_is_no_reason_to_name_an_option_of_another_command(tmp_path, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    place = Path("a.h5")
    for content in (b"", b"\x89HDF\r\n\x1a\n"):
        place.write_bytes(content)
        with pytest.raises(LandscapeDamagedError, match=r"copy it again from where it came, or measure it again\.$"):
            invoke(*typed, place)
        with pytest.raises(LandscapeDamagedError, match=r"or measure it again with overwrite=True\.$"):
            landscape.Landscape.load(place)


def test_a_port_that_is_taken_names_the_option(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"^--port {port} of 127\.0\.0\.1 cannot be used: .*\. Pass --port 0\.$"):
            invoke("plot", tmp_path / "a.h5", "--watch", "--no-open", "--port", port)


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


def test_the_demo_replaces_no_run_of_others(run):
    before = sorted(run.rglob("*"))
    result = CliRunner().invoke(app, ["demo", "-o", str(run)])
    with pytest.raises(RunDirectoryError, match=r"run holds a run of .*, which is no demo's, and was left as it is"):
        raise result.exception
    assert sorted(run.rglob("*")) == before


def typed(error, options):
    with pytest.raises(type(error)) as caught, options_named(options):
        raise error
    return str(caught.value)


def test_a_plane_that_no_file_holds_has_a_remedy_that_can_be_typed():
    said = typed(PlaneError(f"the plane goes through networks. {OTHER_GRID}"), evaluate.spelling)
    assert "save_directions" not in said
    assert "plane=" not in said
    for option in ("--size", "--points", "--output", "--save-directions", "landscape evaluate", "landscape connect"):
        assert option in said
    said = typed(PlaneError(f"it is a curve. {OTHER_GRID_OF_CURVE}"), evaluate.spelling)
    assert "`landscape connect`" in said
    assert "Path.load" not in said
    said = typed(PlaneError(f"it has eigenvectors. {OTHER_GRID_ALONG_EIGENVECTORS}"), evaluate.spelling)
    assert "Put that file back" in said
    assert "plane=" not in said


def test_what_differs_from_a_file_has_the_names_of_the_options_each_once():
    stored = {"density_probes": 2, "density_steps": 10, "top": 2, "bottom": 1}
    with pytest.raises(LandscapeIdentityError) as caught, options_named(curvature.spelling):
        check_identity(stored, {"density_probes": 0, "top": 3, "bottom": 0}, "curvature_0-5.h5", kind=CURVATURE)
    lines = str(caught.value).splitlines()[1:]
    assert lines == [
        "  --bottom: the file has 1, this run 0",
        "  --density (probes): the file has 2, this run 0",
        "  --density (products of each): the file has 10, this run nothing",
        "  --top: the file has 2, this run 3",
        "Pass --overwrite to measure it anew, or another --output to keep both.",
    ]


def test_a_line_without_both_networks_names_the_command():
    line = surface(rows=None)
    line.x[...] = np.linspace(-0.2, 0.9, len(line.x))
    with pytest.raises(ValueError, match=r"Measure it with `landscape connect A B`\.$"), options_named(plot.spelling):
        ends_of_way(line)
