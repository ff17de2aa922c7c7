"""Planes that are not drawn again: eigenvectors are kept beside their landscape file, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from collectors.files.places import AnyPath
from collectors.networks.weight_space import state_sha256
from collectors.weights.safetensors_file import MemoryState

from ..errors import LandscapeIdentityError
from ..planes.plane import Plane
from ..planes.plane_file import directions_path, write_directions, write_plane
from ..planes.projection import project
from ..record.checks import PointStatus
from ..record.driver import Stored
from ..record.writer import note_file
from .data import LandscapeData

CURVATURE = "curvature"
"""The attribute that says of which matrix the directions are eigenvectors, and which vectors these are."""
_DIGESTS = "directions_sha256"


def curvature_attribute(plane: Plane) -> dict[str, Any]:
    """Returns the attribute of a plane along eigenvectors; empty for any other plane."""
    if plane.curvature is None or not plane.curvature.is_known:
        return {}
    return {CURVATURE: {**plane.curvature.to_json(), _DIGESTS: [state_sha256(item) for item in plane.directions]}}


def read_kept(path: AnyPath, identity: Mapping[str, Any]) -> Plane | None:
    """Returns the plane that is kept beside a landscape file; None where it is missing or of another identity."""
    place = directions_path(path)
    if not place.exists():
        return None
    plane = Plane.load(str(place))
    return plane if plane.identity == dict(identity) else None


def keep_plane(stored: Stored[LandscapeData], plane: Plane, *, overwrite: bool) -> Plane:
    """Keeps a plane along eigenvectors beside its landscape file; returns it, with the vectors kept before, if any."""
    # The vectors of another machine differ in their last digits, and a landscape goes on with those it began with.
    path, record = stored.path, stored.record
    if plane.curvature is None or path is None:
        return plane
    kept = None if overwrite else read_kept(path, plane.identity)
    if kept is not None and kept.curvature is not None:
        # How far the axes reach is no part of the vectors.
        bends = replace(kept.curvature, rise=plane.curvature.rise)
        plane = replace(plane, directions=kept.directions, curvature=bends, projection=_projection(plane, kept))
    if record is not None and record.attributes.get("identity", {}).get("plane") != plane.identity:
        # The experiment says what differs, and leaves everything as it is.
        return plane
    if record is not None:
        check_vectors(record, curvature_attribute(plane), path)
    if kept is None:
        write_plane(directions_path(path), plane, "then run again")
        note_file(directions_path(path))
    return plane


def keep_directions(stored: Stored[LandscapeData], plane: Plane, *, overwrite: bool) -> bool:
    """Keeps a plane for refining, unless another's landscape, or one to overwrite, is there; returns whether it did."""
    path, record = stored.path, stored.record
    assert path is not None
    is_another = record is not None and record.attributes.get("identity", {}).get("plane") != plane.identity
    if is_another or (overwrite and path.exists()):
        return False
    write_directions(path, plane)
    return True


def check_vectors(stored: LandscapeData, now: Mapping[str, Any], path: AnyPath) -> None:
    """Raises LandscapeIdentityError where points of a landscape were measured along other eigenvectors than now."""
    known, wanted = (item.get(CURVATURE) for item in (stored.attributes, now))
    if not isinstance(known, Mapping) or not isinstance(wanted, Mapping):
        return
    if known.get(_DIGESTS) != wanted.get(_DIGESTS) and (stored.status == PointStatus.MEASURED).any():
        raise LandscapeIdentityError(
            f"landscape file {path} was measured along other eigenvectors than those of this run: the ones that were "
            f"kept in {directions_path(path).name} beside it are gone or replaced, and computed again they have other "
            "last digits. Put that file back, or pass overwrite=True to measure everything anew."
        )


def _projection(plane: Plane, kept: Plane) -> Any:
    if plane.projection is None:
        return None
    return project(plane.checkpoints, MemoryState(plane.origin, "the plane's origin"), kept.directions, plane.space)
