"""What can go wrong while losses are measured."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from collectors.errors import LandscapeError


class CallbackFunctionError(LandscapeError):
    """callback_fn raised, cannot be sent to the workers, or returned something unusable."""


class SampleLossesError(CallbackFunctionError, ValueError):
    """What callback_fn returns gives no loss for each sample, which groups and keep_samples need."""


def quotes_user(error: Exception) -> bool:
    """Whether an error's text is what the user's own code raised, which is shown as it is."""
    return isinstance(error, CallbackFunctionError) and not isinstance(error, SampleLossesError)


class SamplesError(LandscapeError):
    """The data set cannot be measured: it is empty, unlabelled, or gives other samples each time."""


class FrozenNetworkError(LandscapeError):
    """The network has no trainable parameter, so there is no weight space to draw a plane through."""


class NondeterministicLossError(LandscapeError):
    """The same weights gave two losses; a surface of such values would be noise."""


class MemoryShortageError(LandscapeError):
    """Memory ran out while a worker got ready or measured a point, and smaller batches cannot help."""


class SampleMemoryError(LandscapeError):
    """The samples do not fit into the memory that they may take, and cannot be read in passes either."""


class CurvatureError(LandscapeError):
    """The curvature of a loss cannot be computed: something has no second derivative, or memory does not suffice."""


class CurveError(LandscapeError):
    """No curve can be fitted: nothing can be differentiated, or the loss is not finite on the way."""


class PointsFailedError(Exception):
    """The user's code raised at some of the points that were measured together; a pool marks these as failed.

    Args:
        values: of each point, by name; None where it failed.
        errors: of each point, the traceback, or None.
    """

    def __init__(self, values: Sequence[dict[str, float] | None], errors: Sequence[str | None]) -> None:
        super().__init__(next((error for error in errors if error), ""))
        self.values, self.errors = values, errors


class ChangedSamplesError(SamplesError):
    """The data set gave other samples in a later pass, so that values of one landscape would not belong together."""


class PoolError(LandscapeError):
    """No worker could be started, or none is left."""


def first_line(error: Exception) -> str:
    """Returns the first line of what an error says, or its class's name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def closing_on_failure(item: Any) -> Iterator[None]:
    """Closes what cannot be made ready."""
    try:
        yield
    except BaseException:
        item.close()
        raise


RUN_AGAIN = "What was measured is in the file; run the same call again to go on."
"""What to do where a run ends before its time."""

IN_THE_WORKER = "In the worker:\n"
"""How the note of an error begins that holds the traceback of the process where it was raised."""
