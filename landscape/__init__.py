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
    from .plane import Plane as Plane
    from .planes import custom_plane as custom_plane
    from .planes import line_between as line_between
    from .planes import pca_plane as pca_plane
    from .planes import plane_through as plane_through
    from .planes import random_line as random_line
    from .planes import random_plane as random_plane
    from .summary_landscape import SummaryLandscape as SummaryLandscape
    from .surface import Landscape as Landscape

_HOMES = {
    "LandscapeError": "collectors.errors",
    "Evaluator": "workers.evaluator",
    "MeasurementPlan": "workers.measurement_plan",
    "evaluate": "landscape.evaluation",
    "Plane": "landscape.plane",
    "custom_plane": "landscape.planes",
    "line_between": "landscape.planes",
    "pca_plane": "landscape.planes",
    "plane_through": "landscape.planes",
    "random_line": "landscape.planes",
    "random_plane": "landscape.planes",
    "SummaryLandscape": "landscape.summary_landscape",
    "Landscape": "landscape.surface",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
