"""The kinds of our HDF5 files, and how texts call them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        word: what it holds, as texts call it.
        format: its attribute ``format``.
        version: the ``format_version`` that is written.
        oldest: the oldest one that is read; HDF5 files of it have no digest of their contents.
        reader: what reads it, as a user calls it.
    """

    word: str
    format: str
    version: int
    oldest: int
    reader: str


LANDSCAPE = FileKind("landscape", "summary-landscape", 3, 2, "Landscape.load")
CURVATURE = FileKind("curvature", "summary-landscape-curvature", 2, 1, "Curvature.load")
COMPARISON = FileKind("comparison", "summary-landscape-comparison", 2, 1, "Comparison.load")
KINDS = (LANDSCAPE, CURVATURE, COMPARISON)
