"""A plane as a side file: origin, buffers, directions and identity, and who is on it; and directions of one's own."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.files.places import AnyPath, check_directory, is_url
from collectors.networks.weight_space import State, WeightSpace, some_names
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory
from collectors.validation import check_instance, check_int
from collectors.weights.aligned import align, as_reader
from collectors.weights.safetensors_file import CheckpointFile, Portable, StateReader, portable

from ..errors import DAMAGES
from ..roles import NO_RUN, OriginRole
from .axis_curvature import AxisCurvature
from .directions import Direction
from .networks import Network, columns_of
from .projection import Projection
from .side_file import SideFile

T = TypeVar("T")

_PLANE = SideFile(
    "plane",
    "the plane's directions",
    "summary-landscape plane",
    "a file that Plane.save wrote, or that save_directions=True left beside a landscape; one of an older version must "
    "be written again",
    "save the plane again",
    older={"parameters": "directions without their origin"},
)
_GROUPS = ("origin", "buffer", "direction_0", "direction_1", "end_buffer_0", "end_buffer_1")
_DIRECTION = re.compile(r"direction_(\d+)/(.+)", re.DOTALL)
_BESIDE_DIRECTIONS = ("origin/", "buffer/", "end_buffer_")


class _SavedWeights:
    """The weights of a saved plane's network, opened at their ``place`` once they are read; None if in memory."""

    def __init__(self, place: str | None, sha256: str, name: str, space: WeightSpace) -> None:
        self.label = name if place is None else place
        self.place = place
        self._sha256, self._name, self._space = sha256, name, space
        self.shapes = {tensor.name: tensor.shape for tensor in space.tensors}
        self.dtypes = {tensor.name: tensor.dtype for tensor in space.tensors}

    def read(self, name: str) -> NDArray[Any]:
        return self._reader.read(name)

    def read_block(self, name: str, start: int, stop: int) -> NDArray[Any]:
        return self._reader.read_block(name, start, stop)

    def sha256(self) -> str:
        return self._sha256

    def portable(self) -> Portable | None:
        return portable(self._reader)

    @cached_property
    def _reader(self) -> StateReader:
        reader = None if self.place is None else _reader_at(self.place, self._space)
        if reader is not None and reader.sha256() == self._sha256:
            return reader
        why = "was in memory" if self.place is None else f"is no longer in {self.place}"
        raise CheckpointError(
            f"{self._name} of the saved plane {why}, so nothing can be measured of it. A plane's file holds only where "
            "its networks lie: build the plane from their weights again, or give the same weights to with_checkpoints "
            "on a plane without them."
        )


def directions_path(landscape_path: AnyPath) -> AnyPath:
    """Returns where the plane of a landscape lies: ``<stem>_directions.safetensors``."""
    return landscape_path.parent / f"{landscape_path.stem}_directions.safetensors"


def find_directions(landscape_path: AnyPath, identity: Any) -> AnyPath | None:
    """Returns where the plane of an identity is kept beside its landscape; None where it is missing or another one."""
    place = directions_path(landscape_path)
    if not place.exists():
        return None
    # Older files hold directions alone, and imported landscapes have no identity.
    kept = identity_of_directions(landscape_path)
    return place if None in (identity, kept) or kept == identity else None


def check_directions(landscape_path: AnyPath) -> None:
    """Raises LandscapeWriteError where the file for the plane of a landscape is there and holds no plane."""
    _PLANE.check_replaceable(directions_path(landscape_path))


def identity_of_directions(landscape_path: AnyPath) -> Any:
    """Returns the identity of the plane that is kept beside a landscape; None where nothing says one."""
    place = directions_path(landscape_path)
    if not place.exists():
        return None
    try:
        return json.loads(CheckpointFile(place).metadata["plane"])["identity"]
    except (CheckpointError, *DAMAGES):
        return None  # whoever reads it says what is wrong, and whoever writes whether it may be replaced


def write_directions(landscape_path: AnyPath, plane: Any) -> None:
    write_plane(directions_path(landscape_path), plane, "then run again with save_directions=True")


def write_plane(path: AnyPath, plane: Any, remedy: str = "then save it again") -> None:
    """Writes a ``Plane``, whose class this file must not import; ``remedy`` ends the text of a LandscapeWriteError."""
    groups: dict[str, State] = {"origin": plane.origin, "buffer": plane.buffers}
    groups |= {f"direction_{axis}": direction for axis, direction in enumerate(plane.directions)}
    groups |= {f"end_buffer_{axis}": buffers for axis, buffers in enumerate(plane.end_buffers)}
    facts = {
        "space": plane.space.to_json(),
        "identity": plane.identity,
        "explained_variance_ratio": plane.explained_variance_ratio,
        "notes": plane.notes,
        "origin_role": asdict(plane.origin_role),
        "members": columns_of(plane.networks),
        "projection": plane.projection and vars(plane.projection),
        "places": [_place(reader) for reader in plane.checkpoints],
        "curvature": plane.curvature and plane.curvature.to_json(),
    }
    entries = {
        "decomposition": plane.decomposition,
        "normalization": plane.normalization,
        # All of them in the network's order, which the file's tensors do not have.
        "parameters": [[tensor.name, list(tensor.shape)] for tensor in plane.space.parameters],
        "plane": facts,
    }
    _PLANE.write(path, groups, entries, remedy)


def read_plane(path: AnyPath, make: Callable[..., T]) -> T:
    """Returns the plane of a file, by ``make``: the class ``Plane``, which this file must not import."""
    return _PLANE.read(path, lambda file: make(**_plane_of(file)))


def read_directions(paths: Sequence[str | os.PathLike[str]]) -> list[Direction]:
    """Returns the directions of saved planes, or those of a file for each, by the names of the parameters."""
    directions: list[Direction] = []
    for path in paths:
        reader = as_reader("directions", path)
        matches = {name: _DIRECTION.fullmatch(name) for name in reader.shapes}
        if not any(matches.values()):
            directions.append({name: reader.read(name) for name in matches})
            continue
        parts: dict[int, Direction] = {}
        for match in filter(None, matches.values()):
            parts.setdefault(int(match[1]), {})[match[2]] = reader.read(match[0])
        names = [name for name in matches if not name.startswith(_BESIDE_DIRECTIONS)]
        if sorted(parts) != list(range(len(parts))) or any(matches[name] is None for name in names):
            raise CheckpointError(
                f"{path} holds no directions of a plane: all names must begin with direction_0/ or direction_1/, but "
                f"there are {some_names(names)}. Give a file that save_directions wrote, or one for each direction "
                "with the parameters' own names."
            )
        directions += [parts[index] for index in sorted(parts)]
    return directions


def _plane_of(file: CheckpointFile) -> dict[str, Any]:
    facts = json.loads(file.metadata["plane"])
    space = WeightSpace.from_json(facts["space"])
    arrays: dict[str, dict[str, NDArray[Any]]] = {group: {} for group in _GROUPS}
    for name in file.shapes:
        group, _, tensor = name.partition("/")
        arrays[group][tensor] = file.read(name)
    found = facts["projection"]
    return {
        "space": space,
        "origin": arrays["origin"],
        "buffers": arrays["buffer"],
        "directions": tuple(arrays[f"direction_{axis}"] for axis in range(2) if arrays[f"direction_{axis}"]),
        "decomposition": file.metadata["decomposition"],
        "normalization": file.metadata["normalization"],
        "identity": dict(facts["identity"]),
        "explained_variance_ratio": _array(facts["explained_variance_ratio"]),
        "origin_role": OriginRole(**facts["origin_role"]),
        "projection": None if found is None else Projection(**{name: _array(found[name]) for name in found}),
        "networks": _networks_of(facts["members"], facts["places"], space),
        "end_buffers": tuple(arrays[f"end_buffer_{axis}"] for axis in range(2) if arrays[f"end_buffer_{axis}"]),
        "notes": tuple(facts["notes"]),
        # Files that were written before planes had it lack it.
        "curvature": None if (bends := facts.get("curvature")) is None else AxisCurvature.from_json(bends),
    }


def _networks_of(columns: Mapping[str, Any], places: Sequence[Any], space: WeightSpace) -> tuple[Network, ...]:
    for text in (*columns["runs"], *columns["name"], *columns["sha256"]):
        check_instance("a name or a SHA-256", text, str, "a str")
    networks = []
    rows = zip(*(columns[name] for name in ("number", "run", "name", "final", "sha256")), places, strict=True)
    for number, run, name, final, digest, place in rows:
        weights = _SavedWeights(place, digest, name or f"checkpoint {check_int('number', number)}", space)
        if check_int("run", run, minimum=NO_RUN) == NO_RUN:
            networks.append(Network(weights, name, sha256=digest))
        else:
            networks.append(Network(weights, name, columns["runs"][run], number, bool(final), digest))
    return tuple(networks)


def _reader_at(place: str, space: WeightSpace) -> StateReader | None:
    try:
        path = check_directory("place", place)
        if path.parent.name != CHECKPOINT_FOLDER:
            return align(as_reader(place, place), space)
        run = RunDirectory(path.parent.parent)
        number = next((number for number, name in run.metadata.files.items() if name == path.name), None)
        return None if number is None else run.checkpoint(number, space)
    except (CheckpointError, RunDirectoryError, OSError):
        return None


def _array(values: list[float] | None) -> Any:
    return None if values is None else np.array(values, np.float64)


def _place(reader: StateReader) -> str | None:
    if isinstance(reader, _SavedWeights):
        return reader.place
    label = reader.label
    if is_url(label):
        return label
    path = Path(label)
    # A checkpoint may be a folder; what weights in memory are called is no whole path.
    return str(path.absolute()) if path.is_file() or (path.is_absolute() and path.is_dir()) else None
