"""Opens the workers that measure; here alone a user's options become those of a measurement and of a pool."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Protocol

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import Pool
from workers.pools.first_call import space_before_devices
from workers.pools.open_pool import open_pool

from .identity import REMEDY
from .options import OPTIONS

_MEASURED = tuple(field.name for field in fields(MeasurementOptions))
_PLACED = ("device_ids", "devices_per_worker", "workers_per_device", "address", "sample_memory", "compile", "plan")


class Planned(Protocol):
    """What is continued with the plan that it was measured with."""

    @property
    def plan(self) -> MeasurementPlan | None:
        """The plan, or None."""


def open_workers(
    callback_fn: Callable[[], Any],
    chosen: Mapping[str, Any],
    *,
    stored: Iterable[Planned] = (),
    points: int = 0,
    seconds: float | None = None,
    rehearsal: bool = False,
) -> Pool:
    """Opens a pool for a call's options; its plan is the option ``plan``, else the first one of what is continued."""
    options = measurement_options(chosen)
    placed = {name: OPTIONS[name].checked(name, chosen[name]) for name in _PLACED if name in chosen}
    plan: MeasurementPlan | None = placed.pop("plan", None)
    if plan is not None and plan.precision not in ("float32", options.precision):
        raise ValueError(
            f'plan was made for precision="{plan.precision}", but precision is "{options.precision}". Pass '
            f'precision="{plan.precision}", or another plan.'
        )
    if plan is None:
        plan = next((plan for item in stored if (plan := item.plan) is not None), None)
    return open_pool(
        callback_fn,
        options,
        **placed,
        plan=plan,
        points=points,
        seconds=seconds,
        rehearsal=rehearsal,
    )


class Workers(contextlib.ExitStack):
    """The workers of a call whose planes need the network's description: opened when they are first needed.

    Args:
        callback_fn: of the user.
        chosen: the options of the call.
        how: of ``open_workers``.
    """

    def __init__(self, callback_fn: Callable[[], Any], chosen: Mapping[str, Any], **how: Any) -> None:
        super().__init__()
        self._callback_fn, self._chosen, self._how = callback_fn, chosen, how
        self._described: WeightSpace | None = None

    @functools.cached_property
    def space(self) -> WeightSpace:
        """The network's description; where workers will reserve GPUs or nodes, these are not reserved for it yet."""
        try:
            self._described = space_before_devices(self._callback_fn, self._chosen)
        except LandscapeError as error:
            # A worker says what is wrong, unless only this process without a GPU failed.
            space = self.pool.description.space
            warnings.warn(
                "callback_fn could be called on the workers' devices, but not on a CPU, so the devices waited for it. "
                f"Build the network on the CPU; workers move it to their devices. The error was: {error}",
                UserWarning,
                stacklevel=3,
            )
            return space
        return self._described or self.pool.description.space

    @functools.cached_property
    def pool(self) -> Pool:
        """The workers."""
        pool = self.enter_context(open_workers(self._callback_fn, self._chosen, **self._how))
        if self._described and (differences := self._described.differences(pool.description.space)):
            raise LandscapeError(
                "callback_fn must return the same network on a CPU and on the workers' devices:\n  "
                + "\n  ".join(differences[:20])
            )
        return pool


def measurement_options(chosen: Mapping[str, Any]) -> MeasurementOptions:
    """Returns those of a call's options that say what is measured, checked."""
    return MeasurementOptions(**{name: chosen[name] for name in _MEASURED if name in chosen})


def continued_plan(stored: Mapping[str, Any], path: AnyPath) -> MeasurementPlan:
    """Returns the plan of a file that is continued; a ``LandscapeError`` says that this version cannot use it."""
    try:
        return MeasurementPlan.from_json(stored)
    except (TypeError, ValueError) as error:
        raise LandscapeError(f"{path} was measured with a plan that cannot be used here ({error}). {REMEDY}") from error
