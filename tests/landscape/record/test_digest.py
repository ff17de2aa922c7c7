"""A file that was damaged or changed never loads other values than those that were written.

One bit of every 500th byte is flipped: 500 changes in a row try all, and so does FLIPPED_EVERY=1 (``make stress``).
"""

import functools
import os

import h5py
import numpy as np
import pytest
from landscape_examples import build, with_samples
from places import ROOT, turn

from collectors.errors import LandscapeError
from landscape.comparison.data import ComparisonData
from landscape.curvature.data import CurvatureData
from landscape.errors import LandscapeDamagedError
from landscape.grid.landscape_file import landscape_bytes, read_landscape
from landscape.record.checks import PointStatus
from landscape.record.record import read_record, record_bytes

read_curvature, read_comparison = (functools.partial(read_record, kind) for kind in (CurvatureData, ComparisonData))
VERSIONS = ROOT / "tests/data/versions"
DIFFER = r"is damaged \(ValueError: its contents are not those that were written"


def sampled():
    data = build(2, 3)
    data.status[...] = PointStatus.MEASURED
    return with_samples(data, 4)


def read_sampled(path):
    data = read_landscape(path)
    data.kept_samples = {name: kept.detached() for name, kept in data.kept_samples.items()}
    return data


# How each kind is made, read with all that it holds, and written; equal data are equal bytes.
KINDS = {
    "landscape": (sampled, read_sampled, landscape_bytes),
    "curvature": (lambda: read_curvature(VERSIONS / "curvature_1_thor.h5"), read_curvature, record_bytes),
    "comparison": (lambda: read_comparison(VERSIONS / "comparison_1.h5"), read_comparison, record_bytes),
}


@pytest.fixture(params=KINDS)
def kind(request):
    make, read, encode = KINDS[request.param]
    return read, encode, encode(make())


def flip(kind, path, places):
    """Flips one bit of each of these bytes, one at a time; returns how many files were refused."""
    read, encode, image = kind
    refused = 0
    for place in places:
        bits = bytearray(image)
        bits[place] ^= 1 << place % 8
        path.write_bytes(bits)
        try:
            found = encode(read(path))
        except LandscapeError:
            refused += 1
        else:
            assert found == image, f"bit {place % 8} of byte {place} became another value"
    return refused


def test_flipped_bits(kind, tmp_path):
    every = int(os.environ.get("FLIPPED_EVERY", "500"))
    places = range(turn() % every, len(kind[2]), every)
    assert len(places) / 2 < flip(kind, tmp_path / "a.h5", places) <= len(places)


@pytest.fixture
def path(tmp_path):
    """A landscape file with losses of samples."""
    (tmp_path / "a.h5").write_bytes(landscape_bytes(sampled()))
    return tmp_path / "a.h5"


@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize(
    "change",
    [
        lambda file: file["loss"].__setitem__((0, 0), 7.0),
        lambda file: file["samples/set 0/weight"].__setitem__(1, 0.5),
        lambda file: file.attrs.modify("complete", True),
        lambda file: file.attrs.__delitem__("num_samples"),
        lambda file: file.move("accuracy", "precision"),
        lambda file: file["checkpoints/x"].__setitem__(0, 1.0),
    ],
)
def test_a_changed_value_is_refused(change, version, path):
    """Also where the version became one that had no digests."""
    with h5py.File(path, "r+") as file:
        file.attrs.modify("format_version", version)
        change(file)
    with pytest.raises(LandscapeDamagedError, match=DIFFER):
        read_landscape(path)


def test_losses_of_samples_at_another_points_place(path):
    with h5py.File(path, "r+") as file:
        losses = file["samples/set 0/loss"].id
        losses.write_direct_chunk((0, 0, 0), losses.read_direct_chunk((0, 1, 0))[1])
    kept = read_landscape(path).kept_samples["set 0"]
    np.testing.assert_array_equal(kept.at(1, 1), sampled().kept_samples["set 0"].at(1, 1))
    damaged = r"the losses of samples at point \[0, 0\] of .* are damaged. The rest of the landscape can be used"
    for read in (lambda: kept.at(0, 0), kept.losses):
        with pytest.raises(LandscapeDamagedError, match=damaged):
            read()
    assert len(read_landscape(path).metrics["loss"]) == 2
