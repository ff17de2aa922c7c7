"""The fitting of a curve between two networks as an experiment: its record, its file, its steps."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from collectors.files.places import AnyPath
from collectors.networks.weight_space import State, WeightSpace
from collectors.shapes import Bool, UInt8
from collectors.weights.safetensors_file import CheckpointFile, checkpoint_parts
from workers.curves.curve import CurveShape, CurveTask, Fitting, FittingSettings
from workers.pool import Pool

from ..errors import LandscapeNotFoundError
from ..planes.from_checkpoints import with_effective_weights
from ..planes.plane import Plane
from ..planes.side_file import SideFile
from ..record.checks import PointStatus
from ..record.driver import Experiment, Stored, forecast_text
from ..record.hdf5 import FileKind
from ..record.identity import identity_of
from ..record.run import Cost, Run
from ..record.writer import FileFormat, note_file

KEEP_SECONDS = 5.0  # how much of a fitting a kill may cost
_FILE = SideFile(
    "path",
    "the path",
    "summary-landscape path",
    "a file that Path.save or connect(output=...) wrote",
    "connect the networks again",
)
_ENDS = ("first", "last")
_OF_FITTING = ("bends", "first_moment", "second_moment", "losses")


@dataclass(eq=False)
class FittedCurve:
    """The control points of a curve, and how they were fitted; the driver's record of a fitting."""

    space: WeightSpace
    first: State  # all parameters and buffers of the first network, by name
    last: State  # those of the last one
    names: tuple[str, str]  # what pictures call the two
    ends_sha256: tuple[str, str]  # of the two networks as they were given
    settings: FittingSettings
    samples: Mapping[str, Any]  # on what the curve is fitted: "count" and "sha256"
    fitting: Fitting  # the bends, and how far they are
    # As JSON values, the "measurement_plan" of the fitting, and the "identity": what the bends follow from, by the
    # names that ``connect`` gives it.
    attributes: dict[str, Any]
    errors: dict[str, str] = field(default_factory=dict)  # none, because a step that fails ends the fitting
    path: AnyPath | None = None

    def __post_init__(self) -> None:
        a, b = self.ends_sha256
        settings = asdict(self.settings)
        shape = settings.pop("shape")
        self.attributes["identity"] = {"a": a, "b": b, **settings, **shape, "samples": dict(self.samples)}

    @property
    def statuses(self) -> tuple[UInt8[np.ndarray, " steps"]]:
        is_done = np.arange(self.settings.steps) < self.fitting.step
        return (np.where(is_done, PointStatus.MEASURED, PointStatus.PENDING).astype(np.uint8),)

    @property
    def complete(self) -> bool:
        return self.fitting.step >= self.settings.steps

    @property
    def line_identity(self) -> dict[str, Any]:
        digest = hashlib.sha256(np.ascontiguousarray(self.fitting.bends).tobytes()).hexdigest()
        shape = self.settings.shape
        return {
            "decomposition": "path", "points": list(self.ends_sha256), "kind": shape.kind, "bends": shape.bends,
            "control_points": digest,
        }  # fmt: skip


def curve_beside(landscape: AnyPath) -> AnyPath:
    """Returns where the control points of a landscape along a curve lie: ``<stem>_path.safetensors``."""
    return landscape.parent / f"{landscape.stem}_path.safetensors"


def write_curve(path: AnyPath, curve: FittedCurve) -> None:
    _FILE.write(path, *_contents_of(curve))
    note_file(path)


def read_curve(path: AnyPath) -> FittedCurve:
    """Reads a curve, fitted or not; a PlaneError where the file holds no whole curve of this version."""
    return _FILE.read(path, _curve_of)


def _read_begun(path: AnyPath) -> FittedCurve:
    if not path.exists():
        raise LandscapeNotFoundError(f"there is no {_FILE.word} file {path}.")
    return read_curve(path)


CURVE_FILE = FileFormat(
    FileKind(_FILE.word, _FILE.format, _FILE.version, _FILE.version, "Path.load"),
    _read_begun,
    lambda curve: list(checkpoint_parts(*_FILE.contents_of(*_contents_of(curve)))),
    # A part of a fitting has taken seconds, and is written at once.
    flush_seconds=0.0,
    check=lambda path, _kind: _FILE.check_replaceable(path),
)


def _contents_of(curve: FittedCurve) -> tuple[dict[str, State], dict[str, Any]]:
    fitting = curve.fitting
    values = (fitting.bends, fitting.first, fitting.second, fitting.losses)
    groups: dict[str, State] = {"fitting": dict(zip(_OF_FITTING, values, strict=True))}
    groups |= {end: {name: np.asarray(array) for name, array in getattr(curve, end).items()} for end in _ENDS}
    facts = {
        "space": curve.space.to_json(), "names": curve.names, "ends_sha256": curve.ends_sha256,
        "settings": asdict(curve.settings), "samples": dict(curve.samples), "step": fitting.step,
        "plan": curve.attributes["measurement_plan"],
    }  # fmt: skip
    return groups, {"path": facts}


def _curve_of(file: CheckpointFile) -> FittedCurve:
    facts = json.loads(file.metadata["path"])
    space = WeightSpace.from_json(facts["space"])
    first, last = ({tensor.name: file.read(f"{end}/{tensor.name}") for tensor in space.tensors} for end in _ENDS)
    bends, means, squares, losses = (file.read(f"fitting/{name}") for name in _OF_FITTING)
    given = dict(facts["settings"])
    settings = FittingSettings(CurveShape(**given.pop("shape")), **given)
    # Before the first step there are no bends.
    expected = (settings.shape.bends, space.dimension if facts["step"] else 0)
    if any(array.shape != expected for array in (bends, means, squares)) or len(losses) != facts["step"]:
        raise ValueError(f"the bends have the shape {bends.shape}, expected {expected}")
    names, digests = tuple(facts["names"]), tuple(facts["ends_sha256"])
    if [len(names), len(digests)] != [2, 2] or not all(isinstance(text, str) for text in (*names, *digests)):
        raise ValueError(f"the ends are called {names}, with the SHA-256 {digests}")
    fitting = Fitting(int(facts["step"]), bends, means, squares, losses)
    plan = {"measurement_plan": facts["plan"]}
    return FittedCurve(space, first, last, names, digests, settings, facts["samples"], fitting, plan)


@dataclass(eq=False)
class CurveExperiment(Experiment[FittedCurve]):
    line: Plane  # of which the curve keeps the ends
    settings: FittingSettings
    unit: str = "step"
    name: str = "curve"

    def begin(self, stored: Stored[FittedCurve], pool: Pool) -> FittedCurve:
        line, settings = self.line, self.settings
        # On the line the pool finds out how losses add up, and so what a batch is.
        pool.load(line.origin, line.directions, line.buffers)
        readers = with_effective_weights(line.checkpoints, line.space)
        first, last = ({tensor.name: reader.read(tensor.name) for tensor in line.space.tensors} for reader in readers)
        samples = identity_of(pool.description, ("samples",))["samples"]
        plan = {"measurement_plan": pool.description.plan.to_json()}
        nothing = np.zeros((settings.shape.bends, 0))
        unfitted = Fitting(0, nothing, nothing, nothing, np.zeros(0))
        a, b = line.networks
        curve = FittedCurve(
            line.space, first, last, (a.name, b.name), (a.sha256, b.sha256), settings, samples, unfitted, plan
        )
        stored.check(curve)
        return curve if stored.record is None else replace(stored.record, attributes=plan, names=curve.names)

    def resume(self, record: FittedCurve, pool: Pool) -> Bool[np.ndarray, " steps"]:
        return np.asarray(record.statuses[0] == PointStatus.PENDING)

    def forecast(self, record: FittedCurve, todo: Bool[np.ndarray, " steps"], pool: Pool, run: Run) -> Cost:
        begin = time.perf_counter()
        next(self._parts(record, pool, 0.0), None)
        left, seconds = int(todo.sum()), time.perf_counter() - begin
        return forecast_text(f"{todo.size} steps", todo.size - left, left, "step", seconds, workers=1)

    def results(self, record: FittedCurve, todo: Bool[np.ndarray, " steps"], pool: Pool, run: Run) -> Iterator[Fitting]:
        """Yields how far the fitting is, every few seconds; however short the time, a step is made."""
        for fitting in self._parts(record, pool, min(KEEP_SECONDS, run.budget or KEEP_SECONDS)):
            yield fitting
            if run.is_late and not record.complete:
                run.stopped = True
                return

    def keep(self, record: FittedCurve, result: Fitting) -> int:
        count, record.fitting = result.step - record.fitting.step, result
        return count

    def warn(self, record: FittedCurve, run: Run) -> None:
        """Has nothing to warn of: a loss that is not finite ends the fitting."""

    def ended(self, record: FittedCurve) -> str:
        return f"the fitting after {record.fitting.step} of {self.settings.steps} steps"

    def _parts(self, record: FittedCurve, pool: Pool, seconds: float) -> Iterator[Fitting]:
        parameters = [tensor.name for tensor in self.line.space.parameters]
        first, last = ({name: state[name] for name in parameters} for state in (record.first, record.last))
        buffers = {tensor.name: record.first[tensor.name] for tensor in self.line.space.buffers}
        task = CurveTask(self.settings, first, last, buffers, next(iter(self.line.end_buffers), {}))
        return pool.fit_curve(task, record.fitting if record.fitting.step else None, seconds)
