"""The base error of this project, and what can go wrong with a run directory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class LandscapeError(Exception):
    """Something about a landscape or its run went wrong; the text says what and how to mend it."""


class FileWriteError(LandscapeError, OSError):
    """A file could not be written; the one that was there is untouched.

    Attributes:
        reason: why, in the operating system's words, without a path.
    """

    def __init__(self, path: object, error: OSError) -> None:
        self.reason = error.strerror or str(error)
        super().__init__(
            f"{path} cannot be written: {self.reason}. What was there is untouched. Free some space or choose another "
            "directory."
        )


class NotReplacedError(FileWriteError):
    """What has a file's name is not replaced: it is no file, is read-only, or holds something else."""

    def __init__(self, path: object, reason: str) -> None:
        self.reason = reason
        super(FileWriteError, self).__init__(f"{path} {reason} and was left as it is. Remove it, or give another name.")


def reason_of(error: BaseException) -> str:
    """Returns why something could not be written or read, as far as possible without paths and remedies."""
    if isinstance(error, FileWriteError):
        return error.reason
    return (isinstance(error, OSError) and error.strerror) or str(error)


class RunDirectoryError(LandscapeError):
    """A run directory cannot be used: it is missing, foreign, damaged or already holds a run."""


class CheckpointError(LandscapeError):
    """A checkpoint is missing, damaged, or belongs to another network."""


class CheckpointWriteError(LandscapeError):
    """A checkpoint could not be written; training stops, because the run would have a hole."""


@contextlib.contextmanager
def reporting(what: str, remedy: str = "", kind: type[LandscapeError] = RunDirectoryError) -> Iterator[None]:
    """Turns what the operating system refuses into an error that says what failed, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {reason_of(error)}. {remedy}".rstrip()) from error
