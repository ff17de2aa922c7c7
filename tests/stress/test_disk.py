"""What disks, file systems, other writers and clocks do to a survey, by the real survey on real files.

After each of them the file of before is whole, the error says what to do, and the same call goes on.
"""

import contextlib
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from waiting import PATIENCE, Gate, wait_until

import landscape.record.driver
from landscape import Landscape, evaluate
from landscape.errors import LandscapeLockedError, LandscapeWriteError
from landscape.grid.landscape_file import LANDSCAPE_FILE
from landscape.planes import custom_plane
from landscape.record.checks import PointStatus
from landscape.record.writer import FileFormat, FileWriter
from workers import FunctionEvaluator
from workers.pools import in_process

ROOT = Path(__file__).parents[2]
GRID = np.linspace(-1.5, 2, 20)  # without 0 and 1, where functions are tried
WEIGHTS = {"place": np.zeros(2)}


def measure(path: Path | None, before_point: Callable[[int], object] = lambda count: None) -> tuple[Landscape, int]:
    """Surveys a paraboloid; returns the landscape and how often the loss was computed at points of the grid."""
    calls = 0
    is_checked = False

    def loss(weights: dict[str, Any]) -> float:
        nonlocal calls, is_checked
        place = weights["place"]
        if not is_checked and np.allclose(place, GRID[-1]):
            is_checked = True  # before the survey, the loss is tried far from the origin
        elif np.isclose(place[:, None], GRID).any(axis=1).all():
            calls += 1
            before_point(calls)
        return float(np.square(place).sum())

    def callback_fn() -> FunctionEvaluator:
        return FunctionEvaluator(loss, WEIGHTS)

    axes = [{"place": np.array([1.0, 0.0])}, {"place": np.array([0.0, 1.0])}]
    plane = custom_plane(WEIGHTS, axes, network=callback_fn().description.space)
    shown = evaluate(plane, callback_fn, x=GRID, y=GRID, output=path, progress=False, device_ids=[0])
    return shown, calls


def measured(path: Path) -> int:
    """Returns how many points a file holds, all of which must be right."""
    found = Landscape.load(path)
    there = found.status == PointStatus.MEASURED
    exact = np.square(GRID)[:, None] + np.square(GRID)
    np.testing.assert_allclose(found.loss[there], exact[there], rtol=1e-12)
    assert np.isnan(found.loss[~there]).all()
    return int(there.sum())


@pytest.fixture(autouse=True)
def _same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")


@pytest.fixture
def undisturbed(tmp_path: Path, _same_bytes: None) -> bytes:
    path = tmp_path / "undisturbed.h5"
    measure(path)
    return path.read_bytes()


class Watched(FileWriter[Any]):
    """Writes whenever a point is measured, and knows what it does."""

    def __init__(self, path: Path, data: Any, format: FileFormat[Any]) -> None:
        super().__init__(path, data, replace(format, flush_seconds=0.0))
        self.points = self.changes = self._written = 0
        self.when_failing: Callable[[], object] = lambda: None

    def update(self, change: Callable[[], Any]) -> Any:
        def counted() -> Any:
            found = change()
            self.changes += 1
            self.points += found or 0
            return found

        try:
            return super().update(counted)
        except LandscapeWriteError:
            self.when_failing()
            raise

    def wait(self) -> None:
        """Waits until all that was changed is written, or writing it has failed; then nothing is under way."""
        wait_until(lambda: self._written == self.changes or self._flushes.error is not None, what="a write")

    def _write(self, *, last: bool = False) -> None:
        changes = self.changes
        super()._write(last=last)
        self._written = changes


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> list[Watched]:
    """Each point is a chunk of its own and is written at once; returns the writers of the surveys."""
    writers: list[Watched] = []

    def writer(*arguments: Any, **more: Any) -> Watched:
        writers.append(Watched(*arguments, **more))
        return writers[-1]

    monkeypatch.setattr(in_process, "_CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(landscape.record.driver, "FileWriter", writer)
    return writers


def mounted(folder: Path, *options: str) -> None:
    try:
        done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted(folder, "-t", "tmpfs", "-o", "size=512k", "tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class FullDisk:
    """Fills a disk to the last byte, again and again."""

    match = "No space left on device"

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self) -> None:
        self._filler.unlink()


class SizeLimit:
    """Lets no file of this process grow."""

    match = "File too large"

    def __init__(self, folder: Path) -> None:
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, self._before[1]))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


@pytest.fixture(params=[FullDisk, SizeLimit])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    if request.param is FullDisk:
        folder = request.getfixturevalue("small_disk")
        yield folder, FullDisk(folder)
        return
    limit = SizeLimit(tmp_path)
    try:
        yield tmp_path, limit
    finally:
        limit.free()


@pytest.mark.slow
def test_a_disk_that_fills_up_during_a_survey(disk: tuple[Path, Any], undisturbed: bytes, often: list[Watched]) -> None:
    folder, trouble = disk
    path = folder / "landscape.h5"

    def fill_between_writes(count: int) -> None:
        often[0].wait()
        if count > 50:
            trouble.fill()

    with pytest.raises(LandscapeWriteError) as caught:
        measure(path, fill_between_writes)
    text = str(caught.value)
    assert f"landscape file {path} cannot be written: {trouble.match}. The file on the disk is untouched" in text
    assert "Free some space or choose another output directory, then run again: it continues from the file." in text
    kept = measured(path)
    assert kept == 50
    # Nothing else is left: the next call finds neither a lock nor half a file.
    assert {item.name for item in folder.iterdir()} <= {"landscape.h5", "filler", "undisturbed.h5"}

    with pytest.raises(LandscapeWriteError, match=trouble.match):
        measure(path)
    assert measured(path) == kept

    trouble.free()
    _, calls = measure(path)
    assert calls == GRID.size**2 - kept
    assert path.read_bytes() == undisturbed


def test_a_disk_that_is_full_from_the_beginning(disk: tuple[Path, Any], undisturbed: bytes) -> None:
    folder, trouble = disk
    path = folder / "landscape.h5"
    trouble.fill()
    calls = []
    with pytest.raises(LandscapeWriteError, match=f"{trouble.match}. No file was there, and none is now"):
        measure(path, calls.append)
    assert calls == [], "hours might have been measured for nothing"
    assert not path.exists()
    trouble.free()
    measure(path)
    assert path.read_bytes() == undisturbed


def test_room_that_comes_back_before_the_end_saves_all_that_was_measured(
    small_disk: Path, often: list[Watched]
) -> None:
    path, trouble = small_disk / "landscape.h5", FullDisk(small_disk)

    def fill_between_writes(count: int) -> None:
        often[0].wait()
        often[0].when_failing = trouble.free
        if count > 20:
            trouble.fill()

    with pytest.raises(LandscapeWriteError, match="No space left on device"):
        measure(path, fill_between_writes)
    assert measured(path) == often[0].points == 21


def test_a_failure_of_the_last_regular_write_is_not_kept_quiet(small_disk: Path) -> None:
    path, trouble = small_disk / "landscape.h5", FullDisk(small_disk)
    shown, _ = measure(None)
    writer = FileWriter(path, shown, replace(LANDSCAPE_FILE, flush_seconds=0.005))
    writer.__enter__()
    trouble.fill()
    writer.update(lambda: None)
    thread = writer._flushes._thread
    thread.join(timeout=PATIENCE)  # it ends with the write that fails
    assert not thread.is_alive()
    with pytest.raises(LandscapeWriteError, match="No space left on device"):
        writer.__exit__(None, None, None)


def test_a_survey_that_ends_while_a_write_is_due_ends(tmp_path: Path) -> None:
    """The writer's thread once missed that it was to end, and the survey waited for it for ever."""
    shown, _ = measure(None)
    writer = FileWriter(tmp_path / "landscape.h5", shown, replace(LANDSCAPE_FILE, flush_seconds=0.0))
    write = writer._write
    closing = threading.Thread(target=writer._flushes.close, daemon=True)

    def write_while_closing(*, last: bool = False) -> None:
        write(last=last)
        if threading.current_thread() is writer._flushes._thread:
            writer.update(lambda: None)
            closing.start()
            wait_until(lambda: not writer._flushes.is_open, what="the writer to be closed")

    writer._flushes._save = write_while_closing
    writer.__enter__()
    writer.update(lambda: None)
    writer._flushes._thread.join(timeout=PATIENCE)
    assert not writer._flushes._thread.is_alive()
    writer.__exit__(None, None, None)
    assert measured(tmp_path / "landscape.h5") == GRID.size**2


def child(script: str, **options: Any) -> subprocess.Popen[str]:
    places = (ROOT, ROOT / "tests" / "support", Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    return subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        **options,
    )  # fmt: skip


def interrupt(count: int) -> None:
    if count > 100:
        raise KeyboardInterrupt


WITHOUT_PRIVILEGE = """
import ctypes, struct
# Root may write anywhere; without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH the permission bits count for it too.
libc = ctypes.CDLL(None, use_errno=True)
header, data = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
libc.capget(header, data)
effective, permitted, _, *rest = struct.unpack("6I", data.raw)
assert libc.capset(header, struct.pack("6I", effective & ~6, permitted & ~6, 0, *rest)) == 0, ctypes.get_errno()
"""


def test_a_directory_that_becomes_read_only_during_a_survey(tmp_path: Path, undisturbed: bytes) -> None:
    folder = tmp_path / "output"
    folder.mkdir()
    path = folder / "landscape.h5"
    script = f"""{WITHOUT_PRIVILEGE}
import os, test_disk
from pathlib import Path
from collectors.errors import LandscapeError
def protect(count):
    if count == 200:
        os.chmod({str(folder)!r}, 0o555)
for _ in range(2):
    try:
        test_disk.measure(Path({str(path)!r}), protect)
    except LandscapeError as error:
        print(type(error).__name__, error)
"""
    process = child(script)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    first, second = output.splitlines()
    assert first.startswith(f"LandscapeWriteError landscape file {path} cannot be written: Permission denied. The file")
    assert "choose another output directory, then run again" in first
    assert second == first
    assert measured(path) < GRID.size**2
    folder.chmod(0o755)
    measure(path)
    assert path.read_bytes() == undisturbed
    assert list(folder.iterdir()) == [path], "the lock that could not be removed is taken over and removed"


def test_a_read_only_file_system(small_disk: Path) -> None:
    path = small_disk / "landscape.h5"
    measure(path)
    before = path.read_bytes()
    mounted(small_disk, "-o", "remount,ro")
    with pytest.raises(LandscapeWriteError, match=r"cannot be locked for writing \(.*Read-only file system\)"):
        measure(path)
    with pytest.raises(LandscapeWriteError, match="Read-only file system"):
        measure(small_disk / "another.h5")
    assert path.read_bytes() == before
    assert measured(path) == GRID.size**2


def test_a_file_that_another_program_has_open(tmp_path: Path) -> None:
    path = tmp_path / "landscape.h5"
    measure(path)
    before = path.read_bytes()
    script = f"import h5py, sys\nfile = h5py.File({str(path)!r}, 'r+')\nprint('ready', flush=True)\nsys.stdin.read()"
    opened = child(script, stdin=subprocess.PIPE)
    with opened:
        assert opened.stdout is not None
        assert opened.stdout.readline() == "ready\n"
        with pytest.raises(LandscapeLockedError, match=r"another program has it open for writing\. Close it there, or"):
            measure(path)
        opened.communicate()
    assert path.read_bytes() == before
    _, calls = measure(path)
    assert calls == 0


@pytest.mark.slow
def test_of_two_runs_that_start_at_the_same_time_one_wins(tmp_path: Path, undisturbed: bytes) -> None:
    folder = tmp_path / "output"
    folder.mkdir()
    path, gate = folder / "landscape.h5", tmp_path / "gate"
    script = f"""
import sys, test_disk, waiting
from pathlib import Path
from collectors.errors import LandscapeError
def wait(count):
    if count == 1:
        waiting.Gate({str(gate)!r}).pass_through()
print("ready", flush=True)
sys.stdin.readline()
try:
    print("measured", test_disk.measure(Path({str(path)!r}), wait)[1])
except LandscapeError as error:
    print(type(error).__name__, error)
"""
    runs = [child(script, stdin=subprocess.PIPE) for _ in range(2)]
    try:
        for run in runs:
            assert run.stdout is not None
            assert run.stdout.readline() == "ready\n"
        for run in runs:
            assert run.stdin is not None
            run.stdin.write("\n")
            run.stdin.flush()
        # The winner goes on only when the other has ended, so that no slow start decides this.
        wait_until(lambda: any(run.poll() is not None for run in runs), what="one of the runs to end")
        (winner,) = (run for run in runs if run.poll() is None)
        (loser,) = (run for run in runs if run is not winner)
        Gate(gate).open()
        lost, won = loser.communicate(timeout=PATIENCE), winner.communicate(timeout=PATIENCE)
    finally:
        for run in runs:
            run.kill()
            run.wait()
    # In the moment between taking the lock and writing its number into it, the winner is "another process".
    who = rf"(process {winner.pid}|another process)"
    expected = rf"LandscapeLockedError landscape file {re.escape(str(path))} is being written by {who}\. Wait for it, "
    assert re.match(expected, lost[0]), lost
    assert won[0] == f"measured {GRID.size**2}\n", won
    assert path.read_bytes() == undisturbed
    assert list(folder.iterdir()) == [path]


@pytest.mark.usefixtures("often")
def test_a_clock_that_jumps_back(tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of day decide nothing: neither when is written, nor which file is newer, nor who still lives."""
    path = tmp_path / "landscape.h5"
    clock = 4e9

    def backwards() -> float:
        nonlocal clock
        clock -= 1e6
        return clock

    monkeypatch.setattr(time, "time", backwards)
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * backwards()))
    with pytest.raises(KeyboardInterrupt):
        measure(path, interrupt)
    kept = measured(path)
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    stale = path.with_name(f".{path.name}.{int(dead.stdout)}.0123abcd.tmp")
    lock = path.with_name(f".{path.name}.lock")
    for item in (stale, lock):
        item.write_text("1")
    for item in (path, stale, lock, tmp_path):
        os.utime(item, (2**33, 2**33))
    _, calls = measure(path)
    assert calls == GRID.size**2 - kept
    assert path.read_bytes() == undisturbed
    assert {item.name for item in tmp_path.iterdir()} == {"landscape.h5", "undisturbed.h5"}


def test_a_file_from_the_future_is_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "landscape.h5"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "4000000000")
    with pytest.raises(KeyboardInterrupt):
        measure(path, interrupt)
    kept = measured(path)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    shown, calls = measure(path)
    assert calls == GRID.size**2 - kept
    assert shown.complete
    assert str(shown.attributes["created"]).startswith("2096-10-02"), "what was written first stays"
    with h5py.File(path) as file:
        assert file.attrs["complete"]
