"""The run directory: the checkpoints and metadata that a training leaves behind, written and read."""

from .directory import RunDirectory as RunDirectory
