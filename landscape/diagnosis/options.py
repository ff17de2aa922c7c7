"""The options of a check, apart from what carries it out, because the command line needs these alone to begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class CheckOptions(TypedDict, total=False):
    """How the loss is measured: as in the measurement that the check is for."""

    num_samples: int | Mapping[str, int | None] | None
    device_ids: list[int] | None  # of which the first one measures
    seed: int
    samples: str
    buffers: str
    seed_each_point: bool
    sample_memory: int | str
