"""SummaryLandscape: from a collected run to its landscape files."""

import hashlib
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from examples import batch_norm, dropout

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.files import system
from collectors.weights.safetensors_file import CheckpointFile, write_checkpoint
from landscape import Landscape, LandscapeError, MeasurementPlan, SummaryLandscape
from landscape.drawing.texts import axis_label
from landscape.errors import LandscapeGridError, LandscapeIdentityError
from landscape.facts import page_facts, summary_text

PLAN = MeasurementPlan(batch_size=32)


@pytest.fixture
def run(trained, tmp_path):
    """A copy of a trained run, which a test may damage."""
    shutil.copytree(trained / "ckpt_dir", tmp_path / "run" / "ckpt_dir")
    return tmp_path / "run"


def generate(folder, callback=batch_norm, settings=None, device_ids=(0,), **more):
    # Tuning a plan takes longer than these landscapes.
    return SummaryLandscape(folder).gen_landscapes_with_multi_process(
        callback, settings, list(device_ids), progress=False, **{"plan": PLAN, **more}
    )


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def snapshot(folder):
    return {path.name: digest(path) for path in (folder / "ckpt_dir").iterdir()}


@pytest.fixture(scope="module")
def measured(trained, tmp_path_factory):
    """A run whose two landscapes are measured, and these; nothing of it must be changed."""
    folder = tmp_path_factory.mktemp("measured")
    shutil.copytree(trained / "ckpt_dir", folder / "ckpt_dir")
    return folder, generate(folder, plan=None)


@pytest.mark.slow
def test_both_landscapes_with_their_trajectory(measured, trained):
    run, (train, result) = measured
    assert train.path == run / "landscape_0-4_pca.h5"
    assert result.path == run / "landscape_4_random.h5"
    assert train.loss.shape == result.loss.shape == (5, 5)
    assert train.complete is result.complete is True
    expected = {"unit": "epoch", "intervals": [[0, 1, 2, 3, 4]], "step_per_epoch": 3, "num_samples": 64}
    assert {name: train.attributes[name] for name in expected} == expected
    assert set(train.metrics) == {"loss", "loss_stderr", "accuracy"}
    assert train.explained_variance_ratio.shape == (2,)
    assert snapshot(run) == snapshot(trained)
    np.testing.assert_array_equal(Landscape.load(train.path).loss, train.loss)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:device_ids .* go beyond")
@pytest.mark.parametrize("forked", [True, False])
def test_in_process_and_workers_write_the_same_files_bit_for_bit(run, tmp_path, monkeypatch, forked):
    monkeypatch.setattr(system, "forks_workers", lambda: forked)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    digests = []
    for index, devices in enumerate(([0], [0, 1, 2])):
        folder = tmp_path / str(index)
        landscapes = generate(run, device_ids=devices, output=folder, plan=PLAN)
        digests.append([digest(landscape.path) for landscape in landscapes])
    assert digests[0] == digests[1]


def test_settings_of_this_call_replace_the_collected_ones(run):
    before = snapshot(run)
    settings = {"landscape_size": 4, "num_samples": 20, "intervals": [[1, 2, 4]], "create_landscape": {"result": False}}
    (only,) = generate(run, settings=settings, name="mine")
    assert only.path.name == "mine_1-4_pca.h5"
    assert only.loss.shape == (4, 4)
    assert only.attributes["num_samples"] == 20
    assert snapshot(run) == before


def test_a_file_that_cannot_be_used_is_an_error_before_another_one_is_measured(run):
    only_around = {"landscape_size": 5, "create_landscape": {"train": False, "result": True}}
    (around,) = generate(run, settings=only_around)
    before = digest(around.path)
    with pytest.raises(LandscapeGridError, match="random"):
        generate(run, settings={"landscape_size": 4})
    assert list(run.glob("*.h5")) == [around.path]
    assert digest(around.path) == before


@pytest.mark.slow
def test_intervals_that_share_both_ends_have_files_of_their_own(run):
    landscapes = generate(
        run, settings={"landscape_size": 3, "intervals": [[0, 1, 4], [0, 2, 4]], "create_landscape": {"result": False}}
    )
    assert [landscape.path.name for landscape in landscapes] == ["landscape_0-4_0_pca.h5", "landscape_0-4_1_pca.h5"]


@pytest.mark.slow
def test_a_lambda_a_closure_and_the_options(run):
    network = batch_norm()
    of_path, of_result = {"buffers": "recalibrate", "centering": "mean"}, {"seed": 5, "normalization": "layer"}
    train, result = generate(run, lambda: network, samples="random", **of_path, **of_result)
    assert of_path.items() <= train.attributes.items()
    assert of_result.items() <= result.attributes.items()


def test_a_budget_is_told_as_it_was_given(run):
    """Each landscape has a share of it, but the user knows only the whole."""
    with pytest.warns(UserWarning, match=r"budget of") as told:
        generate(run, budget=1e-3)
    texts = [str(item.message) for item in told]
    assert len(texts) == 2
    assert all(text.startswith("the budget of 1 ms ended the landscape after 0 of") for text in texts)


@pytest.mark.slow
def test_another_seed_is_another_identity(measured, tmp_path):
    run = shutil.copytree(measured[0], tmp_path / "run")
    with pytest.raises(LandscapeIdentityError, match="seed"):
        generate(run, seed=1)
    generate(run, seed=1, overwrite=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the two random directions have a cosine")  # of so few weights
def test_biases_move_when_they_are_asked_to(run, tmp_path, monkeypatch):
    settings = {"landscape_size": 3, "create_landscape": {"train": False}}
    (still,) = generate(run, settings=settings)
    assert still.attributes["perturb_one_dimensional"] is False
    with pytest.raises(LandscapeIdentityError, match=r"perturb_one_dimensional: the file has false, this run true"):
        generate(run, settings=settings, perturb_one_dimensional=True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    arguments = ["run", run, "--function", "examples:batch_norm", "--devices", "0", "--no-train", "--size", "3"]
    invoke(*arguments, "--quiet", "--perturb-one-dimensional", "-o", tmp_path / "typed")
    typed = Landscape.load(tmp_path / "typed" / still.path.name)
    (moved,) = generate(run, settings=settings, perturb_one_dimensional=True, overwrite=True)
    np.testing.assert_allclose(typed.loss, moved.loss, rtol=1e-5)  # each call tunes a plan of its own
    assert not np.allclose(moved.loss, still.loss)
    for landscape, move, label in ((still, "stay where they are", ""), (moved, "move too", ", biases move too")):
        told = f"biases and the parameters of normalization layers {move}"
        assert re.search(rf"^random directions +{re.escape(told)}$", summary_text(landscape), re.MULTILINE)
        assert ["random directions", told] in page_facts(landscape)
        assert axis_label(landscape, 0) == f"random direction 1 (filter-normalized{label}, seed 0)"


def test_clean_ckpt_removes_checkpoints_only(run):
    landscapes = generate(run)
    SummaryLandscape(run).clean_ckpt()
    assert not (run / "ckpt_dir").exists()
    assert all(landscape.path.exists() for landscape in landscapes)


class TestRunDirectory:
    def test_a_foreign_directory(self, tmp_path):
        with pytest.raises(RunDirectoryError, match="holds no collected run"):
            generate(tmp_path)

    def test_the_planes_of_a_run_have_nothing_to_interpolate_buffers_between(self, run):
        with pytest.raises(ValueError, match=r'buffers="interpolate" needs .* on a pca or random plane'):
            generate(run, buffers="interpolate")

    def test_missing_checkpoints_are_named_and_left_out(self, run):
        (run / "ckpt_dir/BatchNormNetwork_1_epoch.safetensors").unlink()
        with pytest.warns(UserWarning, match=r"no checkpoints of epochs \[1\]"):
            train, _ = generate(run)
        assert train.checkpoints.number.tolist() == [0, 2, 3, 4]

    def test_a_training_that_ended_early_is_called_so(self, run):
        ended = r"the training of .* ended at epoch 4, before epoch 9 of its intervals; the landscape shows all"
        with pytest.warns(UserWarning, match=ended):
            train, _ = generate(run, settings={"intervals": [range(10)]})
        assert train.checkpoints.number.tolist() == [0, 1, 2, 3, 4]

    def test_too_few_checkpoints(self, run):
        for number in (0, 1, 2):
            (run / f"ckpt_dir/BatchNormNetwork_{number}_epoch.safetensors").unlink()
        with (
            pytest.warns(UserWarning, match=r"missing: \[0, 1, 2\]"),
            pytest.raises(RunDirectoryError, match="fewer than three checkpoints in every interval"),
        ):
            generate(run)

    def test_a_checkpoint_of_another_network(self, run):
        text = r"does not fit the network DropoutNetwork(.|\n)*1\.weight(.|\n)*missing"
        with pytest.raises(CheckpointError, match=text):
            generate(run, dropout)

    def test_a_changed_checkpoint(self, run):
        path = run / "ckpt_dir/BatchNormNetwork_2_epoch.safetensors"
        file = CheckpointFile(path)
        state = {name: file.read(name) for name in file.shapes}
        write_checkpoint(path, {name: array * 2 for name, array in state.items()})
        with pytest.raises(CheckpointError, match="not the file that training wrote"):
            generate(run)
        assert not list(run.glob("*.h5"))

    @pytest.mark.parametrize(
        ("settings", "text"),
        [
            ({"unit": "step"}, r"collect_landscape\['unit'\] must be 'epoch', as collected"),
            ({"landscape_size": 2}, "landscape_size"),
        ],
    )
    def test_bad_settings_change_nothing(self, run, settings, text):
        before = snapshot(run)
        with pytest.raises(ValueError, match=text):
            generate(run, settings=settings)
        assert snapshot(run) == before
        assert not list(run.glob("*.h5"))

    def test_output_that_cannot_be_written(self, run):
        with pytest.raises(LandscapeError, match="/proc"):
            generate(run, output="/proc/self")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the path is nearly straight")
def test_only_the_checkpoint_with_which_training_ended_is_its_final_weights(run):
    first, whole, around = generate(run, settings={"intervals": [[0, 1, 2, 3], [2, 3, 4]]})
    assert (first.origin.role, first.origin.label("epoch")) == ("checkpoint", "checkpoint (epoch 3)")
    assert first.checkpoints.final.tolist() == [False] * 4
    assert (whole.origin.role, whole.origin.label("epoch")) == ("final weights", "final weights (epoch 4)")
    assert whole.checkpoints.final.tolist() == [False, False, True]
    assert (around.origin.role, around.origin.number, around.checkpoints) == ("final weights", 4, None)
    (inside,) = generate(run, settings={"intervals": [[0, 1, 2]], "create_landscape": {"train": False, "result": True}})
    assert (inside.origin.role, inside.origin.number) == ("checkpoint", 2)


def test_a_dry_run_leaves_no_folder_and_shares_the_budget_evenly(run, tmp_path, capsys):
    folder, before = tmp_path / "new" / "deep", sorted(tmp_path.rglob("*"))
    assert generate(run, settings={"landscape_size": 256}, dry_run=True, budget=20, output=folder) == []
    ends = re.findall(r"the budget ends it after (\S+) (m?s)", capsys.readouterr().out)
    first, second = (float(number) * {"s": 1000, "ms": 1}[unit] for number, unit in ends)
    assert second <= first, "the first one spends nothing here, but its share in the real call"
    with pytest.raises(ValueError, match="output must be a directory"):
        generate(run, dry_run=True, output=tmp_path / "a.h5")
    assert sorted(tmp_path.rglob("*")) == before
