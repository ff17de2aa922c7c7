"""Phase 2, from a run to its picture: planes through weight space, measured, stored, shown."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .shadowing import check_neighbours

check_neighbours()
import_module("workers.forked")  # it knows in which process it was loaded

if TYPE_CHECKING:
    from collectors.errors import LandscapeError as LandscapeError
    from workers.evaluator import Evaluator as Evaluator
    from workers.measurement_plan import MeasurementPlan as MeasurementPlan

    from .comparison.comparison import Comparison as Comparison
    from .comparison.measuring import compare as compare
    from .curvature.curvature import Curvature as Curvature
    from .curvature.hessian_plane import hessian_plane as hessian_plane
    from .curvature.lines import trace_by_lines as trace_by_lines
    from .curvature.measuring import measure_curvature as measure_curvature
    from .draw_at_end import DrawAtEnd as DrawAtEnd
    from .evaluation import evaluate as evaluate
    from .landscape import Landscape as Landscape
    from .paths.alignment import Aligned as Aligned
    from .paths.alignment import align as align
    from .paths.barrier import Barrier as Barrier
    from .paths.barrier import barrier as barrier
    from .paths.connecting import connect as connect
    from .paths.path import Path as Path
    from .planes.from_weights import custom_plane as custom_plane
    from .planes.from_weights import line_between as line_between
    from .planes.from_weights import pca_plane as pca_plane
    from .planes.from_weights import plane_through as plane_through
    from .planes.from_weights import random_line as random_line
    from .planes.from_weights import random_plane as random_plane
    from .planes.plane import Plane as Plane
    from .points import measure_points as measure_points
    from .regridding import refine as refine
    from .regridding import widen as widen
    from .summary_landscape import SummaryLandscape as SummaryLandscape
    from .trackers import log_to_mlflow as log_to_mlflow
    from .trackers import log_to_tensorboard as log_to_tensorboard
    from .trackers import log_to_wandb as log_to_wandb

_HOMES = {
    "LandscapeError": "collectors.errors",
    "Evaluator": "workers.evaluator",
    "MeasurementPlan": "workers.measurement_plan",
    "Comparison": "landscape.comparison.comparison",
    "compare": "landscape.comparison.measuring",
    "Curvature": "landscape.curvature.curvature",
    "trace_by_lines": "landscape.curvature.lines",
    "measure_curvature": "landscape.curvature.measuring",
    "evaluate": "landscape.evaluation",
    "measure_points": "landscape.points",
    "refine": "landscape.regridding",
    "widen": "landscape.regridding",
    "Barrier": "landscape.paths.barrier",
    "barrier": "landscape.paths.barrier",
    "Aligned": "landscape.paths.alignment",
    "align": "landscape.paths.alignment",
    "Path": "landscape.paths.path",
    "connect": "landscape.paths.connecting",
    "Plane": "landscape.planes.plane",
    "custom_plane": "landscape.planes.from_weights",
    "hessian_plane": "landscape.curvature.hessian_plane",
    "line_between": "landscape.planes.from_weights",
    "pca_plane": "landscape.planes.from_weights",
    "plane_through": "landscape.planes.from_weights",
    "random_line": "landscape.planes.from_weights",
    "random_plane": "landscape.planes.from_weights",
    "SummaryLandscape": "landscape.summary_landscape",
    "Landscape": "landscape.landscape",
    "DrawAtEnd": "landscape.draw_at_end",
    **dict.fromkeys(("log_to_mlflow", "log_to_tensorboard", "log_to_wandb"), "landscape.trackers"),
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
