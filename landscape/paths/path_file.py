"""The file of a path: both networks, the bends, and how far their fitting is, so that it can go on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.files.places import AnyPath, check_can_be_file, check_directory
from collectors.files.remote_path import RemotePath
from collectors.networks.weight_space import State, WeightSpace
from collectors.validation import check_bool
from collectors.weights.safetensors_file import CheckpointFile
from workers.curves.curve import CurveShape, Fitting, FittingSettings

from ..errors import DAMAGES, LandscapeWriteError, PlaneError
from ..planes.plane_file import write_tensors
from ..record.kind import FileKind
from ..record.writer import note_file
from ..replacing import check_replaceable_tensors

PATH = FileKind("path", "summary-landscape path", 1, 1, "Path.load")
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
    target = check_directory("path", path)
    check_bool("overwrite", overwrite)
    if not isinstance(target, RemotePath):
        check_can_be_file("path", target)
    if target.exists() and not overwrite:
        raise LandscapeWriteError(
            f"{target} exists and was left as it is. Pass overwrite=True to replace it, or give another name."
        )
    check_replaceable_tensors(target, PATH.word, PATH.format)
    write_path(target, curve)
    return target


def write_path(path: AnyPath, curve: FittedCurve) -> None:
    """Writes a path, ended or not; a file that is there is replaced."""
    fitting = curve.fitting
    tensors: dict[str, NDArray[Any]] = {
        f"{end}/{name}": np.asarray(array) for end in _ENDS for name, array in getattr(curve, end).items()
    }
    values = (fitting.bends, fitting.first, fitting.second, fitting.losses)
    tensors |= {f"fitting/{name}": value for name, value in zip(_OF_FITTING, values, strict=True)}
    facts = {
        "space": curve.space.to_json(), "names": curve.names, "ends_sha256": curve.ends_sha256,
        "settings": asdict(curve.settings), "samples": dict(curve.samples), "step": fitting.step,
        "plan": dict(curve.plan),
    }  # fmt: skip
    metadata = {"format": PATH.format, "format_version": str(PATH.version), "path": json.dumps(facts)}
    write_tensors(path, tensors, metadata, "the path", "then run again: it continues from the file")
    note_file(path)


def read_path(path: AnyPath) -> FittedCurve:
    """Reads a path, ended or not; a PlaneError where the file holds no whole path of this version."""
    file = CheckpointFile(path)
    if file.metadata.get("format") != PATH.format:
        raise PlaneError(f"{path} holds no path. Give a file that Path.save or connect(output=...) wrote.")
    if (version := file.metadata.get("format_version")) != str(PATH.version):
        raise PlaneError(
            f"{path} has format_version {version}, this program reads {PATH.version}. Install a newer "
            "summary-landscape, or connect the networks again."
        )
    try:
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
    except DAMAGES as error:
        raise PlaneError(
            f"{path} holds no whole path ({type(error).__name__}: {error}); copy it again from where it came, or "
            "connect the networks again."
        ) from error
