"""What a survey begins with: the landscape that its file holds already, or another one of the same identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collectors.files.places import AnyPath
from workers.measurement_plan import plan_text

from ..errors import LandscapeNotFoundError
from ..file.data import LandscapeData
from ..file.landscape_file import read_landscape
from ..record.identity import check_identity
from .carrying_over import (
    carried_over,
    check_nothing_is_lost,
    goes_on_for_members,
    grid_text,
    has_grid,
    holds_all,
    kept_points,
)
from .experiment import FUNCTION, FURTHER_RUNS, RUN
from .kept_plane import check_vectors
from .members import take_members

_OF_SOURCE = (
    "Return the same data, loss and metrics from callback_fn, and give the same run or plane, as when the file was "
    "measured."
)
# Of a plan; one of another precision is another experiment.
_UNSAID = ("reason", "precision")


@dataclass(frozen=True)
class Source:
    """A landscape from which a new file begins, and where its file lies."""

    data: LandscapeData
    path: AnyPath


def begun_before(path: AnyPath | None, fresh: LandscapeData, source: Source | None = None) -> tuple[LandscapeData, str]:
    """Returns ``fresh`` with what its file or the source holds, and in words what was kept of another grid, or ""."""
    if source is not None:
        check_identity(
            source.data.attributes.get("identity", {}), fresh.attributes["identity"], source.path, _OF_SOURCE
        )
        check_vectors(source.data, fresh.attributes, source.path)
    stored = None if path is None else _read(path)
    if path is None or stored is None:
        if source is None:
            return fresh, ""
        kept, data = _kept_text(source.data, fresh), carried_over(source.data, fresh)
        data.attributes["created"] = fresh.attributes["created"]
        _tell_what_changed(data.attributes, fresh.attributes)
        take_members(data, fresh)
        return data, kept
    check_identity(stored.attributes.get("identity", {}), fresh.attributes["identity"], path)
    check_vectors(stored, fresh.attributes, path)
    kept, is_same_grid = "", has_grid(stored, fresh.x, fresh.y)
    if not (is_same_grid and stored.complete):
        _tell_what_changed(stored.attributes, fresh.attributes)
    if is_same_grid or goes_on_for_members(stored, fresh):
        pass
    elif stored.complete and holds_all(stored, fresh.x, fresh.y):
        # So that a run whose landscape was refined or widened meanwhile can be asked for again.
        asked, has = grid_text(fresh.x, fresh.y), grid_text(stored.x, stored.y)
        kept = f"it has every point of {asked}, and more: it stays on {has}"
    else:
        check_nothing_is_lost(stored, fresh.x, fresh.y, path)
        kept, stored = _kept_text(stored, fresh), carried_over(stored, fresh)
    # Where to find function and run is no part of the identity either.
    stored.attributes |= {
        name: fresh.attributes[name] for name in (FUNCTION, RUN, FURTHER_RUNS) if name in fresh.attributes
    }
    take_members(stored, fresh)
    return stored, kept


def _read(path: AnyPath) -> LandscapeData | None:
    try:
        return read_landscape(path)
    except LandscapeNotFoundError:
        return None


def _kept_text(stored: LandscapeData, fresh: LandscapeData) -> str:
    kept, measured = kept_points(stored, fresh.x, fresh.y)
    return (
        f"from {grid_text(stored.x, stored.y)} to {grid_text(fresh.x, fresh.y)}: {kept:,} of {measured:,} measured "
        "points are kept"
    )


def _tell_what_changed(stored: dict[str, Any], now: Mapping[str, Any]) -> None:
    """Adds this run's notes, and where it measures in another way its plan, to a file's attributes, in place."""
    notes = [*(stored.get("notes") or ()), *now["notes"]]
    plans = [
        {name: value for name, value in plan.items() if name not in _UNSAID}
        for plan in (stored.get("measurement_plan") or {}, now["measurement_plan"])
    ]
    if plans[0] != plans[1]:
        first, then = map(plan_text, plans)
        notes.append(f"the landscape was continued in another way: first in {first}; then in {then}.")
        stored["measurement_plan"] = now["measurement_plan"]
    stored["notes"] = list(dict.fromkeys(notes))
    stored["partition_dependent"] = bool(stored.get("partition_dependent")) or now["partition_dependent"]
