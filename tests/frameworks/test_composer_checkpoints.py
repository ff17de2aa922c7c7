"""Checkpoints that Composer's own Trainer saved: imported, measured, and refused where they are damaged."""

import os
import zipfile

import composer_cases as cases
import numpy as np
import pytest
import torch

from collectors import import_checkpoints
from collectors.errors import CheckpointError
from collectors.networks.readers import describe_network
from landscape import evaluate, pca_plane
from landscape.figures import save_figure
from workers.composer_loss import evaluator_from

EPOCHS = [1, 2, 3, 4, 5]


@pytest.fixture(scope="module", params=["a model", "a classifier"])
def trained(request, tmp_path_factory):
    """A model after five epochs, each of which Composer saved, what makes such a model, and the folder."""
    folder = tmp_path_factory.mktemp("composer") / "saved"
    make = cases.Classifier if request.param == "a model" else cases.without_dropout
    model = make()
    made = cases.trainer(model, "5ep", save_folder=str(folder), save_interval="1ep")
    made.fit()
    made.close()
    return model, make, folder


@pytest.mark.filterwarnings("ignore:metric 'CrossEntropy' depends on how samples are batched")
def test_each_epoch_is_imported_and_measured(trained, tmp_path):
    model, make, folder = trained
    report = []
    run = import_checkpoints(tmp_path / "run", folder, report=report.append)
    assert (run.settings.unit, sorted(run.metadata.files)) == ("epoch", EPOCHS)
    assert "latest-rank0.pt has the same weights as ep5-ba20-rank0.pt" in report[0]
    last = run.checkpoint(5, describe_network(make()))
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(last.read(name.removeprefix("module.")), tensor.numpy())
    steps = import_checkpoints(tmp_path / "steps", folder, unit="step")
    assert sorted(steps.metadata.files) == [4, 8, 12, 16, 20]

    def callback_fn():
        return evaluator_from(make(), cases.loader())

    plane = pca_plane(run, network=make())
    measured = evaluate(plane, callback_fn, size=3, device_ids=[0], progress=False)
    model.eval()
    expected = cases.own_loss((None, model, cases.loader(), None))
    assert measured.origin.metrics["loss"] == pytest.approx(expected, rel=1e-5)
    save_figure(measured.plot(), tmp_path / "plane.png")
    assert (tmp_path / "plane.png").stat().st_size > 10_000


class RunsCode:
    def __reduce__(self):
        return os.system, ("touch exploded",)


def in_the_state(folder, content):
    torch.save({"state": content, "rng": []}, folder / "ep1-ba4-rank0.pt")


def beside_the_model(folder):
    in_the_state(folder, {"model": cases.Classifier().state_dict(), "callbacks": RunsCode()})


def in_place_of_the_model(folder):
    in_the_state(folder, {"model": RunsCode()})


def cut(folder):
    file = folder / "ep1-ba4-rank0.pt"
    file.write_bytes(file.read_bytes()[:-2000])


def empty(folder):
    (folder / "ep1-ba4-rank0.pt").write_bytes(b"")


def without_numbers(folder):
    file = folder / "ep1-ba4-rank0.pt"
    with zipfile.ZipFile(file) as whole:
        kept = {name: whole.read(name) for name in whole.namelist() if "/data/" not in name}
    with zipfile.ZipFile(file, "w") as poorer:
        for name, content in kept.items():
            poorer.writestr(name, content)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A folder with three checkpoints as Composer writes them, in which code would leave a file."""
    for number in EPOCHS[:3]:
        content = {"model": cases.Classifier(number).state_dict(), "run_name": "made"}
        torch.save({"state": content, "rng": []}, tmp_path / f"ep{number}-ba{4 * number}-rank0.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("damage", [cut, empty, without_numbers])
def test_damaged_files_are_named(copied, damage):
    damage(copied)
    with pytest.raises((CheckpointError, ValueError), match=r"ep1-ba4-rank0\.pt"):
        import_checkpoints(copied / "run", copied)


def test_code_in_place_of_the_weights_is_refused_and_does_not_run(copied):
    in_place_of_the_model(copied)
    with pytest.raises(CheckpointError, match=r"ep1-ba4-rank0\.pt"):
        import_checkpoints(copied / "run", copied)
    assert not (copied / "exploded").exists()


def test_code_beside_the_weights_does_not_run(copied):
    beside_the_model(copied)
    run = import_checkpoints(copied / "run", copied)
    np.testing.assert_array_equal(
        run.checkpoint(1, describe_network(cases.Classifier())).read("net.0.weight"),
        cases.Classifier().net[0].weight.detach().numpy(),
    )
    assert not (copied / "exploded").exists()
