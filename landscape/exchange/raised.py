"""A plane whose metric becomes heights, for formats in three dimensions, and what such a file says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..drawing.texts import axis_label, full_title, metric_text, printable, value_notes
from ..errors import LandscapeExportError
from ..meshes.space import Space, choose_space
from ..record.checks import PointStatus
from .formats import plane_axes

if TYPE_CHECKING:
    from ..grid.data import LandscapeData


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
    names = [axis_label(landscape, axis, space.frame.geometry).replace(r"\$", "$") for axis in (0, 1)]
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
