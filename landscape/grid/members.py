"""Who is on the plane when a file is continued: what it holds of them is carried over, by their weights' SHA-256."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..roles import NO_RUN
from .checkpoints import CheckpointsData
from .data import LandscapeData

_PLACE = re.compile(r"checkpoints/(\d+)/(.+)")


def take_members(stored: LandscapeData, fresh: LandscapeData) -> None:
    """Replaces the checkpoints, networks, names and roles in ``stored`` by those of ``fresh``, of the same identity."""
    # Who is on the plane is no part of the identity. What the file holds of weights which this call names, under any
    # name, is carried over. Runs and networks of the file that this call does not name stay after them; one of a name
    # that this call gives to other weights is replaced.
    now, before = fresh.checkpoints, stored.checkpoints
    _name_as_before(stored, fresh)
    for name in ("role", "name", "run", "number"):
        setattr(stored.origin, name, getattr(fresh.origin, name))
    if now is None or before is None:
        stored.checkpoints = now if before is None else before
        return
    digests = _digests(before, stored.attributes)
    places_before = [digests.index(digest) if digest and digest in digests else None for digest in now.sha256]
    kept = _kept(now, before, digests)
    runs = list(now.runs)
    for row in kept:
        if (name := before.run_name(row)) and name not in runs:
            runs.append(name)
    old = before.part(np.array(kept, np.intp))
    run = [NO_RUN if before.run[row] == NO_RUN else runs.index(before.run_name(row)) for row in kept]
    joined = _joined(now, replace(old, run=np.array(run, np.int64)), tuple(runs))
    places: dict[int, list[int]] = {}
    for row, at in enumerate([*places_before, *kept]):
        if at is not None:
            _copy_row(before, at, joined, row)
            places.setdefault(at, []).append(row)
    stored.checkpoints = replace(joined, sha256=(*now.sha256, *(digests[row] for row in kept)))
    _move_errors(stored.errors, places)


def _name_as_before(stored: LandscapeData, fresh: LandscapeData) -> None:
    """Calls a run without a name as the file does, which may hold further runs."""
    now, before = fresh.checkpoints, stored.checkpoints
    if now is None or before is None or now.runs != ("",):
        return
    digests = _digests(before, stored.attributes)
    known = [digests.index(digest) for digest in now.sha256 if digest and digest in digests]
    name = next((before.run_name(row) for row in known if before.run[row] != NO_RUN), "")
    if not name and any(run for run in before.runs):
        name = _free_name(before.runs)
    now.runs = (name,)
    if fresh.origin.number is not None:
        fresh.origin.run = name


def _free_name(taken: Sequence[str]) -> str:
    return next(name for name in ("run", *(f"run {index}" for index in range(2, len(taken) + 3))) if name not in taken)


def _digests(before: CheckpointsData, attributes: dict[str, Any]) -> list[str]:
    """Returns the digest of each row; a file that does not hold them has those of its identity's first rows."""
    if any(before.sha256):
        return list(before.sha256)
    plane = (attributes.get("identity") or {}).get("plane") or {}
    first = [str(digest) for digest in plane.get("checkpoints") or plane.get("points") or []]
    return [*first, *("",) * len(before.number)][: len(before.number)]


def _kept(now: CheckpointsData, before: CheckpointsData, digests: Sequence[str]) -> list[int]:
    """Returns the rows of the file's runs and networks that this call neither names nor has under another name."""
    names = {now.name[row] for row in now.networks}
    rows = [row for row in before.networks.tolist() if before.name[row] not in names and digests[row] not in now.sha256]
    for path in before.paths:
        renamed = all(digests[row] in now.sha256 for row in path)
        if not renamed and before.run_name(path[0]) not in now.runs:
            rows += path.tolist()
    return sorted(rows)


def _joined(first: CheckpointsData, second: CheckpointsData, runs: tuple[str, ...]) -> CheckpointsData:
    def both(one: Any, other: Any) -> Any:
        if isinstance(one, dict):
            return {name: both(values, other[name]) for name, values in one.items()}
        if isinstance(one, np.ndarray):
            return np.concatenate([one, other])
        return one if one is None else (*one, *other)

    parts = {name: both(value, getattr(second, name)) for name, value in vars(first).items() if name != "runs"}
    return CheckpointsData(**parts, runs=runs)


def _copy_row(source: CheckpointsData, at: int, target: CheckpointsData, row: int) -> None:
    """Copies where a network lies and what was measured of it; who it is stays."""
    for name, value in vars(source).items():
        mine = getattr(target, name)
        if isinstance(value, dict):
            for metric, values in value.items():
                mine[metric][row] = values[at]
        elif isinstance(value, np.ndarray) and name not in ("number", "run", "final"):
            mine[row] = value[at]


def _move_errors(errors: dict[str, str], places: dict[int, list[int]]) -> None:
    """Gives the failures of checkpoints the places that their rows have now."""
    moved: dict[str, str] = {}
    for place in list(errors):
        if match := _PLACE.fullmatch(place):
            text = errors.pop(place)
            moved |= {f"checkpoints/{row}/{match[2]}": text for row in places.get(int(match[1]), [])}
    errors |= moved
