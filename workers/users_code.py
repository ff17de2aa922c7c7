"""Tells the user's own code from ours and from what is installed, and warns at the user's own line."""

from __future__ import annotations

import functools
import inspect
import sysconfig
import traceback
import warnings
from pathlib import Path

OUR_PACKAGES = ("collectors", "workers", "landscape")
_PACKAGES = Path(__file__).parents[1]


def is_installed(path: Path) -> bool:
    """Returns whether a file or folder belongs to the Python environment, and so is not the user's own code."""
    paths = sysconfig.get_paths()
    places = {Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    return any(path.resolve() == place or place in path.resolve().parents for place in places)


def place_of(error: BaseException) -> str:
    """Returns the last line of the user's own code on the way to an error; "" where there is none."""
    own = [step for step in traceback.extract_tb(error.__traceback__) if _is_users(step.filename)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def warn_user(text: str) -> None:
    """Warns at the line of the user's own code that led here."""
    frame = inspect.currentframe()
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:  # as from the command line, or in a thread of ours
        warnings.warn(text, stacklevel=2)
        return
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, UserWarning, frame.f_code.co_filename, frame.f_lineno, names.get("__name__"), registry)


def warn_and_note(notes: list[str], *texts: str) -> None:
    notes.extend(texts)
    for text in texts:
        warn_user(text)


def is_ours(error: Exception) -> bool:
    """Returns whether an error was raised by our own code: neither by the user's nor by what either of them calls."""
    steps = traceback.extract_tb(error.__traceback__)
    return not steps or _is_our_file(steps[-1].filename)


@functools.lru_cache(maxsize=4096)
def _is_users(filename: str) -> bool:
    # Names such as "<frozen ...>" and "<__array_function__ internals>" are no places; notebooks' cells are files.
    if filename.startswith("<"):
        return filename in ("<stdin>", "<string>")
    return not (_is_our_file(filename) or is_installed(Path(filename)))


def _is_our_file(filename: str) -> bool:
    return any(Path(filename).is_relative_to(_PACKAGES / name) for name in OUR_PACKAGES)
