"""What MkDocs fills in while it builds the site: the command line's own help."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

_PLACE = "{{ the help of every command }}"


def on_page_markdown(markdown: str, **_details: Any) -> str:
    """Puts the commands' help where a page asks for it, so that it is never older than the program."""
    if _PLACE not in markdown:
        return markdown
    written = subprocess.run(
        [sys.executable, "-m", "typer", "landscape.cli", "utils", "docs", "--name", "landscape"],
        check=True,
        capture_output=True,
        text=True,
    )
    # The page has a title of its own.
    return markdown.replace(_PLACE, written.stdout.partition("\n")[2])
