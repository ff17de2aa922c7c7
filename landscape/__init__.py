"""Phase 2, from a run to its picture: planes through weight space, measured, stored, shown."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .shadowing import check_neighbours

check_neighbours()

if TYPE_CHECKING:
    from collectors.errors import LandscapeError as LandscapeError
    from workers.evaluator import Evaluator as Evaluator
    from workers.measurement_plan import MeasurementPlan as MeasurementPlan

    from .evaluation import evaluate as evaluate
    from .landscape import Landscape as Landscape
    from .planes.from_weights import custom_plane as custom_plane
    from .planes.from_weights import line_between as line_between
    from .planes.from_weights import pca_plane as pca_plane
    from .planes.from_weights import plane_through as plane_through
    from .planes.from_weights import random_line as random_line
    from .planes.from_weights import random_plane as random_plane
    from .planes.plane import Plane as Plane
    from .summary_landscape import SummaryLandscape as SummaryLandscape

_HOMES = {
    "LandscapeError": "collectors.errors",
    "Evaluator": "workers.evaluator",
    "MeasurementPlan": "workers.measurement_plan",
    "evaluate": "landscape.evaluation",
    "Plane": "landscape.planes.plane",
    "custom_plane": "landscape.planes.from_weights",
    "line_between": "landscape.planes.from_weights",
    "pca_plane": "landscape.planes.from_weights",
    "plane_through": "landscape.planes.from_weights",
    "random_line": "landscape.planes.from_weights",
    "random_plane": "landscape.planes.from_weights",
    "SummaryLandscape": "landscape.summary_landscape",
    "Landscape": "landscape.landscape",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
