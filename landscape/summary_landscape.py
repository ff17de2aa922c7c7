"""SummaryLandscape: from a collected run to its landscapes."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.errors import RunDirectoryError
from collectors.files.places import AnyPath, check_directory
from collectors.files.remote_path import RemotePath
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory, find_run
from collectors.run_directory.settings import LandscapeSettings
from collectors.validation import check_bool, check_choice, check_device_ids, wrong_value
from collectors.weights.safetensors_file import StateReader
from workers.evaluator import MeasurementOptions
from workers.pools.open_pool import open_pool

from .errors import LandscapeWriteError
from .file.saving import make_output_folder
from .landscape import Landscape
from .planes.directions import NORMALIZATIONS
from .planes.from_checkpoints import plane_of_runs, random_plane_of
from .planes.pca import CENTERINGS
from .planes.plane import Plane, buffer_policy, write_directions
from .planes.runs import Run
from .roles import Members
from .survey.experiment import choose_plan
from .survey.forecast import fewest_points
from .survey.options import RunOptions, documented, with_defaults
from .survey.settings import SurveySettings
from .survey.survey import forecast_survey, survey

if TYPE_CHECKING:
    from typing import Unpack


@dataclass(frozen=True)
class _Job:
    """One landscape to draw: the plane through an interval, or random directions around one checkpoint."""

    kind: str
    numbers: tuple[int, ...]
    path: AnyPath


class SummaryLandscape:
    """Turns a run directory into loss landscapes.

    Args:
        summary_dir: the directory that a SummaryCollector wrote, or that ``landscape import-checkpoints`` built: a
            folder, or an fsspec URL such as ``s3://bucket/run``. Drawing landscapes never changes what training wrote
            there.

    Raises:
        TypeError: summary_dir is no path.
        ValueError: summary_dir is blank.
        ImportError: summary_dir is a URL, and a package that reads its kind is missing.
        RunDirectoryError: the directory does not exist or cannot be reached.
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
        checkpoint of the last interval, a plane of random directions ("result"). A landscape that an earlier call left
        unfinished is continued.

        Args:
            callback_fn: takes no argument, returns (model, network, dataset, metrics); for PyTorch a Model or a loss
                function, an nn.Module, a DataLoader, Dataset or pair of tensors, and a dict of metrics. Every worker
                calls it once. It may be a lambda, a closure or a notebook's function.
            collect_landscape: settings that replace the collected ones for this call only: ``landscape_size``,
                ``num_samples``, ``intervals``, ``create_landscape``.
            device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
            output: the directory for the landscape files, a folder or an fsspec URL; None means summary_dir. Behind a
                URL a file is sent again every few seconds while it changes; what cannot be sent is kept on this
                machine, and a warning says where.
            **options: see ``RunOptions``.

        Returns:
            The landscapes, each with its ``path``; none after a dry run.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a wrong value.
            RunDirectoryError: the directory holds no usable run.
            CheckpointError: a checkpoint is missing, damaged, or of another network.
            LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
        """
        chosen: RunOptions = with_defaults("SummaryLandscape.gen_landscapes_with_multi_process", RunOptions, options)
        run = RunDirectory(self._path)
        settings = run.settings.override(collect_landscape)
        if settings.unit != run.settings.unit:
            raise wrong_value("collect_landscape['unit']", f"{run.settings.unit!r}, as collected", settings.unit)
        how = SurveySettings.checked(chosen)
        # A run's planes are not made of given networks, so that "auto" is the same for both kinds.
        buffers = buffer_policy(chosen["buffers"], "pca or random")
        measured = MeasurementOptions(
            settings.num_samples, chosen["samples"], how.seed, buffers, chosen["recalibration_batch_size"]
        )
        check_choice("normalization", chosen["normalization"], NORMALIZATIONS)
        centering = check_choice("centering", chosen["centering"], CENTERINGS)
        check_device_ids("device_ids", device_ids)
        deadline = None if how.budget is None else time.perf_counter() + how.budget
        check_bool("save_directions", chosen["save_directions"])
        check_bool("dry_run", chosen["dry_run"])
        check_bool("perturb_one_dimensional", chosen["perturb_one_dimensional"])
        folder = _output_folder(self._path, output)
        jobs = _jobs(run, settings, folder, _check_stem(chosen["name"]))
        landscapes = []
        with open_pool(
            callback_fn,
            measured,
            device_ids=device_ids,
            devices_per_worker=chosen["devices_per_worker"],
            workers_per_device=chosen["workers_per_device"],
            address=chosen["address"],
            sample_memory=chosen["sample_memory"],
            plan=choose_plan(chosen["plan"], [] if how.overwrite else [job.path for job in jobs]),
            compile=chosen["compile"],
            points=fewest_points(len(jobs) * settings.landscape_size**2, how.sampling),
            seconds=how.budget,
        ) as pool:
            space = pool.description.space
            # All planes are built before the first point is measured, so that a damaged checkpoint shows at once.
            # Each checkpoint is opened, and its SHA-256 checked, once for all the landscapes that it is part of.
            numbers = dict.fromkeys(number for job in jobs for number in job.numbers)
            readers = {number: run.checkpoint(number, space) for number in numbers}
            planes = [_plane(job, readers, space, chosen, run.metadata.final_number) for job in jobs]
            for index, (job, plane) in enumerate(zip(jobs, planes, strict=True)):
                axes = plane.axes(settings.landscape_size)
                if deadline is not None:
                    # What is left is shared by the landscapes that are left.
                    left = max(deadline - time.perf_counter(), 0.0) / (len(jobs) - index)
                    how = replace(how, share=left)
                if chosen["dry_run"]:
                    forecast = forecast_survey(pool, plane, axes, path=job.path, settings=how)
                    print(f"{job.path.name}: {forecast}")  # noqa: T201
                    continue
                data, report = survey(
                    pool,
                    plane,
                    axes,
                    path=job.path,
                    attributes={
                        "unit": settings.unit,
                        "intervals": [list(job.numbers)],
                        "step_per_epoch": run.metadata.step_per_epoch,
                        "seed": how.seed,
                        "samples": measured.samples,
                        "centering": centering if job.kind == "pca" else None,
                    },
                    settings=how,
                )
                if chosen["save_directions"]:
                    write_directions(job.path, plane)
                landscapes.append(Landscape(data, job.path, report))
        return landscapes

    def clean_ckpt(self) -> None:
        """Removes the run's checkpoints and their metadata; landscape files stay."""
        folder = self._path / CHECKPOINT_FOLDER
        if isinstance(folder, Path):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.remove_folder()


def _jobs(run: RunDirectory, settings: LandscapeSettings, folder: AnyPath, stem: str) -> list[_Job]:
    """Returns what to draw from the checkpoints that exist; names what is missing.

    Raises:
        RunDirectoryError: nothing can be drawn.
    """
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
    if settings.create_landscape.train:
        ends = [(interval[0], interval[-1]) for interval in usable]
        for index, interval in enumerate(usable):
            label = f"{interval[0]}-{interval[-1]}" + (f"_{index}" if ends.count(ends[index]) > 1 else "")
            jobs.append(_Job("pca", interval, folder / f"{stem}_{label}_pca.h5"))
    if settings.create_landscape.result:
        last = usable[-1][-1]
        jobs.append(_Job("random", (last,), folder / f"{stem}_{last}_random.h5"))
    return jobs


def _plane(
    job: _Job, readers: Mapping[int, StateReader], space: WeightSpace, options: RunOptions, final: int | None
) -> Plane:
    run = Run("", tuple(readers[number] for number in job.numbers), job.numbers, finished=job.numbers[-1] == final)
    if job.kind == "pca":
        return plane_of_runs([run], space, centering=options["centering"])
    role = Members.of_runs({"": job.numbers}, [run.finished]).origin(-1)
    return random_plane_of(
        run.readers[-1],
        space,
        seed=options["seed"],
        normalization=options["normalization"],
        perturb_one_dimensional=options["perturb_one_dimensional"],
        role=role,
    )


def _output_folder(run: AnyPath, output: str | os.PathLike[str] | None) -> AnyPath:
    folder = run if output is None else check_directory("output", output)
    if isinstance(folder, RemotePath):
        try:
            folder.check_writable("output")
        except RunDirectoryError as error:
            raise LandscapeWriteError(f'{error} Or keep the files on this machine: output="landscapes".') from error
        return folder
    return make_output_folder("output", folder)


def _check_stem(name: object) -> str:
    if name is None:
        return "landscape"
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, but got {type(name).__name__}.")
    if not name.strip() or "/" in name or "\0" in name or name.startswith("."):
        raise wrong_value("name", "the beginning of a file name, without '/' and no leading '.'", name)
    return name
