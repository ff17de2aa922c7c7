"""Chooses the pool that fits what the user asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectors.validation import check_device_ids, check_instance

from .devices import choose_devices
from .evaluator import MeasurementOptions
from .measurement_plan import MeasurementPlan
from .pool import InProcessPool, Pool
from .ray_session import ray_address, ray_is_running


def open_pool(
    callback_fn: Callable[[], Any],
    options: MeasurementOptions,
    *,
    device_ids: object = None,
    address: str | None = None,
    plan: MeasurementPlan | None = None,
) -> Pool:
    """Returns a pool on the asked devices.

    With one device and no Ray running or named, everything happens in this process: nothing is started.

    Args:
        callback_fn: see ``build_evaluator``.
        options: what is measured.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
        address: of a Ray cluster.
        plan: how to compute; None tunes one.

    Raises:
        TypeError: callback_fn cannot be called, or device_ids is no list of ints.
        ValueError: device_ids is empty, or an id is repeated, negative or not there.
        LandscapeError: the workers could not start; the subclass says why.
    """
    check_instance("callback_fn", callback_fn, Callable, "a function without arguments")  # type: ignore[arg-type]
    if address is not None:
        check_instance("address", address, str, "the address of a Ray cluster (str) or None")
    asked = check_device_ids("device_ids", device_ids)
    devices = choose_devices(asked)
    if len(devices) == 1 and not ray_is_running() and ray_address(address) is None:
        return InProcessPool(callback_fn, options, device_id=devices[0], plan=plan)
    from .ray_pool import RayPool

    return RayPool(callback_fn, options, device_ids=asked, address=address, plan=plan)
