"""Opens the workers that measure; here alone a user's options become those of a measurement and of a pool."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import WeightSpace
from workers.measurement_options import MeasurementOptions
from workers.measurement_plan import MeasurementPlan
from workers.pool import Pool
from workers.pools.first_call import FirstCall, space_before_devices
from workers.pools.open_pool import open_pool
from workers.pools.ray_session import is_on_a_cluster
from workers.users_code import warn_user

from ..planes.node_processes import NodeProcesses
from ..planes.passes import HERE, Passes
from .identity import REMEDY
from .options import OPTIONS
from .run import Run

_MEASURED = tuple(field.name for field in fields(MeasurementOptions))
# From here on nodes save more than the half minute that they may take to begin: this process reads 50 MB a second.
_LARGE_BYTES = 4 * 2**30
_PLACED = ("device_ids", "devices_per_worker", "workers_per_device", "address", "sample_memory", "compile")


def open_workers(
    callback_fn: Callable[[], Any], chosen: Mapping[str, Any], *, continued: MeasurementPlan | None = None, **how: Any
) -> Pool:
    """Opens a pool for a call's options; its plan is the option ``plan``, else that of what is continued.

    ``how`` has the points, seconds and whether it is a rehearsal, as ``open_pool`` takes them.
    """
    how |= {name: OPTIONS[name].checked(name, chosen[name]) for name in _PLACED if name in chosen}
    options = measurement_options(chosen)
    return open_pool(callback_fn, options, plan=given_plan(chosen) or continued, **how)


class Workers(contextlib.ExitStack):
    """The workers of a call whose planes need the network's description: opened when they are first needed.

    ``how`` is that of ``open_workers``; the run says how long the call may take yet.
    """

    def __init__(self, callback_fn: Callable[[], Any], chosen: Mapping[str, Any], run: Run, **how: Any) -> None:
        super().__init__()
        self._callback_fn, self._run, self._how = callback_fn, run, how
        # What is wrong with a plan shows before planes are computed.
        self._chosen = {**chosen, "plan": given_plan(chosen)}
        self._space: WeightSpace | None = None
        self.differ = False
        """Whether the workers have another network than the one that was described before them."""

    @property
    def space(self) -> WeightSpace:
        """The network's description: the workers', or before GPUs or nodes are reserved, that of a call on a CPU."""
        if self._space is None and isinstance(self._callback_fn, FirstCall):
            self._space = self._callback_fn.space
        if self._space is None:
            try:
                self._space = space_before_devices(self._callback_fn, self._chosen)
            except LandscapeError as error:
                # A worker says what is wrong, unless only this process without a GPU failed.
                self._space = self.pool.description.space
                self._warn(f"callback_fn could be called by the workers, but not in a process of this machine: {error}")
        return self._space or self.pool.description.space

    def passes(self, files: Sequence[Path]) -> contextlib.AbstractContextManager[Passes]:
        """Returns who computes the passes over files of checkpoints: the nodes of a cluster where these are large."""
        address = self._chosen.get("address")
        is_large = bool(files) and sum(path.stat().st_size for path in files) >= _LARGE_BYTES
        if not (is_large and is_on_a_cluster(address)):
            return contextlib.nullcontext(HERE)
        nodes = NodeProcesses(address, self._callback_fn, files)
        if not nodes:
            nodes.close()
            self._run.say("planes are computed here, because no node of the cluster finds the checkpoints")
            return contextlib.nullcontext(HERE)
        self._run.say(f"planes are computed by {len(nodes)} process{'es' * (len(nodes) > 1)} on the cluster's nodes")
        return nodes

    @functools.cached_property
    def pool(self) -> Pool:
        """The workers; a description that theirs differs from gives way to it, and planes are computed once more."""
        how = {**self._how, "seconds": self._run.left, "rehearsal": self._run.rehearsal}
        pool = self.enter_context(open_workers(self._callback_fn, self._chosen, **how))
        differences = () if self._space is None else self._space.differences(pool.description.space)
        self._space = pool.description.space
        self.differ = bool(differences)
        if differences:
            self._warn(f"callback_fn's network is another one where there is no GPU ({differences[0]})")
        return pool

    def _warn(self, why: str) -> None:
        warn_user(
            f"the workers' devices wait for the planes, which could not be computed before: {why}. Build the same "
            "network on the CPU; workers move it to their devices."
        )


def measurement_options(chosen: Mapping[str, Any]) -> MeasurementOptions:
    """Returns those of a call's options that say what is measured, checked together."""
    found = {name: chosen[name] for name in _MEASURED if name in chosen}
    # Where no plane is, whose networks would say how buffers are treated.
    return MeasurementOptions(**{**found, **({"buffers": "fixed"} if found.get("buffers") == "auto" else {})})


def given_plan(chosen: Mapping[str, Any]) -> MeasurementPlan | None:
    """Returns the plan of a call's options, checked with the others; None where none is given."""
    plan: MeasurementPlan | None = OPTIONS["plan"].checked("plan", chosen.get("plan"))
    precision = measurement_options(chosen).precision
    if plan is not None and plan.precision not in ("float32", precision):
        raise ValueError(
            f'plan was made for precision="{plan.precision}", but precision is "{precision}". Pass '
            f'precision="{plan.precision}", or another plan.'
        )
    return plan


def continued_plan(stored: Mapping[str, Any], path: AnyPath) -> MeasurementPlan:
    """Returns the plan of a file that is continued; a ``LandscapeError`` says that this version cannot use it."""
    try:
        return MeasurementPlan.from_json(stored)
    except (TypeError, ValueError) as error:
        raise LandscapeError(f"{path} was measured with a plan that cannot be used here ({error}). {REMEDY}") from error
