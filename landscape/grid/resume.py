"""What a grid begins with: what its file holds already, or a landscape of the same identity on another grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collectors.files.places import AnyPath
from collectors.shapes import Float64

from ..errors import LandscapeGridError
from ..record.checks import PointStatus
from ..record.driver import Stored
from ..record.hdf5 import LANDSCAPE
from ..record.identity import FUNCTION, FURTHER_RUNS, RUN, plan_change, run_attributes
from ..roles import NO_RUN
from ..sampling.grids import coinciding
from .checkpoints import PARTS, CheckpointsData
from .data import LOSS_ERROR, LandscapeData
from .kept_plane import check_vectors, place_of
from .sample_chunks import place_on_grid
from .tasks import error_label

_OF_SOURCE = (
    "Return the same data, loss and metrics from callback_fn, and give the same run or plane, as when the file was "
    "measured."
)
UNDER_WAY = "under_way"
"""The attribute of a file whose grid is being changed: what was asked for, so that the same call goes on."""
_KEPT = (PointStatus.MEASURED, PointStatus.FAILED)


class Overlap:
    """What a landscape shares with a grid of the axes ``x`` and ``y``; of its ``measured`` points, how many (``kept``).

    ``pairs`` has the coordinates of both for each axis, y first; ``found`` the indices of those that coincide.
    """

    def __init__(
        self, stored: LandscapeData, x: Float64[np.ndarray, " nx"], y: Float64[np.ndarray, " ny"] | None
    ) -> None:
        self.pairs = [(stored.x, x)] if stored.y is None or y is None else [(stored.y, y), (stored.x, x)]
        self.found = [coinciding(old, new) for old, new in self.pairs]
        rows = [rows for rows, _ in self.found]
        sizes = [(len(old), len(new), len(both)) for (old, new), both in zip(self.pairs, rows, strict=True)]
        self.is_whole = all(old == new == both for old, new, both in sizes)
        self.holds_all = all(new == both for _, new, both in sizes)
        # It has them side by side, so that it only is longer.
        self.goes_on = self.holds_all and all((np.diff(both) == 1).all() for both in rows)
        measured = stored.status == PointStatus.MEASURED
        self.kept, self.measured = int(measured[np.ix_(*rows)].sum()), int(measured.sum())


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
    shared = Overlap(record, fresh.x, fresh.y)
    loses_nothing = shared.kept == shared.measured or (shared.holds_all and record.complete)
    if loses_nothing or _stays_on_its_grid(shared, record, fresh):
        return
    more = "It has every point of that grid, and more, and is not finished. " if shared.holds_all else ""
    raise LandscapeGridError(
        f"landscape file {path} is on another grid, {grid_text(record.x, record.y)}, and "
        f"{shared.measured - shared.kept:,} of its {shared.measured:,} measured points are not on the grid of this "
        f"call, {grid_text(fresh.x, fresh.y)}; it was left as it is. {more}To keep them all, make the file's grid "
        "finer or wider (`landscape evaluate FILE --factor 2` or `--limits`; in Python refine, widen). Otherwise pass "
        "overwrite=True to measure it anew, or another output= to keep both."
    )


def begun_before(
    stored: Stored[LandscapeData], fresh: LandscapeData, source: LandscapeData | None = None
) -> tuple[LandscapeData, str]:
    """Returns ``fresh`` with what was checked to continue it, and in words what was kept of another grid, or ""."""
    record, kept = stored.record, ""
    if record is not None:
        shared = Overlap(record, fresh.x, fresh.y)
        if not _stays_on_its_grid(shared, record, fresh):
            if record.complete and shared.holds_all:
                # So that a run whose landscape was refined or widened meanwhile can be asked for again.
                asked, has = grid_text(fresh.x, fresh.y), grid_text(record.x, record.y)
                kept = f"it has every point of {asked}, and more: it stays on {has}"
            else:
                record, kept = _carried_over(record, fresh)
    elif source is not None:
        record, kept = _carried_over(source, fresh)
        record.attributes["created"] = fresh.attributes["created"]
        if source.path is not None and stored.path is not None:
            see_runs_from(stored.path.parent, source.path.parent, record.attributes)
    else:
        return fresh, ""
    # Where to find function and run is no part of the identity either.
    record.attributes |= {
        name: fresh.attributes[name] for name in (FUNCTION, RUN, FURTHER_RUNS) if name in fresh.attributes
    }
    _take_members(record, fresh)
    if any((status != PointStatus.MEASURED).any() for status in record.statuses):
        note_changes(record.attributes, fresh.attributes)
    return record, kept


def see_runs_from(folder: AnyPath, before: AnyPath, attributes: dict[str, Any]) -> None:
    """Has the ways to a landscape's runs begin in another folder."""
    if RUN not in attributes and "intervals" not in attributes:
        return
    further = {name: place_of(way, before) for name, way in attributes.pop(FURTHER_RUNS, {}).items()}
    attributes |= run_attributes(place_of(attributes.pop(RUN, "."), before), further, folder)


def _stays_on_its_grid(shared: Overlap, stored: LandscapeData, fresh: LandscapeData) -> bool:
    """Returns whether a landscape has the other's grid, maybe longer because runs or networks joined the first."""
    before, now = (0 if data.checkpoints is None else len(data.checkpoints.number) for data in (stored, fresh))
    return shared.is_whole or (before > now and shared.goes_on)


def note_changes(stored: dict[str, Any], now: Mapping[str, Any]) -> None:
    """Adds this run's notes, and where it measures in another way its plan, to a file's attributes, in place."""
    changed = plan_change(stored, now, LANDSCAPE)
    if changed:
        stored["measurement_plan"] = now["measurement_plan"]
    stored["notes"] = list(dict.fromkeys([*(stored.get("notes") or ()), *now["notes"], *changed]))
    stored["partition_dependent"] = bool(stored.get("partition_dependent")) or now["partition_dependent"]


def _carried_over(stored: LandscapeData, fresh: LandscapeData) -> tuple[LandscapeData, str]:
    """Returns what ``stored``, of equal identity, has on the grid of ``fresh``, and in words how much is measured."""
    # Coordinates that coincide keep the bits of the first landscape, where its points were measured. Points that failed
    # stay failed, with their tracebacks; interpolated ones are no measurements and become pending.
    shared = Overlap(stored, fresh.x, fresh.y)
    axes = []
    for (before, now), (rows_before, rows_now) in zip(shared.pairs, shared.found, strict=True):
        axes.append(now.copy())
        axes[-1][rows_now] = before[rows_before]
    metrics = {name: np.full(fresh.shape, np.nan) for name in stored.metrics if name != LOSS_ERROR}
    status = np.zeros(fresh.shape, np.uint8)
    old, new = (
        np.arange(data.status.size).reshape(data.shape)[np.ix_(*rows)].reshape(-1)
        for data, rows in zip((stored, fresh), zip(*shared.found, strict=True), strict=True)
    )
    kept = np.isin(stored.status.flat[old], _KEPT)
    status.flat[new[kept]] = stored.status.flat[old[kept]]
    for name, values in metrics.items():
        values.flat[new[kept]] = stored.metrics[name].flat[old[kept]]
    attributes = {name: value for name, value in stored.attributes.items() if name != UNDER_WAY}
    attributes |= {name: fresh.attributes[name] for name in ("identity", UNDER_WAY) if name in fresh.attributes}
    text = (
        f"from {grid_text(stored.x, stored.y)} to {grid_text(fresh.x, fresh.y)}: {shared.kept:,} of "
        f"{shared.measured:,} measured points are kept"
    )
    places = dict(zip(old.tolist(), new.tolist(), strict=True))
    labels = {
        error_label("grid", place_on_grid(before, stored.shape)): error_label("grid", place_on_grid(now, fresh.shape))
        for before, now in (places.items() if stored.errors else ())
    }
    carried = replace(
        stored,
        x=axes[-1],
        y=None if stored.y is None else axes[0],
        metrics=metrics,
        status=status,
        errors={
            labels.get(label, label): text
            for label, text in stored.errors.items()
            if label in labels or not label.startswith("grid/")
        },
        attributes=attributes,
        kept_samples={name: item.moved(fresh.shape, places) for name, item in stored.kept_samples.items()},
        path=None,
    )
    return carried, text


def grid_text(x: Float64[np.ndarray, " nx"], y: Float64[np.ndarray, " ny"] | None) -> str:
    """Returns a grid in words: "40 x 30 points, x from -1 to 1, y from 0 to 2"."""
    axes = {"x": x} if y is None else {"x": x, "y": y}
    ends = (f"{name} from {axis[0]:.6g} to {axis[-1]:.6g}" for name, axis in axes.items())
    return f"{' x '.join(str(len(axis)) for axis in axes.values())} points, {', '.join(ends)}"


def _take_members(stored: LandscapeData, fresh: LandscapeData) -> None:
    """Replaces the checkpoints, networks, names and roles in ``stored`` by those of ``fresh``, of the same identity."""
    # Who is on the plane is no part of the identity. What the file holds of weights which this call names, under any
    # name, is carried over. Runs and networks of the file that this call does not name stay after them; one of a name
    # that this call gives to other weights is replaced.
    now, before = fresh.checkpoints, stored.checkpoints
    if before is None:
        stored.checkpoints = now
    elif now is not None:
        digests = _digests(before, stored.attributes)
        known = {row: digests.index(digest) for row, digest in enumerate(now.sha256) if digest and digest in digests}
        if now.runs == ("",):
            # The file may hold further runs.
            now.runs = (_name_as_before(before, known.values()),)
            if fresh.origin.number is not None:
                fresh.origin.run = now.runs[0]
        kept = _kept_members(now, before, digests)
        stored.checkpoints = _joined(now, replace(before, sha256=tuple(digests)), known, kept)
        places: dict[int, list[int]] = {}
        for row, at in (*known.items(), *enumerate(kept, len(now.number))):
            places.setdefault(at, []).append(row)
        errors = stored.errors
        stored.errors = {label: text for label, text in errors.items() if not label.startswith("checkpoints/")}
        for part, (at, rows) in itertools.product(PARTS, places.items()):
            if (text := errors.get(error_label(part, (at,)))) is not None:
                stored.errors |= {error_label(part, (row,)): text for row in rows}
    for name in ("role", "name", "run", "number"):
        setattr(stored.origin, name, getattr(fresh.origin, name))


def _name_as_before(before: CheckpointsData, known: Iterable[int]) -> str:
    """Returns what a file calls a run without a name, which has the checkpoints ``known``."""
    name = next((before.run_name(row) for row in known if before.run[row] != NO_RUN), "")
    if name or not any(before.runs):
        return name
    free = ("run", *(f"run {index}" for index in range(2, len(before.runs) + 3)))
    return next(name for name in free if name not in before.runs)


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


def _joined(
    now: CheckpointsData, before: CheckpointsData, known: Mapping[int, int], kept: Sequence[int]
) -> CheckpointsData:
    """Returns ``now`` with the rows ``kept`` of ``before`` after its own; ``known`` maps rows that both have."""

    def joined(name: str, mine: Any, theirs: Any) -> Any:
        if isinstance(mine, dict):
            return {metric: joined(name, values, theirs[metric]) for metric, values in mine.items()}
        if not isinstance(mine, np.ndarray):
            return mine if mine is None else (*mine, *(theirs[row] for row in kept))
        values = np.concatenate([mine, theirs[list(kept)]])
        if name not in ("number", "run", "final"):
            # Where a network lies and what was measured of it is taken over; who it is stays.
            values[list(known)] = theirs[list(known.values())]
        return values

    runs = list(dict.fromkeys([*now.runs, *filter(None, map(before.run_name, kept))]))
    places = [NO_RUN if before.run[row] == NO_RUN else runs.index(before.run_name(row)) for row in kept]
    columns = {name: joined(name, mine, getattr(before, name)) for name, mine in vars(now).items() if name != "runs"}
    columns["run"][len(now.number) :] = places
    return CheckpointsData(**columns, runs=tuple(runs))
