"""Measurements in a file: named arrays that a pool fills, resumable by their identity."""
