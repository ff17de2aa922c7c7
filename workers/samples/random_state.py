"""The process's random state, which belongs to the user: a landscape drawn during a training leaves it alone."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")


def random_state() -> tuple[Any, Any, Any, Any]:
    """Returns the states of Python's, NumPy's and, where it is loaded, PyTorch's global generators, GPUs' too."""
    torch = sys.modules.get("torch")
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002
    # Asking for those of GPUs would begin to use them.
    gpus = torch.cuda.get_rng_state_all() if torch is not None and torch.cuda.is_initialized() else []
    return random.getstate(), numpy_state, None if torch is None else torch.get_rng_state(), gpus


def set_random_state(state: tuple[Any, Any, Any, Any]) -> None:
    python_state, numpy_state, torch_state, gpus = state
    random.setstate(python_state)
    np.random.set_state(numpy_state)  # noqa: NPY002
    if torch_state is not None:
        sys.modules["torch"].set_rng_state(torch_state)
    if gpus:
        sys.modules["torch"].cuda.set_rng_state_all(gpus)


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    before = random_state()
    try:
        yield
    finally:
        set_random_state(before)


class OwnRandomState:
    """Random numbers apart from the process's: they begin where the process's are, and go on where they stopped."""

    def __init__(self) -> None:
        self._state = random_state()

    def iterate(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items, each of which draws these numbers as it is made; the process's do not move."""
        iterator = iter(items)
        while True:
            with random_state_kept():
                set_random_state(self._state)
                try:
                    item = next(iterator)
                except StopIteration:
                    return
                finally:
                    self._state = random_state()
            yield item
            del item  # it may be large, and goes before the next one is made
