"""Other random numbers for what callback_fn draws, as another worker or a later call would give it."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np

from ..samples.random_state import random_state_kept


@contextlib.contextmanager
def other_random_numbers(seed: int) -> Iterator[None]:
    """Seeds Python's, NumPy's and PyTorch's global generators in this process, and puts them back at the end."""
    with random_state_kept():
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        if "torch" in sys.modules:
            sys.modules["torch"].default_generator.manual_seed(seed)
        yield
