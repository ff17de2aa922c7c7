"""A grid over a plane as an experiment: its identity, its points, its checkpoints, and where results go."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np

from collectors.errors import LandscapeError
from collectors.networks.weight_space import WeightSpace
from collectors.shapes import Bool
from workers.evaluator import EvaluatorDescription
from workers.measurement_plan import plan_text
from workers.measuring.checks import check_determinism, check_same_values, closeness_elsewhere
from workers.pool import OriginValues, Pool, Result, StateTask, Task
from workers.users_code import warn_user

from ..planes.curved_line import CurvedLine
from ..planes.networks import columns_of
from ..planes.plane import Axes, Plane
from ..planes.plane_file import directions_path, identity_of_directions, write_directions
from ..record.checks import PointStatus
from ..record.driver import Experiment, Stored
from ..record.identity import OF_LOSS, data_set_json, identity_of, measured_attributes
from ..record.run import Cost, MeasurementReport, Run
from ..sampling.adaptive_sampling import AdaptiveSampling
from ..sampling.sampling import SamplingSettings, coarse_and_fine, first_grid_counts, pending_points
from . import tasks
from .checkpoints import PARTS, CheckpointsData
from .data import LOSS_ERROR, DirectionsData, LandscapeData
from .forecast import (
    Forecast,
    SurveyReport,
    eigenvectors_cost,
    fewest_points,
    plane_bytes,
    warn_of_full_disk,
    warn_of_shortage,
)
from .kept_plane import curvature_attribute, is_of_another_plane, other_directions
from .landscape_file import landscape_bytes
from .resume import UNDER_WAY, begun_before, check_continues
from .samples import kept_losses

_KINDS = {"pca": "PCA", "random": "random", "hessian": "Hessian", "ggn": "Gauss-Newton", "factors": "factor"}
_OF_GRID = (*OF_LOSS, "extremes", "keep_samples", "metrics", "groups", "buffers")
# How far the loss drawn at a network may be from its own, as a share of the larger one.
_ROUNDING = {"float32": 1e-5, "tf32": 1e-2, "bfloat16": 5e-2}
_EXTREMES = (
    "max_eigenvalue and min_eigenvalue are the ends of the Hessian's spectrum at each point, each to 1 % of itself, "
    "or of a thousandth of the other one if that is more, and convexity_ratio is |min / max|; NaN where an end is not "
    "known so well after 200 products."
)
_INTERPOLATED = (
    "buffers such as BatchNorm's running statistics are interpolated between the networks that the axes go through, at "
    "which they are its own; beyond them no network has a negative share (it counts as zero, and all add up to one)."
)


@dataclass(eq=False)
class GridExperiment(Experiment[LandscapeData]):
    """The loss on a grid over a plane, at its origin, and at its checkpoints."""

    plane: Plane
    axes: Axes  # of the grid
    sampling: SamplingSettings = field(default_factory=SamplingSettings)  # which points are measured
    attributes: Mapping[str, Any] = field(default_factory=dict)  # what the file says beside what this experiment knows
    source: LandscapeData | None = None  # of the same identity on another grid; a new file begins with its points
    closing: Callable[[Pool, LandscapeData], Mapping[str, Any]] | None = None  # attributes while the plane is loaded
    origins: Sequence[OriginValues] = ()  # as each worker measured it; of another plane: a forecast alone
    save_directions: bool = False  # whether the plane is kept beside the file
    predicted: Forecast | None = None  # what it was expected to cost, once it has begun to measure
    copied: int = 0  # how many losses of checkpoints were known without measuring
    left_out: int = 0
    unit: str = "point"
    trial: str = "measuring a point, a part of it twice"
    _changed_grid: str = ""
    _same: dict[tasks.Place, tasks.Place] = field(default_factory=dict)
    _path: list[Task] = field(default_factory=list)  # what this run measures of the plane's checkpoints

    def __post_init__(self) -> None:
        shape = "line" if self.axes[1] is None else "landscape"
        self.name = " ".join(item for item in (_KINDS.get(self.plane.decomposition, ""), shape) if item)

    def check(self, stored: Stored[LandscapeData], pool: Pool) -> None:
        check_same_network(self.plane, pool.description.space)
        check_continues(stored, self._unmeasured(pool.description), self.source)

    @contextlib.contextmanager
    def beside(self, stored: Stored[LandscapeData], run: Run) -> Iterator[None]:
        """Keeps the plane beside the file where that is asked for; along eigenvectors it was kept before."""
        path = stored.path if self.save_directions and self.plane.curvature is None else None
        # Where another plane's landscape is, or one to overwrite, it is kept once that is replaced.
        later = path is not None and (is_of_another_plane(stored, self.plane) or (run.overwrite and path.exists()))
        if path is not None and not later:
            if not run.overwrite and identity_of_directions(path) not in (None, self.plane.identity):
                raise other_directions(directions_path(path))
            write_directions(path, self.plane)
        yield
        if path is not None and later:
            write_directions(path, self.plane)

    def begin(self, stored: Stored[LandscapeData], pool: Pool) -> LandscapeData:
        if not self.origins:
            corners = itertools.product(*((float(axis[0]), float(axis[-1])) for axis in self.axes if axis is not None))
            load_plane(pool, self.plane, corners)
        record, self._changed_grid = begun_before(stored, self._unmeasured(pool.description), self.source)
        return record

    def resume(self, record: LandscapeData, pool: Pool) -> Bool[np.ndarray, " tasks"]:
        """Measures the origin, and returns what this run measures of the grid and of the plane's checkpoints."""
        if not self.origins:
            self._measure_origin(record, pool)
        tasks.forget(record, PointStatus.INTERPOLATED, PointStatus.FAILED)
        self._same = tasks.same_losses(self.plane, record)
        path = list(tasks.checkpoint_tasks(self.plane, record, self._same))
        self._path = [task for task in path if self._is_ours(cast("tasks.Place", task.key)[1])]
        grid = np.flatnonzero(np.isin(record.status, tasks.UNMEASURED))
        ours = [flat for flat in grid.tolist() if self._is_ours(flat)]
        self.left_out = len(self._same) + len(grid) + len(path) - len(ours) - len(self._path)
        sizes = zip(("grid", *PARTS), record.statuses, strict=False)  # no losses with the plane's buffers without any
        todo = {part: np.zeros(status.size, bool) for part, status in sizes}
        todo["grid"][ours] = True
        for task in self._path:
            part, row = cast("tasks.Place", task.key)
            todo[part][row] = True
        return np.concatenate(list(todo.values()))

    def forecast(self, record: LandscapeData, todo: Bool[np.ndarray, " tasks"], pool: Pool, run: Run) -> Cost:
        cost, curvature = self._forecast(record, pool, run).cost, self.plane.curvature
        if curvature is None or curvature.is_known:
            return cost
        before = eigenvectors_cost(curvature.which, max(origin.measured.seconds for origin in self.origins))
        return Cost.of(f"{cost}\n{before}", cost.least + before.least, cost.most + before.most)

    def like(self, measured: Experiment[LandscapeData]) -> None:
        """Takes over how long a point takes: on another plane it is as long."""
        assert isinstance(measured, GridExperiment)
        self.origins = measured.origins

    def results(
        self, record: LandscapeData, todo: Bool[np.ndarray, " tasks"], pool: Pool, run: Run
    ) -> Iterator[str | Result | Callable[[LandscapeData], int | None]]:
        """Yields results of the coarse grid, of the checkpoints, of the fine grid, of rounds of adaptive sampling."""
        path, self.predicted = self._path, self._forecast(record, pool, run)
        yield from filter(None, (self._changed_grid, str(self.predicted)))
        yield self._start
        sampling = self.sampling
        adaptive = AdaptiveSampling(
            record.shape, sampling.tolerance, relative=sampling.relative_tolerance, seed=sampling.seed
        )
        next_points = adaptive.next_points if sampling.sampling == "adaptive" else pending_points
        while not run.stopped:
            points = [flat for flat in next_points(record.metrics["loss"], record.status) if self._is_ours(flat)]
            if not (points or path):
                break
            coarse, fine = coarse_and_fine(record.shape, points)
            first, last = (tasks.grid_tasks(self.plane, record, part) for part in (coarse, fine))
            # Adaptive sampling asks for the coarse grid in one round or in two.
            due, path = ([], path) if coarse and not fine else (path, [])
            yield from pool.run(run.in_time(itertools.chain(first, due, last)))
        yield functools.partial(self._end, adaptive=adaptive, finished=not run.stopped)
        if self.closing is not None:
            attributes = self.closing(pool, record)
            yield lambda record: record.attributes.update(attributes)

    def keep(self, record: LandscapeData, result: Result | Callable[[LandscapeData], int | None]) -> int:
        """Writes a result to its place, and to those places that it is the loss of too."""
        if not isinstance(result, Result):
            return result(record) or 0
        tasks.keep_result(record, result)
        if isinstance(result.key, tuple) and result.key[0] != "grid":
            self.copied += tasks.copy_same(record, self._same)
        return 1

    def warn(self, record: LandscapeData, run: Run) -> None:
        if failed := record.status_counts[PointStatus.FAILED]:
            first = tuple(np.argwhere(record.status == PointStatus.FAILED)[0].tolist())
            place = tasks.error_label("grid", first)
            warn_user(
                f"{failed} of {record.status.size} points failed and are marked so in the file; the first one is "
                f"{place}:\n{record.errors.get(place, 'no traceback')}",
            )
        if (record.status == PointStatus.MEASURED).any() and not np.isfinite(record.loss).any():
            warn_user(
                "the loss is NaN or infinite at every point; it is stored as it is. Check the data and the checkpoint "
                "that the plane is centred on, or measure a smaller region.",
            )
        # Where a line, a plane or a curve through networks does not meet the loss of one of them.
        found, named = record.checkpoints, self.plane.identity.get("points") or self.plane.checkpoints
        if self.plane.decomposition not in ("points", "path") or found is None:
            return
        own, drawn = (part["loss"][: len(named)] for part in (found.metrics, found.projected))
        rounding = _ROUNDING[record.attributes["measurement_plan"].get("precision", "float32")]
        with np.errstate(invalid="ignore"):
            far = np.abs(own - drawn) > rounding * np.maximum(1e-2, np.fmax(np.abs(own), np.abs(drawn)))
        for row in np.flatnonzero(far).tolist():
            warn_user(
                f"the loss drawn at {found.label(row, 'network')} is {drawn[row]:.6g}, but its own is {own[row]:.6g}: "
                "something that is no trainable weight differs between the networks (a frozen parameter, or buffers "
                "that are the first network's everywhere).",
            )

    def report(self, report: MeasurementReport) -> SurveyReport:
        """Returns what it cost, and was expected to; the origin is measured in any case, what is copied is not."""
        assert self.predicted is not None
        measured = report.measured + 1 - self.copied
        return SurveyReport(measured, report.resumed, report.seconds, report.workers, self.predicted)

    def ended(self, record: LandscapeData) -> str:
        counts = record.status_counts
        texts = {PointStatus.INTERPOLATED: "are interpolated", PointStatus.PENDING: "have no value yet"}
        others = [f"{counts[status]} {text}" for status, text in texts.items() if counts[status]]
        text = f"the landscape after {counts[PointStatus.MEASURED]} of {record.status.size} points"
        text += f"; of the others {' and '.join(others)}" if others else ""
        known, size = first_grid_counts(record.status)
        if known < size:
            text += (
                f": it is a coarse picture so far, as {known} of the {size} points are measured between which it is "
                "interpolated"
            )
        path = record.statuses[1:]
        missing = sum(int((status == PointStatus.PENDING).sum()) for status in path)
        if missing:
            text += f". {missing} of {sum(status.size for status in path)} losses of checkpoints are not measured"
        return text

    @functools.cached_property
    def _curvature_attribute(self) -> dict[str, Any]:
        """Which eigenvectors the directions are; their digests take as long as reading them."""
        return curvature_attribute(self.plane)

    def _unmeasured(self, description: EvaluatorDescription) -> LandscapeData:
        plane, checkpoints = self.plane, None
        if plane.projection is not None:
            places, who = vars(plane.projection), columns_of(plane.networks)
            checkpoints = CheckpointsData.empty(
                **places, **who, metric_names=description.metrics, has_buffers=bool(plane.space.buffers)
            )
        options = description.options
        further = {_INTERPOLATED: options.buffers == "interpolate", _EXTREMES: options.extremes}
        identity = identity_of(description, _OF_GRID, {"plane": plane.identity})
        if options.buffers != "fixed" and plane.end_buffers:
            identity["buffers"]["at_networks"] = "own"
        # The name of the main data set, the first one, may change.
        if others := {item.name: data_set_json(item) for item in description.datasets[1:]}:
            identity["samples"]["further"] = others
        attributes = {
            **self.attributes,
            **measured_attributes(description),
            "decomposition": plane.decomposition,
            "normalization": plane.normalization,
            # Of random directions alone; the identity has it with the rest of what they were drawn from.
            "perturb_one_dimensional": plane.identity.get("perturb_one_dimensional"),
            # Not the attribute "seed", which is that of the samples: a plane is drawn before, by its own.
            "directions_seed": plane.identity.get("seed"),
            # Functions cannot be compared, so a file only names "target".
            **({"groups": "target"} if options.groups == "target" else {}),
            "buffers": options.buffers,
            "notes": [*description.notes, *plane.notes, *(note for note, applies in further.items() if applies)],
            "identity": identity,
            **self._curvature_attribute,
        }
        bends = () if plane.curvature is None else (plane.curvature.eigenvalues, plane.curvature.residuals)
        directions = DirectionsData(plane.norms, plane.explained_variance_ratio, plane.cosine, *map(np.array, bends))
        data = LandscapeData.empty(*self.axes, directions, description.metrics, checkpoints, attributes)
        vars(data.origin).update(asdict(plane.origin_role))
        data.kept_samples = kept_losses(description.kept, data.shape)
        return data

    def _measure_origin(self, record: LandscapeData, pool: Pool) -> None:
        self.origins = pool.measure_origin()
        precision, stored = pool.description.options.precision, record.origin
        values = check_determinism(self.origins, precision)
        if stored.status == PointStatus.MEASURED:
            where, tolerance = "now, after the file's own value", closeness_elsewhere(precision)
            far = self.origins[0].measured.elsewhere
            check_same_values("the origin", stored.metrics, values, where, tolerance, elsewhere=far)
        else:
            stored.metrics, stored.status = values, PointStatus.MEASURED

    def _forecast(self, record: LandscapeData, pool: Pool, run: Run) -> Forecast:
        """Returns what the pending points and the tasks of the path cost, as far as the origin of each worker tells."""
        path = self._path
        pending = [flat for flat in pending_points(record.metrics["loss"], record.status) if self._is_ours(flat)]
        coarse, fine = coarse_and_fine(record.shape, pending)
        sampling, plan = self.sampling.sampling, pool.description.plan
        estimates = 8 * record.status.size if sampling == "adaptive" else 0
        kept = sum(4 * samples.count * record.status.size for samples in record.kept_samples.values())
        points, passes, origin = len(pending) + len(path), 0, self.origins[0].measured
        seconds_per_point, pass_cost = max(item.measured.seconds for item in self.origins), origin.pass_cost
        if pass_cost is not None:
            # Each set of weights that is off the plane takes a pass of its own, and ends that of the points before it.
            off = [*[False] * len(coarse), *(isinstance(task, StateTask) for task in path), *[False] * len(fine)]
            parts = [(is_off, len(list(part))) for is_off, part in itertools.groupby(off)]
            passes = sum(count if is_off else math.ceil(count / pass_cost.points) for is_off, count in parts)
            seconds_per_point = pass_cost.point
        disk = len(landscape_bytes(record, with_chunks=False)) + estimates + kept
        warn_of_full_disk(record.path, disk)
        return Forecast(
            points=points,
            sampling=sampling,
            seconds_per_point=seconds_per_point,
            workers=pool.workers,
            memory=plane_bytes(self.plane),
            disk=disk,
            process_memory=max(item.measured.memory for item in self.origins),
            budget=run.limit,
            spent=run.spent,
            coarse=len(coarse),
            path=len(path),
            fewest=len(path) + max(fewest_points(record.shape, sampling) - (record.status.size - len(pending)), 0),
            plan=plan_text(plan.to_json(), plan.details),
            passes=passes,
            seconds_per_pass=0.0 if pass_cost is None else pass_cost.reading,
            seconds_of_extremes=origin.seconds_of_extremes,
            products=origin.products,
        )

    def _is_ours(self, index: int) -> bool:
        """Returns whether this job measures a point, by its flat index, or a checkpoint, by its row."""
        return self.sampling.share is None or self.sampling.share.has(index)

    def _start(self, record: LandscapeData) -> None:
        record.attributes["sampling"] = self.sampling.begun()
        if self.sampling.sampling == "adaptive":
            record.attributes["seed"] = self.sampling.seed
        self.copied += tasks.copy_same(record, self._same)

    def _end(self, record: LandscapeData, adaptive: AdaptiveSampling, *, finished: bool) -> None:
        """Interpolates between what is measured, and notes how the sampling ended."""
        report: dict[str, Any] = {}
        if finished:
            record.attributes.pop(UNDER_WAY, None)
        if self.sampling.sampling == "adaptive" or (record.status == PointStatus.PENDING).any():
            filled = adaptive.fill(record.metrics, record.status)
            for name, values in filled.metrics.items():
                record.metrics[name][...] = values
            record.status[...] = filled.status
            if (record.status == PointStatus.INTERPOLATED).any() or not (record.status == PointStatus.PENDING).any():
                record.metrics[LOSS_ERROR] = filled.loss_error
            report = filled.report.to_json()
        lacking = (PointStatus.PENDING, PointStatus.INTERPOLATED)
        is_whole = self.sampling.share is None or not any(np.isin(status, lacking).any() for status in record.statuses)
        sampling = replace(self.sampling, share=None) if is_whole else self.sampling
        record.attributes["sampling"] = {**sampling.begun(), "finished": finished and is_whole, **report}
        if isinstance(self.plane, CurvedLine):
            record.attributes["path"] = self.plane.facts(record.x)


def load_plane(pool: Pool, plane: Plane, places: Iterable[tuple[float, ...]]) -> None:
    """Puts a plane on the workers, who find out at its origin and four far places how the loss is added up."""
    warn_of_shortage(plane, pool)
    end_buffers = () if pool.description.options.buffers == "fixed" else plane.end_buffers
    if isinstance(plane, CurvedLine):
        # The control points between the ends have the buffers of the first network.
        first = [{name: plane.buffers[name] for name in end} for end in end_buffers] * (len(plane.directions) - 1)
        end_buffers = (*first, *end_buffers)
    far = [tasks.shares(plane, place) for place in sorted(places, key=lambda place: -math.hypot(*place))[:4]]
    pool.load(plane.origin, plane.directions, plane.buffers, end_buffers, far)


def check_same_network(plane: Plane, space: WeightSpace) -> None:
    if differences := space.differences(plane.space):
        raise LandscapeError(
            f"the plane was made for another network ({plane.space.network}) than callback_fn returns:\n  "
            + "\n  ".join(differences[:20])
            + "\nUse the same network for both, also where callback_fn asks whether there is a GPU."
        )
