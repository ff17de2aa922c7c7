"""Runs several flows in one process, one after another, and writes down how each of them ends.

Usage: python win.py -c "from several import main; main()" FLOWS.json RESULTS.jsonl
"""

import contextlib
import io
import json
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


def main():
    sys.path.insert(0, str(Path.cwd()))
    flows = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    with Path(sys.argv[2]).open("a", encoding="utf-8") as results:
        for name, flow in flows.items():
            code, said = run_flow(flow)
            results.write(json.dumps([name, code, said]) + "\n")
            results.flush()
    with contextlib.suppress(ImportError):
        import matplotlib.pyplot

        matplotlib.pyplot.close("all")
