"""Landscapes where a training is looked at: drawn at its end, or in TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Unpack

from collectors.errors import LandscapeError
from collectors.files import system
from collectors.files.local_files import write_bytes
from collectors.files.places import write_to
from collectors.files.remote_path import RemotePath
from collectors.validation import check_instance, check_int, wrong_type, wrong_value

from .figures import Look, figure_pixels, save_figure
from .interactive import save_page
from .landscape import Landscape
from .record.option_kinds import RunOptions
from .record.options import documented, with_defaults
from .summary_json import summary_json
from .summary_landscape import SummaryLandscape

# Names of files have 255; the trackers append a number, a digest and an ending.
_MOST_BYTES = 200


def log_to_tensorboard(
    landscape: Landscape, place: object = None, *, name: str | None = None, step: int = 0, **look: Unpack[Look]
) -> None:
    """Shows a landscape's picture among the images of TensorBoard.

    Args:
        landscape: a plane is shown as contours, a line as its profile.
        place: the folder for an event file of its own, or a ``torch.utils.tensorboard.SummaryWriter``, such as that of
            a trainer's logger; None takes the folder of the landscape file, which is the run directory by default.
        name: the image's name; by default that of the landscape file.
        step: the number under which it is shown.
        **look: see ``figures.Look``.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the landscape has no file, and no place is given.
        ImportError: TensorBoard is not installed.
    """
    title = _checked(landscape, name)
    check_int("step", step, minimum=0)
    if place is None:
        if not isinstance(landscape.path, Path):
            raise wrong_value("place", "a folder: this landscape lies in no folder of this machine", place)
        place = landscape.path.parent
    if hasattr(place, "add_image"):
        place.add_image(title, figure_pixels(_picture(landscape, look)), step, dataformats="HWC")
        return
    if not isinstance(place, str | os.PathLike):
        raise wrong_type("place", "a folder or a SummaryWriter", place)
    from collectors.summary.record import SummaryRecord

    pixels = figure_pixels(_picture(landscape, look)).transpose(2, 0, 1)[None]
    with SummaryRecord(place, raise_exception=True) as record:
        record.add_value("image", title, pixels)
        record.record(step)


def log_to_wandb(landscape: Landscape, run: Any = None, *, name: str | None = None, **look: Unpack[Look]) -> None:
    """Logs a landscape to a run of Weights & Biases: the picture, the interactive page, and the file as an artifact.

    Args:
        landscape: what is logged; its facts become the artifact's metadata.
        run: what ``wandb.init`` returned; None takes the run that is active.
        name: of the picture and the artifact; by default that of the landscape file. The page is ``<name>_page``; it is
            left out where plotly is not installed.
        **look: see ``figures.Look``.

    Raises:
        TypeError: an argument has the wrong type.
        ImportError: wandb is not installed.
        LandscapeError: no run is active.
    """
    title = _checked(landscape, name)
    wandb = _imported("wandb", "wandb")
    target = wandb.run if run is None else run
    if target is None:
        raise LandscapeError(
            "log_to_wandb found no active run of Weights & Biases. Call wandb.init(...) before, or pass the run that "
            "it returned as run=."
        )
    # Its names have no other characters, and no more of them.
    short = re.sub(r"[^\w.-]", "_", title, flags=re.ASCII)[:128]
    artifact = wandb.Artifact(short, "landscape", metadata=summary_json(landscape))
    with tempfile.TemporaryDirectory() as folder:
        files = _write(landscape, Path(folder), title, look)
        shown: dict[str, Any] = {title: wandb.Image(str(files["picture"]))}
        if "page" in files:
            shown[f"{title}_page"] = wandb.Html(files["page"].read_text("utf-8"), inject=False)
        target.log(shown)
        for file in files.values():
            artifact.add_file(str(file))
        target.log_artifact(artifact)


def log_to_mlflow(
    landscape: Landscape, run_id: str | None = None, *, name: str | None = None, **look: Unpack[Look]
) -> None:
    """Logs a landscape to a run of MLflow: picture, interactive page, landscape file and facts, in one folder.

    Args:
        landscape: what is logged.
        run_id: the run's; None takes the run that is active.
        name: of the folder among the run's artifacts; by default that of the landscape file.
        **look: see ``figures.Look``.

    Raises:
        TypeError: an argument has the wrong type.
        ImportError: MLflow is not installed.
        LandscapeError: no run is active.
    """
    title = _checked(landscape, name)
    mlflow = _imported("mlflow", "MLflow")
    if run_id is None:
        active = mlflow.active_run()
        if active is None:
            raise LandscapeError(
                "log_to_mlflow found no active run of MLflow. Call it inside `with mlflow.start_run():`, or pass the "
                "run's id as run_id=."
            )
        run_id = active.info.run_id
    with tempfile.TemporaryDirectory() as folder:
        files = _write(landscape, Path(folder), title, look)
        facts = Path(folder) / f"{files['landscape'].stem}.json"
        write_bytes(facts, json.dumps(summary_json(landscape), indent=2, allow_nan=False).encode())
        for file in (*files.values(), facts):
            mlflow.log_artifact(str(file), artifact_path=title, run_id=run_id)


@contextlib.contextmanager
def wandb_run(run_id: str | None, project: str | None) -> Iterator[Any]:
    resume = None if run_id is None else "allow"
    with _imported("wandb", "wandb").init(id=run_id, project=project, resume=resume) as run:
        yield run


@contextlib.contextmanager
def mlflow_run(run_id: str | None, experiment: str | None) -> Iterator[str]:
    """Opens a run of MLflow, and gives its id: the one with that id, which is left as it is, else a new one."""
    mlflow = _imported("mlflow", "MLflow")
    if run_id is not None:
        yield run_id
        return
    if experiment is not None:
        mlflow.set_experiment(experiment)
    with mlflow.start_run() as run:
        yield run.info.run_id


def _imported(package: str, name: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"logging to {name} needs a package that cannot be imported ({error}). Install it with pip install "
            f"'summary-landscape[{package}]'."
        ) from error


def _checked(landscape: Landscape, name: object) -> str:
    check_instance("landscape", landscape, Landscape, "a Landscape")
    if name is None:
        name = "landscape" if landscape.path is None else landscape.path.stem
    if not isinstance(name, str):
        raise wrong_type("name", "a str", name)
    if not all(part.strip(" .") and len(os.fsencode(part)) <= _MOST_BYTES for part in name.split("/")):
        expected = f"a name such as landscape or landscapes/end, of at most {_MOST_BYTES} bytes between two slashes"
        raise wrong_value("name", expected, name)
    return name


def _picture(landscape: Landscape, look: Look) -> Any:
    return landscape.plot_profile(**look) if landscape.y is None else landscape.plot_contour(**look)


def _stem(title: str) -> str:
    """Returns the last part of a title, as far as the system has files of that name."""
    stem = title.rsplit("/", maxsplit=1)[-1]
    return re.sub(r"[^\w-]", "_", f"{stem}_") if system.refuses_name(stem) else stem


def _write(landscape: Landscape, folder: Path, title: str, look: Look) -> dict[str, Path]:
    stem = _stem(title)
    files = {"picture": folder / f"{stem}.png", "landscape": folder / f"{stem}.h5"}
    save_figure(_picture(landscape, look), files["picture"])
    if importlib.util.find_spec("plotly") is not None:
        files["page"] = save_page(landscape, folder / f"{stem}.html")
    if isinstance(landscape.path, Path) and landscape.path.is_file():
        write_bytes(files["landscape"], landscape.path.read_bytes())
    else:
        landscape.save(files["landscape"])
    return files


class DrawAtEnd:
    """Measures and draws the landscapes of a run as soon as its training has ended.

    It is the ``at_end`` of the SummaryCollector of any trainer; in a distributed training, rank 0 alone calls it. It
    measures in the training's own process, beside what the training still holds in memory, unless ``device_ids`` names
    more than one device. Each picture lies beside its landscape file, as ``<stem>.png``.

    Example::

        collector = SummaryCollector(
            "run", collect_landscape={"unit": "epoch", "intervals": [range(0, 21)]}, at_end=DrawAtEnd(callback_fn)
        )

    Args:
        callback_fn: as ``SummaryLandscape.gen_landscapes_with_multi_process`` takes it.
        collect_landscape: settings that replace the collected ones, such as ``landscape_size``.
        device_ids: GPU ids or, without GPUs, slots that share the CPU cores; None means the first one.
        output: the directory for landscape files and pictures; None means the run directory.
        log: called with each landscape, such as ``log_to_wandb`` and ``log_to_mlflow``.

    Further options are those of ``SummaryLandscape.gen_landscapes_with_multi_process``, by name.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an option has a wrong value.
    """

    @documented(RunOptions)
    def __init__(
        self,
        callback_fn: Callable[[], Any],
        collect_landscape: Mapping[str, Any] | None = None,
        device_ids: list[int] | None = None,
        output: str | os.PathLike[str] | None = None,
        *,
        log: Iterable[Callable[[Landscape], Any]] = (),
        **options: Unpack[RunOptions],
    ) -> None:
        if not callable(callback_fn):
            raise wrong_type("callback_fn", "a function without arguments", callback_fn)
        if not isinstance(log, Iterable) or not all(map(callable, functions := tuple(log))):
            raise wrong_type("log", "a list of functions of a Landscape, such as [log_to_wandb]", log)
        # The file of a plan may not be here yet, and is read where it is needed.
        with_defaults("DrawAtEnd", RunOptions, {name: item for name, item in options.items() if name != "plan"})
        self._log = functions
        self._arguments = (callback_fn, collect_landscape, [0] if device_ids is None else device_ids, output)
        self._options = options

    def __call__(self, run_directory: str | os.PathLike[str]) -> list[Landscape]:
        """Draws the landscapes of a run directory, and returns them.

        Raises:
            LandscapeError: a landscape cannot be measured or drawn; the subclass and the text say why.
        """
        run = SummaryLandscape(run_directory)
        landscapes = run.gen_landscapes_with_multi_process(*self._arguments, **self._options)
        for landscape in landscapes:
            assert landscape.path is not None
            picture = landscape.path.parent / f"{landscape.path.stem}.png"
            if isinstance(picture, RemotePath):
                image = io.BytesIO()
                save_figure(_picture(landscape, {}), image)
                write_to(picture, image.getvalue())
            else:
                save_figure(_picture(landscape, {}), picture)
        for landscape in landscapes:
            for log in self._log:
                log(landscape)
        return landscapes
