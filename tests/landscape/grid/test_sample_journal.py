"""Losses of samples while a grid is measured: added once to a file beside it, and what a kill leaves."""

import itertools
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
from two_sets import OPTIONS, both, network

from landscape import Landscape, evaluate, random_plane
from landscape.errors import LandscapeError, LandscapeWriteError
from landscape.functions import refine
from landscape.grid.sample_chunks import JournalChunks, SampleJournal, SpooledChunks
from landscape.grid.samples import KeptLosses
from landscape.record import driver, writer
from landscape.record.checks import PointStatus
from landscape.record.whole_file import read_header

NAME, JOURNAL = "grid.h5", ".grid.h5.samples"


def measure(folder, **more):
    folder.mkdir(exist_ok=True)
    return evaluate(random_plane(network(), seed=2), both, output=folder / NAME, keep_samples=True, **OPTIONS, **more)


@pytest.fixture(autouse=True)
def _same_moment(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Returns the folder of a whole run, and what lay there after each measured point, as a kill would leave it."""
    parent, numbers = tmp_path_factory.mktemp("killed"), itertools.count()
    whole, sizes, original = parent / "whole", [], writer.write_image

    def written(path, image, *kind):
        sizes.append(sum(map(len, writer.parts_of(image))))
        original(path, image, *kind)

    class Prompt(writer.FileWriter):
        def update(self, change):
            found = super().update(change)
            self._write()
            shutil.copytree(whole, parent / str(next(numbers)), ignore=shutil.ignore_patterns("*.lock"))
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "0")
        patch.setattr(writer, "write_image", written)
        # Its thread would write at the same moment.
        patch.setattr(
            driver, "FileWriter", lambda path, data, format: Prompt(path, data, replace(format, flush_seconds=3600))
        )
        measure(whole)
    return whole, [parent / str(number) for number in range(next(numbers))], sizes


def test_the_file_is_written_without_them_until_it_is_done(killed):
    whole, folders, sizes = killed
    assert not (whole / JOURNAL).exists()
    assert sizes[-1] == (whole / NAME).stat().st_size
    last = folders[-1] / JOURNAL
    chunks = sum(item.chunks.nbytes for item in Landscape.load(whole / NAME).kept_samples.values())
    assert chunks <= last.stat().st_size < 1.2 * chunks
    assert max(sizes[:-1]) < sizes[-1] - chunks + 1024


# What is left, and at which shares of the survey the kill was.
LEFT = {"both": (0, 0.5, 1), "a torn end": (0.5,), "the file alone": (0.5,), "none of the latest": (0, 1)}


@pytest.mark.parametrize("left", LEFT)
def test_what_a_kill_leaves_is_read_and_goes_on_to_the_same_bytes(killed, left, tmp_path):
    whole, folders, _ = killed
    complete = Landscape.load(whole / NAME)
    for before in [folders[int(moment * (len(folders) - 1))] for moment in LEFT[left]]:
        folder = shutil.copytree(before, tmp_path / before.name)
        journal = folder / JOURNAL
        content = journal.read_bytes()
        if left == "a torn end":
            journal.write_bytes(content + content[-200:-100])
        elif left == "none of the latest":
            journal.write_bytes(content[:-3])
        elif left == "the file alone":
            journal.unlink()
        found = Landscape.load(folder / NAME)
        assert not read_header(folder / NAME).complete
        for name, samples in complete.kept_samples.items():
            losses, measured = found.samples(name).losses(), found.samples(name).measured
            np.testing.assert_array_equal(losses[measured], samples.losses()[measured])
            missing = int((found.status == PointStatus.MEASURED).sum() - measured.sum())
            assert missing <= {"the file alone": found.status.size, "none of the latest": 1}.get(left, 0)
        saved = Landscape.load(found.save(folder / "saved.h5"))
        for name, samples in found.kept_samples.items():
            np.testing.assert_array_equal(saved.samples(name).losses(), samples.losses())
        measure(folder)
        assert (folder / NAME).read_bytes() == (whole / NAME).read_bytes()
        assert not journal.exists()


def torn(folder, to):
    """Copies what a kill left, of whose latest point the losses of one data set are there; returns the folder."""
    copied = shutil.copytree(folder, to)
    (copied / JOURNAL).write_bytes((copied / JOURNAL).read_bytes()[:-3])
    train, test = (Landscape.load(copied / NAME).samples(name).measured.sum() for name in ("train", "test"))
    assert test == train + 1 > 1
    return copied


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_budget_leaves_as_many_losses_as_points_and_goes_on_to_the_same_bytes(killed, is_torn, tmp_path):
    whole, folders, _ = killed
    folder = torn(folders[len(folders) // 2], tmp_path / "torn") if is_torn else tmp_path
    with pytest.warns(UserWarning, match="the budget of .* ended the landscape"):
        measure(folder, budget=1e-6)
    half = Landscape.load(folder / NAME)
    measured = half.status == PointStatus.MEASURED
    assert not measured.all()
    for name in ("train", "test"):
        np.testing.assert_array_equal(half.samples(name).measured, measured)
        np.testing.assert_array_equal(np.isfinite(half.samples(name).losses()).all(-1), measured)
    measure(folder)
    assert (folder / NAME).read_bytes() == (whole / NAME).read_bytes()
    assert measure(folder).report.measured <= 1


def test_ctrl_c_between_the_losses_of_two_data_sets_leaves_a_file(killed, tmp_path, monkeypatch):
    whole, _, _ = killed
    store, calls = KeptLosses.store, itertools.count(1)

    def interrupted(self, flat, losses):
        if next(calls) == 6:
            raise KeyboardInterrupt
        store(self, flat, losses)

    with monkeypatch.context() as patch:
        patch.setattr(KeptLosses, "store", interrupted)
        with pytest.raises(KeyboardInterrupt):
            measure(tmp_path)
    half = Landscape.load(tmp_path / NAME)
    assert [half.samples(name).measured.sum() for name in ("train", "test")] == [2, 2]
    measure(tmp_path)
    assert (tmp_path / NAME).read_bytes() == (whole / NAME).read_bytes()


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_landscape_that_lacks_some_is_saved_as_it_is_and_goes_on(killed, is_alone, tmp_path):
    whole, folders, _ = killed
    folder = torn(folders[-1], tmp_path / "torn")
    if is_alone:
        (folder / JOURNAL).unlink()
    found = Landscape.load(folder / NAME)
    (tmp_path / "saved").mkdir()
    saved = Landscape.load(found.save(tmp_path / "saved" / NAME))
    assert not read_header(saved.path).complete
    np.testing.assert_array_equal(saved.loss, found.loss)
    for name in ("train", "test"):
        np.testing.assert_array_equal(saved.samples(name).losses(), found.samples(name).losses())
        assert is_alone or saved.samples(name).measured.any()
    measure(saved.path.parent)
    assert saved.path.read_bytes() == (whole / NAME).read_bytes()


def test_what_was_killed_is_refined_with_its_samples(killed, tmp_path):
    _, folders, _ = killed
    path = shutil.copytree(folders[len(folders) // 2], tmp_path / "killed") / NAME
    samples = Landscape.load(path).samples()
    measured, losses = samples.measured, samples.losses()
    again = refine(path, both, factor=2, plane=random_plane(network(), seed=2), device_ids=[0], progress=False)
    assert 0 < measured.sum() < measured.size
    assert again.report.resumed == measured.sum()
    np.testing.assert_array_equal(again.samples().losses()[::2, ::2][measured], losses[measured])


@pytest.mark.parametrize("is_saved", [False, True])
def test_it_goes_with_the_file_that_is_replaced(killed, is_saved, tmp_path):
    whole, folders, _ = killed
    folder = shutil.copytree(folders[len(folders) // 2], tmp_path / "killed")
    if is_saved:
        Landscape.load(whole / NAME).save(folder / NAME, overwrite=True)
        assert (folder / NAME).read_bytes() == (whole / NAME).read_bytes()
    else:  # by one without samples
        evaluate(random_plane(network(), seed=2), both, output=folder / NAME, overwrite=True, **OPTIONS)
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_a_file_of_that_name_that_is_not_ours_is_left(tmp_path):
    (tmp_path / JOURNAL).write_text("mine")
    with pytest.raises(LandscapeWriteError, match=r"cannot be written: is no file of losses of samples"):
        measure(tmp_path)
    assert (tmp_path / JOURNAL).read_text() == "mine"
    assert not (tmp_path / NAME).exists()


@pytest.fixture
def journal(tmp_path):
    return SampleJournal(tmp_path / NAME)


@pytest.fixture
def chunks(journal):
    """Those of two points, which are in the journal."""
    chunks = SpooledChunks()
    for flat, length in enumerate((5, 6)):
        chunks.add(flat, bytes([flat]) * length)
    write(journal, chunks)
    return chunks


def write(journal, chunks):
    journal.collect([chunks])
    journal.write()


def assert_same_in_journal(folder, chunks):
    found = JournalChunks(folder / NAME, 0, {flat: chunks.digest(flat) for flat in chunks})
    assert dict(found.items()) == dict(chunks.items())


def test_after_a_failure_it_is_written_anew(journal, chunks, tmp_path, monkeypatch):
    chunks.add(7, b"seven")
    journal.collect([chunks])

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("collectors.files.system.sync", full)
    with pytest.raises(LandscapeError, match="No space left on device"):
        journal.write()
    monkeypatch.undo()
    chunks.add(8, b"eight")
    write(journal, chunks)
    assert_same_in_journal(tmp_path, chunks)
    assert (tmp_path / JOURNAL).read_bytes().count(b"seven") == 1


def test_one_that_somebody_removes_is_written_anew(journal, chunks, tmp_path):
    for flat in (2, 3):
        chunks.add(flat, b"more")
        (tmp_path / JOURNAL).unlink()
        write(journal, chunks)
    assert_same_in_journal(tmp_path, chunks)
    assert len(chunks) == 4


class Moving(SpooledChunks):
    """Between any two looks at it, the writer's thread has given the next chunks another spool."""

    @property
    def _spool(self):
        self.move([])
        return self.spool

    @_spool.setter
    def _spool(self, spool):
        self.spool = spool


def test_a_chunk_that_comes_while_the_writer_moves_others_stays_whole():
    chunks = Moving()
    for flat in range(3):
        chunks.add(flat, bytes([flat]) * 5)
    assert dict(chunks.items()) == {flat: bytes([flat]) * 5 for flat in range(3)}


def test_a_journal_that_changed_is_not_believed(journal, chunks, tmp_path):
    found = JournalChunks(tmp_path / NAME, 0, {0: chunks.digest(0), 1: b"another"})
    assert dict(found.readable()) == dict(chunks.items([0]))
    with pytest.raises(LandscapeError, match="cannot be read: they were changed since"):
        list(found.items())
    journal.remove()
    with pytest.raises(LandscapeError, match="load the landscape again"):
        list(found.items([0]))


def test_chunks_are_read_from_it_also_when_it_is_removed_and_in_copies(journal, chunks, tmp_path):
    before = {0: bytes(5), 1: bytes([1]) * 6}
    chunks.add(2, b"two")
    copied = pickle.loads(pickle.dumps(chunks))
    write(journal, chunks)
    journal.remove()
    assert list(tmp_path.iterdir()) == []
    assert dict(copied.items()) == dict(chunks.items()) == before | {2: b"two"}


def test_where_open_files_cannot_be_removed_chunks_leave_it_first(journal, chunks, tmp_path, monkeypatch):
    before = dict(chunks.items())
    path, refused = type(tmp_path).unlink, []

    def unlink(self, missing_ok=False):
        if not refused:
            refused.append(self)
            raise PermissionError(13, "it is open")
        path(self, missing_ok=missing_ok)

    monkeypatch.setattr(type(tmp_path), "unlink", unlink)
    journal.remove()
    assert list(tmp_path.iterdir()) == []
    assert dict(chunks.items()) == before
