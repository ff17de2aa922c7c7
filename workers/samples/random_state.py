"""The process's random state, which belongs to the user: a landscape drawn during a training leaves it alone."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Item = TypeVar("Item")


@dataclass(frozen=True)
class RandomState:
    """The state of Python's, NumPy's and PyTorch's global generators, the last of the CPU and where it is loaded."""

    python: Any
    numpy: Any
    torch: Any

    @classmethod
    def now(cls) -> RandomState:
        torch = sys.modules.get("torch")
        return cls(
            random.getstate(),
            np.random.get_state(legacy=False),  # noqa: NPY002
            None if torch is None else torch.get_rng_state(),
        )

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002
        if self.torch is not None:
            sys.modules["torch"].set_rng_state(self.torch)


@contextlib.contextmanager
def random_state_kept() -> Iterator[None]:
    before = RandomState.now()
    try:
        yield
    finally:
        before.restore()


class OwnRandomState:
    """Random numbers apart from the process's: they begin where the process's are, and go on where they stopped."""

    def __init__(self) -> None:
        self._state = RandomState.now()

    def iterate(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items, each of which draws these numbers as it is made; the process's do not move."""
        iterator = iter(items)
        while True:
            with random_state_kept():
                self._state.restore()
                try:
                    item = next(iterator)
                except StopIteration:
                    return
                finally:
                    self._state = RandomState.now()
            yield item
            del item  # it may be large, and goes before the next one is made
