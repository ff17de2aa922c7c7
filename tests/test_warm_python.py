"""Programs that begin with the libraries loaded are like any other ones."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import wait_until
from warm_python import warm_programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.room("tests/support/warm_python.py"),
    pytest.mark.timeout(600),  # the server imports everything before the first test, on a busy machine for a minute
]
SCRIPT = """
import atexit, os, sys, warnings
atexit.register(print, "at exit")
import beside
print(sys.argv[1:], __name__, __file__, os.getcwd(), os.environ["MARK"], beside.NAME, "torch" in sys.modules)
print("landscape" in sys.modules, len(sys.stdin.read()), file=sys.stderr)
warnings.warn("now", UserWarning)
"""


@pytest.fixture(scope="module")
def programs():
    with warm_programs() as folder:
        yield folder


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **more)


def test_a_script_is_run_as_python_runs_it(programs, tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    (tmp_path / "script.py").write_text(SCRIPT)
    for options, status in (((), 0), (("-W", "error::UserWarning"), 1)):
        command = (*options, "script.py", "one", "two")
        more = {"cwd": tmp_path, "env": {"MARK": "here"}, "input": "five!"}
        warm, cold = (run(python, *command, **more) for python in (programs / "python", sys.executable))
        assert warm.returncode == cold.returncode == status
        assert warm.stdout == cold.stdout.replace("False", "True")
        # The frames of runpy stand above those of the script.
        assert [line for line in warm.stderr.splitlines() if line in cold.stderr.splitlines()] == [
            line for line in cold.stderr.splitlines() if line in warm.stderr.splitlines()
        ]
        assert warm.stderr.splitlines()[-1] == cold.stderr.splitlines()[-1]


@pytest.mark.parametrize("end", ["sys.exit(7)", "os._exit(9)", "os.kill(os.getpid(), 15)", "sys.exit('no')"])
def test_it_ends_as_python_ends(programs, tmp_path, end):
    (tmp_path / "script.py").write_text(f"import os, sys\n{end}\n")
    warm, cold = (run(python, tmp_path / "script.py") for python in (programs / "python", sys.executable))
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_the_console_command(programs):
    warm, cold = (run(place / "landscape", "--version") for place in (programs, Path(sys.executable).parent))
    assert (warm.returncode, warm.stdout) == (0, cold.stdout)


def test_it_is_killed_with_who_asked_for_it(programs, tmp_path):
    pid = tmp_path / "pid"
    (tmp_path / "script.py").write_text(
        f"import os, pathlib, signal\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\nsignal.pause()\n"
    )
    client = subprocess.Popen([programs / "python", tmp_path / "script.py"])
    wait_until(lambda: pid.exists() and pid.read_text(), what="its start")
    client.kill()
    client.wait()
    wait_until(lambda: not psutil.pid_exists(int(pid.read_text())), what="its end")
