"""Processes that were forked from one that may have computed, whose libraries' threads do not come along."""

from __future__ import annotations

import os
import sys

from .users_code import warn_user

_begun = os.getpid()


def begin_anew() -> None:
    """Says that nothing was computed in the process from which this one was forked."""
    global _begun
    _begun = os.getpid()


def threads_of(wanted: int) -> int:
    """Returns how many threads PyTorch may use: one in a forked process, which would wait for the others for ever."""
    if wanted == 1 or os.getpid() == _begun:
        return wanted
    warn_user(
        "this process was forked from one in which PyTorch may have computed, and its threads do not come along: it "
        'measures with one thread. Start it with multiprocessing.get_context("spawn") for all.'
    )
    return 1


def settle() -> None:
    """Lets PyTorch, if it is loaded, use as many threads as it may before the user's function is called."""
    if (torch := sys.modules.get("torch")) is not None:
        threads = torch.get_num_threads()
        if (allowed := threads_of(threads)) != threads:
            torch.set_num_threads(allowed)
