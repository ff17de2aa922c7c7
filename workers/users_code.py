"""Tells the user's own code from ours and from what is installed."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

OUR_PACKAGES = ("collectors", "workers", "landscape")
_PACKAGES = Path(__file__).parents[1]


def is_installed(path: Path) -> bool:
    """Returns whether a file or folder belongs to the Python environment, and so is not the user's own code."""
    paths = sysconfig.get_paths()
    places = {Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    return any(path.resolve() == place or place in path.resolve().parents for place in places)


def place_of(error: Exception) -> str:
    """Returns the last line of the user's own code on the way to an error; "" where there is none."""
    own = [step for step in traceback.extract_tb(error.__traceback__) if _is_users(step.filename)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def is_ours(error: Exception) -> bool:
    """Returns whether an error was raised by our own code: neither by the user's nor by what either of them calls."""
    steps = traceback.extract_tb(error.__traceback__)
    return not steps or _is_our_file(Path(steps[-1].filename))


def _is_users(filename: str) -> bool:
    path = Path(filename)
    return not (_is_our_file(path) or filename.startswith("<frozen") or is_installed(path))


def _is_our_file(path: Path) -> bool:
    return any(path.is_relative_to(_PACKAGES / name) for name in OUR_PACKAGES)
