"""Measures what a report needs, within one budget; each part has a file of its own, which the same call continues."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from collectors.errors import CheckpointError, LandscapeError, RunDirectoryError
from collectors.files.places import AnyPath
from collectors.run_directory.directory import RunDirectory
from collectors.weights.safetensors_file import StateReader
from workers.errors import CurvatureError, SampleLossesError

from ..comparison.comparison import Comparison
from ..comparison.measuring import compare_recipes
from ..comparison.networks import find_recipes
from ..curvature.curvature import Curvature
from ..curvature.data import curvature_file
from ..curvature.facts import evenly_chosen
from ..errors import PlaneError, error_message
from ..grid.measuring import Grid, measure_plane
from ..landscape import Landscape
from ..planes.axis_curvature import BOTTOM
from ..record.checks import PointStatus
from ..record.option_kinds import CompareOptions, GridOptions, MeasureOptions
from ..record.options import checked, options_of
from ..record.run import Cost, Run, costs_kept, duration_text
from ..record.workers import given_plan

_CHECKPOINTS = 5  # at how many checkpoints the sharpness along the run is measured
_FEWEST = 3  # checkpoints, through which a plane goes
_PROBES = 20
_PARTS = ("path", "around", "end", "along", "comparison")  # that a dry run forecasts
_NO_SAMPLES = "the loss has no value for each sample"
_NO_TIME = "the budget ended before it was measured"
_RISE = 1e-3  # of the loss, to either side along the lowest eigenvector
FLAT = 0.01
"""Of the largest eigenvalue: less counts as flat."""
DEFAULT_STEM = "report"


class MeasuresRun(Protocol):
    """What measures a run's landscapes and its curvature: a ``SummaryLandscape``."""

    def gen_landscapes_with_multi_process(self, *arguments: Any, **options: Any) -> list[Landscape]: ...
    def gen_curvature(self, *arguments: Any, **options: Any) -> Curvature | None: ...


@dataclass(frozen=True)
class Findings:
    """What was measured; None where it was not."""

    path: Landscape | None  # the plane of the run's principal directions
    around: Landscape | None  # a plane of random directions around its end
    curvature: Curvature | None  # at the end: the two largest eigenvalues and the lowest one
    along: Curvature | None  # the largest eigenvalue at some checkpoints
    bottom: Landscape | None  # three points along the lowest eigenvector, with the loss of each sample
    comparison: Comparison | None  # of recipes
    missing: Mapping[str, str]  # why something is None, by its name

    @property
    def compares(self) -> bool:
        return self.comparison is not None or "comparison" in self.missing


@dataclass
class ReportMeasuring:
    measures: MeasuresRun
    run: RunDirectory
    callback_fn: Callable[[], Any]
    folder: AnyPath
    chosen: Mapping[str, Any]
    missing: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock, self.stem = Run.checked(self.chosen), self.chosen["name"] or DEFAULT_STEM
        self.numbers = self._finite(self.run.present_numbers)
        samples = self.chosen["num_samples"]
        shared = {name: value for name, value in self.chosen.items() if name not in ("name", "budget")}
        self.shared = {**shared, "num_samples": self.run.settings.num_samples if samples is None else samples}

    def findings(self, recipes: Mapping[str, Any] | None) -> Findings | None:
        """Returns what the budget allowed, None after a dry run; raises a LandscapeError where no plane is measured."""
        if recipes is not None:
            find_recipes(recipes)  # a mistake there shows before anything is measured
        with costs_kept() as costs:
            found = self._findings(recipes)
        if not self.chosen["dry_run"]:
            return found
        self.clock.say(self.total(costs), timed=False)
        return None

    def total(self, costs: Sequence[Cost]) -> str:
        """Returns in words what the parts of a dry run cost together."""
        least, most, budget = sum(cost.least for cost in costs), sum(cost.most for cost in costs), self.clock.budget
        fewest, all_points = duration_text(least), duration_text(most)
        text = f"about {all_points}" if most else "nothing is left to measure"
        text += f" (adaptive sampling: from {fewest} upwards)" if fewest != all_points else ""
        text += f"; the budget ends it after {duration_text(budget)}" if budget is not None and budget < most else ""
        text += "".join(f"; without {name}: {why}" for name, why in self.missing.items() if name in _PARTS)
        needs_line = "end" not in self.missing and (self.clock.overwrite or not self._bottom_place.exists())
        line = " and three points along the lowest eigenvector" if needs_line else ""
        return f"report in all: {text}; beside it the start of each part{line}"

    def _findings(self, recipes: Mapping[str, Any] | None) -> Findings:
        path, around = self._planes()
        shapes = self.run.checkpoint(self.numbers[-1]).shapes
        trainable = self.run.metadata.network.get("trainable") or shapes
        weights = sum(math.prod(shapes[name]) for name in trainable if name in shapes)
        pairs = {"top": min(2, weights - 1), "bottom": 1}
        curvature = self._curvature("end", self.numbers[-1:], **pairs, trace_probes=_PROBES, keep_vectors=True)
        spread = [self.numbers[place] for place in evenly_chosen(len(self.numbers), _CHECKPOINTS)]
        along = self._curvature("along", spread, top=1) if "end" not in self.missing else None
        bottom = None if curvature is None else self._bottom(curvature, path)
        comparison = None if recipes is None else self._comparison(recipes)
        return Findings(path, around, curvature, along, bottom, comparison, self.missing)

    def _finite(self, numbers: list[int]) -> list[int]:
        """Returns the numbers up to the last checkpoint with finite weights; raises if fewer than three are left."""
        kept, unit = list(numbers), self.run.settings.unit
        while kept and not self._is_finite(kept[-1]):
            kept.pop()
        diverged = len(kept) < len(numbers)
        if len(kept) < _FEWEST:
            raise RunDirectoryError(
                f"{self.run.path} has fewer than three checkpoints{' with finite weights' if diverged else ''}; it has "
                f"those of {unit}s {kept}. Train longer, or save checkpoints more often."
            )
        if diverged:
            end, first, last = kept[-1], numbers[len(kept)], numbers[-1]
            later = f"{unit}s {first} to {last}" if last > first else f"{unit} {last}"
            self.missing["diverged"] = f"the weights of {later} are not finite, so {unit} {end} counts as the end"
        return kept

    def _is_finite(self, number: int) -> bool:
        found = _not_finite(self.run.checkpoint(number))
        return not found or not found - self._masks

    @cached_property
    def _masks(self) -> set[str]:
        """Names of the buffers that are infinite from the beginning, as a mask of -inf is."""
        first = _not_finite(self.run.checkpoint(self.run.present_numbers[0]))
        return first - set(self.run.metadata.network.get("trainable") or ())

    def _planes(self) -> tuple[Landscape | None, Landscape | None]:
        """Measures both planes, without checkpoints whose weights are not finite."""
        try:
            return self._both_planes()
        except CheckpointError:
            finite = [number for number in self.numbers if self._is_finite(number)]
            left_out = [number for number in self.numbers if number not in finite]
            if not left_out or len(finite) < _FEWEST:
                raise
            self.missing["left_out"] = f"{self.run.settings.unit}s {left_out}, whose weights are not finite"
            self.numbers = finite
            return self._both_planes()

    def _both_planes(self) -> tuple[Landscape | None, Landscape | None]:
        """Measures both planes on the same workers; where one cannot be, the other one alone."""
        budget = self._left(0.5)
        with contextlib.suppress(PlaneError):
            found = self._landscapes(budget, train=True, result=True)
            return (found[0], found[1]) if found else (None, None)
        path = self._plane("path", budget, train=True, result=False)
        around = self._plane("around", budget, train=False, result=True)
        if around is None:
            around = self._plane("around", budget, train=False, result=True, perturb_one_dimensional=True)
        return path, around

    @contextlib.contextmanager
    def _missing_after(self, name: str, kind: type[LandscapeError]) -> Iterator[None]:
        """Goes on after such an error, which says why a part is missing."""
        try:
            yield
        except kind as error:
            self.missing[name] = error_message(str(error)).removesuffix(".")

    def _is_late(self, name: str, place: AnyPath) -> bool:
        # What an earlier call measured is read, whatever the time.
        is_new = self.clock.overwrite or not place.exists()
        is_late = self.clock.is_late and is_new and not self.clock.rehearsal
        if is_late:
            self.missing[name] = _NO_TIME
        return is_late

    def _plane(self, name: str, budget: float | None, **options: Any) -> Landscape | None:
        self.missing.pop(name, None)
        with self._missing_after(name, PlaneError):
            return next(iter(self._landscapes(budget, **options)), None)
        return None

    def _landscapes(self, budget: float | None, *, train: bool, result: bool, **options: Any) -> list[Landscape]:
        shared = dict(self.shared)
        samples = shared.pop("num_samples")
        if isinstance(samples, Mapping):  # in settings, all of a set is said by leaving it out
            samples = {name: count for name, count in samples.items() if count is not None}
        settings = {
            "intervals": [self.numbers],
            "num_samples": samples,
            "create_landscape": {"train": train, "result": result},
        }
        options |= {"output": str(self.folder), "name": self.stem, "sampling": "adaptive", "budget": budget}
        return self.measures.gen_landscapes_with_multi_process(self.callback_fn, settings, **shared, **options)

    def _curvature(self, name: str, numbers: Sequence[int], **options: Any) -> Curvature | None:
        stem = f"{self.stem}_{name}"
        if self._is_late(name, self.folder / curvature_file(stem, numbers)):
            return None
        options |= {"output": str(self.folder), "name": stem, "budget": self._left()}
        with self._missing_after(name, CurvatureError):
            found = self.measures.gen_curvature(self.callback_fn, numbers, **self.shared, **options)
            if found is None or found.status_counts[PointStatus.MEASURED]:
                return found
            self.missing[name] = _NO_TIME
        return None

    def _bottom(self, curvature: Curvature, path: Landscape | None) -> Landscape | None:
        """Measures three points along the lowest eigenvector, near enough for the loss to be a parabola."""
        place = self._bottom_place
        if self._is_late("bottom", place):
            return None
        loss, bends = abs(float(curvature.loss[0])), np.abs(curvature.eigenvalues[0, [0, -1]])
        if not loss and path is not None and path.checkpoints is not None:
            loss = float(np.nanmax(np.abs(path.checkpoints.metrics["loss"]), initial=0.0))
        if not (math.isfinite(loss) and loss and np.isfinite(bends).all() and bends.any()):
            self.missing["bottom"] = "the loss, or its curvature, is zero or not finite"
            return None
        line, grid = curvature.plane(None, BOTTOM, rise=_RISE * loss), Grid(3)
        if bends[1] <= FLAT * bends.max():
            # Where the loss hardly bends, as far as it would rise if it just did not count as flat.
            grid = Grid(x=np.array([-1.0, 0.0, 1.0]) * math.sqrt(2 * _RISE * loss / (FLAT * bends.max())))
        options = self._options(GridOptions, keep_samples=True)
        try:
            measured = measure_plane(line, self.callback_fn, grid, options, place)
        except SampleLossesError:
            # So near the end the loss hardly differs, which leaves open what a class of the user's makes of samples.
            on_path = path is not None and "loss_stderr" in path.metrics
            why = "it cannot be seen there whether the loss is made of samples" if on_path else _NO_SAMPLES
            self.missing["bottom"] = f"{why}, so its curvature has no interval"
            return None
        if measured is not None and not np.isfinite(measured[0].loss).all():
            left = measured[0].status_counts[PointStatus.PENDING]
            self.missing["bottom"] = _NO_TIME if left else "the loss is not finite along the lowest eigenvector"
            measured = None
        return None if measured is None else Landscape(measured[0], report=measured[1])

    @property
    def _bottom_place(self) -> AnyPath:
        return self.folder / f"{self.stem}_bottom_{self.numbers[-1]}.h5"

    def _comparison(self, recipes: Mapping[str, Any]) -> Comparison | None:
        place = self.folder / f"{self.stem}_comparison.h5"
        if self._is_late("comparison", place):
            return None
        with self._missing_after("comparison", LandscapeError):
            return compare_recipes(recipes, self.callback_fn, str(place), self._options(CompareOptions))
        return None

    def _options(self, kind: type[Any], **more: Any) -> dict[str, Any]:
        """Returns all options of a measurement as ``Measure`` gives them."""
        given = {**self.shared, **more, "budget": self._left()}
        of_measure = {name: value for name, value in given.items() if name in options_of(MeasureOptions)}
        options = {**checked(MeasureOptions, of_measure), **checked(kind, {})}
        return {**options, "plan": given_plan(options)}

    def _left(self, share: float = 1.0) -> float | None:
        return None if self.clock.left is None else share * self.clock.left


def _not_finite(checkpoint: StateReader) -> set[str]:
    """Returns the names of the tensors that hold a NaN or an infinity."""
    arrays = ((name, checkpoint.read(name)) for name in checkpoint.shapes)
    return {name for name, array in arrays if array.dtype.kind not in "biu" and not np.isfinite(array).all()}
