"""What a file, and what lies beside it, say of its plane and of how it was measured, so that more can be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from collectors.errors import RunDirectoryError
from collectors.files.places import AnyPath, is_url
from collectors.files.remote_path import RemotePath
from collectors.networks.weight_space import WeightSpace, state_sha256
from collectors.run_directory.directory import RunDirectory
from collectors.weights.safetensors_file import MemoryState
from workers.curvature.lanczos import is_settled

from ..errors import OTHER_GRID, OTHER_GRID_ALONG_EIGENVECTORS, OTHER_GRID_OF_CURVE, LandscapeIdentityError, PlaneError
from ..planes.from_checkpoints import plane_of_runs, random_plane_of
from ..planes.networks import Network, networks_in
from ..planes.plane import Plane
from ..planes.plane_file import directions_path, find_directions, write_plane
from ..planes.projection import project
from ..record.checks import PointStatus
from ..record.driver import Stored
from ..record.identity import FURTHER_RUNS, REMEDY, RUN
from ..record.run import Run
from ..record.workers import measurement_options
from ..record.writer import note_file
from ..replacing import holds_another
from ..roles import OriginRole
from ..sampling.sampling import SamplingSettings
from .data import LandscapeData

CURVATURE = "curvature"
"""The attribute that says of which matrix the directions are eigenvectors, and which vectors these are."""
_DIGESTS = "directions_sha256"
_EIGENVECTORS = ("hessian", "ggn", "factors")
# Of the identity of a plane, what it is made again from.
_NEEDED = {
    "random": ("seed", "normalization", "perturb_one_dimensional", "dimension"),
    "pca": ("checkpoints", "runs", "centering"),
}


def curvature_attribute(plane: Plane) -> dict[str, Any]:
    """Returns the attribute of a plane along eigenvectors; empty for any other plane."""
    if plane.curvature is None or not plane.curvature.is_known:
        return {}
    return {CURVATURE: {**plane.curvature.to_json(), _DIGESTS: [state_sha256(item) for item in plane.directions]}}


def read_kept(path: AnyPath, identity: Mapping[str, Any]) -> Plane | None:
    """Returns the plane that is kept beside a landscape file; None where it is missing or of another identity."""
    place = find_directions(path, dict(identity))
    return None if place is None else Plane.load(str(place))


def find_kept(stored: LandscapeData) -> AnyPath | None:
    """Returns where the plane of a landscape is kept beside its file; None where it is missing or another one's."""
    identity = stored.attributes.get("identity")
    plane = identity.get("plane") if isinstance(identity, Mapping) else None
    return None if stored.path is None else find_directions(stored.path, plane)


def keep_plane(stored: Stored[LandscapeData], plane: Plane, run: Run) -> Plane:
    """Keeps a plane along eigenvectors beside its landscape file; returns it, with the vectors kept before, if any."""
    # The vectors of another machine differ in their last digits, and a landscape goes on with those it began with.
    path = stored.path
    if plane.curvature is None or path is None:
        return plane
    kept = None if run.overwrite else read_kept(path, plane.identity)
    if kept is not None and kept.curvature is not None:
        if _has_converged(plane) and not _has_converged(kept):
            raise LandscapeIdentityError(
                f"{directions_path(path)} holds eigenvectors that had not converged, and those of this plane have; it "
                f"was left as it is. {REMEDY}"
            )
        # How far the axes reach is no part of the vectors.
        bends = replace(kept.curvature, rise=plane.curvature.rise)
        projection = plane.projection
        if projection is not None:
            origin = MemoryState(plane.origin, "the plane's origin")
            projection = project(plane.checkpoints, origin, kept.directions, plane.space)
        plane = replace(plane, directions=kept.directions, curvature=bends, projection=projection)
    if is_of_another_plane(stored, plane):
        # The experiment says what differs, and leaves everything as it is.
        return plane
    if stored.record is not None:
        check_vectors(stored.record, curvature_attribute(plane), path)
    place = directions_path(path)
    if kept is None and place.exists() and not run.overwrite:
        raise other_directions(place)
    if kept is None and not run.rehearsal:
        write_plane(place, plane, "then run again")
        note_file(place)
    return plane


def _has_converged(plane: Plane) -> bool:
    """Returns whether all residuals are within the tolerance, as far as the plane's own eigenvalues tell."""
    assert plane.curvature is not None
    sizes, residuals = np.abs(plane.curvature.eigenvalues), np.array(plane.curvature.residuals)
    return bool(is_settled(residuals, sizes, plane.identity.get("tolerance", 0.0), sizes.max()).all())


def other_directions(place: AnyPath) -> LandscapeIdentityError:
    return holds_another(place, "the directions of another landscape, which may not be found again with the same bits")


def is_of_another_plane(stored: Stored[LandscapeData], plane: Plane) -> bool:
    record = stored.record
    return record is not None and record.attributes.get("identity", {}).get("plane") != plane.identity


def have_same_vectors(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Returns whether two landscapes, by their attributes, lie along the same eigenvectors, if along any."""
    known, wanted = one.get(CURVATURE), other.get(CURVATURE)
    if not isinstance(known, Mapping) or not isinstance(wanted, Mapping):
        return True
    return bool(known.get(_DIGESTS) == wanted.get(_DIGESTS))


def check_vectors(stored: LandscapeData, now: Mapping[str, Any], path: AnyPath) -> None:
    """Raises LandscapeIdentityError where points of a landscape were measured along other eigenvectors than now."""
    if not have_same_vectors(stored.attributes, now) and (stored.status == PointStatus.MEASURED).any():
        raise LandscapeIdentityError(
            f"landscape file {path} was measured along other eigenvectors than those of this run: the ones that were "
            f"kept in {directions_path(path).name} beside it are gone or replaced, and computed again they have other "
            "last digits. Put that file back, or pass overwrite=True to measure everything anew."
        )


def measured_options(stored: LandscapeData, path: AnyPath, groups: Any = None) -> dict[str, Any]:
    """Returns the options of a file's landscape; ``groups`` is needed if a function made them: no file holds it."""
    said = stored.attributes
    if groups is None:
        groups = "target" if said.get("groups") == "target" else None
        if groups is None and isinstance(said.get("identity"), Mapping) and said["identity"].get("groups"):
            raise ValueError(f"groups must be given: the function that made those of {path}, which a file cannot hold.")
    try:
        identity = said["identity"]
        buffers = identity["buffers"]
        named = {item["name"]: item["num_samples"] for item in said.get("datasets") or ()}
        size = {"recalibration_batch_size": buffers["batch_size"]} if "batch_size" in buffers else {}
        found = {
            "num_samples": named or identity["samples"]["count"],
            "samples": said.get("samples") or "first",
            "seed": said.get("seed") or 0,
            "buffers": buffers["policy"],
            **size,
            "precision": identity.get("precision", "float32"),
            "groups": groups,
            **{name: name in identity for name in ("seed_each_point", "extremes", "keep_samples")},
        }
        measurement_options(found)
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise says_nothing(path) from error


def sampling_settings(stored: LandscapeData, options: Mapping[str, Any]) -> SamplingSettings:
    """Returns which points of a landscape are measured: as before, but for the options that are not None."""
    said = stored.attributes.get("sampling") or {}
    chosen = {
        **options,
        "seed": stored.attributes.get("seed") or 0,
        "extremes": "extremes" in (stored.attributes.get("identity") or {}),
    }
    usual = SamplingSettings()
    for name, key in (("sampling", "mode"), ("tolerance", "tolerance"), ("relative_tolerance", "relative")):
        if chosen[name] is None:
            chosen[name] = getattr(usual, name) if said.get(key) is None else said[key]
    return SamplingSettings.checked(chosen)


def find_run_of(stored: LandscapeData, path: AnyPath, given: object) -> RunDirectory:
    """Returns the run directory of a file: the given one, else its folder, else what it says; else a PlaneError."""
    _check_is_of_a_run(stored, path)
    if given is not None:
        return RunDirectory(given)  # type: ignore[arg-type]
    said = stored.attributes.get(RUN)
    places = [path.parent, *([place_of(said, path.parent)] if isinstance(said, str) and said else ())]
    return _run_at(places, path, "that it goes through", "Pass the run directory as run=, or in Python plane=plane.")


def plane_of(stored: LandscapeData, path: AnyPath, run: RunDirectory, space: WeightSpace) -> Plane:
    """Returns the plane of a landscape, made again from its run; the caller has to compare its identity."""
    facts, origin, path_data = _plane_facts(stored, path), stored.origin, stored.checkpoints
    if facts["decomposition"] == "random":
        assert origin.number is not None
        return random_plane_of(
            run.checkpoint(origin.number, space),
            space,
            **{name: facts[name] for name in _NEEDED["random"]},
            role=OriginRole(origin.role, origin.name, origin.run, origin.number),
        )
    assert path_data is not None
    networks: list[Network] = []
    # Runs and networks that only joined come after those that the plane goes through.
    for count in facts["runs"]:
        first = len(networks)
        name = path_data.run_name(first)
        of = run
        if first:
            place = place_of(stored.attributes[FURTHER_RUNS][name], path.parent)
            remedy = "Put the run where it was, or in Python pass plane=plane."
            of = _run_at([place], path, f"of {name!r}, through which it goes too", remedy)
        networks += networks_in(of, path_data.number[first : first + count].tolist(), name)
    return plane_of_runs(networks, space, centering=facts["centering"])


def _run_at(places: Sequence[Any], path: AnyPath, which: str, remedy: str) -> RunDirectory:
    """Returns the run at the first of the places that has one."""
    for place in places:
        try:
            return RunDirectory(place)
        except RunDirectoryError as error:
            problem = error
    raise PlaneError(
        f"the plane of landscape file {path} cannot be made again without the checkpoints {which}: {problem} {remedy}"
    ) from problem


def place_of(way: str, folder: AnyPath) -> Any:
    """Returns the place of a run, by the way to it that a file in the folder names."""
    if way == ".":
        return folder
    if is_url(way):
        return way
    return Path(way) if isinstance(folder, RemotePath) else folder / way


def _check_is_of_a_run(stored: LandscapeData, path: AnyPath) -> None:
    facts = _plane_facts(stored, path)
    kind = facts["decomposition"]
    if kind == "random" and stored.origin.number is not None:
        return
    found = stored.checkpoints
    if kind == "pca" and found is not None and min(facts["runs"], default=0) > 0:
        said = stored.attributes.get(FURTHER_RUNS)
        known = said if isinstance(said, Mapping) and all(isinstance(way, str) for way in said.values()) else {}
        firsts = [sum(facts["runs"][:index]) for index in range(1, len(facts["runs"]))]
        if len(found.number) >= sum(facts["runs"]) and all(found.run_name(row) in known for row in firsts):
            return
    made, remedy = {
        "points": ("goes through networks", OTHER_GRID),
        "path": ("is a curve between networks", OTHER_GRID_OF_CURVE),
        "custom": ("has directions of your own", OTHER_GRID),
        **dict.fromkeys(_EIGENVECTORS, ("has eigenvectors as directions", OTHER_GRID_ALONG_EIGENVECTORS)),
        "pca": ("goes through checkpoints of no run, or of several", OTHER_GRID),
    }.get(str(kind), ("goes through weights of no run", OTHER_GRID))
    # Control points of a curve are in a file of their own, and never beside the landscape.
    name = directions_path(path).name
    beside = "" if kind == "path" else f", and {name}, which would hold them, is not beside it or is another plane's"
    raise PlaneError(f"the plane of landscape file {path} {made}, which the file does not hold{beside}. {remedy}")


def _plane_facts(stored: LandscapeData, path: AnyPath) -> Mapping[str, Any]:
    try:
        facts = stored.attributes["identity"]["plane"]
        if isinstance(facts, Mapping) and all(name in facts for name in _NEEDED.get(facts["decomposition"], ())):
            return facts
    except (KeyError, TypeError):
        pass
    raise says_nothing(path)


def says_nothing(
    path: AnyPath | None, remedy: str = "measured on another grid. Measure it here first."
) -> LandscapeIdentityError:
    """Returns the error of a file without an identity; ``remedy`` begins with what cannot be done with it."""
    return LandscapeIdentityError(
        f"landscape file {path} does not say how it was measured (it was imported, or made by hand), so it cannot be "
        f"{remedy}"
    )
