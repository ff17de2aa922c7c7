"""The shares of a landscape, measured by several jobs, and their files joined in one."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import batch_norm, train_run
from landscape_examples import write_landscape
from remote_stores import empty_memory
from safetensors.numpy import save_file
from two_networks import callback_fn, trained

from landscape import Landscape, SummaryLandscape, evaluate
from landscape.errors import LandscapeGridError, LandscapeIdentityError, LandscapeWriteError
from landscape.facts import summary_text
from landscape.functions import merge, refine
from landscape.grid.landscape_file import read_landscape
from landscape.planes.from_weights import pca_plane
from landscape.planes.plane_file import directions_path
from landscape.record.checks import PointStatus
from landscape.record.workers import open_pool
from workers.errors import NondeterministicLossError

QUIET = {"device_ids": [0], "progress": False}


def plane():
    return pca_plane([trained(seed) for seed in range(4)], network=trained(0))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with a landscape as a whole, and in three shares that were measured by the same plan."""
    folder = tmp_path_factory.mktemp("shares")
    options = {**QUIET, "size": 7, "keep_samples": True}
    evaluate(plane(), callback_fn, output=folder / "whole.h5", **options)
    for number in (1, 2, 3):
        share = {"share": f"{number}/3", "plan": folder / "whole.h5"}
        evaluate(plane(), callback_fn, output=folder / f"{number}of3.h5", **options, **share)
    return folder


@pytest.fixture
def shares(measured):
    return [measured / f"{number}of3.h5" for number in (1, 2, 3)]


def test_the_shares_are_the_whole_each_point_once(measured, shares, tmp_path):
    whole = Landscape.load(measured / "whole.h5")
    parts = [read_landscape(path) for path in shares]
    counts = sum((part.status == PointStatus.MEASURED).astype(int) for part in parts)
    assert (counts == 1).all()
    assert not any(part.complete for part in parts)
    merged = merge(shares[::-1], tmp_path / "merged.h5")
    assert merged.complete
    assert merged.path == tmp_path / "merged.h5"
    for found, expected in (
        (merged.metrics, whole.metrics),
        (merged.checkpoints.metrics, whole.checkpoints.metrics),
        (merged.checkpoints.projected, whole.checkpoints.projected),
    ):
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    np.testing.assert_array_equal(merged.samples().losses(), whole.samples().losses())
    changing = ("created",)
    assert {name: value for name, value in merged.attributes.items() if name not in changing} == {
        name: value for name, value in whole.attributes.items() if name not in changing
    }


def test_what_no_share_has_is_measured_by_the_call_without_one(measured, shares, tmp_path):
    output = tmp_path / "merged.h5"
    merged = merge(shares[:2], output)
    assert not merged.complete
    assert merged.status_counts[PointStatus.PENDING] == 16
    again = evaluate(plane(), callback_fn, output=output, size=7, keep_samples=True, **QUIET)
    assert again.complete
    np.testing.assert_array_equal(again.loss, Landscape.load(measured / "whole.h5").loss)


def test_a_share_is_continued_by_the_same_call(tmp_path):
    options = {**QUIET, "size": 7, "share": "2/3", "output": tmp_path / "a.h5"}
    first = evaluate(plane(), callback_fn, **options)
    cut = read_landscape(tmp_path / "a.h5")
    rows = np.argwhere(cut.status == PointStatus.MEASURED)[5:]
    cut.status[tuple(rows.T)], cut.metrics["loss"][tuple(rows.T)] = PointStatus.PENDING, np.nan
    write_landscape(tmp_path / "a.h5", cut)
    again = evaluate(plane(), callback_fn, **options)
    np.testing.assert_array_equal(again.loss, first.loss)
    np.testing.assert_array_equal(again.status, first.status)
    assert again.report.measured == len(rows) + 1  # the origin
    assert evaluate(plane(), callback_fn, **options).report.measured == 1


@pytest.mark.parametrize("path", [str, Path])
def test_files_of_other_landscapes_are_refused(shares, tmp_path, path):
    evaluate(plane(), callback_fn, output=tmp_path / "fewer.h5", size=7, num_samples=32, share="2/3", **QUIET)
    with pytest.raises(LandscapeIdentityError, match=r"samples\.count: .*\n(.*\n)*Merge files of one landscape"):
        merge([shares[0], path(tmp_path / "fewer.h5")], tmp_path / "merged.h5")
    evaluate(plane(), callback_fn, output=tmp_path / "finer.h5", size=9, share="2/3", keep_samples=True, **QUIET)
    with pytest.raises(LandscapeGridError, match=r"cannot be merged: they have 7 x 7 points, .* and 9 x 9 points"):
        merge([shares[0], path(tmp_path / "finer.h5")], tmp_path / "merged.h5")
    assert not (tmp_path / "merged.h5").exists()


def test_one_point_with_two_values_is_refused(shares, tmp_path):
    other = read_landscape(shares[1])
    place = tuple(np.argwhere(read_landscape(shares[0]).status == PointStatus.MEASURED)[0])
    other.status[place] = PointStatus.MEASURED
    other.metrics["loss"][place] = 17.0
    write_landscape(tmp_path / "other.h5", replace(other, kept_samples={}))
    with pytest.raises(NondeterministicLossError, match=rf"the point grid/{place[0]},{place[1]} was measured twice"):
        merge([shares[0], tmp_path / "other.h5"], tmp_path / "merged.h5")


def test_a_small_loss_may_differ_by_the_rounding_of_large_ones(shares, tmp_path):
    """Of a network that knows its samples by heart; a file that is continued allows the same."""
    parts = [read_landscape(path) for path in shares[:2]]
    place = tuple(np.argwhere(parts[0].status == PointStatus.MEASURED)[0])
    for part, loss in zip(parts, (1e-6, 1.0002e-6), strict=True):
        part.status[place] = PointStatus.MEASURED
        for values in part.metrics.values():
            values[place] = 1.0
        part.metrics["loss"][place] = part.origin.metrics["loss"] = loss
        write_landscape(tmp_path / f"{loss}.h5", replace(part, kept_samples={}))
    merged = merge([tmp_path / "1e-06.h5", tmp_path / "1.0002e-06.h5"], tmp_path / "merged.h5")
    assert merged.loss[place] == merged.origin.metrics["loss"] == 1e-6
    for part in parts:
        part.metrics["loss"] *= 1e-6
        write_landscape(tmp_path / f"{part.origin.metrics['loss']}.h5", replace(part, kept_samples={}))
    with pytest.raises(NondeterministicLossError, match=r"the origin was measured twice .* loss is 1e-06 and then"):
        merge([tmp_path / "1e-06.h5", tmp_path / "1.0002e-06.h5"], tmp_path / "merged.h5", overwrite=True)


def test_the_main_data_set_may_have_another_name_in_a_share(measured, shares, tmp_path):
    other = read_landscape(shares[1])
    (losses,) = other.kept_samples.values()
    other.kept_samples = {"train": replace(losses, name="train")}
    write_landscape(tmp_path / "renamed.h5", other)
    merged = merge([shares[0], tmp_path / "renamed.h5", shares[2]], tmp_path / "merged.h5")
    whole = Landscape.load(measured / "whole.h5")
    np.testing.assert_array_equal(merged.samples().losses(), whole.samples().losses())


def test_what_failed_in_its_share_stays_failed(shares, tmp_path):
    first, second = (read_landscape(path) for path in shares[:2])
    places = [tuple(np.argwhere(part.status == PointStatus.MEASURED)[0].tolist()) for part in (first, second)]
    for part, place, name in zip((first, second), places, ("a", "b"), strict=True):
        part.status[place], part.metrics["loss"][place] = PointStatus.FAILED, np.nan
        part.errors[f"grid/{place[0]},{place[1]}"] = f"traceback of {name}"
        write_landscape(tmp_path / f"{name}.h5", replace(part, kept_samples={}))
    third = replace(read_landscape(shares[2]), kept_samples={})
    write_landscape(tmp_path / "c.h5", third)
    merged = merge([tmp_path / f"{name}.h5" for name in "abc"], tmp_path / "merged.h5")
    assert [merged.status[place] for place in places] == [PointStatus.FAILED] * 2
    assert sorted(merged.errors.values()) == ["traceback of a", "traceback of b"]
    assert merged.complete


def test_a_plane_beside_the_shares_goes_beside_the_whole(tmp_path):
    options = {**QUIET, "size": 3, "save_directions": True}
    for number in (1, 2):
        evaluate(plane(), callback_fn, output=tmp_path / f"{number}.h5", share=f"{number}/2", **options)
    (tmp_path / "other").mkdir()
    merge([tmp_path / "1.h5", tmp_path / "2.h5"], tmp_path / "other" / "whole.h5")
    finer = refine(tmp_path / "other" / "whole.h5", callback_fn, factor=2, **QUIET)
    assert finer.loss.shape == (5, 5)
    with empty_memory() as system:
        for file in tmp_path.glob("[12]*"):
            system.put_file(str(file), f"/bucket/{file.name}")
        merge(["memory://bucket/1.h5", "memory://bucket/2.h5"], tmp_path / "again.h5")
    kept = [directions_path(tmp_path / name).read_bytes() for name in ("1.h5", "again.h5")]
    assert kept[0] == kept[1]


def test_a_plane_of_another_landscape_beside_the_shares_stays_there(shares, tmp_path):
    files = [tmp_path / share.name for share in shares[:2]]
    for file, share in zip(files, shares, strict=False):
        file.write_bytes(share.read_bytes())
    pca_plane([trained(seed) for seed in range(1, 4)], network=trained(0)).save(directions_path(files[0]))
    merge(files, tmp_path / "both.h5")
    assert not directions_path(tmp_path / "both.h5").exists()


def test_the_run_is_seen_from_where_the_whole_lies(tmp_path):
    train_run(tmp_path / "run")
    (tmp_path / "other").mkdir()
    for number in (1, 2):
        SummaryLandscape(tmp_path / "run").gen_landscapes_with_multi_process(
            batch_norm, {"landscape_size": 3, "num_samples": 32}, [0], progress=False, share=f"{number}/2"
        )
    files = sorted((tmp_path / "run").glob("*_pca_?of2.h5"))
    assert [file.stem[-4:] for file in files] == ["1of2", "2of2"]
    merge(files, tmp_path / "other" / "whole.h5")
    finer = refine(tmp_path / "other" / "whole.h5", batch_norm, factor=2, **QUIET)
    assert finer.loss.shape == (5, 5)


def test_a_share_is_not_put_on_another_grid(shares):
    with pytest.raises(ValueError, match=r"file must be a whole landscape, but .*1of3\.h5 is the share 1of3 of one"):
        refine(shares[0], callback_fn, factor=2, **QUIET)


def test_the_facts_of_a_share_name_merge(shares):
    text = summary_text(Landscape.load(shares[1]))
    assert "no: it is the share 2of3 of a landscape; `landscape merge` joins it with the others" in text


def test_all_shares_in_one_file_are_the_whole(measured, tmp_path):
    options = {**QUIET, "size": 7, "keep_samples": True, "output": tmp_path / "whole.h5", "plan": measured / "whole.h5"}
    for number in (1, 2, 3):
        found = evaluate(plane(), callback_fn, share=f"{number}/3", **options)
        assert found.complete == (number == 3)
    assert found.attributes["sampling"] == {"mode": "full", "finished": True}
    # A file that has every point stays the whole, whichever share is asked for.
    assert evaluate(plane(), callback_fn, share="1/3", **options).complete
    assert refine(tmp_path / "whole.h5", callback_fn, factor=2, plane=plane(), **QUIET).loss.shape == (13, 13)


def test_the_progress_is_that_of_the_share(capsys):
    """36 points of the grid are its own, and two losses of checkpoints."""
    evaluate(plane(), callback_fn, size=12, share="1/4", device_ids=[0])
    told = re.findall(r"(\d+)/(\d+) points", capsys.readouterr().err)
    assert {total for _, total in told} == {"38"}
    assert int(told[0][0]) < 38


def test_a_share_is_as_much_work_as_its_points(monkeypatch):
    """By how much there is to measure it is decided whether compiling pays off."""
    asked = []

    def opened(*what, points, **how):
        asked.append(points)
        return open_pool(*what, points=points, **how)

    monkeypatch.setattr("landscape.record.workers.open_pool", opened)
    evaluate(plane(), callback_fn, size=12, share="1/4", **QUIET)
    assert asked == [36]


def test_one_share_is_the_whole():
    found = evaluate(plane(), callback_fn, share="1/1", size=3, **QUIET)
    assert found.complete
    assert "share" not in found.attributes["sampling"]


def test_files_and_output_are_checked(shares, tmp_path):
    for files in (shares[:1], str(shares[0]), [shares[0], shares[0]], [shares[0], str(shares[0]), shares[1]], []):
        with pytest.raises(ValueError, match="files must be at least two different landscape files, but got"):
            merge(files, tmp_path / "merged.h5")
    with pytest.raises(ValueError, match="output must be a file on this machine, but got the URL memory://merged"):
        merge(shares, "memory://merged.h5")
    with pytest.raises(LandscapeWriteError, match="output must not be one of the inputs"):
        merge(shares, shares[0], overwrite=True)
    (tmp_path / "merged.h5").write_text("mine")
    with pytest.raises(LandscapeWriteError, match=r"merged\.h5"):
        merge(shares, tmp_path / "merged.h5", overwrite=True)
    assert (tmp_path / "merged.h5").read_text() == "mine"


def test_adaptive_sampling_has_no_shares():
    with pytest.raises(ValueError, match='sampling must be "full" with share=: adaptive sampling decides by all'):
        evaluate(plane(), callback_fn, share="1/2", sampling="adaptive", **QUIET)


@pytest.mark.parametrize(
    ("task", "expected"),
    [(("1", "1", "1", "4"), "1of4"), (("7", "1", "2", "4"), "4of4"), (("0", "0", "1", "2"), "1of2")],
)
def test_a_job_of_an_array_knows_its_share(monkeypatch, task, expected):
    for part, value in zip(("ID", "MIN", "STEP", "COUNT"), task, strict=True):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{part}", value)
    found = evaluate(plane(), callback_fn, share="array", size=3, **QUIET)
    assert found.attributes["sampling"]["share"] == expected


@pytest.mark.parametrize(
    "task", [("", "", "", ""), ("1", "1", "1", ""), ("9", "1", "2", "4"), ("1", "5", "1", "4"), ("3", "3", "1", "1")]
)
def test_outside_of_an_array(monkeypatch, task):
    for part, value in zip(("ID", "MIN", "STEP", "COUNT"), task, strict=True):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{part}", value)
    with pytest.raises(ValueError, match=r'share "array" must be given in a job of a SLURM array.* Give share as text'):
        evaluate(plane(), callback_fn, share="array", **QUIET)


def changed(path, folder, name, **attributes):
    """Writes a landscape with other attributes, None for none of that name; returns its path."""
    data = read_landscape(path)
    data.attributes |= attributes
    data.attributes = {key: value for key, value in data.attributes.items() if value is not None}
    write_landscape(folder / name, data)
    return folder / name


def test_points_along_other_eigenvectors_are_not_mixed(shares, tmp_path):
    first, second = (
        changed(share, tmp_path, f"{digest}.h5", curvature={"matrix": "hessian", "directions_sha256": [digest]})
        for share, digest in zip(shares, ("a", "b"), strict=False)
    )
    with pytest.raises(LandscapeIdentityError, match="each call found eigenvectors of its own, and theirs differ"):
        merge([first, second], tmp_path / "both.h5")
    assert not (tmp_path / "both.h5").exists()


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_what_does_not_say_how_it_was_measured_is_not_merged(shares, tmp_path, which):
    files = [
        changed(share, tmp_path, f"{place}.h5", identity=None) if place in which else share
        for place, share in enumerate(shares[:2])
    ]
    with pytest.raises(LandscapeIdentityError, match=rf"{files[which[0]].name} does not say how it was measured"):
        merge(files, tmp_path / "both.h5")


def test_tensors_of_yours_beside_the_output_stay(shares, tmp_path):
    for share in shares[:2]:
        (tmp_path / share.name).write_bytes(share.read_bytes())
    plane().save(tmp_path / f"{shares[0].stem}_directions.safetensors")
    (tmp_path / "out").mkdir()
    mine = tmp_path / "out" / "both_directions.safetensors"
    save_file({"my.weights": np.ones(3)}, mine)
    before = mine.read_bytes()
    with pytest.raises(LandscapeWriteError, match=r"both_directions\.safetensors"):
        merge([tmp_path / share.name for share in shares[:2]], tmp_path / "out" / "both.h5")
    assert mine.read_bytes() == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == [mine.name]
    # So do directions of another landscape, unless they may be replaced.
    mine.unlink()
    pca_plane([trained(seed) for seed in range(1, 4)], network=trained(0)).save(mine)
    before = mine.read_bytes()
    files = [tmp_path / share.name for share in shares[:2]]
    with pytest.raises(LandscapeIdentityError, match="holds the directions of another landscape"):
        merge(files, tmp_path / "out" / "both.h5")
    assert mine.read_bytes() == before
    merge(files, tmp_path / "out" / "both.h5", overwrite=True)
    assert mine.read_bytes() == (tmp_path / f"{shares[0].stem}_directions.safetensors").read_bytes()
