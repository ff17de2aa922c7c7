"""Which landscapes a run has, and their planes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collectors.errors import RunDirectoryError
from collectors.files.places import AnyPath
from collectors.run_directory.directory import RunDirectory
from collectors.run_directory.settings import LandscapeSettings
from collectors.weights.safetensors_file import StateReader

from .curvature.hessian_plane import EigenvectorSettings, plane_along_eigenvectors
from .grid.data import LandscapeData
from .grid.kept_plane import keep_plane
from .planes.from_checkpoints import plane_of_runs, random_plane_of
from .planes.further_runs import FurtherRuns
from .planes.networks import checkpoints_of_run
from .planes.plane import Plane
from .planes.plane_file import check_directions
from .record.driver import Stored
from .record.options import RunOptions
from .record.workers import Workers

_NO_FILE_NAME = re.compile(r"[^\w.-]+")
_LONGEST_JOINED = 100


@dataclass(frozen=True)
class Job:
    """One landscape to draw: the plane through an interval, or directions around one checkpoint."""

    kind: str  # "pca", "random", "hessian" or "ggn"
    numbers: tuple[int, ...]
    path: AnyPath
    single: bool = True  # whether the run has no other interval


def find_jobs(
    run: RunDirectory,
    settings: LandscapeSettings,
    folder: AnyPath,
    stem: str,
    spanning: Sequence[str],
    directions: str,
    vectors: EigenvectorSettings,
) -> list[Job]:
    """Returns what to draw from the checkpoints that exist; warns of missing ones, and raises if nothing is left."""
    unit = settings.unit
    usable = []
    for interval in settings.intervals:
        present, missing = run.present(interval), run.missing(interval)
        if len(present) < 3:
            warnings.warn(
                f"{run.path} has only {len(present)} of the checkpoints of {unit}s {list(interval)} (missing: "
                f"{missing}); a plane needs three, so this interval is left out.",
                stacklevel=3,
            )
            continue
        usable.append(tuple(present))
        if missing:
            warnings.warn(
                f"{run.path} has no checkpoints of {unit}s {missing}; the landscape is drawn without them.",
                stacklevel=3,
            )
    if not usable:
        raise RunDirectoryError(
            f"{run.path} has fewer than three checkpoints in every interval; it has those of {unit}s "
            f"{sorted(run.metadata.files)}. Train longer, or pass collect_landscape={{'intervals': [[...]]}} with "
            "numbers that exist."
        )
    jobs = []
    result = settings.create_landscape.result
    # The result in principal directions is the landscape of the last interval.
    drawn = usable if settings.create_landscape.train else usable[-1:] if result and directions == "pca" else []
    if drawn:
        joined = "".join(f"_and_{_NO_FILE_NAME.sub('-', name)}" for name in spanning)[:_LONGEST_JOINED]
        ends = [(interval[0], interval[-1]) for interval in usable]
        for index, interval in list(enumerate(usable))[-len(drawn) :]:
            label = f"{interval[0]}-{interval[-1]}" + (f"_{index}" if ends.count(ends[index]) > 1 else "")
            place = folder / f"{stem}_{label}_pca{joined}.h5"
            jobs.append(Job("pca", interval, place, single=len(usable) == 1))
    if result and directions != "pca":
        last = usable[-1][-1]
        kind = "random" if directions == "random" else vectors.label
        jobs.append(Job(directions, (last,), folder / f"{stem}_{last}_{kind}.h5"))
    return jobs


def check_all_is_drawn(jobs: Sequence[Job], others: FurtherRuns, directions: str) -> None:
    """Raises a ValueError for further runs or directions of landscapes that are not drawn."""
    kinds = {job.kind for job in jobs}
    if others and "pca" not in kinds:
        raise ValueError(
            "also must be left out where no interval is drawn, because others join the planes of intervals; or pass "
            "collect_landscape={'create_landscape': {'train': True}}."
        )
    if directions not in ("random", "pca") and directions not in kinds:
        raise ValueError(
            "directions must be left out where no result is drawn, whose landscape has them; or pass "
            "collect_landscape={'create_landscape': {'result': True}}."
        )


def plane_of_job(
    job: Job,
    stored: Stored[LandscapeData],
    readers: Mapping[int, StateReader],
    workers: Workers,
    options: RunOptions,
    final: int | None,
    others: FurtherRuns,
    vectors: EigenvectorSettings,
) -> Plane:
    """Returns the plane of a landscape, kept beside it where it goes along eigenvectors."""
    if options["save_directions"]:
        check_directions(job.path)
    name = others.joined if job.kind == "pca" else ""
    networks = checkpoints_of_run([readers[number] for number in job.numbers], job.numbers, name, final)
    if job.kind == "pca":
        further = others.networks(job.numbers, single=job.single)
        spanning = [network for network in further if network.run is not None and options["plane_of"] == "all"]
        plane = plane_of_runs([*networks, *spanning], workers.space, centering=options["centering"])
        added = [network for network in further if network not in spanning]
        return plane.with_networks(added) if added else plane
    origin = networks[-1]
    if job.kind != "random":
        kept = None if options["overwrite"] else job.path
        progress, rehearsal = options["progress"], options["dry_run"]
        plane = plane_along_eigenvectors(
            workers.pool, origin.weights, vectors, role=origin.role, kept=kept, progress=progress, rehearsal=rehearsal
        )
        return plane if rehearsal else keep_plane(stored, plane, overwrite=options["overwrite"])
    return random_plane_of(
        origin.weights,
        workers.space,
        seed=options["seed"],
        normalization=options["normalization"],
        perturb_one_dimensional=options["perturb_one_dimensional"],
        role=origin.role,
    )
