"""Runs that were collected separately, in one picture: ``also`` and ``plane_of``."""

import re
import shutil

import numpy as np
import pytest
import torch
from command_line import invoke
from examples import batch_norm, dropout, images, train_run
from places import SUPPORT
from remote_stores import empty_memory

from collectors.errors import CheckpointError
from collectors.networks.readers import describe_network
from collectors.run_directory import RunDirectory
from collectors.weights.safetensors_file import write_checkpoint
from landscape import Landscape, MeasurementPlan, SummaryLandscape
from landscape.errors import PlaneError
from landscape.functions import refine

PLAN = MeasurementPlan(batch_size=32)
SETTINGS = {"landscape_size": 4, "create_landscape": {"result": False}}
TYPED = ["--function", "examples:batch_norm", "--size", "3", "--no-result", "--devices", "0", "--quiet"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two trainings of one network, and its average as a file."""
    folder = tmp_path_factory.mktemp("runs")
    network = train_run(folder / "sgd", epochs=3)

    def other():
        loss, module, data, metrics = batch_norm()
        torch.manual_seed(1)
        for tensor in module.parameters():
            tensor.data += 0.1 * torch.randn_like(tensor)
        return loss, module, data, metrics

    train_run(folder / "adam", other, epochs=5)
    write_checkpoint(folder / "ema.safetensors", {name: t.numpy() for name, t in network.state_dict().items()})
    return folder


@pytest.fixture
def folder(runs, tmp_path):
    for name in ("sgd", "adam"):
        shutil.copytree(runs / name / "ckpt_dir", tmp_path / name / "ckpt_dir")
    shutil.copy(runs / "ema.safetensors", tmp_path)
    return tmp_path


def generate(folder, run="sgd", settings=SETTINGS, **more):
    return SummaryLandscape(folder / run).gen_landscapes_with_multi_process(
        batch_norm, settings, [0], plan=PLAN, progress=False, **more
    )


def own_loss(folder, run, number):
    loss, network, _, _ = batch_norm()
    checkpoint = RunDirectory(folder / run).checkpoint(number)
    network.load_state_dict({name: torch.from_numpy(checkpoint.read(name)) for name in checkpoint.shapes})
    inputs, targets = images()
    with torch.no_grad():
        return float(loss(network.eval()(inputs[:64]), targets[:64]))


def flat(folder, run, number):
    reader, space = RunDirectory(folder / run).checkpoint(number), describe_network(batch_norm()[1])
    return np.concatenate([reader.read(tensor.name).ravel().astype(float) for tensor in space.trainable])


def test_all_runs_span_the_plane_by_default(folder):
    (drawn,) = generate(folder, also=[folder / "adam"])
    assert drawn.path == folder / "sgd" / "landscape_0-3_pca_and_adam.h5"
    found = drawn.checkpoints
    assert found.runs == ("sgd", "adam")
    assert found.number.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    assert (drawn.origin.role, drawn.origin.run, drawn.origin.number) == ("final weights", "sgd", 3)
    for row, (run, number) in enumerate([*(("sgd", n) for n in range(4)), *(("adam", n) for n in range(6))]):
        assert found.metrics["loss"][row] == pytest.approx(own_loss(folder, run, number), rel=1e-5)
    # An independent decomposition of all checkpoints together.
    end = flat(folder, "sgd", 3)
    differences = [
        flat(folder, run, number) - end for run, last in (("sgd", 3), ("adam", 5)) for number in range(last + 1)
    ]
    _, sigma, rows = np.linalg.svd(np.stack(differences), full_matrices=False)
    np.testing.assert_allclose(drawn.explained_variance_ratio, sigma[:2] ** 2 / np.sum(sigma**2), rtol=1e-5)
    inside = np.stack(differences) @ rows[:2].T @ rows[:2]
    residual = np.linalg.norm(np.stack(differences) - inside, axis=1)
    np.testing.assert_allclose(found.residual, residual, rtol=1e-4, atol=1e-6)
    assert drawn.x[0] < found.x.min() < found.x.max() < drawn.x[-1]


def test_a_plane_of_several_runs_can_be_refined_where_they_lie(folder):
    (drawn,) = generate(folder, also={"Adam": folder / "adam", "EMA": folder / "ema.safetensors"})
    (folder / "moved").mkdir()
    for name in ("sgd", "adam"):
        (folder / name).rename(folder / "moved" / name)
    path = folder / "moved" / "sgd" / drawn.path.name
    finer = refine(path, batch_norm, factor=2, device_ids=[0], progress=False)
    assert finer.loss.shape == (7, 7)
    np.testing.assert_array_equal(finer.loss[::2, ::2], drawn.loss)
    assert finer.report.measured == 7 * 7 - 4 * 4 + 1  # the origin, which must be as it was
    assert finer.checkpoints.runs == ("sgd", "Adam")
    assert finer.checkpoints.name == drawn.checkpoints.name
    shutil.rmtree(folder / "moved" / "adam")
    text = r"without the checkpoints of 'Adam', through which it goes too: .* Put the run"
    with pytest.raises(PlaneError, match=text):
        refine(path, batch_norm, factor=2, device_ids=[0], progress=False)
    assert Landscape.load(path).loss.shape == (7, 7)


@pytest.mark.slow
def test_the_first_runs_own_plane_continues_its_file(folder):
    settings = {**SETTINGS, "landscape_size": 9}
    (alone,) = generate(folder, settings=settings)
    (both,) = generate(folder, settings=settings, also={"Adam": folder / "adam"}, plane_of="first")
    assert both.path == alone.path
    columns, rows = (np.flatnonzero(np.isin(new, old)) for new, old in ((both.x, alone.x), (both.y, alone.y)))
    assert (len(columns), len(rows)) == (9, 9)
    assert both.loss.size > alone.loss.size
    np.testing.assert_array_equal(both.loss[np.ix_(rows, columns)], alone.loss)
    assert both.checkpoints.runs == ("sgd", "Adam")
    np.testing.assert_array_equal(both.checkpoints.metrics["loss"][:4], alone.checkpoints.metrics["loss"])
    # Without the other run nothing is lost: neither the run nor the part of the grid that was added for it.
    (again,) = generate(folder, settings=settings)
    assert again.report.measured == 1
    assert again.checkpoints.runs == ("sgd", "Adam")
    np.testing.assert_array_equal(again.loss, both.loss)


def test_names_and_networks(folder):
    (drawn,) = generate(
        folder, also={"SGD 0.05": folder / "sgd", "Adam": folder / "adam", "EMA": folder / "ema.safetensors"}
    )
    assert drawn.path.name == "landscape_0-3_pca_and_Adam.h5"
    assert drawn.checkpoints.runs == ("SGD 0.05", "Adam")
    assert drawn.checkpoints.name[-1] == "EMA"
    assert drawn.origin.run == "SGD 0.05"
    (alone,) = generate(folder, also=[folder / "ema.safetensors"])
    assert alone.path.name == "landscape_0-3_pca.h5"
    assert alone.checkpoints.name[-1] == "ema"
    with empty_memory() as system:
        system.put_file(str(folder / "ema.safetensors"), "/bucket/ema.safetensors")
        (there,) = generate(folder, also=["memory://bucket/ema.safetensors"])
    assert there.checkpoints.name[-1] == "ema"
    assert there.checkpoints.metrics["loss"][-1] == alone.checkpoints.metrics["loss"][-1]


def test_of_several_intervals_each_has_its_part(folder):
    settings = {**SETTINGS, "intervals": [[0, 1, 2], [1, 2, 3]]}
    first, second = generate(folder, settings=settings, also=[folder / "adam"])
    assert first.checkpoints.number.tolist() == [0, 1, 2, 0, 1, 2]
    assert second.checkpoints.number.tolist() == [1, 2, 3, 1, 2, 3]


def test_an_interval_without_checkpoints_yet_does_not_give_its_part_to_another(folder):
    settings = {**SETTINGS, "intervals": [[0, 1, 2], [7, 8, 9]]}
    with pytest.warns(UserWarning, match=r"only 0 of the checkpoints of epochs \[7, 8, 9\]"):
        (drawn,) = generate(folder, settings=settings, also=[folder / "adam"])
    assert drawn.checkpoints.number.tolist() == [0, 1, 2, 0, 1, 2]


def test_names_that_look_like_options_and_patterns(folder, monkeypatch):
    (folder / "sgd").rename(folder / "lr=0.1[a]")
    (folder / "adam").rename(folder / "lr=0.2[a]")
    shutil.copy(folder / "ema.safetensors", folder / "epoch=3-step=40.safetensors")
    weights = RunDirectory(folder / "lr=0.1[a]").checkpoint(2)
    torch.save({name: torch.from_numpy(weights.read(name)) for name in weights.shapes}, folder / "best.t7")
    monkeypatch.syspath_prepend(SUPPORT)
    monkeypatch.chdir(folder)
    command = ["run", "lr=0.1[a]", *TYPED]
    for also in ("lr=0.2[a]", "epoch=3-step=40.safetensors", "best.t7", "last=best.t7"):
        command += ["--also", also]
    invoke(*command)
    (path,) = (folder / "lr=0.1[a]").glob("*.h5")
    found = Landscape.load(path).checkpoints
    assert found.runs == ("lr=0.1[a]", "lr=0.2[a]")
    assert found.name[-3:] == ("epoch=3-step=40", "best", "last")
    with pytest.raises(ValueError, match=re.escape("--also must be NAME=RUN_DIRECTORY with different names")):
        invoke(*command, "--also", "elsewhere/last")


class TestErrors:
    @pytest.mark.parametrize(
        ("also", "error", "match"),
        [
            ("adam", TypeError, "also must be a list of run directories, or a dict from names to them"),
            ([3], TypeError, r"also\[0\] must be the path of a run directory, or of a file of weights"),
            ({"": "adam"}, ValueError, "a key of also must be a name of 1 to 100"),
        ],
    )
    def test_wrong_arguments(self, folder, also, error, match):
        with pytest.raises(error, match=match):
            generate(folder, also=also)

    def test_what_does_not_fit(self, folder, tmp_path):
        with pytest.raises(ValueError, match="also must be different run directories"):
            generate(folder, also={"a": folder / "adam", "b": folder / "adam"})
        with pytest.raises(ValueError, match="also must be a dict from different names"):
            generate(folder, also={"adam": folder / "adam", "sgd": folder / "ema.safetensors"})
        train_run(tmp_path / "steps", unit="step", intervals=[range(4)])
        with pytest.raises(ValueError, match=r"counts its checkpoints in steps, but .* in epochs"):
            generate(folder, also=[tmp_path / "steps"])
        train_run(tmp_path / "other", dropout)
        with pytest.raises(CheckpointError, match="does not fit the network"):
            generate(folder, also=[tmp_path / "other"])
        settings = {**SETTINGS, "intervals": [[0, 1, 2], [1, 2, 3]]}
        for number in (1, 2, 3):
            RunDirectory(folder / "adam").checkpoint_path(number).unlink()
        with pytest.raises(ValueError, match=r"also\['adam'\] must be a run with checkpoints of epochs 1 to 3"):
            generate(folder, settings=settings, also=[folder / "adam"])
