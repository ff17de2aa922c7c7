"""The kinds of our HDF5 files, and how texts call them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        word: what it holds, as texts call it.
        format: its attribute ``format``.
        version: the ``format_version`` that is written and read.
        reader: what reads it, as a user calls it.
    """

    word: str
    format: str
    version: int
    reader: str


LANDSCAPE = FileKind("landscape", "summary-landscape", 2, "Landscape.load")
CURVATURE = FileKind("curvature", "summary-landscape-curvature", 1, "Curvature.load")
COMPARISON = FileKind("comparison", "summary-landscape-comparison", 1, "Comparison.load")
KINDS = (LANDSCAPE, CURVATURE, COMPARISON)
