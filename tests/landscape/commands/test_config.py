"""The options of a call in a file: written, read again, and what is typed wins."""

import re
import tomllib

import numpy as np
import pytest
from command_line import command, invoke
from examples import train_run
from hypothesis import given
from hypothesis import strategies as st

from landscape import Landscape
from landscape.commands.config import as_toml

TYPED = ("--function", "examples:batch_norm", "--devices", "0", "--samples", "32", "--quiet")
SAVED = {"function": "examples:batch_norm", "devices": "0", "samples": "32", "progress": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    train_run(folder / "run")
    return folder


def test_a_call_is_repeated_by_its_file(folder):
    typed = ("--size", "4", "-o", "first", "--interval", "0-2", "--interval", "1,3,4", "--no-result")
    told = command("run", "run", *TYPED, *typed, "--save-config", "run.toml", folder=folder)
    assert "run.toml" not in told.stdout
    text = (folder / "run.toml").read_text()
    assert text.startswith("# summary-landscape: options of landscape run\n")
    expected = {**SAVED, "size": 4, "result": False, "interval": ["0-2", "1,3,4"], "output": "first"}
    assert tomllib.loads(text) == expected
    again = command("run", "run", "--config", "run.toml", "-o", "again", folder=folder)
    assert again.stderr == ""
    command("run", "run", "--config", "run.toml", "--dry-run", "--save-config", "run.toml", folder=folder)
    assert (folder / "run.toml").read_text() == text
    names = ["landscape_0-2_pca.h5", "landscape_1-4_pca.h5"]
    assert sorted(path.name for path in (folder / "again").glob("*.h5")) == names
    for name in names:
        one, two = (Landscape.load(folder / place / name) for place in ("first", "again"))
        # Each call tunes its own plan, so the last digits may differ.
        np.testing.assert_allclose(one.loss, two.loss, rtol=1e-5)


def test_what_is_typed_wins_and_both_are_saved(folder):
    (folder / "small.toml").write_text("size = 4\nsamples = 32\nprogress = false\nresult = false\n")
    typed = ("--config", "small.toml", "--size", "3", *TYPED[:4], "-o", "typed", "--save-config", "both.toml")
    command("run", "run", *typed, "--result", "--no-train", folder=folder)
    assert Landscape.load(folder / "typed/landscape_4_random.h5").loss.shape == (3, 3)
    expected = {**SAVED, "size": 3, "train": False, "result": True, "output": "typed"}
    assert tomllib.loads((folder / "both.toml").read_text()) == expected


def test_another_command_has_it_too(folder):
    (folder / "line.toml").write_text('function = "examples:batch_norm"\npoints = 3\noutput = "line.h5"\n')
    command("connect", "run@0", "run@4", "--config", "line.toml", *TYPED[2:], folder=folder)
    assert Landscape.load(folder / "line.h5").loss.shape == (3,)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("sampls = 3", ValueError, r"--config .*c\.toml must hold options of `landscape run` .*, but has 'sampls'\."),
        ("config = 'x'", ValueError, "but has 'config'"),
        ("json = true", ValueError, r"but has 'json'\. .* and --json are always typed"),
        ("quiet = true", ValueError, r"but has 'quiet'\. Write progress = false for --quiet\."),
        ("no-result = true", ValueError, r"but has 'no-result'\. Write result = false for --no-result\."),
        (f"size = {5000 * '['}", ValueError, r"must be a TOML file, but is none: "),
        ("\ufeffsize = 2", ValueError, "^--size must be an int from 3 to 256, but got 2"),
        ("[run]\nsize = 3", ValueError, "but has 'run'"),
        ("size = 'three'", TypeError, r"--config .*c\.toml must have a whole number for size, but has 'three'\."),
        ("size = 3.5", TypeError, "a whole number for size, but has 3.5"),
        ("size = true", TypeError, "a whole number for size, but has True"),
        ("tolerance = '1 %'", TypeError, "a number for tolerance, but has '1 %'"),
        ("result = 0", TypeError, "true or false for result, but has 0"),
        ("devices = [0, 1]", TypeError, r"text as it is typed after the flag for devices, but has \[0, 1\]"),
        ("interval = [[0, 1]]", TypeError, r"text .* or a list of such for interval, but has \[\[0, 1\]\]"),
        ("name = true", TypeError, "text as it is typed after the flag for name, but has True"),
        ("size =", ValueError, r"--config .*c\.toml must be a TOML file, but is none: Invalid value \(at"),
        ("size = 2", ValueError, "^--size must be an int from 3 to 256, but got 2"),
        (None, FileNotFoundError, r"--config .*c\.toml does not exist\. Correct the path"),
    ],
)
def test_errors(folder, tmp_path, text, error, said):
    if text is not None:
        (tmp_path / "c.toml").write_text(text)
    with pytest.raises(error, match=said):
        invoke("run", folder / "run", *TYPED, "--config", tmp_path / "c.toml")
    with pytest.raises(IsADirectoryError, match=re.escape(f"--config {tmp_path} cannot be read")):
        invoke("run", folder / "run", *TYPED, "--config", tmp_path)


def test_only_such_a_file_is_replaced(folder, tmp_path):
    (tmp_path / "mine.toml").write_text("size = 3\n")
    with pytest.raises(FileExistsError, match=r"--save-config .*mine\.toml is there and was not written by"):
        invoke("run", folder / "run", *TYPED, "--dry-run", "--save-config", tmp_path / "mine.toml")
    assert (tmp_path / "mine.toml").read_text() == "size = 3\n"
    with pytest.raises(NotADirectoryError, match="--save-config must lie in a directory that exists"):
        invoke("run", folder / "run", *TYPED, "--dry-run", "--save-config", tmp_path / "no" / "c.toml")


def test_a_link_stays_a_link(folder, tmp_path):
    (tmp_path / "link.toml").symlink_to("own.toml")
    invoke("run", folder / "run", *TYPED, "--dry-run", "--save-config", tmp_path / "link.toml")
    assert (tmp_path / "link.toml").is_symlink()
    assert tomllib.loads((tmp_path / "own.toml").read_text()) == SAVED


_PLAIN = st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**63 - 1) | st.booleans()
_PLAIN |= st.floats(allow_nan=False)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]*", fullmatch=True), _PLAIN | st.lists(_PLAIN)))
def test_what_is_written_is_read(values):
    assert tomllib.loads(as_toml(values)) == values
