"""Landscapes in the formats of other programs."""

from .export import FORMATS, export_landscape

__all__ = ["FORMATS", "export_landscape"]
