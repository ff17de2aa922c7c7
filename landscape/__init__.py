"""Phase 2, from a run to its picture: planes through weight space, measured, stored, shown."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import_module("landscape.shadowing").check_neighbours()
import_module("workers.forked")  # it knows in which process it was loaded

if TYPE_CHECKING:
    from collectors.errors import LandscapeError as LandscapeError
    from workers.measurement_plan import MeasurementPlan as MeasurementPlan

    from .comparison.comparison import Comparison as Comparison
    from .curvature.curvature import Curvature as Curvature
    from .functions import evaluate as evaluate
    from .landscape import Landscape as Landscape
    from .measure import Measure as Measure
    from .planes.from_weights import line_between as line_between
    from .planes.from_weights import pca_plane as pca_plane
    from .planes.from_weights import random_plane as random_plane
    from .planes.plane import Plane as Plane
    from .summary_landscape import SummaryLandscape as SummaryLandscape
    from .trackers import DrawAtEnd as DrawAtEnd

_HOMES = {
    "LandscapeError": "collectors.errors",
    "MeasurementPlan": "workers.measurement_plan",
    "Comparison": "landscape.comparison.comparison",
    "Curvature": "landscape.curvature.curvature",
    "evaluate": "landscape.functions",
    "Landscape": "landscape.landscape",
    "Measure": "landscape.measure",
    **dict.fromkeys(("line_between", "pca_plane", "random_plane"), "landscape.planes.from_weights"),
    "Plane": "landscape.planes.plane",
    "SummaryLandscape": "landscape.summary_landscape",
    "DrawAtEnd": "landscape.trackers",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
