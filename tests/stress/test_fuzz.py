"""Damaged and hostile files, each read in a child process that is watched for time, memory and what it opens.

``FUZZ_CASES`` says how many of each kind: 300, or 10,000 in the long test (``make stress``).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fuzz_guard import MEMORY, opened_in
from fuzz_kinds import KINDS, SECRET
from landscape_examples import build

from landscape import Landscape
from landscape.errors import LandscapeDamagedError
from landscape.facts import summary_text
from landscape.grid.landscape_file import landscape_bytes

ROOT = Path(__file__).parents[2]
CASES = int(os.environ.get("FUZZ_CASES", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))


def fuzzed(kind: str, folder: Path, cases: int = CASES, more: str = "") -> dict[str, Any]:
    arguments = [kind, str(cases), str(SEED), str(folder)]
    paths = (ROOT, ROOT / "tests" / "support")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    code = f"{more}\nfrom fuzz_child import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    what = f"FUZZ_SEED={SEED}; the last file lies in {folder}/run"
    assert done.returncode == 0, f"{kind}: the process ended with {done.returncode}; {what}\n{done.stderr[-4000:]}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{kind}: {what}: {result}")
    return result


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for the 10,000 cases of the long test
@pytest.mark.parametrize(
    "kind", [kind if kind == "landscape" else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_damaged_files_give_values_or_a_documented_error(kind: str, tmp_path: Path) -> None:
    result = fuzzed(kind, tmp_path)
    assert result["findings"] == []
    assert result["cases"] >= CASES
    assert result["memory"] < MEMORY
    assert result["outcomes"]["read"] > 0, "no damage was small enough to be read over"
    assert sum(result["outcomes"].values()) - result["outcomes"]["read"] > CASES / 4


def bad(kind: str, what: str, before: str = "") -> str:
    """Returns a program that lets all but the first reading of this kind of file do something."""
    return f"""
import ctypes, faulthandler, fuzz_guard, fuzz_kinds, h5py, os, pickle, signal
from landscape.errors import LandscapeDamagedError
{before}
class Bad(fuzz_kinds.KINDS[{kind!r}]):
    reads = -1
    def read(self):
        self.reads += 1
        if self.reads:
            {what}
fuzz_kinds.KINDS[{kind!r}] = Bad
"""


FOUND = {
    "bytearray(2**31)": "MemoryError at ",
    "{}['x']": "KeyError at ",
    "open('/etc/hostname').close()": "opened /etc/hostname: mode r",
    "h5py.File(self.secret / 'secret.h5').close()": "opened the secret secret.h5",
    "exec('1')": "event exec: ",
    "os.system('true')": "event os.system: ",
    "pickle.loads(pickle.dumps(os.getcwd))": "event pickle.find_class: ",
    "self.path.write_bytes(b'')": "mode w",
    "raise LandscapeDamagedError('x') from MemoryError()": "asked for more than",
}


@pytest.mark.slow
def test_the_guard_sees_what_it_is_there_for(tmp_path: Path) -> None:
    """A fuzz test that cannot fail finds nothing."""
    each = "\n            ".join(f"if self.reads == {number}: {what}" for number, what in enumerate(FOUND, 2))
    found = fuzzed("landscape", tmp_path, len(FOUND), bad("landscape", each))["findings"]
    assert [what for what, finding in FOUND.items() if not any(finding in text for text in found)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "what", "match"),
    [
        ("fuzz_guard.SECONDS = 0.5", "while True: pass", "fuzz_child.py"),
        ("fuzz_guard.WAITING = 0.5", "signal.pause()", r"Timeout \(0:00:0"),
        ("", "ctypes.string_at(0)", "Segmentation fault"),
    ],
)
def test_the_guard_ends_what_hangs_and_tells_of_what_crashes(limit: str, what: str, match: str, tmp_path: Path) -> None:
    more = bad("checkpoint", what, f"faulthandler.enable()\n{limit}")
    with pytest.raises(AssertionError, match=rf"checkpoint: the process ended with (.|\n)*{match}"):
        fuzzed("checkpoint", tmp_path, 2, more)


MEMBERS = ("x", "loss", "status", "checkpoints", "checkpoints/x", "origin", "origin/loss", "directions/norms",
           "errors", "errors/place", "errors/traceback")  # fmt: skip


@pytest.fixture
def landscape(tmp_path: Path) -> Path:
    """A landscape file beside a directory whose files have all that it needs, filled with a number that is secret."""
    secret = tmp_path / "secret"
    secret.mkdir()
    with h5py.File(secret / "secret.h5", "w") as file:
        file["loss"] = np.full((3, 5), SECRET)
        file["group/x"] = np.full(5, SECRET)
    (secret / "secret.raw").write_bytes(np.full(1000, SECRET).tobytes())
    path = tmp_path / "run" / "landscape_1-9_pca.h5"
    path.parent.mkdir()
    path.write_bytes(landscape_bytes(build()))
    return path


def external_link(file: Any, name: str, secret: str) -> None:
    file[name] = h5py.ExternalLink(f"{secret}/secret.h5", "/loss")


def external_link_to_a_group(file: Any, name: str, secret: str) -> None:
    file[name] = h5py.ExternalLink(f"{secret}/secret.h5", "/group")


def external_storage(file: Any, name: str, secret: str) -> None:
    file.create_dataset(name, (5,), "f8", external=[(f"{secret}/secret.raw", 0, 40)])


def virtual(file: Any, name: str, secret: str) -> None:
    layout = h5py.VirtualLayout((3, 5), "f8")
    layout[...] = h5py.VirtualSource(f"{secret}/secret.h5", "loss", (3, 5))
    file.create_virtual_dataset(name, layout)


def link_to_a_link(file: Any, name: str, secret: str) -> None:
    external_link(file, "zz", secret)
    file[name] = h5py.SoftLink("/zz")


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize(
    ("way", "relative"),
    [
        *((way, False) for way in (external_link, external_storage, virtual, link_to_a_link)),
        *((way, True) for way in (external_link_to_a_group, external_storage)),
    ],
)
def test_nothing_outside_a_landscape_file_is_opened(landscape: Path, name: str, way: Any, relative: bool) -> None:
    """Whatever in the file leads out of it; the operating system says what was opened, in C too."""
    secret = landscape.parent.parent / "secret"
    with h5py.File(landscape, "r+") as file:
        del file[name]
        way(file, name, "../secret" if relative else str(secret))
    opened = opened_in(secret)
    with pytest.raises(LandscapeDamagedError, match=r"is a link to another place|by reference or in another file"):
        Landscape.load(landscape)
    assert opened() == []
    (secret / "secret.h5").read_bytes()
    assert opened() == ["opened the secret secret.h5: outside the run directory"]


def test_what_a_file_says_is_no_command_to_a_terminal(landscape: Path) -> None:
    data = build()
    data.attributes |= {"network": "\x1b]0;title\x07Net\x9b31m\u202e", "notes": ["one\ncomplete  yes", "\x1b[2J"]}
    landscape.write_bytes(landscape_bytes(data))
    text = summary_text(Landscape.load(landscape))
    assert all(letter.isprintable() for letter in text.replace("\n", ""))
    assert "?]0;title?Net?31m?" in text
    assert sum(line.startswith("complete") for line in text.splitlines()) == 1
