"""Chooses the pool that fits what the user asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from collectors.validation import check_device_ids, check_instance

from .devices import choose_devices, gpu_ids
from .evaluator import MeasurementOptions
from .measurement_plan import MeasurementPlan, Workload, check_compile
from .pool import InProcessPool, Pool
from .ray_session import ray_address, ray_is_running
from .worker_layout import WorkerLayout


def open_pool(
    callback_fn: Callable[[], Any],
    options: MeasurementOptions,
    *,
    device_ids: object = None,
    address: str | None = None,
    plan: MeasurementPlan | None = None,
    compile: bool | str = "auto",
    points: int = 0,
    seconds: float | None = None,
    devices_per_worker: int = 1,
    workers_per_device: int = 1,
) -> Pool:
    """Returns a pool on the asked devices.

    Where one worker is enough and no Ray is running or named, everything happens in this process: nothing is started.

    Args:
        callback_fn: see ``build_evaluator``.
        options: what is measured.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        address: of a Ray cluster.
        plan: how to compute; None tunes one.
        compile: whether the network is compiled: True, False or "auto" (where the forecast says that it pays back).
        points: how many will be measured, as far as that is known.
        seconds: the budget of measuring them, or None.
        devices_per_worker: how many GPUs each worker sees, the first of which is its ``cuda:0``; without GPUs, how
            many slots' cores it joins.
        workers_per_device: how many workers share each GPU and its memory; without GPUs, a slot's cores.

    Raises:
        TypeError: callback_fn cannot be called, or another argument has the wrong type.
        ValueError: device_ids is empty, or an id is repeated, negative or not there; or it is not a multiple of
            devices_per_worker; or both that and workers_per_device exceed 1; or compile is unknown text.
        LandscapeError: the workers could not start; the subclass says why.
    """
    workload = Workload(check_compile(compile), points, math.inf if seconds is None else seconds)
    check_instance("callback_fn", callback_fn, Callable, "a function without arguments")  # type: ignore[arg-type]
    if address is not None:
        check_instance("address", address, str, "the address of a Ray cluster (str) or None")
    if plan is not None and not isinstance(workload.compile, str):
        plan = replace(plan, compile=workload.compile, reason="")
    asked = check_device_ids("device_ids", device_ids)
    layout = WorkerLayout.checked(devices_per_worker, workers_per_device)
    if not ray_is_running() and ray_address(address) is None:
        devices = choose_devices(asked)
        layout.check_devices(devices)
        if runs_in_process(devices, layout):
            return InProcessPool(callback_fn, options, device_id=devices[0], plan=plan, workload=workload)
    from .ray_pool import RayPool

    return RayPool(callback_fn, options, device_ids=asked, address=address, plan=plan, workload=workload, layout=layout)


def runs_in_process(devices: tuple[int, ...], layout: WorkerLayout) -> bool:
    """Returns whether one worker is all there is, so that this process can be it.

    A worker with several GPUs is a process of its own, which sees no other ones.
    """
    return layout.workers(len(devices)) == 1 and (len(devices) == 1 or not gpu_ids())
