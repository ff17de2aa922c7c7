"""Eigenvectors that are kept beside the curvature file: a safetensors file for each set of weights, with these."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.errors import CheckpointError
from collectors.files.places import AnyPath
from collectors.networks.weight_space import State, WeightSpace
from collectors.weights.aligned import AlignedState, align
from collectors.weights.safetensors_file import CheckpointFile, MemoryState
from workers.curvature.products import Vector

from ..errors import DAMAGES, LandscapeDamagedError, LandscapeIdentityError, LandscapeNotFoundError
from ..planes.side_file import SideFile
from .data import CurvatureData

_KEEP = "Measure again with keep_vectors=True: what else is measured stays."
_EIGENVECTORS = SideFile(
    "eigenvectors", "the eigenvectors", "summary-landscape eigenvectors", "a file that keep_vectors=True wrote", _KEEP
)


@dataclass(frozen=True, eq=False)
class Eigenvectors:
    """Eigenvectors of a loss's curvature, with the weights at which they were found."""

    space: WeightSpace
    state: State  # all parameters and buffers, by name
    # In the order of the eigenvalues, each of length one: name to array for each trainable parameter.
    directions: tuple[dict[str, NDArray[Any]], ...]

    @property
    def weights(self) -> AlignedState:
        return align(MemoryState(self.state, "the weights of the eigenvectors"), self.space)

    def flat(self, row: int) -> Vector:
        """Returns a vector, all trainable tensors side by side in the network's order, shape (weights,)."""
        direction = self.directions[row]
        return np.concatenate([direction[tensor.name].reshape(-1) for tensor in self.space.trainable])


def _place(path: AnyPath, data: CurvatureData, row: int) -> AnyPath:
    return path.parent / f"{path.stem}_vectors_{int(data.number[row])}.safetensors"


def write_vectors(path: AnyPath, data: CurvatureData, row: int, vectors: Eigenvectors) -> None:
    """Writes eigenvectors beside the curvature file, replacing older ones once the new ones are on the disk."""
    directions = {f"eigenvector_{index}": direction for index, direction in enumerate(vectors.directions)}
    entries = {"space": vectors.space.to_json(), **_whose(data, row)}
    _EIGENVECTORS.write(_place(path, data, row), {"state": vectors.state, **directions}, entries)


def has_vectors(path: AnyPath, data: CurvatureData, row: int) -> bool:
    try:
        file = CheckpointFile(_place(path, data, row))
    except (CheckpointError, OSError):
        return False
    return not _differences(file, data, row)


def read_vectors(data: CurvatureData, row: int) -> Eigenvectors:
    """Reads a row's eigenvectors from beside the data's file; raises where they are missing, damaged or of others."""
    called = f"the eigenvectors of {data.attributes.get('unit')} {int(data.number[row])}"
    if data.path is None:
        raise LandscapeNotFoundError(f"{called} were not kept. {_KEEP}")
    place = _place(data.path, data, row)
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
