"""The code blocks of the documentation's pages, run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from places import ROOT
from waiting import PATIENCE

DOCS = ROOT / "docs"
_BLOCK = re.compile(r"^```(python|console)(?: title=\"([^\"\n]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PICTURE = re.compile(r"^!\[[^\]\n]*\]\(images/gallery/([^)\n]+)\)$", re.MULTILINE)
_OUTPUT = re.compile(r" -o (\S+)$", re.MULTILINE)


def blocks(page):
    """Returns language, title and code of a page's blocks in their order."""
    return _BLOCK.findall((DOCS / page).read_text())


def gallery():
    """Returns the pictures of the gallery, each with what the block above it writes."""
    parts = _PICTURE.split((DOCS / "gallery.md").read_text())
    return [
        (picture, _OUTPUT.findall(above.rpartition("```console\n")[2]))
        for above, picture in zip(parts[::2], parts[1::2], strict=False)
    ]


def run_page(page, folder, programs=Path(sys.executable).parent):
    """Runs a page's blocks in their order in a folder, with the programs of another; returns what they printed."""
    printed = []
    for position, (language, title, code) in enumerate(blocks(page)):
        if language == "python":
            script = folder / (title or f"{Path(page).stem}_{position}.py")
            script.write_text(code)
            printed.append(_run(["python", "-W", "error::UserWarning", script.name], folder, programs))
        else:
            commands = [line.removeprefix("$ ") for line in code.splitlines() if line.startswith("$ ")]
            assert commands
            printed += [_run(["bash", "-c", command], folder, programs) for command in commands]
    return printed


def _run(command, folder, programs):
    # One command may train or measure a whole example.
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MPLBACKEND": "Agg"}
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE * 4, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout[-1500:]}\n{result.stderr[-3000:]}"
    return result.stdout
