"""What formats of other programs share: files of a landscape, heights and what they mean, a landscape of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collectors.errors import LandscapeError
from workers.users_code import warn_user

from ..drawing.texts import axis_label, full_title, metric_text, printable, unescaped, value_notes
from ..errors import LandscapeDamagedError, LandscapeExportError
from ..grid.checkpoints import OriginData
from ..grid.data import DirectionsData, LandscapeData
from ..record.checks import PointStatus
from ..record.hdf5 import reason
from ..rendering.meshes import Space, choose_space

Images = dict[Path, bytes]
"""The content of each file of an export."""


def plane_axes(landscape: LandscapeData, program: str) -> tuple[NDArray[Any], NDArray[Any]]:
    if landscape.y is None:
        raise LandscapeExportError(
            f"{program} holds surfaces, but the landscape is a line of {len(landscape.x)} points. Export it as csv, "
            "npz, netcdf or li."
        )
    return landscape.x, landscape.y


def raised(landscape: LandscapeData, metric: str, program: str) -> Space:
    """Returns the space of a plane; raises LandscapeExportError for a line or where no value is finite."""
    plane_axes(landscape, program)
    space = choose_space(landscape, metric)
    if space.scale.empty:
        raise LandscapeExportError(
            f"{program} needs heights, but no point of the landscape has a finite {metric}. Finish the survey, choose "
            "another metric, or export as csv, npz or netcdf."
        )
    return space


def facts_in_space(space: Space, units: ArrayLike = (1.0, 1.0, 1.0)) -> dict[str, Any]:
    """Returns what a file must say to be read rightly; one of its units is ``units`` of the space, (x, y, up)."""
    landscape, scale, attributes = space.landscape, space.scale, space.landscape.attributes
    words = metric_text(landscape, space.metric, str)
    names = [unescaped(axis_label(landscape, axis, space.frame.geometry)) for axis in (0, 1)]
    is_distance = space.frame.geometry is not None
    per_unit = (np.asarray(units) / space.factors).tolist()
    versions = attributes.get("versions")
    return {
        "title": full_title(landscape, printable) or "loss landscape",
        "metric": space.metric,
        "scale": {
            "kind": scale.kind,
            "text": scale.tall.label(words),
            "colors": [scale.low, scale.high],
            "heights": [scale.tall.low, scale.tall.high],
            **({"threshold": scale.threshold} if scale.kind == "symlog" else {}),
        },
        "clip": {"below": scale.extend in ("min", "both"), "above": scale.clipped_above},
        "units": {
            "horizontal": "distance in weight space" if is_distance else "coordinate on the plane",
            "horizontal_per_unit": per_unit[:2],
            "height": {"log": f"log10 of {words}", "symlog": f"log10 around 0 of {words}"}.get(scale.kind, words),
            "height_per_unit": per_unit[2],
            "value_at_height_0": float(scale.height_values(space.middle[2])),
        },
        "axes": {"first": names[0], "second": names[1], "notes": list(space.frame.notes)},
        "points": {status.name.lower(): count for status, count in landscape.status_counts.items()},
        "status": {status.name.lower(): int(status) for status in PointStatus},
        "notes": value_notes(landscape, space.metric),
        "versions": dict(versions) if isinstance(versions, Mapping) else {},
    }


def check_square(landscape: LandscapeData, program: str) -> None:
    if landscape.y is not None and len(landscape.x) != len(landscape.y):
        raise LandscapeExportError(
            f"{program} holds square grids only, but the landscape has {len(landscape.x)} x {len(landscape.y)} points. "
            "Measure it with as many points along x as along y, or export it as csv, npz, netcdf or vtk."
        )


def warn_of_interpolated(landscape: LandscapeData, program: str) -> None:
    count = landscape.status_counts[PointStatus.INTERPOLATED]
    if count:
        warn_user(
            f"{count} of {landscape.status.size} points are interpolated, not measured; {program} has no place to say "
            "so."
        )


def warn_of_gaps(values: NDArray[Any], metric: str, program: str, consequence: str) -> None:
    count = int((~np.isfinite(values)).sum())
    if count:
        warn_user(
            f"{count} of {values.size} points have no finite {metric}; they are written to {program} as they are. "
            f"{consequence}"
        )


def warn_of_unknown_heights(numbers: NDArray[Any], metric: str, program: str) -> None:
    warn_user(
        f"the checkpoints {numbers.tolist()} are left out of {program}: their projected {metric} is no finite number."
    )


def foreign_landscape(
    x: NDArray[Any],
    y: NDArray[Any] | None,
    metrics: Mapping[str, NDArray[Any]],
    status: NDArray[Any],
    imported: Mapping[str, Any],
    notes: list[str],
) -> LandscapeData:
    """Returns a landscape of another program's metrics, "loss" among them; its directions' lengths are NaN."""
    axes = [np.asarray(axis, np.float64) for axis in (x, y) if axis is not None]
    origin = OriginData(y=None if y is None else 0.0, metrics=dict.fromkeys(metrics, float("nan")))
    data = LandscapeData(
        x=axes[0],
        y=None if y is None else axes[1],
        metrics={name: np.array(values, np.float64) for name, values in metrics.items()},
        status=status.astype(np.uint8),
        directions=DirectionsData(np.full(len(axes), np.nan)),
        origin=origin,
        attributes={"imported": dict(imported), "notes": notes},
    )
    data.validate()
    # The origin counts as measured where a measured grid point lies exactly on it, else as pending.
    zeros = [np.flatnonzero(axis == 0) for axis in reversed(axes)]
    if all(len(zero) for zero in zeros):
        place = tuple(int(zero[0]) for zero in zeros)
        if data.status[place] == PointStatus.MEASURED:
            origin.metrics = {name: float(values[place]) for name, values in data.metrics.items()}
            origin.status = PointStatus.MEASURED
    return data


@contextmanager
def needing(name: str, packages: str, install: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError(f"the format {name} needs {packages}: pip install '{install}'") from error


@contextmanager
def reading(path: Path, program: str) -> Iterator[None]:
    try:
        yield
    except LandscapeError:
        raise
    except Exception as error:  # a damaged file raises nearly every kind of exception
        raise LandscapeDamagedError(
            f"{path} cannot be read as {program}: {reason(error)}. Copy it again from where it came, or correct the "
            "format."
        ) from error
