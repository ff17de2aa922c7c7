"""Weights & Biases in its offline mode and MLflow in a local store: what they hold after a landscape was logged."""

import hashlib
import json
from pathlib import Path

import mlflow
import numpy as np
import pytest
import wandb
from matplotlib import image
from pages import code_blocks, run_page_block, takes_minutes
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from landscape import Landscape, LandscapeError
from landscape.cli import app
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.trackers import log_to_mlflow, log_to_wandb


@pytest.fixture
def landscape(tmp_path):
    data = LandscapeData.empty(np.linspace(-1, 1, 5), np.linspace(-1, 1, 4), DirectionsData(np.ones(2), None, 0.0))
    data.metrics["loss"][...] = data.y[:, None] ** 2 + data.x**2
    data.status[...] = 1
    return Landscape.load(Landscape(data).save(tmp_path / "landscape_0-3_pca.h5"))


@pytest.fixture
def offline(tmp_path, monkeypatch):
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": tmp_path, "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path
    wandb.teardown()  # a later run in this process would take the places of this one


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A data base would need all of MLflow; to what we call, the stores are alike.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    return tmp_path


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_weights_and_biases_gets_picture_page_and_file(landscape, offline):
    with wandb.init(project="landscapes") as run:
        log_to_wandb(landscape)
        media = Path(run.dir) / "media"
    (picture,) = media.rglob("*.png")
    assert image.imread(picture).std() > 0.05
    (page,) = media.rglob("*.html")
    assert "landscape_0-3_pca" in page.read_text("utf-8")
    # Staged for the time when the run is uploaded (wandb sync).
    assert digest(landscape.path) in {digest(path) for path in (offline / "data").rglob("*") if path.is_file()}


def test_a_run_that_is_given_is_taken(landscape, offline):
    with wandb.init(project="landscapes") as run:
        log_to_wandb(landscape, run, name="surfaces/end", theme="dark")
        media = Path(run.dir) / "media"
    assert [path.parent.name for path in media.rglob("*.png")] == ["surfaces"]


@pytest.mark.parametrize("name", ["größe von 网络", "a" * 200], ids=["letters", "long"])
def test_a_name_that_no_artifact_may_have(name, landscape, offline):
    with wandb.init(project="landscapes") as run:
        log_to_wandb(landscape, run, name=name)
        (picture,) = (Path(run.dir) / "media").rglob("*.png")
    assert picture.name.startswith(name)


def test_weights_and_biases_without_a_run(landscape, offline):
    with pytest.raises(LandscapeError, match=r"found no active run .* Call wandb.init\(...\) before"):
        log_to_wandb(landscape)


def test_mlflow_gets_picture_page_file_and_facts(landscape, store):
    with mlflow.start_run() as run:
        log_to_mlflow(landscape)
    stem = "landscape_0-3_pca"
    folder = Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path=stem, dst_path=str(store)))
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{stem}{end}" for end in (".h5", ".html", ".json", ".png")
    ]
    assert digest(folder / f"{stem}.h5") == digest(landscape.path)
    assert json.loads((folder / f"{stem}.json").read_text("utf-8"))["grid"]["shape"] == [4, 5]
    assert image.imread(folder / f"{stem}.png").std() > 0.05


def test_mlflow_takes_the_run_that_is_named(landscape, store):
    with mlflow.start_run() as run:
        pass
    with pytest.raises(LandscapeError, match=r"found no active run .* or pass the run's id as run_id="):
        log_to_mlflow(landscape)
    log_to_mlflow(landscape, run.info.run_id, name="end")
    found = mlflow.MlflowClient().list_artifacts(run.info.run_id, "end")
    assert len(found) == 4
    assert mlflow.active_run() is None


@takes_minutes
def test_the_code_of_the_page(tmp_path):
    environment = {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_DATA_DIR": str(tmp_path / "data"),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
    }
    folder = tmp_path / "page"
    for code in code_blocks("trackers"):
        run_page_block(code, folder, environment=environment)
    stems = ["landscape_0-10_pca", "landscape_10_random"]
    assert sorted(path.stem for path in (folder / "run").glob("*.png")) == stems
    events = EventAccumulator(str(folder / "run")).Reload()
    assert set(stems) <= set(events.Tags()["images"])
    assert list((folder / "wandb").rglob("landscape_0-10_pca*.png"))
    assert list((tmp_path / "mlruns").rglob("artifacts/landscape_0-10_pca/landscape_0-10_pca.html"))


def command(*arguments):
    return CliRunner().invoke(app, ["convert", *map(str, arguments)], catch_exceptions=False)


def test_the_command_makes_a_run_of_weights_and_biases(landscape, offline):
    result = command(landscape.path, "--to", "wandb", "--project", "surfaces", "--name", "end")
    assert "logged to wandb" in result.output
    assert [path.name[:4] for path in (offline / "wandb").rglob("media/images/*.png")] == ["end_"]


def test_the_command_adds_to_a_run_of_mlflow(landscape, store):
    with mlflow.start_run() as run:
        pass
    assert command(landscape.path, "--to", "mlflow", "--run", run.info.run_id, "--name", "end").exit_code == 0
    assert len(mlflow.MlflowClient().list_artifacts(run.info.run_id, "end")) == 4
    assert command(landscape.path, "--to", "mlflow", "--project", "surfaces").exit_code == 0
    experiment = mlflow.get_experiment_by_name("surfaces")
    (made,) = mlflow.MlflowClient().search_runs([experiment.experiment_id])
    assert len(mlflow.MlflowClient().list_artifacts(made.info.run_id, "landscape_0-3_pca")) == 4
