"""Several data sets in one survey, and keep_samples: each sample's loss at every measured point."""

import math

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from two_sets import OPTIONS, both, network, plane

from landscape import Landscape, evaluate, line_between, random_plane
from landscape.errors import LandscapeError, LandscapeIdentityError
from landscape.facts import summary_text
from landscape.functions import refine, widen
from landscape.grid.landscape_file import read_landscape
from landscape.record.checks import PointStatus
from workers import OwnLoss
from workers.errors import CallbackFunctionError, SampleMemoryError

SEED = 2


def drawn():
    return random_plane(network(), seed=SEED)


def measure(callback_fn=both, on=None, **more):
    return evaluate(drawn() if on is None else on, callback_fn, **{**OPTIONS, "keep_samples": True, **more})


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return measure(output=tmp_path_factory.mktemp("kept") / "kept.h5")


def only(name, loss=None, built=None):
    """Returns what a callback_fn does, of one data set."""
    usual, network, sets, metrics = both()
    return loss or usual, built or network, sets[name], metrics


def weighted():
    """A callback_fn whose loss weighs classes and leaves one out."""
    return only("train", nn.CrossEntropyLoss(weight=torch.tensor([0.5, 2.0, 1.0]), ignore_index=1))


def squared(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets) ** 2


def moved(built, plane, x, y):
    """Returns the network at a point, in float64."""
    moved = built.double().eval()
    with torch.no_grad():
        for name, parameter in moved.named_parameters():
            value = plane.origin[name] + x * plane.directions[0][name] + y * plane.directions[1][name]
            parameter.copy_(torch.as_tensor(value, dtype=torch.float64))
    return moved


@pytest.mark.slow
def test_the_file_holds_the_loss_of_each_sample_of_each_data_set(found):
    """As PyTorch computes it alone, in data-set order."""
    loaded, plain = Landscape.load(found.path), measure(keep_samples=False)
    for name in plain.metrics:
        np.testing.assert_array_equal(loaded[name], plain[name], err_msg="nothing else changes")
    identities = [item.attributes["identity"] for item in (loaded, plain)]
    assert identities[0] == {**identities[1], "keep_samples": True}, "with and without are two experiments"
    _, _, sets, _ = both()
    for name, suffix in (("train", ""), ("test", "@test")):
        inputs, targets = sets[name].dataset.tensors
        samples, kept = loaded.samples(name), loaded.samples(name).losses()
        assert samples.count == len(targets)
        assert samples.weights is None
        np.testing.assert_array_equal(samples.targets, targets)
        assert kept.shape == (3, 4, len(targets))
        assert kept.dtype == np.float32
        np.testing.assert_array_equal(kept, found.samples(name).losses())
        np.testing.assert_allclose(kept.astype(float).mean(-1), loaded[f"loss{suffix}"], rtol=1e-6)
        stderr = kept.astype(float).std(-1, ddof=1) / math.sqrt(len(targets))
        np.testing.assert_allclose(stderr, loaded[f"loss_stderr{suffix}"], rtol=1e-5)
        for row, column in ((0, 0), (2, 1), (1, 3)):
            at = moved(network(), drawn(), found.x[column], found.y[row])
            with torch.no_grad():
                expected = nn.functional.cross_entropy(at(inputs.double()), targets, reduction="none")
            np.testing.assert_allclose(samples.at(row, column), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(loaded.samples().losses(), loaded.samples("train").losses())
    assert "100 of train at 12 points" in summary_text(loaded)
    with pytest.raises(KeyError, match=r"of a data set 'valid' were kept; of \['train', 'test'\] they were"):
        loaded.samples("valid")
    with pytest.raises(LandscapeError, match=r"were not kept. Measure the landscape with keep_samples=True"):
        plain.samples()
    with pytest.raises(IndexError):
        loaded.samples().at(3, 0)
    with pytest.raises(IndexError, match="a point of this grid has 2 indices"):
        loaded.samples().at(3)


def test_class_weights_and_ignored_targets(tmp_path):
    loaded = Landscape.load(measure(weighted, output=tmp_path / "weighted.h5").path)
    samples, targets = loaded.samples(), both()[2]["train"].dataset.tensors[1].numpy()
    np.testing.assert_array_equal(samples.weights, np.array([0.5, 0.0, 1.0])[targets])
    kept = samples.losses().astype(float)
    assert (np.isnan(kept) == (targets == 1)).all(), "what does not count has no loss"
    mean = np.nansum(kept * samples.weights, -1) / samples.weights.sum()
    np.testing.assert_allclose(mean, loaded.loss, rtol=1e-6)
    gap, error = samples.difference((0, 0), (2, 3))
    assert gap == pytest.approx(loaded.loss[0, 0] - loaded.loss[2, 3], rel=1e-5)
    assert 0 < error < math.inf


@pytest.mark.slow
def test_a_paired_standard_error_is_that_of_the_differences(found):
    samples = found.samples("test")
    gaps = samples.at(1, 1).astype(float) - samples.at(1, 2).astype(float)
    expected = gaps.mean(), gaps.std(ddof=1) / math.sqrt(60)
    assert samples.difference((1, 1), (1, 2)) == pytest.approx(expected, rel=1e-9)
    alone = math.hypot(found["loss_stderr@test"][1, 1], found["loss_stderr@test"][1, 2])
    assert expected[1] < 0.7 * alone, "the same samples lie at both points"


def test_a_difference_of_sums_is_a_sum(tmp_path):
    def summed():
        return only("train", nn.CrossEntropyLoss(reduction="sum"))

    line = line_between(network(3), network(4))
    measured = measure(summed, line, output=tmp_path / "sum.h5", size=3, buffers="fixed")
    finer = refine(tmp_path / "sum.h5", summed, factor=2, plane=line, progress=False, device_ids=[0])
    earlier = finer.save(tmp_path / "of_an_earlier_version.h5")
    with h5py.File(earlier, "r+") as file:
        del file["samples/main/loss"].attrs["reduction"]
    loaded = [Landscape.load(path) for path in (tmp_path / "sum.h5", earlier)]
    for found, last in ((measured, 2), (finer, 4), *((each, 4) for each in loaded)):
        samples = found.samples()
        assert (samples.name, samples.losses().shape) == ("main", (last + 1, 100))
        gaps = samples.at(0).astype(float) - samples.at(last)
        gap, error = samples.difference(0, last)
        assert gap == pytest.approx(found.loss[0] - found.loss[last], rel=1e-5)
        assert error == pytest.approx(gaps.std(ddof=1) * math.sqrt(samples.count), rel=1e-9)


@pytest.mark.slow
def test_refined_and_widened(tmp_path):
    path, on = tmp_path / "kept.h5", plane()
    before = measure(on=on, output=path, groups="target", num_samples={"train": 64, "test": 30})
    loaded = Landscape.load(path)
    finer = refine(path, both, factor=2, plane=on, progress=False, device_ids=[0])
    assert finer.loss.shape == (5, 7)
    assert [item["num_samples"] for item in finer.attributes["datasets"]] == [64, 30]
    for name in ("loss", "loss@test", "loss[2]@test"):
        np.testing.assert_array_equal(finer[name][::2, ::2], before[name])
        assert np.isfinite(finer[name]).all()
    for name, suffix in (("train", ""), ("test", "@test")):
        np.testing.assert_array_equal(finer.samples(name).losses()[::2, ::2], before.samples(name).losses())
        np.testing.assert_allclose(
            finer.samples(name).losses().astype(float).mean(-1), finer[f"loss{suffix}"], rtol=1e-6
        )
    with pytest.raises(LandscapeError, match=r"cannot be read: it was changed since.* load the landscape again"):
        loaded.samples().at(0, 0)
    wider = widen(path, both, limits=(-5.0, 4.0), plane=on, progress=False, device_ids=[0])
    assert wider.loss.size > finer.loss.size
    row, column = (int(np.argmin(abs(axis - finer_axis[0]))) for axis, finer_axis in
                   ((wider.y, finer.y), (wider.x, finer.x)))  # fmt: skip
    np.testing.assert_array_equal(
        wider.samples("test").losses()[row : row + 5, column : column + 7], finer.samples("test").losses()
    )
    np.testing.assert_allclose(Landscape.load(path).samples().losses().mean(-1), wider.loss, rtol=1e-5)


@pytest.mark.slow
def test_adaptive_sampling_keeps_what_is_measured():
    found = measure(sampling="adaptive", tolerance=0.05, size=12)
    measured = found.status == PointStatus.MEASURED
    assert not measured.all()
    assert np.isfinite(found["loss@test"]).all()
    losses = found.samples("test").losses()
    assert np.isfinite(losses[measured]).all()
    assert np.isnan(losses[~measured]).all()
    assert np.isnan(found.samples("test").at(*np.argwhere(~measured)[0].tolist())).all()


class Failing(nn.Sequential):
    """A network that raises where its outputs are large."""

    def forward(self, inputs):
        outputs = super().forward(inputs)
        if float(outputs.abs().max()) > 50:
            raise RuntimeError("too far")
        return outputs


def test_a_point_that_fails_has_none(tmp_path):
    path, failing = tmp_path / "failed.h5", Failing(*network())
    grid = {"size": 40, "x": np.linspace(0, 300, 6), "y": np.linspace(0, 1, 2)}

    def callback_fn():
        return only("train", built=Failing(*network()))

    with pytest.warns(UserWarning, match="points failed"):
        measure(callback_fn, random_plane(failing, seed=SEED), output=path, **grid)
    loaded = Landscape.load(path)
    failed = loaded.status == PointStatus.FAILED
    assert failed.any()
    np.testing.assert_array_equal(np.isnan(loaded.samples().losses()).all(-1), failed)


@pytest.mark.parametrize(
    ("asked", "loss", "error", "match"),
    [
        ({}, squared, CallbackFunctionError, r"keep_samples needs a loss that has a value for each sample.*reduction"),
        ({}, OwnLoss(lambda network, batch: nn.functional.cross_entropy(network(batch[0]), batch[1])),
         CallbackFunctionError, r"keep_samples needs a loss .* let it return outputs"),
        ({"sample_memory": 1000}, None, SampleMemoryError,
         r"the loss of each sample is kept, and for that all samples must be in memory"),
        ({"size": (3000, 2000)}, None, ValueError, r"keep_samples would take 2\.24 GiB for 2000 x 3000 points of 100 "
         r"samples, but at most 2 GiB are kept. Measure a smaller grid \(at most 5,368,709 points\) or fewer samples"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_to_do(asked, loss, error, match):
    def callback_fn():
        usual, built, sets, _ = both()
        return loss or usual, built, sets["train"], {}

    with pytest.raises(error, match=match):
        measure(callback_fn, **asked)


@pytest.mark.slow
def test_ray_workers_measure_and_keep_the_same():
    """Also where buffers are interpolated between the networks."""
    ends = network(3), network(4)
    ends[1][1].running_mean += 0.3
    alone, together = (measure(on=line_between(*ends), size=5, device_ids=devices) for devices in ([0], [0, 1]))
    assert together.attributes["buffers"] == "interpolate"
    assert together.attributes["datasets"] == alone.attributes["datasets"]
    for name, values in alone.metrics.items():
        np.testing.assert_array_equal(together[name], values)
    for name in ("train", "test"):
        np.testing.assert_array_equal(together.samples(name).losses(), alone.samples(name).losses())
        np.testing.assert_array_equal(together.samples(name).targets, alone.samples(name).targets)


def test_targets_that_are_no_classes():
    def callback_fn():
        inputs = torch.linspace(-1, 1, 60).reshape(10, 6)
        return nn.MSELoss(), network(), DataLoader(TensorDataset(inputs, inputs[:, :3]), 4), {}

    found = measure(callback_fn, num_samples=10)
    assert found.samples().targets is None
    np.testing.assert_allclose(found.samples().losses().mean(-1), found.loss, rtol=1e-5)


@pytest.mark.slow
def test_the_file_holds_every_data_set_and_is_equal_to_surveys_of_each(tmp_path):
    path = tmp_path / "both.h5"
    evaluate(plane(), both, output=path, **OPTIONS)
    found = read_landscape(path)
    assert [item["name"] for item in found.attributes["datasets"]] == ["train", "test"]
    assert [item["num_samples"] for item in found.attributes["datasets"]] == [100, 60]
    assert found.attributes["num_samples"] == 100
    for name, suffix in (("train", ""), ("test", "@test")):
        alone = evaluate(plane(), lambda name=name: only(name), **OPTIONS)
        assert "datasets" not in alone.attributes
        for metric in ("loss", "loss_stderr", "accuracy"):
            np.testing.assert_array_equal(found[metric + suffix], alone[metric])
            assert found.origin.metrics[metric + suffix] == alone.origin.metrics[metric]
            for kind in ("metrics", "projected", "with_plane_buffers"):
                ours, theirs = getattr(found.checkpoints, kind), getattr(alone.checkpoints, kind)
                np.testing.assert_array_equal(ours[metric + suffix], theirs[metric], err_msg=f"{kind} {metric}")
    assert (found.checkpoints.status == PointStatus.MEASURED).all()
    assert "train 100, test 60 (first)" in " ".join(summary_text(found).split())


@pytest.mark.slow
def test_a_changed_test_set_is_another_experiment(tmp_path):
    path = tmp_path / "both.h5"
    on = drawn()
    first = evaluate(on, both, output=path, **OPTIONS)
    again = evaluate(on, both, output=path, **OPTIONS)
    assert again.report.measured <= 1, "nothing but the origin, which is compared"
    np.testing.assert_array_equal(first["loss@test"], again["loss@test"])
    with pytest.raises(LandscapeIdentityError, match=r"samples\.further\.test\.sha256"):
        evaluate(on, lambda: both(5), output=path, **OPTIONS)
    with pytest.raises(LandscapeIdentityError, match=r"metrics: the file has .*loss@test|samples\.further"):
        evaluate(on, lambda: only("train"), output=path, **OPTIONS)


def test_numbers_of_samples_by_name():
    found = evaluate(drawn(), both, num_samples={"train": 50}, **OPTIONS)
    assert [item["num_samples"] for item in found.attributes["datasets"]] == [50, 60]


@pytest.mark.slow
def test_the_file_holds_the_loss_of_each_class(tmp_path):
    path = tmp_path / "classes.h5"
    on = plane()
    evaluate(on, both, output=path, groups="target", **OPTIONS)
    found = read_landscape(path)
    _, _, sets, _ = both()
    for name, suffix in (("train", ""), ("test", "@test")):
        counts = np.bincount([int(target) for _, target in sets[name].dataset], minlength=3)
        for values in (found.metrics, found.checkpoints.metrics, found.checkpoints.projected):
            together = sum(count * values[f"loss[{label}]{suffix}"] for label, count in enumerate(counts))
            np.testing.assert_allclose(together / counts.sum(), values[f"loss{suffix}"], rtol=1e-12)
    assert evaluate(on, both, output=path, groups="target", **OPTIONS).report.measured <= 1
    with pytest.raises(LandscapeIdentityError, match="groups"):
        evaluate(on, both, output=path, groups=lambda inputs, targets: targets % 3 % 2 * 2, **OPTIONS)
    with pytest.raises(LandscapeIdentityError, match=r"groups: the file has .*, this run nothing"):
        evaluate(on, both, output=path, **OPTIONS)
