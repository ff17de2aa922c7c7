"""A callback whose metrics say where a worker computes, and a worker that says what Ray gave it."""

import os
import re
from pathlib import Path

import numpy as np
from paraboloid import Paraboloid


def cores_as_number():
    """The affinity mask; every thread of the process must have the same one."""
    tasks = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    (mask,) = {sum(1 << core for core in os.sched_getaffinity(task)) for task in tasks}
    return mask


def torch_places():
    """A small network; its metrics are the worker's mask and its thread counts."""
    import threadpoolctl
    import torch
    from torch import nn

    def pools(prefix):
        found = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["prefix"] in prefix]
        return float(max(found, default=0))

    metrics = {
        "mask": lambda outputs, targets: float(cores_as_number()),
        "torch": lambda outputs, targets: float(torch.get_num_threads()),
        "openmp": lambda outputs, targets: pools(("libgomp", "libiomp", "libomp")),
        "blas": lambda outputs, targets: pools(("mkl_rt", "libmkl_rt", "libopenblas", "libscipy_openblas")),
        "process": lambda outputs, targets: float(os.getpid()),
    }
    torch.manual_seed(0)
    return nn.MSELoss(), nn.Linear(3, 1), (torch.ones(8, 3), torch.zeros(8, 1)), metrics


class GivenDevices(Paraboloid):
    """Says which GPUs its process sees, as the digits of their names behind a leading 1, and JAX's share of memory."""

    def _loss(self, x):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        digits = (re.sub(r"\D", "", name) for name in sorted(visible.split(",")))
        return int("1" + "".join(digits)) + float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", "0"))


def numbers(pool):
    """What the workers say, in their order."""
    pool.load({"x": np.zeros(3)}, [{"x": np.ones(3)}], {})
    return [origin.measured.values[0]["loss"] for origin in pool.measure_origin()]
