"""Which process of a distributed training this one is, and how many there are."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# torchrun and most launchers; MindSpore's.
_VARIABLES = ("RANK", "RANK_ID")


def is_first_rank() -> bool:
    """Returns whether this process is rank 0 of a distributed training, or the only one."""
    distributed = _torch_distributed()
    if distributed is not None:
        return bool(distributed.get_rank() == 0)
    jax = sys.modules.get("jax")
    # Asking JAX for its process would start its back end.
    if jax is not None and jax.distributed.is_initialized():
        return bool(jax.process_index() == 0)
    ranks = (os.environ.get(name, "") for name in _VARIABLES)
    return not any(rank.isdigit() and int(rank) > 0 for rank in ranks)


def on_first_rank(action: Callable[[], T]) -> T | None:
    """Returns on every rank what a function returns on rank 0; all ranks must call this, and all raise its error."""
    result: T | None = None
    failure: Exception | None = None
    if is_first_rank():
        try:
            result = action()
        except Exception as error:
            failure = error
    distributed = _torch_distributed()
    if distributed is not None and distributed.get_world_size() > 1:
        outcome: list[Any] = [_sendable(failure), result]
        try:
            distributed.broadcast_object_list(outcome, src=0)
        except Exception:
            # Nobody is there to be told.
            if failure is None:
                raise
        failure, result = failure or outcome[0], outcome[1]
    if failure is not None:
        raise failure
    return result


def _sendable(error: Exception | None) -> Exception | None:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"rank 0 failed with {type(error).__name__}: {error}")
    return error


def parallel_parameters() -> dict[str, Any]:
    """Returns what ``cb_params`` says about the processes that train together: ``parallel_mode``, ``device_number``."""
    distributed = _torch_distributed()
    if distributed is None:
        return {"parallel_mode": "stand_alone", "device_number": 1}
    return {"parallel_mode": "data_parallel", "device_number": distributed.get_world_size()}


def _torch_distributed() -> Any:
    """Returns ``torch.distributed`` where PyTorch trains with a process group, else None."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    is_used = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if is_used else None
