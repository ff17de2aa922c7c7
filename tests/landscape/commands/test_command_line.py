"""The console command, as a user types it."""

import os
import re
import signal
import subprocess
import sys
import warnings

import pytest
import torch
import typer
from command_line import command, invoke
from examples import BatchNormNetwork, train_run
from landscape_examples import build, write_landscape
from places import SUPPORT
from typer.testing import CliRunner
from waiting import PATIENCE

from collectors.errors import LandscapeError
from landscape import Landscape, cli
from landscape.cli import _warnings_shown_once, app
from landscape.commands.arguments import interruptible
from landscape.grid.landscape_file import LANDSCAPE_FILE
from landscape.record.writer import FileWriter

RUN = ("run", "run", "--function", "my_callbacks:callback_fn", "--devices", "0", "--samples", "32")
COMMAND = [sys.executable, "-W", "error", "-c", "from landscape.cli import main; main()"]

CALLBACKS = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
from examples import batch_norm

def callback_fn():
    return batch_norm()

not_a_function = 3
"""


TRAINS = f"""
import sys
sys.path.insert(0, {str(SUPPORT)!r})
from examples import train_run
train_run("run")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command-line")
    train_run(folder / "run")
    (folder / "my_callbacks.py").write_text(CALLBACKS)
    for name, text in (
        ("broken", "x = undefined"),
        ("unfinished", "def f(:"),
        ("needs", "import no_such_library"),
        ("trains", TRAINS),
    ):
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_text_is_shown_once_and_later_ones_too(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = _warnings_shown_once()
        for text in ("first", "first", "second", "first", "third"):
            warnings.warn(text, UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: first\nwarning: second\nwarning: third\n"


@pytest.mark.slow
def test_a_landscape_is_refined_and_widened_by_its_file_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    command(*RUN, "--size", "3", "--no-result", "--quiet", "-o", "grown", folder=folder)
    path = folder / "grown/landscape_0-4_pca.h5"
    first = Landscape.load(path)
    told = command("evaluate", path, "--size", "5", "--devices", "0", folder=folder)
    assert "--function my_callbacks:callback_fn, as the file says" in told.stderr
    assert re.search(r"from 3 x 3 points, .* to 5 x 5 points, .*: 9 of 9 measured points are kept", told.stderr)
    assert str(path) in told.stdout
    finer = Landscape.load(path)
    assert (finer.loss[::2, ::2] == first.loss).all()
    monkeypatch.chdir(folder)
    middle = finer.x[2]
    limits = f"--limits={finer.x[0] - 0.01},{middle},{finer.y[0]},{finer.y[-1] + 0.01}"
    invoke("evaluate", path, limits, "--devices", "0", "--quiet")
    wider = Landscape.load(path)
    assert wider.complete
    assert wider.loss.shape == (6, 6)
    assert (wider.loss[:-1, 1:] == finer.loss).all()
    monkeypatch.chdir(tmp_path)
    for arguments, text in (
        (["evaluate", path, "--factor", "2"], "names my_callbacks:callback_fn, and the module is not in"),
        (["evaluate", "nothing.h5", "--factor", "2"], r"^there is no landscape file nothing\.h5"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=text):
            invoke(*arguments)
    monkeypatch.chdir(folder)
    for arguments, text in (
        ("", "^--size or --factor must be given for a finer grid of .*, or --margin or --limits for a wider one"),
        ("--size 7 --limits 0,1", "--margin or --limits for a wider one: one of the two in a call"),
        ("--factor 2 --seed 1", "^--seed must be left out for a landscape file, which says how it was measured"),
        ("--factor 2 --overwrite", "^--overwrite must be left out for a landscape file"),
        ("--factor 2 --normalization none", "^--normalization must be left out for a landscape file"),
        ("--size 79 --factor 2", "^--size and --factor both say how fine .*; give one of them"),
        ("--factor two", "^--factor must be a number such as 2, or two such as 2x1, but got 'two'"),
        ("--size 3", r"^--size must be at least the number of points that the axis has \(6\), but got 3"),
        ("--margin 1 --limits 0,1", "^--limits and --margin both say where the grid ends; give one"),
        ("--limits 0,a", "^--limits must be numbers separated by commas, such as -1,1.5"),
        ("--limits 1,0", "^--limits must be coordinates that increase"),
    ):
        with pytest.raises(ValueError, match=text):
            invoke("evaluate", path, *arguments.split())


@pytest.mark.parametrize("said", ["os:abort", "my_callbacks.inner:f", "my_callbacks", "a b:c", "sub/my:f", "x:y\n", 3])
def test_a_function_is_taken_from_the_file_only_if_its_module_is_here(folder, said, monkeypatch):
    monkeypatch.chdir(folder)
    data = build()
    data.attributes["function"] = said
    write_landscape(folder / "said.h5", data)
    assert Landscape.load("said.h5").attributes["function"] == said
    with pytest.raises(ValueError, match=r"^--function is missing"):
        invoke("evaluate", "said.h5", "--factor", "2")


def test_a_landscape_file_may_be_read_only(tmp_path):
    write_landscape(tmp_path / "a.h5", build())
    (tmp_path / "a.h5").chmod(0o444)
    with pytest.raises(LandscapeError, match=r"a\.h5 does not say how it was measured"):
        invoke("evaluate", tmp_path / "a.h5", "--size", "9", "--function", "examples:bowl", "-o", tmp_path / "b.h5")


@pytest.fixture(scope="module")
def measured(folder):
    """How a landscape was measured, and its file."""
    result = command(*RUN, "--size", "4", "-o", "out", folder=folder)
    return result, folder / "out/landscape_0-4_pca.h5"


def test_run_and_info(measured, folder):
    result, file = measured
    assert file.name in result.stdout
    assert "PCA landscape" in result.stderr
    text = command("info", file, folder=folder).stdout
    assert "BatchNormNetwork" in text
    assert "pca, 4 x 4 points" in text
    assert "16 measured" in text


def test_a_console_that_lacks_the_letters_of_a_path_ends_nothing(measured, tmp_path):
    done = command("convert", measured[1], "-o", "日本.npz", folder=tmp_path, encoding="cp1252")
    assert done.stdout.strip().endswith(r"\u65e5\u672c.npz")
    assert (tmp_path / "日本.npz").exists()


@pytest.mark.slow
def test_a_dry_run_says_what_it_would_cost_and_measures_nothing(folder):
    said = command(*RUN, "--dry-run", "--size", "30", "-o", "dry", "--budget", "1h", folder=folder).stdout
    assert re.search(r"landscape_0-4_pca\.h5: 912 points x [\d.]+ m?s on 1 worker: about", said), said
    assert "landscape_4_random.h5: 900 points x" in said
    assert not list((folder / "dry").glob("*.h5"))
    said = command(*RUN, "--dry-run", "--sampling", "adaptive", "-o", "dry", folder=folder).stdout
    assert "adaptive sampling: from" in said
    chosen = ["--interval", "0-2", "--interval", "1,3,4", "--no-result"]
    said = command(*RUN, "--dry-run", *chosen, "-o", "dry", folder=folder).stdout
    assert re.findall(r"^landscape_.*\.h5", said, re.MULTILINE) == ["landscape_0-2_pca.h5", "landscape_1-4_pca.h5"]


def test_an_interruption_before_the_first_point_promises_nothing(folder):
    torch.save(BatchNormNetwork().state_dict(), folder / "interrupted.pt")
    (folder / "held_up.py").write_text("def callback_fn(): raise KeyboardInterrupt")
    arguments = ["evaluate", "interrupted.pt", "--function", "held_up:callback_fn", "-o", "none.h5", "--overwrite"]
    told = command(*arguments, folder=folder, check=False)
    assert told.returncode == 128 + signal.SIGINT
    assert told.stderr.endswith("Interrupted. This command measured nothing yet.\n")
    assert not (folder / "none.h5").exists()


# Whoever imports the module that GATE names gets Ctrl-C meanwhile.
INTERRUPTING = """
import os, signal, sys

class Gate:
    def find_spec(name, path=None, target=None):
        if name == os.environ["GATE"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Gate)
"""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("typer", ["--help"]), ("landscape.commands.plot", ["info"]), ("landscape.summary_landscape", ["check", "run"])],
    ids=["of the console", "of a command", "while it runs"],
)
def test_an_interruption_while_the_program_is_loaded_is_quiet(folder, tmp_path, module, arguments):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    told = subprocess.run(
        [*COMMAND, *arguments, *(["--function", "my_callbacks:callback_fn"] if "check" in arguments else [])],
        cwd=folder,
        env={**os.environ, "GATE": module, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        check=False,
    )
    assert (told.returncode, told.stdout, told.stderr) == (128 + signal.SIGINT, "", "")


@pytest.fixture
def heeds_ctrl_c():
    """A program that a shell began in the background ignores Ctrl-C, and so does Python then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _write_and_be_interrupted(paths, number, *, overwrite):
    with interruptible(overwrite=overwrite):
        for path in paths:
            with FileWriter(path, build(), LANDSCAPE_FILE):
                pass
        signal.raise_signal(number)


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "Interrupted"), (signal.SIGTERM, "Terminated")])
def test_an_interruption_names_what_is_kept(tmp_path, capsys, overwrite, number, word):
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for count, where in ((1, str(paths[0])), (2, f"2 files, the last of them {paths[1]}")):
        with pytest.raises(typer.Exit) as stopped:
            _write_and_be_interrupted(paths[:count], number, overwrite=overwrite)
        assert stopped.value.exit_code == 128 + number
        anew = " without --overwrite" if overwrite else ""
        told = f"{word}. What was measured is in {where}; the same command{anew} continues from there."
        assert told in capsys.readouterr().err


def test_import_checkpoints(folder):
    torch.manual_seed(0)
    for number in range(3):
        torch.save({"state_dict": BatchNormNetwork().state_dict()}, folder / f"{number}.pt")
    result = command(
        "convert", "0.pt", "1.pt", "2.pt", "--from", "checkpoints", "-o", "imported", "--numbers", "5,10,15",
        folder=folder,
    )  # fmt: skip
    assert "epochs [5, 10, 15]" in result.stdout
    command(
        "run", "imported", "--function", "my_callbacks:callback_fn", "--devices", "0", "--size", "3", "--samples", "32",
        "--quiet", "--save-directions", folder=folder,
    )  # fmt: skip
    assert Landscape.load(folder / "imported/landscape_5-15_pca.h5").complete
    assert (folder / "imported/landscape_5-15_pca_directions.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            "run nothing --function my_callbacks:callback_fn",
            "does not exist; give the directory that a SummaryCollector wrote",
        ),
        ("run run --function my_callbacks", "--function must be module:function"),
        ("run run --function no_such_module:f", "names the module 'no_such_module'"),
        ("run run --function my_callbacks:nothing", "does not define"),
        ("run run --function ./my_callbacks.py:callback_fn", "such as my_callbacks:callback_fn, but got"),
        ("run run --function nets/my_callbacks:callback_fn", "such as nets.my_callbacks:callback_fn, but"),
        ("run run/ckpt_dir --function my_callbacks:callback_fn", "does not exist. Give the folder above it, "),
        ("run run --function my_callbacks:not_a_function", "callback_fn must be a function"),
        ("run run --function my_callbacks:callback_fn --devices a", "--devices must be whole numbers"),
        (
            "run run --function my_callbacks:callback_fn --devices 0 --precision tf32",
            "error: --precision tf32 needs an NVIDIA GPU, but the network is measured on cpu, where there is no "
            "TensorFloat-32. Use --precision float32 or --precision bfloat16.",
        ),
        ("run run --function broken:f", "'broken', which cannot be imported: NameError: name 'undefined'"),
        ("run run --function unfinished:f", "cannot be imported: SyntaxError: "),
        ("run run --function my_callbacks.py:callback_fn", "such as my_callbacks:callback_fn, but got"),
        (
            "run run --function trains:f",
            'replace it with existing="overwrite". It trains when it is imported, as each worker does: put what trains '
            'below `if __name__ == "__main__":`; landscape --debug',
        ),
        ("run run --function needs:f", "imports 'no_such_library', which is not installed"),
        ("info nothing.h5", "nothing.h5"),
        ("plot my_callbacks.py -o x.png", "my_callbacks.py"),
        ("convert my_callbacks.py a b --from checkpoints -o x", "my_callbacks.py"),
    ],
)
def test_errors_are_one_clear_text(folder, arguments, text):
    result = command(*arguments.split(), folder=folder, check=False)
    assert result.returncode == 1
    assert "error: " in result.stderr
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_a_users_file_that_hides_a_package_is_named(folder, tmp_path):
    (tmp_path / "workers.py").write_text("")
    (tmp_path / "my_callbacks.py").write_text(CALLBACKS)
    arguments = ["run", str(folder / "run"), "--function", "my_callbacks:callback_fn"]
    result = command(*arguments, folder=tmp_path, check=False)
    assert result.returncode == 1
    assert f"{tmp_path}/workers.py hides the package 'workers'" in result.stderr
    result = subprocess.run(
        [sys.executable, "-c", "import landscape"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert f"{tmp_path}/workers.py hides the package 'workers'" in result.stderr


def test_the_version(folder):
    assert re.fullmatch(
        r"summary-landscape \d+(\.\d+)+(\.dev\d+)?(\+\S+)?\n", command("--version", folder=folder).stdout
    )


def test_a_shell_completes_the_commands():
    asked = {"_LANDSCAPE_COMPLETE": "complete_bash", "COMP_WORDS": "landscape con", "COMP_CWORD": "1"}
    assert CliRunner().invoke(app, prog_name="landscape", env=asked).output.split() == ["connect", "convert"]


def test_debug_shows_the_traceback(folder):
    plain = command("info", "nothing.h5", folder=folder, check=False)
    debug = command("--debug", "info", "nothing.h5", folder=folder, check=False)
    assert (plain.returncode, plain.stdout) == (1, "")
    assert plain.stderr.startswith("error: there is no landscape file nothing.h5")
    assert "Traceback" not in plain.stderr
    variable = command("info", "nothing.h5", folder=folder, check=False, environment={"LANDSCAPE_DEBUG": "1"})
    for told in (debug, variable):
        assert told.returncode == 1
        assert told.stderr.startswith("Traceback")
        assert told.stderr.splitlines()[-1] == plain.stderr.strip()


def test_a_bug_is_called_one(folder, monkeypatch):
    monkeypatch.setattr(cli, "app", lambda: {}["missing"])
    told = command(folder=folder, check=False)
    assert told.returncode == 3
    assert told.stderr.startswith("error: unexpected KeyError: 'missing'\nThis is a bug; --debug shows where it is.")
