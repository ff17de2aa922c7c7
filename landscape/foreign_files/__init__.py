"""Landscapes that other programs measured."""

from .import_file import FOREIGN_FORMATS, import_landscape

__all__ = ["FOREIGN_FORMATS", "import_landscape"]
