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
    """Returns an action's result, tried again after each pause (seconds) if ``when`` says that its error may pass."""
    for pause in pauses:
        try:
            return action()
        except Exception as error:
            if not when(error):
                raise
        time.sleep(pause)
    return action()
