"""What a grid begins with: what its file holds already, or a landscape of the same identity on another grid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.files.places import AnyPath
from workers.measurement_plan import plan_text

from ..errors import LandscapeGridError
from ..record.checks import PointStatus
from ..record.driver import Stored
from ..record.provenance import FUNCTION, FURTHER_RUNS, RUN
from ..roles import NO_RUN
from ..sampling.grids import coinciding, is_even, nested_size
from .checkpoints import CheckpointsData
from .data import LOSS_ERROR, LandscapeData
from .kept_plane import check_vectors

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64


_OF_SOURCE = (
    "Return the same data, loss and metrics from callback_fn, and give the same run or plane, as when the file was "
    "measured."
)
# Of a plan; one of another precision is another experiment.
_UNSAID = ("reason", "precision")
UNDER_WAY = "under_way"
"""The attribute of a file whose grid is being changed: what was asked for, so that the same call goes on."""
_MEMBER_PLACE = re.compile(r"checkpoints/(\d+)/(.+)")
_GRID_PLACE = re.compile(r"grid/(\d+(?:,\d+)?)")
_KEPT = (PointStatus.MEASURED, PointStatus.FAILED)


def check_continues(stored: Stored[LandscapeData], fresh: LandscapeData, source: LandscapeData | None = None) -> None:
    """Raises an error where a file, or the source, holds another experiment than ``fresh``, or points that it lacks."""
    if source is not None:
        assert source.path is not None
        Stored(stored.format, source.path, source).check(fresh, _OF_SOURCE)
        check_vectors(source, fresh.attributes, source.path)
    record, path = stored.record, stored.path
    if record is None or path is None:
        return
    stored.check(fresh)
    check_vectors(record, fresh.attributes, path)
    if not (_stays_on_its_grid(record, fresh) or (record.complete and holds_all(record, fresh.x, fresh.y))):
        check_nothing_is_lost(record, fresh.x, fresh.y, path)


def begun_before(
    stored: Stored[LandscapeData], fresh: LandscapeData, source: LandscapeData | None = None
) -> tuple[LandscapeData, str]:
    """Returns ``fresh`` with what its file or the source holds, and in words what was kept of another grid, or ""."""
    record = stored.record
    if record is None and source is None:
        return fresh, ""
    if record is None:
        assert source is not None
        kept, record = _kept_text(source, fresh), carried_over(source, fresh)
        record.attributes["created"] = fresh.attributes["created"]
        _tell_what_changed(record.attributes, fresh.attributes)
        take_members(record, fresh)
        return record, kept
    kept = ""
    if not (has_grid(record, fresh.x, fresh.y) and record.complete):
        _tell_what_changed(record.attributes, fresh.attributes)
    if not _stays_on_its_grid(record, fresh):
        if record.complete and holds_all(record, fresh.x, fresh.y):
            # So that a run whose landscape was refined or widened meanwhile can be asked for again.
            asked, has = grid_text(fresh.x, fresh.y), grid_text(record.x, record.y)
            kept = f"it has every point of {asked}, and more: it stays on {has}"
        else:
            kept, record = _kept_text(record, fresh), carried_over(record, fresh)
    # Where to find function and run is no part of the identity either.
    record.attributes |= {
        name: fresh.attributes[name] for name in (FUNCTION, RUN, FURTHER_RUNS) if name in fresh.attributes
    }
    take_members(record, fresh)
    return record, kept


def _stays_on_its_grid(stored: LandscapeData, fresh: LandscapeData) -> bool:
    return has_grid(stored, fresh.x, fresh.y) or goes_on_for_members(stored, fresh)


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


def has_grid(stored: LandscapeData, x: Float64[np.ndarray, " nx"], y: Float64[np.ndarray, " ny"] | None) -> bool:
    pairs = _pairs(stored, x, y)
    return all(len(old) == len(new) == len(coinciding(old, new)[0]) for old, new in pairs)


def goes_on_for_members(stored: LandscapeData, fresh: LandscapeData) -> bool:
    """Returns whether a landscape's grid is the other's, only longer, because runs or networks joined the first."""
    before, now = (0 if data.checkpoints is None else len(data.checkpoints.number) for data in (stored, fresh))
    pairs = list(_pairs(stored, fresh.x, fresh.y))
    found = [coinciding(old, new)[0] for old, new in pairs]
    return before > now and all(
        len(rows) == len(new) and (np.diff(rows) == 1).all() for rows, (_, new) in zip(found, pairs, strict=True)
    )


def holds_all(stored: LandscapeData, x: Float64[np.ndarray, " nx"], y: Float64[np.ndarray, " ny"] | None) -> bool:
    return all(len(coinciding(old, new)[0]) == len(new) for old, new in _pairs(stored, x, y))


def kept_points(
    stored: LandscapeData, x: Float64[np.ndarray, " nx"], y: Float64[np.ndarray, " ny"] | None
) -> tuple[int, int]:
    """Returns how many of a landscape's measured points are on a grid, and how many there are."""
    measured = stored.status == PointStatus.MEASURED
    places = np.ix_(*(coinciding(old, new)[0] for old, new in _pairs(stored, x, y)))
    return int(measured[places].sum()), int(measured.sum())


def check_nothing_is_lost(
    stored: LandscapeData, x: Float64[np.ndarray, " nx"], y: Float64[np.ndarray, " ny"] | None, path: AnyPath
) -> None:
    kept, measured = kept_points(stored, x, y)
    if kept == measured:
        return
    wanted = grid_text(x, y)
    more = "It has every point of that grid, and more, and is not finished. " if holds_all(stored, x, y) else ""
    raise LandscapeGridError(
        f"landscape file {path} is on another grid, {grid_text(stored.x, stored.y)}, and {measured - kept:,} of its "
        f"{measured:,} measured points are not on the grid of this call, {wanted}; it was left as it is. {more}To keep "
        "them all, make the file's grid finer or wider (`landscape evaluate FILE --factor 2` or `--limits`; in Python "
        "refine, widen). Otherwise pass overwrite=True to measure it anew, or another output= to keep both."
    )


def carried_over(stored: LandscapeData, fresh: LandscapeData) -> LandscapeData:
    """Returns what is measured in ``stored`` on the grid of ``fresh``, whose identity is equal; the rest is pending."""
    # Coordinates that coincide keep the bits of the first landscape, where its points were measured. Points that failed
    # stay failed, with their tracebacks; interpolated ones are no measurements and become pending.
    pairs = list(_pairs(stored, fresh.x, fresh.y))
    found = [coinciding(old, new) for old, new in pairs]
    axes = [_with_bits_of(old, new, *both) for (old, new), both in zip(pairs, found, strict=True)]
    metrics = {name: np.full(fresh.shape, np.nan) for name in stored.metrics if name != LOSS_ERROR}
    status = np.zeros(fresh.shape, np.uint8)
    before, now = np.ix_(*(both[0] for both in found)), np.ix_(*(both[1] for both in found))
    kept = np.isin(stored.status[before], _KEPT)
    status[now] = np.where(kept, stored.status[before], np.uint8(PointStatus.PENDING))
    for name, values in metrics.items():
        values[now] = np.where(kept, stored.metrics[name][before], np.nan)
    attributes = {name: value for name, value in stored.attributes.items() if name != UNDER_WAY}
    for name in ("identity", UNDER_WAY):
        if name in fresh.attributes:
            attributes[name] = fresh.attributes[name]
    places = dict(
        zip(
            np.arange(stored.status.size).reshape(stored.shape)[before].reshape(-1).tolist(),
            np.arange(status.size).reshape(status.shape)[now].reshape(-1).tolist(),
            strict=True,
        )
    )
    return replace(
        stored,
        x=axes[-1],
        y=None if stored.y is None else axes[0],
        metrics=metrics,
        status=status,
        errors=_moved(stored.errors, found),
        attributes=attributes,
        kept_samples={name: item.moved(status.shape, places) for name, item in stored.kept_samples.items()},
        path=None,
    )


def grid_text(x: Float64[np.ndarray, " nx"], y: Float64[np.ndarray, " ny"] | None) -> str:
    """Returns a grid in words: "40 x 30 points, x from -1 to 1, y from 0 to 2"."""
    axes = {"x": x} if y is None else {"x": x, "y": y}
    ends = (f"{name} from {axis[0]:.6g} to {axis[-1]:.6g}" for name, axis in axes.items())
    return f"{' x '.join(str(len(axis)) for axis in axes.values())} points, {', '.join(ends)}"


def sizes_that_keep_all(stored: LandscapeData, sizes: list[int]) -> list[int]:
    """Returns the sizes (x first) nearest to those wanted at which an evenly spaced grid keeps all its points."""
    axes = [stored.x] if stored.y is None else [stored.x, stored.y]
    return [
        nested_size(len(axis), size) if is_even(axis) else len(axis) for axis, size in zip(axes, sizes, strict=True)
    ]


def _pairs(
    stored: LandscapeData, x: Float64[np.ndarray, " nx"], y: Float64[np.ndarray, " ny"] | None
) -> list[tuple[Any, Any]]:
    if stored.y is None or y is None:
        return [(stored.x, x)]
    return [(stored.y, y), (stored.x, x)]


def _with_bits_of(
    old: Float64[np.ndarray, " n"],
    new: Float64[np.ndarray, " m"],
    rows: Int64[np.ndarray, " both"],
    places: Int64[np.ndarray, " both"],
) -> Float64[np.ndarray, " m"]:
    axis = new.copy()
    axis[places] = old[rows]
    return axis


def _moved(
    errors: dict[str, str], found: list[tuple[Int64[np.ndarray, " _"], Int64[np.ndarray, " _"]]]
) -> dict[str, str]:
    """Returns the tracebacks under the places that their points have on the new grid."""
    maps = [dict(zip(rows.tolist(), places.tolist(), strict=True)) for rows, places in found]
    moved = {}
    for place, text in errors.items():
        if match := _GRID_PLACE.fullmatch(place):
            indices = [int(item) for item in match[1].split(",")]
            new = [numbers.get(index) for numbers, index in zip(maps, indices, strict=False)]
            if None not in new:
                moved[f"grid/{','.join(map(str, new))}"] = text
        else:
            moved[place] = text
    return moved


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
    kept = _kept_members(now, before, digests)
    runs = list(now.runs)
    for row in kept:
        if (name := before.run_name(row)) and name not in runs:
            runs.append(name)
    old = before.part(np.array(kept, np.intp))
    run = [NO_RUN if before.run[row] == NO_RUN else runs.index(before.run_name(row)) for row in kept]
    joined = _with_members(now, replace(old, run=np.array(run, np.int64)), tuple(runs))
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


def _kept_members(now: CheckpointsData, before: CheckpointsData, digests: Sequence[str]) -> list[int]:
    """Returns the rows of the file's runs and networks that this call neither names nor has under another name."""
    names = {now.name[row] for row in now.networks}
    rows = [row for row in before.networks.tolist() if before.name[row] not in names and digests[row] not in now.sha256]
    for path in before.paths:
        renamed = all(digests[row] in now.sha256 for row in path)
        if not renamed and before.run_name(path[0]) not in now.runs:
            rows += path.tolist()
    return sorted(rows)


def _with_members(first: CheckpointsData, second: CheckpointsData, runs: tuple[str, ...]) -> CheckpointsData:
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
        if match := _MEMBER_PLACE.fullmatch(place):
            text = errors.pop(place)
            moved |= {f"checkpoints/{row}/{match[2]}": text for row in places.get(int(match[1]), [])}
    errors |= moved
