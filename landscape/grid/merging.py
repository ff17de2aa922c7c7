"""Several files of one landscape, such as the shares that the jobs of an array measured, as one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from collectors.files.local_files import write_bytes
from collectors.files.places import AnyPath, is_url
from collectors.validation import check_path
from workers.measuring.checks import check_same_values, closeness_elsewhere

from ..errors import LandscapeGridError, LandscapeIdentityError
from ..planes.plane_file import check_directions, directions_path
from ..record.checks import PointStatus
from ..record.identity import check_identity
from ..replacing import check_no_input
from .checkpoints import PARTS
from .data import LandscapeData
from .kept_plane import find_kept, have_same_vectors, other_directions, says_nothing
from .landscape_file import read_landscape, save_landscape
from .resume import Overlap, grid_text, note_changes, see_runs_from
from .tasks import error_label, forget, forget_without_samples, values_and_status

_SAME_LANDSCAPE = "Merge files of one landscape: the same call with another share."


def merge_files(files: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Writes what any of the files holds into one, with the plane that lies beside them, and returns its path."""
    different = [files] if isinstance(files, str) else list(dict.fromkeys(os.fspath(file) for file in files))
    if len(different) < 2 or len(different) < len(files):
        names = ", ".join(different if isinstance(files, str) else map(str, files))
        raise ValueError(f"files must be at least two different landscape files, but got {names or 'none'}.")
    if is_url(os.fspath(output)):
        raise ValueError(f"output must be a file on this machine, but got the URL {output}; copy the file there then.")
    path = check_path("output", output)
    check_no_input("output", path, different)
    landscapes = [read_landscape(file) for file in different]
    beside = next((place for place in map(find_kept, landscapes) if place is not None), None)
    plane = None if beside is None else _content(beside)
    if plane is not None:
        check_directions(path)
        kept = directions_path(path)
        if kept.exists() and not overwrite and _content(kept) != plane:
            raise other_directions(kept)
    saved = save_landscape(path, merge_landscapes(landscapes, path.absolute().parent), overwrite=overwrite)
    # Eigenvectors cannot be found a second time with the same bits.
    if plane is not None:
        write_bytes(saved.with_name(directions_path(saved).name), plane)
    return saved


def _content(place: AnyPath) -> bytes:
    with place.open("rb") as file:
        return file.read()


def merge_landscapes(landscapes: Sequence[LandscapeData], folder: Path) -> LandscapeData:
    """Returns what any of the landscapes measured, for a file in a folder; the first one becomes it."""
    first, *others = landscapes
    forget(first, PointStatus.INTERPOLATED)
    for other in others:
        _check_mergeable(first, other)
        forget_without_samples(other)
        _take(first, other)
        note_changes(first.attributes, other.attributes)
    finished = not any((status == PointStatus.PENDING).any() for status in first.statuses)
    first.attributes["sampling"] = {"mode": "full", "finished": finished}
    if first.path is not None:
        see_runs_from(folder, first.path.parent, first.attributes)
    first.path = None
    return first


def _check_mergeable(first: LandscapeData, other: LandscapeData) -> None:
    before, now = (data.attributes.get("identity", {}) for data in (first, other))
    if not (before and now):
        remedy = "merged: nobody knows whether its points are of the same landscape."
        raise says_nothing(other.path if before else first.path, remedy)
    check_identity(before, now, str(first.path), _SAME_LANDSCAPE)
    if not have_same_vectors(first.attributes, other.attributes):
        raise LandscapeIdentityError(
            f"landscape files {first.path} and {other.path} cannot be merged: each call found eigenvectors of its own, "
            "and theirs differ. Measure such a landscape in one call; or let the second one begin with the first one's "
            "file of directions beside its own."
        )
    who = [None if data.checkpoints is None else data.checkpoints.sha256 for data in (first, other)]
    if not Overlap(first, other.x, other.y).is_whole or who[0] != who[1]:
        grids = [grid_text(data.x, data.y) for data in (first, other)]
        differs = f"{grids[0]} and {grids[1]}" if grids[0] != grids[1] else "other checkpoints or networks"
        raise LandscapeGridError(
            f"landscape files {first.path} and {other.path} cannot be merged: they have {differs}. {_SAME_LANDSCAPE}"
        )


def _take(first: LandscapeData, other: LandscapeData) -> None:
    """Copies what only the other one measured, or tried; what both measured must be equal."""
    plan = first.attributes.get("measurement_plan") or {}
    tolerance = closeness_elsewhere(plan.get("precision", "float32"))
    where, far = f"in {other.path}", {}
    for name in first.metrics:
        sizes = [np.abs(data.metrics[name][data.status == PointStatus.MEASURED]) for data in (first, other)]
        far[name] = max(float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes)
    check_same_values("the origin", first.origin.metrics, other.origin.metrics, where, tolerance, elsewhere=far)
    for part in ("grid", *(PARTS if first.checkpoints is not None else ())):
        (mine, status), (its, its_status) = values_and_status(first, part), values_and_status(other, part)
        if status is None or its_status is None:
            continue
        measured, known = its_status == PointStatus.MEASURED, status == PointStatus.MEASURED
        for place in map(tuple, np.argwhere(measured & known).tolist()):
            here, there = ({name: float(columns[name][place]) for name in mine} for columns in (mine, its))
            check_same_values(f"the point {error_label(part, place)}", here, there, where, tolerance, elsewhere=far)
        new = measured & ~known
        for name, values in mine.items():
            values[new] = its[name][new]
        failed = (its_status == PointStatus.FAILED) & (status == PointStatus.PENDING)
        status[new], status[failed] = PointStatus.MEASURED, PointStatus.FAILED
        for place in map(tuple, np.argwhere(new).tolist()):
            first.errors.pop(error_label(part, place), None)
        for place in map(tuple, np.argwhere(failed).tolist()):
            first.errors[error_label(part, place)] = other.errors.get(error_label(part, place), "no traceback")
        if part == "grid":
            main = next(iter(first.kept_samples), "")
            for index, (name, samples) in enumerate(other.kept_samples.items()):
                # The main data set, which comes first, may have another name.
                first.kept_samples[name if index else main].take(samples, np.flatnonzero(new).tolist())
