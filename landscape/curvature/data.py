"""What a curvature file holds: a row for each set of weights, in memory; and eigenvectors, in files of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from collectors.errors import CheckpointError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import State, WeightSpace
from collectors.shapes import Float64, Int64, UInt8
from collectors.validation import check_choice, check_float, check_instance, check_int
from collectors.weights.aligned import AlignedState, align
from collectors.weights.safetensors_file import CheckpointFile, MemoryState
from workers.curvature.products import MATRICES

from ..errors import DAMAGES, LandscapeDamagedError, LandscapeIdentityError, LandscapeNotFoundError
from ..planes.side_file import SideFile
from ..record.hdf5 import CURVATURE
from ..record.identity import check_identity
from ..record.record import Record, column

MATRIX_NAMES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix"}  # how texts call the matrices
_NEEDED = ("matrix", "unit", "top", "bottom", "weights")
_KEEP = "Measure again with keep_vectors=True: what else is measured stays."
_EIGENVECTORS = SideFile(
    "eigenvectors", "the eigenvectors", "summary-landscape eigenvectors", "a file that keep_vectors=True wrote", _KEEP
)


class CurvatureData(Record, kind=CURVATURE, coordinates=("number",), key=("number",)):
    """The curvature of a loss at n sets of weights, in arrays that ``Curvature`` explains; NaN where not measured."""

    number: Int64[np.ndarray, " n"] = column("number", dtype=np.int64)
    sha256: tuple[str, ...] = column("number", dtype=str)
    status: UInt8[np.ndarray, " n"] = column("number", dtype=np.uint8)
    loss: Float64[np.ndarray, " n"] = column("number")
    gradient_norm: Float64[np.ndarray, " n"] = column("number")
    trace: Float64[np.ndarray, " n"] = column("number")
    trace_low: Float64[np.ndarray, " n"] = column("number")
    trace_high: Float64[np.ndarray, " n"] = column("number")
    eigenvalues: Float64[np.ndarray, "n pairs"] = column("number", "pair")
    residuals: Float64[np.ndarray, "n pairs"] = column("number", "pair")
    angle_bound: Float64[np.ndarray, "n pairs"] = column("number", "pair")
    share_seen_by_optimizer: Float64[np.ndarray, "n pairs"] = column("number", "pair", optional=True)
    converged: UInt8[np.ndarray, "n pairs"] = column("number", "pair", dtype=np.uint8)
    products: Int64[np.ndarray, " n"] = column("number", dtype=np.int64)
    forward_passes: Int64[np.ndarray, " n"] = column("number", dtype=np.int64)
    density_nodes: Float64[np.ndarray, "n probes steps"] = column("number", "probe", "step", place="density/nodes")
    density_weights: Float64[np.ndarray, "n probes steps"] = column("number", "probe", "step", place="density/weights")

    @property
    def trace_interval(self) -> Float64[np.ndarray, "n 2"]:
        """The 95 % interval of each trace, its lower and its upper end; shape (n, 2)."""
        return np.stack([self.trace_low, self.trace_high], axis=1)

    def validate(self) -> None:
        super().validate()
        if (self.number[1:] <= self.number[:-1]).any():
            raise ValueError(f"number must be increasing, but got {self.number}.")
        attributes = self.attributes
        if missing := [name for name in _NEEDED if attributes.get(name) is None]:
            raise ValueError(f"the attributes lack {missing}.")
        check_choice("matrix", attributes["matrix"], MATRICES)
        check_instance("unit", attributes["unit"], str, "a str")
        top, bottom, _ = (check_int(name, attributes[name], minimum=0) for name in ("top", "bottom", "weights"))
        if attributes.get("tolerance") is not None:
            check_float("tolerance", attributes["tolerance"])
        for name in ("identity", "versions"):
            check_instance(name, attributes.get(name, {}), Mapping, "a dict")
        pairs = self.eigenvalues.shape[1]
        if top + bottom != pairs:
            raise ValueError(
                f"the attributes top and bottom must add up to {pairs} eigenpairs, but are {[top, bottom]}."
            )

    def joined(self, stored: Self) -> Self:
        """Returns both records' rows; a LandscapeIdentityError where a number means other weights in ``stored``."""
        both = sorted(self.places.keys() & stored.places.keys())
        before, now = (
            {f"{record.attributes.get('unit')} {key[0]}": record.sha256[record.places[key]] for key in both}
            for record in (stored, self)
        )
        check_identity(before, now, str(stored.path), kind=CURVATURE)
        return super().joined(stored)


@dataclass(frozen=True, eq=False)
class Eigenvectors:
    space: WeightSpace
    state: State  # all parameters and buffers, by name
    # In the order of the eigenvalues, each of length one: name to array for each trainable parameter.
    directions: tuple[dict[str, NDArray[Any]], ...]

    @property
    def weights(self) -> AlignedState:
        return align(MemoryState(self.state, "the weights of the eigenvectors"), self.space)


def curvature_file(stem: str, numbers: Sequence[int], matrix: str = "hessian") -> str:
    span = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
    return f"{stem}_{span}{'' if matrix == 'hessian' else f'_{matrix}'}.h5"


def vectors_place(path: AnyPath, number: int) -> AnyPath:
    """Returns where the eigenvectors of a checkpoint lie, beside the curvature file."""
    return path.parent / f"{path.stem}_vectors_{number}.safetensors"


def write_vectors(path: AnyPath, data: CurvatureData, row: int, vectors: Eigenvectors) -> None:
    """Writes eigenvectors beside the curvature file, replacing older ones once the new ones are on the disk."""
    directions = {f"eigenvector_{index}": direction for index, direction in enumerate(vectors.directions)}
    entries = {"space": vectors.space.to_json(), **_whose(data, row)}
    _EIGENVECTORS.write(vectors_place(path, data.number[row]), {"state": vectors.state, **directions}, entries)


def has_vectors(path: AnyPath, data: CurvatureData, row: int) -> bool:
    try:
        file = CheckpointFile(vectors_place(path, data.number[row]))
    except (CheckpointError, OSError):
        return False
    return not _differences(file, data, row)


def read_vectors(data: CurvatureData, row: int) -> Eigenvectors:
    """Reads a row's eigenvectors from beside the data's file; raises where they are missing, damaged or of others."""
    called = f"the eigenvectors of {data.attributes.get('unit')} {int(data.number[row])}"
    if data.path is None:
        raise LandscapeNotFoundError(f"{called} were not kept. {_KEEP}")
    place = vectors_place(data.path, data.number[row])
    if not place.exists():
        raise LandscapeNotFoundError(f"{called} were not kept: there is no file {place}. {_KEEP}")
    try:
        file = CheckpointFile(place)
        differing = _differences(file, data, row)
        if not differing:
            space = WeightSpace.from_json(json.loads(file.metadata["space"]))
            if space.dimension != data.attributes["weights"]:
                raise ValueError(f"its network has {space.dimension} trainable weights")
            pairs = range(data.eigenvalues.shape[1])
            trainable = [tensor.name for tensor in space.trainable]
            return Eigenvectors(
                space,
                {tensor.name: file.read(f"state/{tensor.name}") for tensor in space.tensors},
                tuple({name: file.read(f"eigenvector_{index}/{name}") for name in trainable} for index in pairs),
            )
    except (CheckpointError, OSError, *DAMAGES) as error:
        raise LandscapeDamagedError(f"{place}, which has {called}, is damaged ({error}). {_KEEP}") from error
    raise LandscapeIdentityError(
        f"{place} does not have {called} as {data.path} has its eigenvalues (their {', '.join(differing)} differ). "
        f"{_KEEP}"
    )


def _whose(data: CurvatureData, row: int) -> dict[str, str]:
    return {"weights": data.sha256[row], "identity": json.dumps(data.attributes.get("identity"), sort_keys=True)}


def _differences(file: CheckpointFile, data: CurvatureData, row: int) -> list[str]:
    wanted = {**_EIGENVECTORS.header, **_whose(data, row)}
    return [name for name, value in wanted.items() if file.metadata.get(name) != value]
