"""The shares of a landscape, measured by several jobs, and their files joined in one."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from two_networks import callback_fn, trained

from landscape import Landscape, evaluate
from landscape.errors import LandscapeGridError, LandscapeIdentityError, LandscapeWriteError
from landscape.functions import merge
from landscape.grid.landscape_file import read_landscape, write_landscape
from landscape.planes.from_weights import pca_plane
from landscape.record.checks import PointStatus
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
    with pytest.raises(NondeterministicLossError, match=rf"the point {place[0]}, {place[1]} was measured twice"):
        merge([shares[0], tmp_path / "other.h5"], tmp_path / "merged.h5")


def test_files_and_output_are_checked(shares, tmp_path):
    with pytest.raises(ValueError, match="files must be at least two landscape files, but got"):
        merge(shares[:1], tmp_path / "merged.h5")
    with pytest.raises(ValueError, match="files must be at least two landscape files, but got"):
        merge(str(shares[0]), tmp_path / "merged.h5")
    with pytest.raises(LandscapeWriteError, match="output must not be one of the inputs"):
        merge(shares, shares[0], overwrite=True)
    (tmp_path / "merged.h5").write_text("mine")
    with pytest.raises(LandscapeWriteError, match=r"merged\.h5"):
        merge(shares, tmp_path / "merged.h5", overwrite=True)
    assert (tmp_path / "merged.h5").read_text() == "mine"


@pytest.mark.parametrize("share", ["0/3", "4/3", "1", "a/b", "-1/3", "1/3 ", ""])
def test_wrong_shares(share):
    text = 'share must be text such as "2/4", whose first number is from 1 to the second, or "array", but got '
    with pytest.raises(ValueError, match=re.escape(f"{text}{share!r}")):
        evaluate(plane(), callback_fn, share=share, **QUIET)


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


@pytest.mark.parametrize("task", [("", "", "", ""), ("1", "1", "1", ""), ("9", "1", "2", "4"), ("1", "5", "1", "4")])
def test_outside_of_an_array(monkeypatch, task):
    for part, value in zip(("ID", "MIN", "STEP", "COUNT"), task, strict=True):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{part}", value)
    with pytest.raises(ValueError, match=r'share "array" must be given in a job of a SLURM array.* Give share as text'):
        evaluate(plane(), callback_fn, share="array", **QUIET)
