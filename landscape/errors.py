"""What can go wrong with a landscape and its file; every text says how to fix it."""

from __future__ import annotations

import re
from itertools import dropwhile

from collectors.errors import LandscapeError

_MESSAGE_CHARACTERS = 300
# Of an error of ours the text says all; of others the class says what went wrong.
_OUR_CLASS = re.compile(r"^(collectors|workers|landscape)(\.\w+)+: ")

DAMAGES = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What a reader meets in a damaged file, if nothing stops it before."""


class LandscapeNotFoundError(LandscapeError, FileNotFoundError):
    """There is no landscape file at the path."""


class LandscapeLockedError(LandscapeError):
    """Another writer holds the landscape file."""


class LandscapeDamagedError(LandscapeError):
    """The file is truncated, is no HDF5 file, or holds less than it claims."""


class LandscapeFormatError(LandscapeError):
    """The file belongs to another program, or to a version of this one with another format."""


class LandscapeIdentityError(LandscapeError):
    """The file holds another experiment than the one to measure."""


class LandscapeGridError(LandscapeError):
    """The file holds measured points that the grid of this call lacks."""


class LandscapeWriteError(LandscapeError, OSError):
    """The landscape could not be written; what was on the disk is still there."""


class LandscapeExportError(LandscapeError):
    """The landscape does not fit into the other program's format."""


class LandscapeRenderingError(LandscapeError):
    """This machine cannot draw three dimensions: a graphics library is missing."""


class PlaneError(LandscapeError):
    """What was given defines no plane or line."""


class DegenerateTrajectoryError(PlaneError):
    """The checkpoints of a trajectory do not span the directions that were asked for."""


class AlignmentError(LandscapeError):
    """Two networks cannot be aligned by permuting their units."""


def error_message(text: str) -> str:
    """Returns what was raised, of its traceback's text, in one line that is not too long."""
    innermost = text.rpartition("Traceback (most recent call last):\n")[-1]
    lines = list(dropwhile(lambda line: line.startswith(" "), innermost.splitlines()))
    message = _OUR_CLASS.sub("", " ".join(" ".join(lines).split()))
    if len(message) > _MESSAGE_CHARACTERS:
        return f"{message[:_MESSAGE_CHARACTERS].rstrip()} ..."
    return message or "no text"


# Remedies in Python; the command line says them in its own words.
OTHER_GRID = (
    "Pass plane=plane; or put that file back, if the landscape was moved or copied without it; or call what measured "
    "the landscape once more, with another size and the same output: points that both grids have are kept, and "
    "save_directions=True writes that file."
)
"""What to do where the plane of a file is not known."""
OTHER_GRID_OF_CURVE = (
    "Call Measure(callback_fn).grid(Path.load(...), ...) with another size and the same output: points that both grids "
    "have are kept."
)
"""The same for a curve."""
OTHER_GRID_ALONG_EIGENVECTORS = (
    "Put that file back: eigenvectors are always kept, in a file beside their landscape, and measured again they may "
    "be others. Or pass plane=plane."
)
"""The same where the directions are eigenvectors."""
MEASURE_BARRIER = "Measure it with Measure(callback_fn).barrier(a, b)."
"""What to do where a line is not the whole way between two networks."""
