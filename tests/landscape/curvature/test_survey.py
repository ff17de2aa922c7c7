"""Curvature along a run: against whole Hessians, kept per checkpoint, continued, and what may go wrong."""

import json
import shutil

import numpy as np
import pytest
from remote_stores import empty_memory
from small_curvature import NUMBERS, dense_hessian, flat, small, train_small, without_derivatives
from torch import nn

from collectors.errors import CheckpointError, RunDirectoryError
from collectors.files import system
from collectors.run_directory import RunDirectory
from landscape import Curvature, MeasurementPlan, SummaryLandscape, evaluate
from landscape.errors import LandscapeDamagedError, LandscapeIdentityError, LandscapeNotFoundError, LandscapeWriteError
from landscape.functions import hessian_plane, measure_curvature
from workers.errors import CurvatureError, NondeterministicLossError

PLAN = MeasurementPlan(batch_size=40)
WEIGHTS = 45

memory = pytest.fixture(empty_memory)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    """A run whose second and last checkpoints are not finite."""
    return train_small(tmp_path_factory.mktemp("diverged"), not_finite=(1, 3))


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained / "ckpt_dir", tmp_path / "run" / "ckpt_dir")
    return tmp_path / "run"


def generate(folder, callback=small, numbers=None, **options):
    options = {"top": 1, "trace_probes": 2, "device_ids": [0], "progress": False, "plan": PLAN, **options}
    return SummaryLandscape(folder).gen_curvature(callback, numbers, **options)


def state_of(folder, number):
    checkpoint = RunDirectory(folder).checkpoint(number)
    return {name: checkpoint.read(name) for name in checkpoint.shapes}


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[3], [0, 1, 2]])
def test_checkpoints_against_their_whole_hessians(run, numbers):
    options = {"top": 4, "bottom": 2, "trace_probes": 8, "tolerance": 1e-9, "keep_vectors": True}
    found = generate(run, numbers=numbers, density_probes=1, density_steps=WEIGHTS, **options)
    assert found.path == run / ("curvature_3.h5" if numbers == [3] else "curvature_0-2.h5")
    assert found.number.tolist() == numbers
    assert found.complete
    assert (found.matrix, found.unit, found.top, found.bottom, found.weights) == ("hessian", "epoch", 4, 2, WEIGHTS)
    for row, number in enumerate(numbers):
        loss, hessian = dense_hessian(state_of(run, number))
        values = np.linalg.eigvalsh(hessian)
        np.testing.assert_allclose(found.eigenvalues[row], [*values[:-5:-1], *values[:2]], rtol=1e-8, atol=1e-12)
        assert found.loss[row] == pytest.approx(loss, rel=1e-12)
        assert found.trace_low[row] < np.trace(hessian) < found.trace_high[row]
        np.testing.assert_array_equal(found.trace_interval[row], [found.trace_low[row], found.trace_high[row]])
        for value, direction in zip(found.eigenvalues[row], found.vectors(number), strict=True):
            vector = flat(direction)
            np.testing.assert_allclose(hessian @ vector, value * vector, atol=1e-8 * values[-1])
        # As many steps as there are weights see every moment of the spectrum that a probe has.
        assert found.density_weights[row].sum(axis=1) == pytest.approx([1])
        nodes = found.density_nodes[row][np.isfinite(found.density_nodes[row])]
        assert values[0] - 1e-9 <= nodes.min() <= nodes.max() <= values[-1] + 1e-9


@pytest.mark.slow
def test_the_gauss_newton_matrix_has_a_file_of_its_own(run):
    generate(run, top=2, trace_probes=0)
    found = generate(run, top=1, bottom=1, trace_probes=0, matrix="ggn", max_products=WEIGHTS, numbers=[0, 3])
    assert found.path == run / "curvature_0-3_ggn.h5"
    assert found.matrix == "ggn"
    assert (found.eigenvalues > -1e-8).all()
    assert np.isnan(found.trace).all()


def test_one_set_of_weights_with_and_without_a_file(run, tmp_path):
    state = state_of(run, 3)
    found = measure_curvature(state, small, top=2, keep_vectors=True, device_ids=[0], progress=False, plan=PLAN)
    _, hessian = dense_hessian(state)
    values = np.linalg.eigvalsh(hessian)
    np.testing.assert_allclose(found.eigenvalues[0], values[:-3:-1], rtol=1e-5)
    assert found.path is None
    assert found.report.measured == 1
    vector = flat(found.vectors()[0])
    saved = found.save(tmp_path / "saved.h5")
    np.testing.assert_array_equal(flat(Curvature.load(saved).vectors()[0]), vector)
    options = {"top": 2, "device_ids": [0], "progress": False, "plan": PLAN}
    again = measure_curvature(state, small, output=saved, **options)
    assert (again.report.measured, again.report.resumed) == (0, 1)
    np.testing.assert_array_equal(again.eigenvalues, found.eigenvalues)
    with pytest.raises(LandscapeWriteError, match=r"saved.h5 exists and was left as it is. Pass overwrite=True"):
        found.save(saved)


@pytest.mark.slow
def test_a_checkpoint_that_is_not_finite_fails_and_the_others_go_on(diverged, tmp_path):
    message = r"could not be measured:\n  epoch 1: .*the loss is nan.*leave this checkpoint out.*\n  epoch 3: "
    with pytest.warns(UserWarning, match=message):
        found = generate(diverged, output=tmp_path, top=2)
    assert found.status.tolist() == [1, 3, 1, 3]
    assert np.isnan(found.eigenvalues[[1, 3]]).all()
    assert np.isfinite(found.eigenvalues[[0, 2]]).all()
    assert set(found.errors) == {"number/1", "number/3"}
    with pytest.warns(UserWarning, match="could not be measured"):
        again = generate(diverged, output=tmp_path, top=2)
    assert again.report.measured == 0
    with pytest.raises(CurvatureError, match=r"could be measured nowhere: epoch 3: .*the loss is nan"):
        generate(diverged, output=tmp_path, numbers=[3])


def test_other_numbers_join_the_file_and_another_loss_does_not(run):
    """Functions are part of no identity."""

    def smoothed():
        return nn.CrossEntropyLoss(label_smoothing=0.5), *small()[1:]

    path = generate(run, numbers=[0, 3]).path
    with pytest.raises(NondeterministicLossError, match=r"epoch 3 was measured twice .* after the file's own value"):
        generate(run, smoothed, numbers=[0, 2, 3])
    assert Curvature.load(path).status_counts[1] == 2
    found = generate(run, numbers=[0, 2, 3])
    assert (found.report.measured, found.report.resumed) == (1, 2)
    assert generate(run, numbers=[3, 0]).number.tolist() == [0, 2, 3]


@pytest.mark.slow
def test_vectors_that_are_asked_for_later_are_measured_alone(run):
    generate(run, numbers=[0, 3])
    with pytest.raises(LandscapeNotFoundError, match=r"eigenvectors of epoch 3 were not kept.*keep_vectors=True"):
        Curvature.load(run / "curvature_0-3.h5").vectors(3)
    assert generate(run, numbers=[3, 0], top=1, keep_vectors=True).report.measured == 2
    found = Curvature.load(run / "curvature_0-3.h5")
    assert len(found.vectors(0)) == 1
    (run / "curvature_0-3_vectors_0.safetensors").write_bytes(b"no tensors")
    with pytest.raises(LandscapeDamagedError, match=r"vectors_0.safetensors, which has the eigenvectors of epoch 0"):
        found.vectors(0)
    shutil.copy(run / "curvature_0-3_vectors_3.safetensors", run / "curvature_0-3_vectors_0.safetensors")
    with pytest.raises(LandscapeIdentityError, match=r"does not have the eigenvectors of epoch 0 .*weights differ"):
        found.vectors(0)
    generate(run, numbers=[3, 0], top=1, keep_vectors=True)
    assert len(found.vectors(0)) == 1


@pytest.mark.slow
def test_the_plane_along_kept_vectors_is_that_of_hessian_plane(run, tmp_path):
    found = generate(run, numbers=[0, 3], top=2, bottom=1, tolerance=1e-6, keep_vectors=True)
    plane = found.plane(3, ("top", "bottom"), rise=0.5)
    again = hessian_plane(
        state_of(run, 3), small, which=("top", "bottom"), tolerance=1e-6, rise=0.5, device_ids=[0], progress=False
    )
    assert plane.curvature.eigenvalues == pytest.approx(again.curvature.eigenvalues, rel=1e-6)
    for one, other in zip(plane.directions, again.directions, strict=True):
        assert abs(flat(one) @ flat(other)) == pytest.approx(1, abs=1e-8)
    for one, other in zip(plane.axes(5), again.axes(5), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert {**plane.identity, "origin": ""} == {**again.identity, "origin": ""}
    measured = evaluate(plane, small, size=3, device_ids=[0], progress=False)
    assert measured.loss[1, 1] == pytest.approx(found.loss[1], rel=1e-9)
    assert found.plane(0, "second").dimension == 1
    with pytest.raises(ValueError, match=r"which must be among the 2 largest and 1 lowest that .* but got 'third'"):
        found.plane(0, ("top", "third"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:device_ids .* go beyond")
@pytest.mark.parametrize("forked", [True, False])
def test_three_workers_write_the_same_file_as_this_process(run, tmp_path, monkeypatch, forked):
    """Of the four checkpoints each worker has one, and the last one's samples are shared among all."""
    monkeypatch.setattr(system, "forks_workers", lambda: forked)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    images = []
    for devices in ([0], [0, 1, 2]):
        found = generate(run, output=tmp_path / str(len(devices)), device_ids=devices, bottom=1, keep_vectors=True)
        images.append([found.path.read_bytes(), *(flat(found.vectors(number)[1]).tobytes() for number in NUMBERS)])
    assert images[0] == images[1]


@pytest.mark.usefixtures("memory")
def test_a_file_behind_a_url_with_its_vectors(run):
    url = "memory://bucket/curvature"
    found = generate(run, numbers=[3], output=url, keep_vectors=True)
    stored = Curvature.load(f"{url}/curvature_3.h5")
    np.testing.assert_array_equal(stored.eigenvalues, found.eigenvalues)
    assert len(stored.vectors(3)) == 1
    assert generate(run, numbers=[3], output=url, keep_vectors=True).report.resumed == 1


class TestErrors:
    def test_other_weights_under_the_same_number(self, run, tmp_path):
        generate(run, numbers=[3], top=1, output=tmp_path)
        metadata = json.loads((run / "ckpt_dir" / "train_metadata.json").read_text())
        files = metadata["model_params_file_map"]
        files["3"] = files["2"]
        metadata["sha256"]["3"] = metadata["sha256"]["2"]
        (run / "ckpt_dir" / "train_metadata.json").write_text(json.dumps(metadata))
        with pytest.raises(LandscapeIdentityError, match=r"epoch 3: the file has"):
            generate(run, numbers=[3], top=1, output=tmp_path)

    def test_nothing_can_be_differentiated(self, run):
        with pytest.raises(CurvatureError, match=r"FunctionEvaluator makes no products.*functions\.trace_by_lines"):
            generate(run, without_derivatives)
        assert [path.name for path in run.iterdir() if path.suffix == ".h5"] == []
        with pytest.raises(CurvatureError, match=r"trace_by_lines"):
            generate(run, without_derivatives, dry_run=True)

    @pytest.mark.slow
    def test_a_missing_or_damaged_checkpoint(self, run):
        with pytest.raises(CheckpointError, match=r"no checkpoint of epoch 9; it has \[0, 1, 2, 3\]"):
            generate(run, numbers=[0, 9])
        files = sorted((run / "ckpt_dir").glob("*_1_*"))
        files[0].write_bytes(files[0].read_bytes()[:-8])
        with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
            generate(run)
        files[0].unlink()
        with pytest.warns(UserWarning, match=r"has no checkpoints of epochs \[1\]; the curvature is measured without"):
            assert generate(run).number.tolist() == [0, 2, 3]
        for file in (run / "ckpt_dir").glob("*.safetensors"):
            file.unlink()
        with (
            pytest.warns(UserWarning, match="has no checkpoints"),
            pytest.raises(RunDirectoryError, match="Train first"),
        ):
            generate(run)

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"top": 0, "trace_probes": 0}, ValueError, "top must be more than 0"),
            ({"numbers": "0-3"}, TypeError, "numbers must be a list of epochs"),
            ({"numbers": []}, ValueError, "numbers must be a list of epochs that is not empty"),
            ({"top": 46}, CurvatureError, r"at most the number of trainable weights \(45\)"),
        ],
    )
    def test_wrong_arguments(self, run, options, error, message):
        with pytest.raises(error, match=message):
            generate(run, **options)
