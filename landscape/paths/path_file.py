"""The file of a path: both networks, the bends, and how far their fitting is, so that it can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from collectors.files.places import AnyPath
from collectors.networks.weight_space import State, WeightSpace
from collectors.weights.safetensors_file import CheckpointFile
from workers.curves.curve import CurveShape, Fitting, FittingSettings

from ..errors import PlaneError
from ..planes.side_file import SideFile, place_to_save, read_arrays, write_arrays
from ..record.kind import FileKind
from ..record.writer import note_file

PATH = FileKind("path", "summary-landscape path", 1, 1, "Path.load")
_PATH = SideFile(
    PATH.word,
    "the path",
    PATH.format,
    "a file that Path.save or connect(output=...) wrote",
    "connect the networks again",
    PATH.version,
)
_ENDS = ("first", "last")
_OF_FITTING = ("bends", "first_moment", "second_moment", "losses")


@dataclass(frozen=True, eq=False)
class FittedCurve:
    """The control points of a curve, and how they were fitted.

    Attributes:
        space: the network.
        first: all parameters and buffers of the first network, by name.
        last: those of the last one.
        names: what pictures call the two.
        ends_sha256: of the two networks as they were given.
        settings: how the curve is fitted.
        samples: on what: "count" and "sha256".
        fitting: the bends, and how far they are.
        plan: with which measurement plan they were fitted, as JSON values.
    """

    space: WeightSpace
    first: State
    last: State
    names: tuple[str, str]
    ends_sha256: tuple[str, str]
    settings: FittingSettings
    samples: Mapping[str, Any]
    fitting: Fitting
    plan: Mapping[str, Any]

    @property
    def complete(self) -> bool:
        """Whether all steps are done."""
        return self.fitting.step >= self.settings.steps

    @property
    def identity(self) -> dict[str, Any]:
        """What the bends follow from, by the names that ``connect`` gives it."""
        a, b = self.ends_sha256
        return {
            "a": a,
            "b": b,
            **{name: value for name, value in asdict(self.settings).items() if name != "shape"},
            **asdict(self.settings.shape),
            "samples": dict(self.samples),
        }

    @property
    def line_identity(self) -> dict[str, Any]:
        """What is measured along the curve."""
        digest = hashlib.sha256(np.ascontiguousarray(self.fitting.bends).tobytes()).hexdigest()
        shape = self.settings.shape
        return {
            "decomposition": "path", "points": list(self.ends_sha256), "kind": shape.kind, "bends": shape.bends,
            "control_points": digest,
        }  # fmt: skip

    def ended(self, path: AnyPath) -> FittedCurve:
        """Returns the curve, or raises a PlaneError where its fitting has not ended."""
        if not self.complete:
            raise PlaneError(
                f"{path} holds a path that is fitted for {self.fitting.step} of {self.settings.steps} steps. Call "
                "connect again with the same arguments and output, and it goes on from there."
            )
        return self


def path_beside(landscape: AnyPath) -> AnyPath:
    """Returns where the control points of a landscape along a curve lie: ``<stem>_path.safetensors``."""
    return landscape.parent / f"{landscape.stem}_path.safetensors"


def save_path(path: str | os.PathLike[str], curve: FittedCurve, *, overwrite: bool) -> AnyPath:
    """Writes a path, replacing a file only with ``overwrite``, and returns where it is."""
    target = place_to_save(path, overwrite=overwrite)
    write_path(target, curve)
    return target


def write_path(path: AnyPath, curve: FittedCurve) -> None:
    """Writes a path, ended or not; a path that is there is replaced."""
    fitting = curve.fitting
    values = (fitting.bends, fitting.first, fitting.second, fitting.losses)
    groups: dict[str, State] = {
        **{end: {name: np.asarray(array) for name, array in getattr(curve, end).items()} for end in _ENDS},
        "fitting": dict(zip(_OF_FITTING, values, strict=True)),
    }
    facts = {
        "space": curve.space.to_json(), "names": curve.names, "ends_sha256": curve.ends_sha256,
        "settings": asdict(curve.settings), "samples": dict(curve.samples), "step": fitting.step,
        "plan": dict(curve.plan),
    }  # fmt: skip
    write_arrays(path, _PATH, groups, {"path": facts})
    note_file(path)


def read_path(path: AnyPath) -> FittedCurve:
    """Reads a path, ended or not; a PlaneError where the file holds no whole path of this version."""
    return read_arrays(path, _PATH, _curve_of)


def _curve_of(file: CheckpointFile) -> FittedCurve:
    facts = json.loads(file.metadata["path"])
    space = WeightSpace.from_json(facts["space"])
    first, last = ({tensor.name: file.read(f"{end}/{tensor.name}") for tensor in space.tensors} for end in _ENDS)
    bends, means, squares, losses = (file.read(f"fitting/{name}") for name in _OF_FITTING)
    given = dict(facts["settings"])
    settings = FittingSettings(CurveShape(**given.pop("shape")), **given)
    expected = (settings.shape.bends, space.dimension)
    if any(array.shape != expected for array in (bends, means, squares)) or len(losses) != facts["step"]:
        raise ValueError(f"the bends have the shape {bends.shape}, expected {expected}")
    names, digests = tuple(facts["names"]), tuple(facts["ends_sha256"])
    if [len(names), len(digests)] != [2, 2] or not all(isinstance(text, str) for text in (*names, *digests)):
        raise ValueError(f"the ends are called {names}, with the SHA-256 {digests}")
    fitting = Fitting(int(facts["step"]), bends, means, squares, losses)
    return FittedCurve(space, first, last, names, digests, settings, facts["samples"], fitting, facts["plan"])
