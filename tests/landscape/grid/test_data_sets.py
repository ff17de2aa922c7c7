"""Several data sets in one survey: the file, its identity, checkpoints' own losses, and going on."""

import numpy as np
import pytest
from two_sets import OPTIONS, both, network, plane

from landscape import evaluate, random_plane
from landscape.errors import LandscapeIdentityError
from landscape.facts import summary_text
from landscape.functions import refine
from landscape.grid.landscape_file import read_landscape
from landscape.record.checks import PointStatus

SEED = 2


def only(name):
    loss, built, sets, metrics = both()
    return loss, built, sets[name], metrics


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
    drawn = random_plane(network(), seed=SEED)
    first = evaluate(drawn, both, output=path, **OPTIONS)
    again = evaluate(drawn, both, output=path, **OPTIONS)
    assert again.report.measured <= 1, "nothing but the origin, which is compared"
    np.testing.assert_array_equal(first["loss@test"], again["loss@test"])
    with pytest.raises(LandscapeIdentityError, match=r"samples\.further\.test\.sha256"):
        evaluate(drawn, lambda: both(5), output=path, **OPTIONS)
    with pytest.raises(LandscapeIdentityError, match=r"metrics: the file has .*loss@test|samples\.further"):
        evaluate(drawn, lambda: only("train"), output=path, **OPTIONS)


def test_numbers_of_samples_by_name():
    found = evaluate(random_plane(network(), seed=SEED), both, num_samples={"train": 50}, **OPTIONS)
    assert [item["num_samples"] for item in found.attributes["datasets"]] == [50, 60]


@pytest.mark.slow
def test_the_file_holds_the_loss_of_each_class(tmp_path):
    path = tmp_path / "classes.h5"
    drawn = plane()
    evaluate(drawn, both, output=path, groups="target", **OPTIONS)
    found = read_landscape(path)
    _, _, sets, _ = both()
    for name, suffix in (("train", ""), ("test", "@test")):
        counts = np.bincount([int(target) for _, target in sets[name].dataset], minlength=3)
        for values in (found.metrics, found.checkpoints.metrics, found.checkpoints.projected):
            together = sum(count * values[f"loss[{label}]{suffix}"] for label, count in enumerate(counts))
            np.testing.assert_allclose(together / counts.sum(), values[f"loss{suffix}"], rtol=1e-12)
    assert evaluate(drawn, both, output=path, groups="target", **OPTIONS).report.measured <= 1
    with pytest.raises(LandscapeIdentityError, match="groups"):
        evaluate(drawn, both, output=path, groups=lambda inputs, targets: targets % 3 % 2 * 2, **OPTIONS)
    with pytest.raises(LandscapeIdentityError, match=r"groups: the file has .*, this run nothing"):
        evaluate(drawn, both, output=path, **OPTIONS)


@pytest.mark.slow
def test_refining_keeps_data_sets_and_groups(tmp_path):
    path, drawn = tmp_path / "fine.h5", plane()
    options = {**OPTIONS, "size": 3}
    before = evaluate(drawn, both, output=path, groups="target", num_samples={"train": 64, "test": 30}, **options)
    finer = refine(path, both, factor=2, plane=drawn, progress=False, device_ids=[0])
    assert [item["num_samples"] for item in finer.attributes["datasets"]] == [64, 30]
    for name in ("loss", "loss@test", "loss[2]@test"):
        np.testing.assert_array_equal(finer[name][::2, ::2], before[name])
        assert np.isfinite(finer[name]).all()
    other = tmp_path / "function.h5"
    evaluate(drawn, both, output=other, groups=lambda inputs, targets: targets // 2, **options)
    with pytest.raises(ValueError, match="groups must be given: the function that made those"):
        refine(other, both, factor=2, plane=drawn, progress=False, device_ids=[0])
