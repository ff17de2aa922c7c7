"""SummaryLandscape: from a collected run to its landscapes."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.errors import RunDirectoryError
from collectors.files.places import AnyPath, check_directory
from collectors.files.remote_path import RemotePath
from collectors.networks.weight_space import WeightSpace
from collectors.run_directory.directory import CHECKPOINT_FOLDER, RunDirectory, find_run
from collectors.validation import check_device_ids, wrong_value

from .curvature.hessian_plane import EigenvectorSettings
from .errors import LandscapeWriteError
from .grid.experiment import GridExperiment
from .grid.forecast import fewest_points
from .grid.landscape_file import LANDSCAPE_FILE
from .grid.measuring import measure_grid
from .landscape import Landscape
from .planes.extent import check_extent
from .planes.further_runs import find_further_runs
from .planes.plane import buffer_policy
from .record.driver import forecast, open_record
from .record.options import RunCurvatureOptions, RunOptions, documented, with_defaults
from .record.provenance import function_attribute, run_attributes
from .record.run import Run
from .record.workers import Workers, measurement_options
from .record.writer import make_output_folder
from .run_jobs import check_all_is_drawn, find_jobs, plane_of_job
from .sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from typing import Unpack

    from .curvature.curvature import Curvature


_DRY_RUN = (
    "dry run: reads the data set, times a few batches and measures one landscape's origin; compiles nothing, and "
    "writes no landscape"
)


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
        rehearsal = whole.rehearsal
        vectors = EigenvectorSettings.of_run(chosen)
        others = find_further_runs(chosen["also"], run)
        spanning = {name: other.path for name, other in others.runs.items()} if chosen["plane_of"] == "all" else {}
        folder = _output_folder(self._path, output)
        jobs = find_jobs(
            run, settings, folder, chosen["name"] or "landscape", list(spanning), chosen["directions"], vectors
        )
        check_all_is_drawn(jobs, others, chosen["directions"])
        landscapes: list[Landscape] = []
        whole.say(_DRY_RUN, timed=False)
        whole.say("building the network, reading the samples, timing a few batches")
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open_record(LANDSCAPE_FILE, job.path, whole)) for job in jobs]
            points = len(jobs) * fewest_points((settings.landscape_size,) * 2, sampling.sampling)
            workers = stack.enter_context(Workers(callback_fn, how, whole, stored=files, points=points))

            def experiments(space: WeightSpace) -> list[GridExperiment]:
                # All planes are built before the first point is measured, so that a damaged checkpoint shows at once.
                # Each checkpoint is opened, and its SHA-256 checked, once for all the landscapes that it is part of.
                numbers = dict.fromkeys(number for job in jobs for number in job.numbers)
                readers = {number: run.checkpoint(number, space) for number in numbers}
                final, grids = run.metadata.final_number, []
                for job, stored in zip(jobs, files, strict=True):
                    plane = plane_of_job(job, stored, readers, workers, chosen, final, others, vectors)
                    attributes = {
                        "unit": settings.unit,
                        "intervals": [list(job.numbers)],
                        "step_per_epoch": run.metadata.step_per_epoch,
                        "seed": sampling.seed,
                        "samples": chosen["samples"],
                        "centering": chosen["centering"] if job.kind == "pca" else None,
                        **function_attribute(callback_fn),
                        **run_attributes(self._path, spanning if job.kind == "pca" else {}, folder),
                    }
                    axes = plane.axes(settings.landscape_size, margin, limits)
                    grids.append(GridExperiment(plane, axes, sampling, attributes))
                return grids

            space = workers.space
            whole.say(
                f"opening checkpoints, computing the directions of {len(jobs)} landscape{'s' if len(jobs) > 1 else ''}"
            )
            grids, pool = experiments(space), workers.pool
            if workers.space.differences(space):
                grids = experiments(workers.space)
            for grid, stored in zip(grids, files, strict=True):
                # A night may pass before the last one's turn.
                grid.check(stored, pool)
            whole.say(f"measuring a point: a pass over {pool.description.num_samples:,} samples, a part twice")
            for index, (grid, job, stored) in enumerate(zip(grids, jobs, files, strict=True)):
                part = whole.part(len(jobs) - index)
                if not rehearsal:
                    data, report = measure_grid(grid, stored, pool, part, save_directions=chosen["save_directions"])
                    landscapes.append(Landscape(data, job.path, report))
                    continue
                # A point of the other landscapes takes as long.
                grid.origins = grids[0].origins
                whole.say(f"{job.path.name}: {forecast(grid, stored, pool, part)}", timed=False)
                if grid.plane.curvature is not None and not grid.plane.curvature.is_known:
                    whole.say(vectors.cost(max(origin.measured.seconds for origin in grid.origins)), timed=False)
        return landscapes

    @documented(RunCurvatureOptions)
    def gen_curvature(
        self,
        callback_fn: Callable[[], Any],
        numbers: Iterable[int] | None = None,
        *,
        device_ids: list[int] | None = None,
        output: str | os.PathLike[str] | None = None,
        num_samples: int | Mapping[str, int | None] | None = None,
        **options: Unpack[RunCurvatureOptions],
    ) -> Curvature | None:
        """Measures how the loss bends at the checkpoints: eigenvalues of its Hessian, their sum, their density.

        The file, ``curvature_<first>-<last>.h5``, is written as checkpoints are measured; an interrupted call goes on
        with those that are missing, and failed ones are tried again.

        Args:
            callback_fn: takes no argument, returns (model, network, dataset, metrics) of PyTorch or JAX.
            numbers: of the checkpoints (their steps or epochs); None takes all. What the file holds of others stays.
            device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means all.
            output: the directory for the file, a folder or an fsspec URL; None means summary_dir.
            num_samples: samples that the loss is a mean over; None takes as many as were collected for landscapes.
            **options: see ``RunCurvatureOptions``.

        Returns:
            The curvature, a row for each checkpoint of the file; None after a dry run.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a wrong value.
            RunDirectoryError: the directory holds no usable run.
            CheckpointError: a checkpoint is missing, damaged, or of another network.
            CurvatureError: nothing can be differentiated, or the loss is finite at no checkpoint.
            LandscapeError: something else went wrong; the subclass and the text say what, and how to fix it.
        """
        from .curvature.measuring import measure_run

        name = "SummaryLandscape.gen_curvature"
        chosen: RunCurvatureOptions = with_defaults(name, RunCurvatureOptions, options)
        run = RunDirectory(self._path)
        return measure_run(
            run,
            callback_fn,
            numbers,
            _output_folder(self._path, output),
            stem=chosen["name"] or "curvature",
            device_ids=device_ids,
            num_samples=run.settings.num_samples if num_samples is None else num_samples,
            chosen=chosen,
        )

    def clean_ckpt(self) -> None:
        """Removes the run's checkpoints and their metadata; landscape files stay."""
        folder = self._path / CHECKPOINT_FOLDER
        if isinstance(folder, Path):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            folder.remove_folder()


def _output_folder(run: AnyPath, output: str | os.PathLike[str] | None) -> AnyPath:
    folder = run if output is None else check_directory("output", output)
    if isinstance(folder, RemotePath):
        try:
            folder.check_writable("output")
        except RunDirectoryError as error:
            raise LandscapeWriteError(f'{error} Or keep the files on this machine: output="landscapes".') from error
        return folder
    return make_output_folder("output", folder)
