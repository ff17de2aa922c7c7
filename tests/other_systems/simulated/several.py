"""Runs several flows in one process, one after another, and writes down how each of them ends.

Those that kill their process run first, each in a fork.

Usage: python win.py -c "from several import main; main()" FLOWS.json RESULTS.jsonl
"""

import contextlib
import functools
import io
import json
import os
import signal
import sys
import traceback
from pathlib import Path


def run_flow(flow):
    """Returns the exit code and the output of a program's text, or of the arguments of ``landscape``."""
    before, arguments = (sys.stdout, sys.stderr), sys.argv
    # What a console of the simulated system cannot show is an error here as well.
    said = io.TextIOWrapper(io.BytesIO(), sys.stdout.encoding, sys.stdout.errors, write_through=True)
    sys.stdout = sys.stderr = said
    code = 0
    try:
        if isinstance(flow, str):
            exec(compile(flow, "<flow>", "exec"), {"__name__": "__main__"})
        else:
            from landscape.cli import main as landscape

            sys.argv = ["landscape", *flow]
            landscape()
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout, sys.stderr = before
        sys.argv = arguments
    return code, said.buffer.getvalue().decode(said.encoding, errors="replace")


def is_killed(flow, write):
    """Returns whether a flow kills its process, which is a fork of this one; else writes down how it ended."""
    process = os.fork()
    if not process:
        code, said = run_flow(flow)
        write(code or 1, f"it was not killed: {said}")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def main():
    sys.path.insert(0, str(Path.cwd()))
    killed, flows = json.loads(Path(sys.argv[1]).read_text("utf-8"))

    def write(name, code, said):
        with Path(sys.argv[2]).open("a", encoding="utf-8") as results:
            results.write(json.dumps([name, code, said]) + "\n")

    # What the forks would import as well; nothing may be computed before them.
    write("import", *run_flow(flows.pop("import")))
    with contextlib.suppress(ImportError):
        import my_training  # noqa: F401
    for name, (first, second) in killed.items():
        if is_killed(first, functools.partial(write, name)):
            flows = {name: second} | flows
    for name, flow in flows.items():
        write(name, *run_flow(flow))
    with contextlib.suppress(ImportError):
        import matplotlib.pyplot

        matplotlib.pyplot.close("all")
