"""Minima of a measured grid, the passes between them, and how deep they are."""
