"""A progress bar where the user looks: a line in a terminal, a widget in a notebook."""

from __future__ import annotations

import sys
import warnings
from typing import Any


def progress_bar(total: int | None, unit: str, *, shown: bool = True, done: int = 0, name: str | None = None) -> Any:
    """Returns a bar of tqdm's, to be used as a context.

    Args:
        total: how many there are, or None if nobody knows.
        unit: what is counted.
        shown: whether the bar appears at all.
        done: how many there were before.
        name: what stands before the bar.
    """
    return _kind(shown)(
        total=total,
        initial=done,
        desc=name,
        unit=unit,
        disable=not shown,
        smoothing=0.1,
        # A notebook shows what comes from stderr as if something were wrong.
        file=sys.stdout if "ipykernel.zmqshell" in sys.modules else sys.stderr,
        dynamic_ncols=True,
    )


def _kind(shown: bool) -> Any:
    if not shown:
        from tqdm import tqdm

        return tqdm
    with warnings.catch_warnings():
        # Without ipywidgets the bar is a line of text, which says as much.
        warnings.filterwarnings("ignore", message="IProgress not found")
        from tqdm.auto import tqdm as chosen

    return chosen
