"""Drives sampling, pool and file: measures a plane, keeps what is measured, goes on where a run stopped."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.checkpoint_file import StateReader
from collectors.network_state import State
from workers.evaluator import EvaluatorDescription
from workers.pool import PointTask, Pool, Result, StateTask, Task, check_determinism, check_same_values

from .landscape_data import DirectionsData, LandscapeData, PointStatus, TrajectoryData
from .landscape_file import read_landscape
from .landscape_identity import check_identity
from .landscape_lock import clean_temporaries, lock_landscape
from .landscape_writer import LandscapeWriter
from .plane import Plane
from .sampling import full_grid

if TYPE_CHECKING:
    from jaxtyping import Float64

_TRAJECTORY_PARTS = {
    "own": ("metrics", "status"),
    "projected": ("projected", "projected_status"),
    "with_plane_buffers": ("with_plane_buffers", "with_plane_buffers_status"),
}


@dataclass(frozen=True)
class SurveyReport:
    """What one survey cost.

    Attributes:
        measured: points and checkpoints measured in this run.
        resumed: points and checkpoints that were measured before.
        seconds: wall time of the survey, without the pool's start.
        workers: how many measured.
    """

    measured: int
    resumed: int
    seconds: float
    workers: int

    @property
    def points_per_second(self) -> float:
        """Measurements per second of wall time."""
        return self.measured / self.seconds if self.seconds else 0.0


def survey(
    pool: Pool,
    plane: Plane,
    x: Float64[np.ndarray, " nx"],
    y: Float64[np.ndarray, " ny"] | None,
    *,
    path: str | os.PathLike[str] | None,
    attributes: Mapping[str, Any],
    overwrite: bool = False,
    progress: bool = True,
) -> tuple[LandscapeData, SurveyReport]:
    """Measures a plane on a grid, its origin, and its trajectory.

    Args:
        pool: where points are measured.
        plane: what is measured.
        x: coordinates along the first direction, shape (nx,).
        y: coordinates along the second direction, shape (ny,); None for a line.
        path: the landscape file; None keeps the landscape in memory only.
        attributes: what the file shall say beside what the survey knows itself.
        overwrite: whether a file of another identity is replaced.
        progress: whether a progress bar is shown.

    Raises:
        NondeterministicLossError: the same weights gave two losses.
        LandscapeError: the file cannot be used or written; the subclass says why.
        PoolError: no worker is left.
    """
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if path is not None:
            stack.enter_context(lock_landscape(path))
            clean_temporaries(path)
        fresh = _new_landscape(pool.description, plane, x, y, attributes)
        data = _stored(path, fresh) if path is not None and not overwrite else fresh
        pool.load(plane.origin, plane.directions, plane.buffers)
        _measure_origin(pool, data)
        tasks = list(_pending(plane, data))
        writer = stack.enter_context(LandscapeWriter(path, data))
        bar = stack.enter_context(_progress_bar(data, len(tasks), progress))
        for result in pool.run(iter(tasks)):
            writer.update(lambda result=result: _keep(data, result))  # type: ignore[misc]
            bar.update()
    _warn_about(data)
    report = SurveyReport(len(tasks) + 1, _total(data) - len(tasks), time.perf_counter() - start, pool.workers)
    return data, report


def _new_landscape(
    description: EvaluatorDescription,
    plane: Plane,
    x: Float64[np.ndarray, " nx"],
    y: Float64[np.ndarray, " ny"] | None,
    attributes: Mapping[str, Any],
) -> LandscapeData:
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


def _stored(path: str | os.PathLike[str], fresh: LandscapeData) -> LandscapeData:
    """Returns the landscape on disk when it is this one, or the fresh one when there is none."""
    if not Path(path).exists():
        return fresh
    stored = read_landscape(path)
    check_identity(stored.attributes.get("identity", {}), fresh.attributes["identity"], path)
    return stored


def _measure_origin(pool: Pool, data: LandscapeData) -> None:
    values = check_determinism(pool.measure_origin())
    stored = data.convergence
    if stored.status == PointStatus.MEASURED:
        check_same_values("the origin", stored.metrics, values, "now, after the file's own value")
        return
    stored.metrics = values
    stored.status = PointStatus.MEASURED


def _pending(plane: Plane, data: LandscapeData) -> Iterator[Task]:
    """Yields what is not measured yet: the trajectory first, then the grid from coarse to fine."""
    wanted = (PointStatus.PENDING, PointStatus.FAILED)
    path = data.trajectory
    if path is not None:
        for part, (_, status_name) in _TRAJECTORY_PARTS.items():
            status = getattr(path, status_name)
            for index in range(len(path.number)) if status is not None else ():
                if status[index] in wanted:
                    yield _trajectory_task(plane, path, part, index)
    for flat in full_grid(data.shape):
        if data.status.flat[flat] in wanted:
            place = np.unravel_index(flat, data.shape)
            coordinates = [float(data.x[place[-1]])]
            if data.y is not None:
                coordinates.append(float(data.y[place[0]]))
            yield PointTask(("grid", flat), tuple(coordinates))


def _trajectory_task(plane: Plane, path: TrajectoryData, part: str, index: int) -> Task:
    key = (part, index)
    if part == "projected":
        coordinates = [path.x[index]] if path.y is None else [path.x[index], path.y[index]]
        return PointTask(key, tuple(float(value) for value in coordinates))
    reader = plane.checkpoints[index]
    return StateTask(key, lambda: _read_state(plane, reader, own_buffers=part == "own"))


def _read_state(plane: Plane, reader: StateReader, *, own_buffers: bool) -> tuple[State, State | None]:
    parameters = {tensor.name: reader.read(tensor.name) for tensor in plane.space.parameters}
    if not own_buffers:
        return parameters, None
    return parameters, {tensor.name: reader.read(tensor.name) for tensor in plane.space.buffers}


def _keep(data: LandscapeData, result: Result) -> None:
    assert isinstance(result.key, tuple)
    part, index = result.key
    assert isinstance(part, str)
    assert isinstance(index, int)
    if part == "grid":
        place = tuple(int(item) for item in np.unravel_index(index, data.shape))
        metrics, status, label = data.metrics, data.status, "grid/" + ",".join(map(str, place))
    else:
        metrics_name, status_name = _TRAJECTORY_PARTS[part]
        metrics, status = getattr(data.trajectory, metrics_name), getattr(data.trajectory, status_name)
        place, label = (index,), f"trajectory/{index}/{part}"
    if result.values is None:
        status[place] = PointStatus.FAILED
        data.errors[label] = result.error or "no traceback"
        return
    for name, value in result.values.items():
        metrics[name][place] = value
    status[place] = PointStatus.MEASURED
    data.errors.pop(label, None)


def _progress_bar(data: LandscapeData, count: int, shown: bool) -> Any:
    from tqdm import tqdm

    total = _total(data)
    kind = {"pca": "PCA", "random": "random"}.get(str(data.attributes["decomposition"]), "")
    label = " ".join(item for item in (kind, "landscape" if data.y is not None else "line") if item)
    return tqdm(
        total=total,
        initial=total - count,
        desc=label,
        unit="point",
        disable=not shown,
        smoothing=0.1,
        file=sys.stderr,
        dynamic_ncols=True,
    )


def _total(data: LandscapeData) -> int:
    count = math.prod(data.shape)
    if data.trajectory is not None:
        path = data.trajectory
        statuses = (path.status, path.projected_status, path.with_plane_buffers_status)
        count += sum(len(status) for status in statuses if status is not None)
    return count


def _warn_about(data: LandscapeData) -> None:
    loss = data.metrics["loss"]
    failed = int((data.status == PointStatus.FAILED).sum())
    if failed:
        place, text = next(iter(data.errors.items()))
        warnings.warn(
            f"{failed} of {data.status.size} points failed and are marked so in the file; the first one is "
            f"{place}:\n{text}",
            stacklevel=4,
        )
    if (data.status == PointStatus.MEASURED).any() and not np.isfinite(loss).any():
        warnings.warn(
            "the loss is NaN or infinite at every point; it is stored as it is. Check the data and the checkpoint "
            "that the "
            "plane is centred on, or measure a smaller region.",
            stacklevel=4,
        )


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
