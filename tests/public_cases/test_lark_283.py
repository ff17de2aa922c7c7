"""lark-parser/lark#283: a module that reads its own docstrings cannot be imported with python -OO."""

import subprocess
import sys


def test_the_command_line_starts():
    command = [sys.executable, "-OO", "-c", "from landscape.cli import main; main()", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
