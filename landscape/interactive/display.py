"""Shows one landscape in the browser."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from .page import save_page

if TYPE_CHECKING:
    from ..surface import Landscape


def view(landscape: Landscape, path: str | os.PathLike[str] | None, *, size: str, show: bool) -> Path:
    """Writes a page and opens it; see ``Landscape.view``."""
    if path is None:
        # The browser reads it after this process may have ended, so nobody can remove it here.
        path = Path(tempfile.mkdtemp(prefix="landscape-")) / "landscape.html"
    page = save_page(landscape, path, size=size)
    if show:
        webbrowser.open(page.resolve().as_uri())
    return page
