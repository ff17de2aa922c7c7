"""A progress bar where the user looks: a line in a terminal, a widget in a notebook."""

from __future__ import annotations

import sys
import warnings
from typing import Any


def progress_bar(total: int | None, unit: str, *, shown: bool = True, done: int = 0, name: str | None = None) -> Any:
    """Returns a progress bar of tqdm, which is a context manager.

    Args:
        total: how many units there are, None if unknown.
        unit: the name of what is counted.
        shown: whether the bar appears at all.
        done: how many units were done before.
        name: the text in front of the bar.
    """
    return _kind(shown)(
        total=total,
        initial=done,
        desc=name,
        unit=unit,
        disable=not shown,
        smoothing=0.1,
        # A notebook shows stderr as if it were an error.
        file=sys.stdout if "ipykernel.zmqshell" in sys.modules else sys.stderr,
        dynamic_ncols=True,
    )


def _kind(shown: bool) -> Any:
    if not shown:
        from tqdm import tqdm

        return tqdm
    with warnings.catch_warnings():
        # Without ipywidgets the bar is a line of text, which is enough.
        warnings.filterwarnings("ignore", message="IProgress not found")
        from tqdm.auto import tqdm as chosen

    return chosen
