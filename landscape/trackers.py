"""Landscapes in the pages of experiment trackers: TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.errors import LandscapeError
from collectors.files import system
from collectors.files.local_files import write_bytes
from collectors.validation import check_instance, check_int, wrong_type, wrong_value

from .figures import figure_pixels, save_figure
from .interactive import save_page
from .landscape import Landscape
from .summary_json import summary_json

if TYPE_CHECKING:
    from typing import Unpack

    from .figures import Look


def log_to_tensorboard(
    landscape: Landscape,
    place: object = None,
    *,
    name: str | None = None,
    step: int = 0,
    **look: Unpack[Look],
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
    with tempfile.TemporaryDirectory() as folder:
        files = _write(landscape, Path(folder), title, look)
        shown: dict[str, Any] = {title: wandb.Image(str(files["picture"]))}
        if "page" in files:
            shown[f"{title}_page"] = wandb.Html(files["page"].read_text("utf-8"), inject=False)
        target.log(shown)
        # Its names may have no other characters.
        artifact = wandb.Artifact(re.sub(r"[^\w.-]", "_", title), "landscape", metadata=summary_json(landscape))
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
def wandb_run(run_id: str | None = None, project: str | None = None) -> Iterator[Any]:
    """Opens a run of Weights & Biases: the one with that id, else a new one."""
    with _imported("wandb", "wandb").init(
        id=run_id, project=project, resume=None if run_id is None else "allow"
    ) as run:
        yield run


@contextlib.contextmanager
def mlflow_run(run_id: str | None = None, experiment: str | None = None) -> Iterator[str]:
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


def _checked(landscape: object, name: object) -> str:
    check_instance("landscape", landscape, Landscape, "a Landscape")
    assert isinstance(landscape, Landscape)
    if name is None:
        return "landscape" if landscape.path is None else landscape.path.stem
    if not isinstance(name, str):
        raise wrong_type("name", "a str", name)
    if not name.strip() or name.startswith("/") or ".." in name.split("/"):
        raise wrong_value("name", "a name such as landscape or landscapes/end", name)
    return name


def _picture(landscape: Landscape, look: Look) -> Any:
    return landscape.plot_profile(**look) if landscape.y is None else landscape.plot_contour(**look)


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


def _stem(title: str) -> str:
    """Returns the last part of a title, as far as the system has files of that name."""
    stem = title.rsplit("/", maxsplit=1)[-1]
    return re.sub(r"[^\w-]", "_", f"{stem}_") if system.refuses_name(stem) else stem
