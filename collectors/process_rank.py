"""Which process of a distributed training this one is."""

from __future__ import annotations

import os
import sys

# torchrun and most launchers; MindSpore's.
_VARIABLES = ("RANK", "RANK_ID")


def is_first_rank() -> bool:
    """Returns whether this process is rank 0 of a distributed training, or the only one."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    jax = sys.modules.get("jax")
    # Asking JAX for its process would start its back end.
    if jax is not None and jax.distributed.is_initialized():
        return bool(jax.process_index() == 0)
    ranks = (os.environ.get(name, "") for name in _VARIABLES)
    return not any(rank.isdigit() and int(rank) > 0 for rank in ranks)
