"""Losses of samples in a landscape file: how large, how much memory, read only where asked for, and never trusted."""

import copy
import pickle
import tracemalloc

import h5py
import numpy as np
import pytest
from landscape_examples import build, measured_everywhere, with_samples, write_landscape
from remote_stores import empty_memory

from collectors.errors import LandscapeError
from collectors.files.remote_path import RemotePath
from landscape import Landscape
from landscape.errors import LandscapeDamagedError
from landscape.grid.landscape_file import landscape_bytes, read_landscape
from landscape.grid.sample_chunks import packed, unpacked
from landscape.grid.samples import LARGEST_BYTES, KeptLosses
from landscape.record.checks import PointStatus


@pytest.fixture
def data():
    """2 x 3 points with losses of 5 samples."""
    return with_samples(measured_everywhere(2, 3), 5)


@pytest.fixture
def path(data, tmp_path):
    write_landscape(tmp_path / "a.h5", data)
    return tmp_path / "a.h5"


def test_every_number_comes_back_and_equal_data_are_equal_bytes(tmp_path):
    data = with_samples(build(), 7, 1, 30)
    path = tmp_path / "a.h5"
    write_landscape(path, data)
    found = read_landscape(path)
    assert list(found.kept_samples) == ["set 0", "set 1", "set 2"]
    for name, kept in data.kept_samples.items():
        np.testing.assert_array_equal(found.kept_samples[name].losses(), kept.losses())
        np.testing.assert_array_equal(found.kept_samples[name].targets, kept.targets)
        np.testing.assert_array_equal(found.kept_samples[name].weights, kept.weights)
        np.testing.assert_array_equal(found.kept_samples[name].measured, data.status == PointStatus.MEASURED)
    assert landscape_bytes(found) == path.read_bytes() == landscape_bytes(data)
    # Whoever has h5py alone reads the same.
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["samples/set 2/loss"][()], data.kept_samples["set 2"].losses())
        scales = [dimension[0].name for dimension in file["samples/set 2/loss"].dims]
        assert scales == ["/y", "/x", "/samples/set 2/sample"]
    copied = Landscape.load(Landscape.load(path).save(tmp_path / "b.h5"))
    np.testing.assert_array_equal(copied.samples().losses(), data.kept_samples["set 0"].losses())


@pytest.mark.parametrize("special", [[np.nan, np.inf, -np.inf, -0.0], [1e-45, 3.4e38, 0.0, 1.0], [2.5]])
def test_special_numbers(special):
    losses = np.array(special, np.float32)
    assert unpacked(packed(losses), len(losses)).tobytes() == losses.tobytes()
    with pytest.raises(LandscapeDamagedError, match="losses of samples at a point are damaged"):
        unpacked(packed(losses), len(losses) + 1)
    with pytest.raises(LandscapeDamagedError, match="losses of samples at a point are damaged"):
        unpacked(packed(losses)[:-3], len(losses))


def test_forty_by_forty_points_of_1024_samples_take_at_most_7_megabytes(tmp_path, monkeypatch):
    """And while they are kept and written, memory never holds them twice."""
    monkeypatch.setattr("landscape.grid.sample_chunks._IN_MEMORY", 1 << 21)
    path, data = tmp_path / "large.h5", measured_everywhere(40, 40)
    kept = data.kept_samples["main"] = KeptLosses("main", data.shape, 1024, np.arange(1024))
    random = np.random.default_rng(0)
    bytes_of_losses = 40 * 40 * 1024 * 4
    tracemalloc.start()
    for flat in range(1600):
        # As many digits as float32 has: nothing compresses less.
        kept.store(flat, random.gamma(1.0, size=1024).astype(np.float32))
    held, _ = tracemalloc.get_traced_memory()
    write_landscape(path, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size <= 7e6
    assert held < 0.4 * bytes_of_losses, "most of it lies on the disk"
    assert peak < 1.9 * bytes_of_losses, "the file is built in memory, once"
    tracemalloc.start()
    loaded = Landscape.load(path)
    _, peak = tracemalloc.get_traced_memory()
    np.testing.assert_array_equal(loaded.samples().at(39, 3), kept.at(39, 3))
    tracemalloc.stop()
    assert peak < 0.2 * bytes_of_losses, "nothing is read before it is asked for"


def test_copies_and_pickles_read_the_same_and_grow_apart(data):
    kept = data.kept_samples["set 0"]
    twins = copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))
    before = kept.losses()
    kept.store(0, np.zeros(5, np.float32))
    for twin in twins:
        np.testing.assert_array_equal(twin.losses(), before)
    assert not kept.at(0, 0).any()


def test_a_landscape_hands_out_nothing_that_can_be_changed(data, path):
    landscape = Landscape(data)
    with pytest.raises(ValueError, match="read-only"):
        landscape.samples().targets[0] = 3
    with pytest.raises(TypeError):
        landscape.kept_samples["another"] = None
    with pytest.raises(TypeError, match="losses of samples in a landscape file are read-only"):
        Landscape.load(path).samples().store(0, np.zeros(5, np.float32))


def test_a_file_that_is_gone(path):
    loaded = Landscape.load(path)
    assert np.isfinite(loaded.samples().at(1, 2)).all()
    path.unlink()
    with pytest.raises(LandscapeError, match=r"cannot be read: No such file.*load the landscape again"):
        loaded.samples().at(1, 2)


def test_behind_a_url(data):
    with empty_memory() as system:
        system.pipe_file("/bucket/a.h5", landscape_bytes(data))
        loaded = Landscape.load("memory://bucket/a.h5")
    np.testing.assert_array_equal(loaded.samples().losses(), data.kept_samples["set 0"].losses())


def test_a_file_behind_a_url_may_have_as_many_as_are_kept(data, monkeypatch):
    asked, read_bytes = [], RemotePath.read_bytes

    def reading(path, start, stop):
        asked.append(stop)
        return read_bytes(path, start, stop)

    monkeypatch.setattr(RemotePath, "read_bytes", reading)
    with empty_memory() as system:
        system.pipe_file("/bucket/a.h5", landscape_bytes(data))
        Landscape.load("memory://bucket/a.h5")
    assert max(asked) > LARGEST_BYTES


def test_in_xarray(tmp_path):
    xarray = pytest.importorskip("xarray")
    data = with_samples(measured_everywhere(2, 3), 5, 4)
    path = Landscape(data).save(tmp_path / "a.h5")
    loaded = Landscape.load(path)
    assert "sample_loss" not in loaded.to_xarray()
    for chosen, name in ((True, "set 0"), ("set 1", "set 1")):
        dataset, kept = loaded.to_xarray(samples=chosen), data.kept_samples[name]
        assert dataset.sample_loss.dims == ("y", "x", "sample")
        np.testing.assert_array_equal(dataset.sample_loss.sel(y=1, x=2), kept.at(1, 2))
        np.testing.assert_array_equal(dataset.target, kept.targets)
        np.testing.assert_array_equal(dataset.weight, kept.weights)
    with xarray.open_dataset(path, engine="h5netcdf", group="samples/set 1") as dataset:
        np.testing.assert_array_equal(dataset.loss, data.kept_samples["set 1"].losses())


def replacing(name, **stored):
    """Returns a change of a file that stores an array in another way, or removes it."""

    def change(file):
        del file[f"samples/set 0/{name}"]
        if stored:
            file.create_dataset(f"samples/set 0/{name}", **stored)

    return change


LOSSES = np.zeros((2, 3, 5), np.float32)
COMPRESSED = {"dtype": "<f4", "chunks": (1, 1, 2**29), "shuffle": True, "compression": "gzip"}


def _too_many(file):
    replacing("loss", shape=(2, 3, 2**29), **COMPRESSED)(file)
    for row, column in np.ndindex(2, 3):
        file["samples/set 0/loss"].id.write_direct_chunk((row, column, 0), b"x")


def _point_is_missing(file):
    file["status"][0, 0] = PointStatus.PENDING


def _link(file):
    replacing("target")(file)
    file["samples/set 0/target"] = h5py.ExternalLink("/etc/passwd", "/x")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (replacing("loss", data=LOSSES, chunks=(2, 3, 5)), "are stored as"),
        (replacing("loss", data=LOSSES), "are stored as"),
        (replacing("loss", shape=(2, 3, 2**31), **COMPRESSED), "are stored as"),
        (_too_many, "keep_samples would take 12 GiB"),
        (replacing("loss"), "damaged"),
        (replacing("target", data=np.arange(3)), r"targets of samples must have the shape \(5,\)"),
        (_link, "is a link to another place"),
        (_point_is_missing, "6 points have losses of samples 'set 0', but 5 are measured"),
    ],
)
def test_a_group_of_samples_that_is_not_as_it_should_be(path, change, match):
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(LandscapeDamagedError, match=match):
        Landscape.load(path)
