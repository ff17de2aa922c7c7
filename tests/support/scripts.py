"""Python scripts that tests run in processes of their own."""

import subprocess
import sys

# Seconds that a test waits for what must happen: so many that no load lets it fail, and fewer than the limit of a
# whole test (pyproject.toml), so that what a process has said until then is shown.
PATIENCE = 600.0


def run_script(script, *arguments, **more):
    """Runs a script in a fresh interpreter, which must end well, and returns what it printed.

    Args:
        script: its code.
        *arguments: what it finds in ``sys.argv[1:]``.
        **more: of ``subprocess.run``, such as the environment.
    """
    command = [sys.executable, "-c", script, *map(str, arguments)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **more)
    except subprocess.TimeoutExpired as late:
        said = [(text or b"").decode(errors="replace") for text in (late.stdout, late.stderr)]
        raise AssertionError(f"it was not done after {PATIENCE:.0f} seconds\n" + "\n".join(said)) from None
    assert ended.returncode == 0, f"exit status {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
