"""The base error of this project, and what can go wrong with a run directory."""


class LandscapeError(Exception):
    """Something about a landscape or its run went wrong; the text says what and how to mend it."""


class RunDirectoryError(LandscapeError):
    """A run directory cannot be used: it is missing, foreign, damaged or already holds a run."""


class CheckpointError(LandscapeError):
    """A checkpoint is missing, damaged, or belongs to another network."""


class CheckpointWriteError(LandscapeError):
    """A checkpoint could not be written; training stops, because the run would have a hole."""
