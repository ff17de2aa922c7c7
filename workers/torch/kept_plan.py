"""Remembers the plan that tuning chose for a network on this machine, for later runs (PyTorch)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import torch
from torch import nn

from collectors.validation import check_float, check_int

from ..measurement_plan import MeasurementPlan
from ..samples.samples import Samples
from .compile_record import CompileCache, read_record, write_record

# After so many runs it is chosen anew: what disturbs memory or clock rates alone does not show in the share.
_MOST_RUNS = 20
# Of the time in which a thread wanted to run. With less, other programs had the core meanwhile.
_LEAST_SHARE = 0.9


class KeptPlan:
    """The tuned plan of a network, shape of samples, threads, version and machine, in the folder of compile records."""

    def __init__(self, network: nn.Module, samples: Samples, device: torch.device, asked: MeasurementPlan) -> None:
        # ``asked`` is what tuning does not choose: threads, precision, and batch_size=None where own batches are kept.
        cache = CompileCache(network, asked, samples, device)
        self._path = cache.folder / "summary_landscape" / "plans" / f"{cache.key}.json"
        self._is_gpu = device.type != "cpu"

    def find(self) -> tuple[MeasurementPlan, float] | None:
        """Returns the plan and its samples per second, and counts the run; None where a plan must be tuned."""
        record = read_record(self._path)
        with contextlib.suppress(ValueError, TypeError, KeyError):
            plan = MeasurementPlan(record["batch_size"], record["threads"], record["channels_last"])
            rate = check_float("samples_per_second", record["samples_per_second"], minimum=0)
            runs = check_int("runs", record["runs"], minimum=1)
            if rate and runs < _MOST_RUNS:
                write_record(self._path, {**record, "runs": runs + 1})
                return plan, rate
        return None

    def tuned(self, tune: Callable[[], tuple[MeasurementPlan, float]]) -> tuple[MeasurementPlan, float]:
        """Returns what tuning chooses, and keeps it unless other programs disturbed it."""
        wall, cpu = time.perf_counter(), time.thread_time()
        plan, rate = tune()
        share = (time.thread_time() - cpu) / max(time.perf_counter() - wall, 1e-9)
        if self._is_gpu or share >= _LEAST_SHARE:
            record = {"batch_size": plan.batch_size, "threads": plan.threads, "channels_last": plan.channels_last}
            write_record(self._path, {**record, "samples_per_second": rate, "runs": 1})
        return plan, rate
