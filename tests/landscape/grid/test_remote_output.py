"""Landscape files behind URLs: the same bytes as on the disk, continued, and never lost while a server is away."""

from dataclasses import replace
from pathlib import Path

import fsspec
import fsspec.implementations.memory
import numpy as np
import pytest
from command_line import invoke
from examples import bowl
from remote_stores import empty_memory, temporary
from waiting import wait_until

import landscape
from collectors.errors import RunDirectoryError
from landscape import Landscape
from landscape.errors import (
    LandscapeDamagedError,
    LandscapeFormatError,
    LandscapeLockedError,
    LandscapeNotFoundError,
    LandscapeWriteError,
)
from landscape.grid.kept_plane import place_of
from landscape.grid.landscape_file import landscape_bytes, read_landscape
from landscape.planes import custom_plane
from landscape.record import driver
from landscape.record import writer as remote_store
from landscape.record.checks import PointStatus
from landscape.record.whole_file import path_of
from landscape.record.writer import lock_landscape
from workers import MeasurementPlan

URL = "memory://bucket/out/landscape.h5"
OPTIONS = {"device_ids": [0], "plan": MeasurementPlan(batch_size=32), "progress": False}
MemoryFileSystem = fsspec.implementations.memory.MemoryFileSystem


@pytest.fixture(autouse=True)
def locks(monkeypatch, tmp_path):
    """The folder of this test's locks; another process may test the same URL."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    folder = tmp_path / "locks"
    folder.mkdir()
    monkeypatch.setattr(remote_store, "private_lock_folder", lambda: folder)
    return folder


@pytest.fixture
def memory():
    with empty_memory() as system:
        yield system


@pytest.fixture
def short_pauses(monkeypatch):
    monkeypatch.setattr(remote_store, "LAST_PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(
        driver, "FileWriter", lambda path, data, format: PromptWriter(path, data, replace(format, flush_seconds=0))
    )


class PromptWriter(remote_store.FileWriter):
    """Tries to write after each point, and before the next one."""

    writes = 0

    def update(self, change):
        before = self.writes
        found = super().update(change)
        wait_until(lambda: self.writes > before, what="the landscape to be written")
        return found

    def _write(self, **more):
        super()._write(**more)
        self.writes += 1


def measure(output, callback=bowl, **more):
    directions = [{"weight": np.array([1.0, 0.5, 0.0, 0.0])}, {"weight": np.array([0.0, 0.0, -2.0, 1.0])}]
    plane = custom_plane(bowl()[1], directions)
    axis = np.linspace(-1, 1, 5)
    # A file names the function, if it has a name.
    return landscape.evaluate(plane, lambda: callback(), x=axis, y=axis, output=output, **OPTIONS, **more)


def unsent():
    return temporary("landscape-unsent-*/*")


class Away:
    """A server that is away for some of the writes to a landscape file: ``which`` says it of a write's number."""

    def __init__(self, monkeypatch, which):
        self.writes = 0
        original = MemoryFileSystem.pipe_file

        def pipe_file(system, path, value, **kwargs):
            if path.endswith(".h5"):
                self.writes += 1
                if which(self.writes):
                    raise TimeoutError("the server is away")
            return original(system, path, value, **kwargs)

        monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)


def test_the_same_bytes_as_on_the_disk(memory, tmp_path, locks):
    there, here = measure(URL), measure(tmp_path / "landscape.h5")
    assert memory.cat_file("/bucket/out/landscape.h5") == here.path.read_bytes()
    assert str(there.path) == "memory:///bucket/out/landscape.h5"
    loaded = Landscape.load(URL)
    np.testing.assert_array_equal(loaded.loss, here.loss)
    assert [name for name in memory.find("/bucket")] == ["/bucket/out/landscape.h5"]
    assert not temporary(".landscape-*.lock")
    assert not list(locks.iterdir())


def test_directions_lie_beside_it_and_go_into_an_export(memory, tmp_path):
    there, here = measure(URL, save_directions=True), measure(tmp_path / "landscape.h5", save_directions=True)
    kept = memory.cat_file("/bucket/out/landscape_directions.safetensors")
    assert kept == (tmp_path / "landscape_directions.safetensors").read_bytes()
    exported = []
    for number, item in enumerate((there, here)):
        (tmp_path / str(number)).mkdir()
        paths = item.export(tmp_path / str(number) / "surface.h5", "li")
        exported.append([path.read_bytes() for path in paths])
    assert len(exported[0]) > 1
    assert exported[0] == exported[1]


def test_an_unfinished_one_is_continued(memory, tmp_path):
    whole = measure(tmp_path / "whole.h5")
    half = read_landscape(whole.path)
    half.status[2:] = PointStatus.PENDING
    half.metrics["loss"][2:] = np.nan
    memory.pipe_file("/bucket/out/landscape.h5", landscape_bytes(half))
    again = measure(URL)
    assert again.report.resumed == 10
    assert memory.cat_file("/bucket/out/landscape.h5") == whole.path.read_bytes()


@pytest.mark.slow
def test_a_server_that_is_away_for_a_while(memory, tmp_path, short_pauses, monkeypatch):
    away = Away(monkeypatch, lambda number: number in (2, 3))
    data = measure(tmp_path / "landscape.h5")
    with pytest.warns(UserWarning, match=r"cannot be written at the moment: TimeoutError: the server") as caught:
        measure(URL)
    assert len(caught) == 1
    assert away.writes > 3
    assert memory.cat_file("/bucket/out/landscape.h5") == data.path.read_bytes()
    assert unsent() == []


@pytest.mark.slow
def test_a_server_that_stays_away(memory, tmp_path, short_pauses, monkeypatch):
    Away(monkeypatch, lambda number: number > 1)
    data = measure(tmp_path / "landscape.h5")
    match = r"landscape.h5 cannot be written: TimeoutError: .*. What was measured is in .*/landscape.h5: copy it there"
    with pytest.warns(UserWarning, match="tries again"), pytest.raises(LandscapeWriteError, match=match) as raised:
        measure(URL)
    (kept,) = unsent()
    try:
        assert str(kept) in str(raised.value)
        assert kept.read_bytes() == data.path.read_bytes()
    finally:
        kept.unlink()
        kept.parent.rmdir()


def test_a_dry_run_makes_no_folder(memory):
    assert measure(URL, dry_run=True) is None
    typed = ("--function", "examples:batch_norm", "--devices", "0", "--size", "3", "--dry-run", "-o", URL)
    invoke("evaluate", *typed)
    assert memory.find("/bucket", withdirs=True) == []


def test_a_server_that_is_away_from_the_beginning(memory, monkeypatch):
    Away(monkeypatch, lambda number: True)
    with pytest.raises(LandscapeWriteError, match=r"cannot be written: TimeoutError: .* What was there is untouched"):
        measure(URL)
    assert unsent() == []


def test_a_place_that_cannot_be_written(memory, monkeypatch):
    def refused(*_, **__):
        raise PermissionError("read only")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refused)
    with pytest.raises(RunDirectoryError, match=r"output memory:///bucket/out cannot be written: .*read only"):
        measure(URL)


def test_two_writers_on_one_machine(memory):
    match = r"memory:///bucket/out/landscape.h5 is being written by process"
    with lock_landscape(path_of(URL)), pytest.raises(LandscapeLockedError, match=match):
        measure(URL)
    measure(URL)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, LandscapeNotFoundError, r"no landscape file memory:///bucket/out/landscape.h5"),
        (b"PK", LandscapeDamagedError, r"does not begin as an HDF5 file does"),
        (b"\x89H", LandscapeDamagedError, r"ends within its first bytes"),
        (b"", LandscapeDamagedError, r"landscape.h5 is empty"),
        (b"\x89HDF\r\n\x1a\n and no more", LandscapeDamagedError, r"memory:///.*landscape.h5 is damaged \(OSE"),
    ],
)
def test_what_cannot_be_read(memory, content, error, message):
    if content is not None:
        memory.pipe_file("/bucket/out/landscape.h5", content)
    with pytest.raises(error, match=message):
        Landscape.load(URL)


def test_a_file_that_is_too_large(memory, monkeypatch):
    monkeypatch.setattr("landscape.record.whole_file._LARGEST_DOWNLOAD", 100)
    measure(URL)
    with pytest.raises(LandscapeFormatError, match=r"has 100 bytes or more and can be no landscape file"):
        Landscape.load(URL)


@pytest.mark.parametrize(("way", "place"), [(".", "memory:///bucket/out"), ("gs://run", "gs://run"), ("/r", "/r")])
def test_a_run_is_found_from_there(way, place):
    assert str(place_of(way, path_of(URL).parent)) == place


def test_a_url_that_lost_its_slashes():
    with pytest.raises(LandscapeNotFoundError, match=r"A URL must be a str; a Path loses its slashes"):
        Landscape.load(Path("s3://bucket/landscape.h5"))
