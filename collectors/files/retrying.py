"""Trying again what a blip of the network made fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

_Result = TypeVar("_Result")

LAST_PAUSES_SECONDS = (1.0, 5.0, 20.0)
"""Before the attempts that follow the first one, for the last write of all: nothing else may go on meanwhile."""


def retry(
    action: Callable[[], _Result],
    pauses: Sequence[float],
    when: Callable[[Exception], bool] = lambda error: isinstance(error, OSError),
) -> _Result:
    """Returns an action's result, trying it again after each of the pauses while it fails.

    Args:
        action: what to try; it is called at most once more than there are pauses.
        pauses: in seconds.
        when: whether an error may pass by itself; all others are raised at once.

    Raises:
        Exception: what the last attempt raised.
    """
    for pause in pauses:
        try:
            return action()
        except Exception as error:
            if not when(error):
                raise
        time.sleep(pause)
    return action()
