"""SummaryLandscape: from a collected run to its landscapes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from collectors.errors import RunDirectoryError
from collectors.files.places import AnyPath
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory, find_run
from collectors.run_directory.settings import LandscapeSettings
from collectors.validation import check_device_ids, wrong_value
from workers.users_code import warn_user

from .curvature.experiment import measure_run
from .curvature.hessian_plane import EigenvectorSettings, plane_along_eigenvectors
from .grid.data import LandscapeData
from .grid.experiment import GridExperiment
from .grid.forecast import fewest_points
from .grid.kept_plane import keep_plane
from .grid.landscape_file import LANDSCAPE_FILE
from .landscape import Landscape
from .planes.extent import check_extent
from .planes.from_checkpoints import plane_of_runs, random_plane_of
from .planes.further_runs import FurtherRuns, find_further_runs
from .planes.networks import Network, checkpoints_of_run
from .planes.passes import HERE, sha256_of
from .planes.plane import Plane, buffer_policy
from .planes.plane_file import check_directions
from .record.driver import Stored, carry_out, open_record
from .record.identity import function_attribute, run_attributes
from .record.option_kinds import CheckOptions, ReportOptions, RunCurvatureOptions, RunOptions
from .record.options import OPTIONS, documented, with_defaults
from .record.run import Run
from .record.workers import Workers, measurement_options
from .record.writer import output_folder
from .sampling.sampling import SamplingSettings

if TYPE_CHECKING:
    from .curvature.curvature import Curvature
    from .diagnosis.diagnosis import Diagnosis
    from .report.report import Report


_NO_FILE_NAME = re.compile(r"[^\w.-]+")
_LONGEST_JOINED = 100


class SummaryLandscape:
    """Turns a run directory into loss landscapes.

    Args:
        summary_dir: the directory that a SummaryCollector wrote, or that ``landscape convert --from checkpoints``
            built: a folder, or an fsspec URL such as ``s3://bucket/run``. Drawing landscapes never changes what
            training wrote there.

    Raises:
        TypeError: summary_dir is no path; of a method: an argument has the wrong type.
        ValueError: summary_dir is blank; of a method: an argument has a wrong value.
        ImportError: summary_dir is a URL, and a package that reads its kind is missing.
        RunDirectoryError: the directory does not exist or cannot be reached; of a method: it holds no usable run.
        CheckpointError: of a method: a checkpoint is missing, damaged, or of another network.
        LandscapeError: of a method: something else went wrong; the subclass and the text say what, and how to fix it.
    """

    def __init__(self, summary_dir: str | os.PathLike[str]) -> None:
        self._path = find_run(summary_dir)

    @documented(RunOptions)
    def gen_landscapes_with_multi_process(
        self,
        callback_fn: Callable[[], Any],
        collect_landscape: Mapping[str, Any] | None = None,
        device_ids: list[int] | None = None,
        output: str | os.PathLike[str] | None = None,
        **options: Unpack[RunOptions],
    ) -> list[Landscape]:
        """Measures the landscapes of the run, one after another, each on all devices.

        For every interval, the plane of its checkpoints' principal directions is measured ("train"); around the last
        checkpoint of the last interval, a plane of random directions or of eigenvectors, as ``directions`` says
        ("result"). A landscape that an earlier call left unfinished is continued. With ``also``, other runs and
        networks are drawn on the planes of the intervals too.

        Args:
            callback_fn: takes no argument, returns (model, network, dataset, metrics); for PyTorch a Model or a loss
                function, an nn.Module, a DataLoader, Dataset or pair of tensors, and a dict of metrics. Every worker
                calls it once; before GPUs or nodes are reserved, so does a process that ends. It may be a lambda, a
                closure or a notebook's function.
            collect_landscape: settings that replace the collected ones for this call only: ``landscape_size``,
                ``num_samples``, ``intervals``, ``create_landscape``.
            device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
            output: the directory for the landscape files, a folder or an fsspec URL; None means summary_dir. Behind a
                URL a file is sent again every few seconds while it changes; what cannot be sent is kept on this
                machine, and a warning says where.
            **options: see ``RunOptions``.

        Returns:
            The landscapes, each with its ``path``; none after a dry run.
        """
        chosen = with_defaults("SummaryLandscape.gen_landscapes_with_multi_process", RunOptions, options)
        run = RunDirectory(self._path)
        settings = run.settings.override(collect_landscape)
        if settings.unit != run.settings.unit:
            raise wrong_value("collect_landscape['unit']", f"{run.settings.unit!r}, as collected", settings.unit)
        sampling, whole = SamplingSettings.checked(chosen), Run.checked(chosen)
        how = {
            **chosen,
            "num_samples": settings.num_samples,
            # A run's planes are not made of given networks, so that "auto" is the same for both kinds.
            "buffers": buffer_policy(chosen["buffers"], "pca or random"),
            "device_ids": device_ids,
        }
        measurement_options(how)
        check_device_ids("device_ids", device_ids)
        limits, margin = check_extent(chosen["limits"], chosen["margin"])
        EigenvectorSettings.of_run(chosen)  # or a ValueError
        others = find_further_runs(chosen["also"], run)
        spanning = {name: other.path for name, other in others.runs.items()} if chosen["plane_of"] == "all" else {}
        folder = output_folder(self._path, output, rehearsal=whole.rehearsal)
        jobs = _find_jobs(run, settings, folder, spanning, chosen)
        _check_all_is_drawn(jobs, others, chosen)
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open_record(LANDSCAPE_FILE, job.path, whole)) for job in jobs]

            def experiments(workers: Workers) -> list[GridExperiment]:
                # All planes are built before the first point is measured, so that a damaged checkpoint shows at once.
                if chosen["save_directions"]:
                    for job in jobs:
                        check_directions(job.path)
                grids, several = [], "s" if len(jobs) > 1 else ""
                whole.say(f"opening checkpoints, computing the directions of {len(jobs)} landscape{several}")
                networks, paths = _read_run(run, jobs, others, workers, chosen)
                for job, stored, of_job, path in zip(jobs, files, networks, paths, strict=True):
                    is_path = path is not None
                    plane = path or _plane_around(of_job[-1], job, stored, workers, chosen, whole)
                    attributes = {
                        "unit": settings.unit,
                        "intervals": [list(job.numbers)],
                        "step_per_epoch": run.metadata.step_per_epoch,
                        "seed": sampling.seed,
                        "samples": chosen["samples"],
                        "centering": chosen["centering"] if is_path else None,
                        **function_attribute(callback_fn),
                        **run_attributes(self._path, spanning if is_path else {}, folder),
                    }
                    axes = plane.axes(settings.landscape_size, margin, limits)
                    save = chosen["save_directions"]
                    grids.append(GridExperiment(plane, axes, sampling, attributes, save_directions=save))
                return grids

            points = len(jobs) * fewest_points((settings.landscape_size,) * 2, sampling.sampling, sampling.share)
            measured = carry_out(experiments, files, callback_fn, how, whole, points=points)
        return [Landscape(data, report=report) for data, report in measured]

    @documented(RunCurvatureOptions)
    def gen_curvature(
        self,
        callback_fn: Callable[[], Any],
        numbers: Iterable[int] | None = None,
        *,
        output: str | os.PathLike[str] | None = None,
        **options: Unpack[RunCurvatureOptions],
    ) -> Curvature | None:
        """Measures how the loss bends at the checkpoints: eigenvalues of its Hessian, their sum, their density.

        The file, ``curvature_<first>-<last>.h5``, is written as checkpoints are measured; an interrupted call goes on
        with those that are missing, and failed ones are tried again.

        Args:
            callback_fn: takes no argument, returns (model, network, dataset, metrics), or an Evaluator with products.
            numbers: of the checkpoints (their steps or epochs); None takes all. What the file holds of others stays.
            output: the directory for the file, a folder or an fsspec URL; None means summary_dir.
            **options: see ``RunCurvatureOptions``.

        Returns:
            The curvature, a row for each checkpoint of the file; None after a dry run.

        Raises:
            CurvatureError: nothing can be differentiated, or the loss is finite at no checkpoint.
        """
        chosen = with_defaults("SummaryLandscape.gen_curvature", RunCurvatureOptions, options)
        run = RunDirectory(self._path)
        if chosen["num_samples"] is None:
            chosen["num_samples"] = run.settings.num_samples
        folder = output_folder(self._path, output, rehearsal=chosen["dry_run"])
        return measure_run(run, callback_fn, numbers, folder, chosen)

    @documented(ReportOptions)
    def report(
        self,
        callback_fn: Callable[[], Any],
        recipes: Mapping[str, Sequence[Any] | Mapping[Any, Any]] | None = None,
        *,
        output: str | os.PathLike[str] | None = None,
        **options: Unpack[ReportOptions],
    ) -> Report | None:
        """Measures what the run can tell, and writes one page with the answers in words; it is continued as all is.

        Where the training went, and how much of that the plane shows; whether the end is a minimum or a saddle, or the
        loss still falls; how flat it is; how far test samples are from those of the training; what is not known. Each
        number has its interval, and names its file, arrays and formula.

        Args:
            callback_fn: as ``gen_landscapes_with_multi_process`` takes it; with a dict of data sets for their gap.
            recipes: networks of several recipes, as ``Measure.compare`` takes them, to be compared too.
            output: the directory of the page and of what is measured; None means summary_dir.
            **options: see ``ReportOptions``.

        Returns:
            The report; None after a dry run.

        Raises:
            RunDirectoryError: the directory holds no usable run, or fewer than three checkpoints.
            LandscapeWriteError: a file that is no report, or that of another run, has the page's name.
        """
        from .report.report import make_report

        folder = output_folder(self._path, output, rehearsal=options.get("dry_run", False))
        return make_report(self, RunDirectory(self._path), callback_fn, recipes, folder, options)

    @documented(CheckOptions)
    def check(self, callback_fn: Callable[[], Any], **options: Unpack[CheckOptions]) -> Diagnosis:
        """Says in a few seconds whether callback_fn measures what was trained, and what is wrong; writes nothing.

        Args:
            callback_fn: as for ``gen_landscapes_with_multi_process``.
            **options: see ``CheckOptions``.

        Raises:
            RunDirectoryError: the directory holds no usable run.
        """
        from .diagnosis.checking import check_run

        chosen = with_defaults("SummaryLandscape.check", CheckOptions, options)
        return check_run(RunDirectory(self._path), callback_fn, chosen)

    def clean_ckpt(self) -> None:
        """Removes the run's checkpoints and their metadata; landscape files stay."""
        folder = self._path / CHECKPOINT_FOLDER
        if isinstance(folder, Path):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.remove_folder()


@dataclass(frozen=True)
class _Job:
    """One landscape to draw: the plane through an interval, or directions around one checkpoint."""

    kind: str  # "pca", "random", "hessian" or "ggn"
    numbers: tuple[int, ...]
    path: AnyPath
    single: bool = True  # whether the run has no other interval


def _find_jobs(
    run: RunDirectory, settings: LandscapeSettings, folder: AnyPath, spanning: Iterable[str], chosen: Mapping[str, Any]
) -> list[_Job]:
    """Returns what to draw from the checkpoints that exist; warns of missing ones, and raises if nothing is left."""
    unit = settings.unit
    usable = []
    for interval in settings.intervals:
        present, missing = run.present(interval), run.missing(interval)
        if len(present) < 3:
            warn_user(
                f"{run.path} has only {len(present)} of the checkpoints of {unit}s {list(interval)} (missing: "
                f"{missing}); a plane needs three, so this interval is left out."
            )
            continue
        usable.append(tuple(present))
        if missing and run.metadata.final_number == present[-1] < missing[0]:
            warn_user(
                f"the training of {run.path} ended at {unit} {present[-1]}, before {unit} {missing[-1]} of its "
                "intervals; the landscape shows all of its path."
            )
        elif missing:
            warn_user(f"{run.path} has no checkpoints of {unit}s {missing}; the landscape is drawn without them.")
    if not usable:
        raise RunDirectoryError(
            f"{run.path} has fewer than three checkpoints in every interval; it has those of {unit}s "
            f"{sorted(run.metadata.files)}. Train longer, or pass collect_landscape={{'intervals': [[...]]}} with "
            "numbers that exist."
        )
    jobs, stem, directions, share = [], chosen["name"] or "landscape", chosen["directions"], chosen["share"]
    part = "" if share is None else f"_{share}"
    result = settings.create_landscape.result
    # The result in principal directions is the landscape of the last interval.
    drawn = usable if settings.create_landscape.train else usable[-1:] if result and directions == "pca" else []
    if drawn:
        joined = "".join(f"_and_{_NO_FILE_NAME.sub('-', name)}" for name in spanning)[:_LONGEST_JOINED]
        ends = [(interval[0], interval[-1]) for interval in usable]
        for index, interval in list(enumerate(usable))[-len(drawn) :]:
            label = f"{interval[0]}-{interval[-1]}" + (f"_{index}" if ends.count(ends[index]) > 1 else "")
            place = folder / f"{stem}_{label}_pca{joined}{part}.h5"
            jobs.append(_Job("pca", interval, place, single=len(settings.intervals) == 1))
    if result and directions != "pca":
        last = usable[-1][-1]
        label = "random" if directions == "random" else EigenvectorSettings.of_run(chosen).label
        jobs.append(_Job(directions, (last,), folder / f"{stem}_{last}_{label}{part}.h5"))
    return jobs


def _check_all_is_drawn(jobs: Sequence[_Job], others: FurtherRuns, chosen: Mapping[str, Any]) -> None:
    kinds = {job.kind for job in jobs}
    if others and "pca" not in kinds:
        raise ValueError(
            "also must be left out where no interval is drawn, because others join the planes of intervals; or pass "
            "collect_landscape={'create_landscape': {'train': True}}."
        )
    if chosen["directions"] not in ("random", "pca", *kinds):
        raise ValueError(
            "directions must be left out where no result is drawn, whose landscape has them; or pass "
            "collect_landscape={'create_landscape': {'result': True}}."
        )
    for name, is_used, where in (
        ("normalization", "random" in kinds, "no random directions are drawn"),
        ("perturb_one_dimensional", "random" in kinds, "no random directions are drawn"),
        ("centering", "pca" in kinds, "no interval is drawn"),
        ("plane_of", bool(others), "no other run or network joins this run"),
    ):
        if not is_used and chosen[name] != OPTIONS[name].default:
            raise ValueError(f"{name} must be left out where {where}.")


def _read_run(
    run: RunDirectory, jobs: Sequence[_Job], others: FurtherRuns, workers: Workers, chosen: Mapping[str, Any]
) -> tuple[list[list[Network]], list[Plane | None]]:
    """Returns the checkpoints of each landscape, and its plane where that goes through an interval."""
    space = workers.space
    # Each checkpoint is opened, and its SHA-256 checked, once for all the landscapes that it is part of.
    numbers = dict.fromkeys(number for job in jobs for number in job.numbers)
    spanning = dict.fromkeys(number for job in jobs if job.kind == "pca" for number in job.numbers)
    files = {} if others else run.safetensors_files(spanning)
    with workers.passes(list(files.values())) as passes:
        if passes is not HERE:
            run.digests |= zip(files, passes.each(sha256_of, None, [(path,) for path in files.values()]), strict=True)
        readers = {number: run.checkpoint(number, space) for number in numbers}
        networks = [
            checkpoints_of_run(
                [readers[number] for number in job.numbers],
                job.numbers,
                others.joined if job.kind == "pca" else "",
                run.metadata.final_number,
            )
            for job in jobs
        ]

        def plane_of(job: _Job, checkpoints: Sequence[Network]) -> Plane:
            further = others.networks(job.numbers, single=job.single)
            joining = [network for network in further if network.run is not None and chosen["plane_of"] == "all"]
            plane = plane_of_runs([*checkpoints, *joining], space, centering=chosen["centering"], passes=passes)
            added = [network for network in further if network not in joining]
            return plane.with_networks(added) if added else plane

        pairs = zip(jobs, networks, strict=True)
        planes = [plane_of(job, of_job) if job.kind == "pca" else None for job, of_job in pairs]
    return networks, planes


def _plane_around(
    origin: Network, job: _Job, stored: Stored[LandscapeData], workers: Workers, chosen: Mapping[str, Any], whole: Run
) -> Plane:
    if job.kind == "random":
        drawn = {name: chosen[name] for name in ("seed", "normalization", "perturb_one_dimensional")}
        return random_plane_of(origin.weights, workers.space, role=origin.role, **drawn)
    vectors, kept = EigenvectorSettings.of_run(chosen), None if whole.overwrite else job.path
    plane = plane_along_eigenvectors(workers.pool, origin.weights, vectors, whole, role=origin.role, kept=kept)
    return plane if whole.rehearsal else keep_plane(stored, plane, whole)
