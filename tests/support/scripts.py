"""Python scripts that tests run in processes of their own."""

import subprocess
import sys

from waiting import PATIENCE


def run_script(script, *arguments, patience=PATIENCE, **more):
    """Runs a script in a fresh interpreter, which must end well, and returns what it printed."""
    return run_python("-c", script, *arguments, patience=patience, **more)


def run_python(*arguments, patience=PATIENCE, **more):
    """``run_script`` for a program in a file, or a module."""
    command = [sys.executable, *map(str, arguments)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False, **more)
    except subprocess.TimeoutExpired as late:
        said = [(text or b"").decode(errors="replace") for text in (late.stdout, late.stderr)]
        raise AssertionError(f"it was not done after {patience:.0f} seconds\n" + "\n".join(said)) from None
    assert ended.returncode == 0, f"exit status {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
