"""A landscape of which nothing is measured yet: its geometry, its identity, and where it comes from."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from workers.evaluator import EvaluatorDescription

from .landscape_data import DirectionsData, LandscapeData, TrajectoryData
from .plane import Plane

if TYPE_CHECKING:
    from jaxtyping import Float64


def new_landscape(
    description: EvaluatorDescription,
    plane: Plane,
    x: Float64[np.ndarray, " nx"],
    y: Float64[np.ndarray, " ny"] | None,
    attributes: Mapping[str, Any],
) -> LandscapeData:
    """Returns the landscape of a plane on a grid, everything pending.

    Args:
        description: what the workers measure.
        plane: what is measured.
        x: coordinates along the first direction, shape (nx,).
        y: coordinates along the second direction, shape (ny,); None for a line.
        attributes: what the file shall say beside what is known here.
    """
    path = plane.trajectory
    trajectory = None
    if path is not None:
        trajectory = TrajectoryData.empty(
            path.number.tolist(),
            path.x,
            path.y,
            path.residual,
            path.norm,
            description.metrics,
            has_buffers=bool(plane.space.buffers),
        )
    own = {
        "decomposition": plane.decomposition,
        "normalization": plane.normalization,
        "network": plane.space.network,
        "num_samples": description.num_samples,
        "buffers": description.options.buffers,
        "partition_dependent": description.partition_dependent,
        "measurement_plan": description.plan.to_json(),
        "notes": list(description.notes),
        "created": _now(),
        "versions": _versions(plane.space.framework),
        "identity": _identity(description, plane, x, y),
    }
    directions = DirectionsData(plane.norms, plane.explained_variance_ratio, plane.cosine)
    return LandscapeData.empty(x, y, directions, description.metrics, trajectory, {**attributes, **own})


def _identity(
    description: EvaluatorDescription,
    plane: Plane,
    x: Float64[np.ndarray, " nx"],
    y: Float64[np.ndarray, " ny"] | None,
) -> dict[str, Any]:
    options = description.options
    buffers: dict[str, Any] = {"policy": options.buffers}
    if options.buffers == "recalibrate":
        buffers["batch_size"] = options.recalibration_batch_size
    return {
        "plane": plane.identity,
        "x": _axis_identity(x),
        "y": None if y is None else _axis_identity(y),
        "samples": {"count": description.num_samples, "sha256": description.samples_sha256},
        "metrics": list(description.metrics),
        "buffers": buffers,
    }


def _axis_identity(axis: Float64[np.ndarray, " n"]) -> list[str]:
    # Nine digits: the last bits of a projected trajectory may differ between machines.
    return [f"{value:.9g}" for value in axis]


def _now() -> str:
    # SOURCE_DATE_EPOCH is the convention by which builds are made reproducible to the byte.
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


def _versions(framework: str) -> dict[str, str]:
    module = sys.modules.get(framework)
    versions = {"python": sys.version.split()[0], "numpy": np.__version__, "summary-landscape": _own_version()}
    if module is not None:
        versions[framework] = str(module.__version__)
    return versions


def _own_version() -> str:
    try:
        return version("summary-landscape")
    except ModuleNotFoundError:
        return "unknown"
