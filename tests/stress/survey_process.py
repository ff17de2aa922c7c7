"""The survey that a trial disturbs, in a process of its own: ``python survey_process.py settings.json``."""

import json
import os
import sys
import traceback
import warnings
from dataclasses import replace
from pathlib import Path

import logged_network
import numpy as np
import typer
from logged_network import axes

import landscape.grid.measuring
from landscape.commands.arguments import interruptible
from landscape.grid.landscape_file import LANDSCAPE_FILE, landscape_bytes
from landscape.record.checks import PointStatus


def note_writes(log):
    """Lets the landscape's writer note in the log of points when it begins to write, and how many points."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND)

    def encode(data):
        os.write(file, f"write {np.count_nonzero(data.status == PointStatus.MEASURED)}\n".encode())
        return landscape_bytes(data)

    landscape.grid.measuring.LANDSCAPE_FILE = replace(LANDSCAPE_FILE, encode=encode)


def main():
    settings = json.loads(Path(sys.argv[1]).read_text())
    x, y = axes(settings["size"])
    # Only one of the two needs PyTorch, which takes long to load.
    network = logged_network
    if "free" in settings["traps"]:
        import logged_hunger as network
    callback = network.callback_of(settings["log"], settings["seconds"], **settings["traps"])
    note_writes(settings["log"])
    outcome = {"error": "", "warnings": []}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with interruptible():
                landscape.evaluate(
                    network.plane(),
                    callback,
                    x=x,
                    y=y,
                    device_ids=settings["device_ids"],
                    address=settings["address"],
                    output=settings["output"],
                    plan=network.PLAN,
                    progress=False,
                )
        except typer.Exit as stop:
            outcome["error"] = f"Exit {stop.exit_code}"
        except Exception:
            outcome["error"] = traceback.format_exc()
    ours = (UserWarning, RuntimeWarning)
    outcome["warnings"] = [str(item.message) for item in caught if issubclass(item.category, ours)]
    Path(settings["outcome"]).write_text(json.dumps(outcome))
    print(outcome["error"], file=sys.stderr)


if __name__ == "__main__":
    main()
