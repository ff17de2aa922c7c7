"""The how-to pages' code, run as it stands there."""

import os
import re
from pathlib import Path

import pytest
from scripts import run_python
from waiting import PATIENCE

# A page trains and measures with a large framework: on a busy machine minutes.
takes_minutes = pytest.mark.timeout(10 * PATIENCE)
PAGES = Path(__file__).parents[2] / "docs"


def code_blocks(page):
    """Returns the Python blocks of a page, by default of a trainer's."""
    path = next(path for path in (PAGES / "trainers" / f"{page}.md", PAGES / f"{page}.md") if path.exists())
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


def run_page_block(code, folder, *, environment=None, timeout=PATIENCE * 4):
    """Runs a block as a script of its own in a folder, and returns what it printed."""
    folder.mkdir(exist_ok=True)
    script = folder / "example.py"
    script.write_text(code)
    return run_python(script, cwd=folder, env={**os.environ, **(environment or {})}, patience=timeout)
