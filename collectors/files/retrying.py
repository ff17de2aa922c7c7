"""Tries again what failed because of a blip of the network."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

_Result = TypeVar("_Result")

LAST_PAUSES_SECONDS = (1.0, 5.0, 20.0)
"""The pauses between the attempts of a last write, which everything else waits for."""


def retry(
    action: Callable[[], _Result],
    pauses: Sequence[float],
    when: Callable[[Exception], bool] = lambda error: isinstance(error, OSError),
) -> _Result:
    """Returns an action's result, trying it again after each of the pauses while it fails.

    Args:
        action: what to try; it is called at most once more than there are pauses.
        pauses: in seconds.
        when: says whether an error may go away by itself; other errors are raised at once.

    Raises:
        Exception: the error of the last attempt.
    """
    for pause in pauses:
        try:
            return action()
        except Exception as error:
            if not when(error):
                raise
        time.sleep(pause)
    return action()
