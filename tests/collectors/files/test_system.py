"""What systems do differently, as far as Linux can show it; tests/other_systems simulates the others."""

import errno
import fcntl
import getpass
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from own_processes import ended_process
from scripts import run_script

from collectors.errors import FileWriteError
from collectors.files import system
from collectors.files.local_files import write_bytes

pytestmark = pytest.mark.skipif(not system.LINUX, reason="it is said of Linux, with the others in its place")


@pytest.fixture
def on_windows(monkeypatch):
    monkeypatch.setattr(system, "LINUX", False)
    monkeypatch.setattr(system, "WINDOWS", True)
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


def refused(times):
    """Returns a file that somebody else has open for the first few times."""
    return Mock(replace=Mock(side_effect=[PermissionError(errno.EACCES, "Access is denied")] * times + [None]))


def test_files_stay_from_programs_that_this_one_starts():
    assert system.OPEN_FLAGS & os.O_CLOEXEC


class TestReplace:
    def test_windows_is_asked_again_until_nobody_has_it_open(self, on_windows):
        source = refused(2)
        system.replace(source, Path("target"))
        assert source.replace.call_count == 3
        assert len(on_windows) == 2

    def test_the_error_of_a_file_that_stays_open_says_what_to_do(self, on_windows, monkeypatch, tmp_path):
        (tmp_path / "file").write_bytes(b"old")
        monkeypatch.setattr(Path, "replace", refused(1000).replace)
        text = "file cannot be written: .*Windows replaces no open file; close it there. What was there is untouched"
        with pytest.raises(FileWriteError, match=text):
            write_bytes(tmp_path / "file", b"new")
        assert sum(on_windows) < 3
        assert [item.name for item in tmp_path.iterdir()] == ["file"]
        assert (tmp_path / "file").read_bytes() == b"old"

    def test_elsewhere_one_refusal_is_enough(self):
        source = refused(1)
        with pytest.raises(PermissionError, match="Access is denied"):
            system.replace(source, Path("target"))
        assert source.replace.call_count == 1


class TestDurable:
    @pytest.mark.parametrize("can", [True, False])
    def test_macos_empties_the_disks_own_cache_where_it_can(self, monkeypatch, tmp_path, can):
        asked = []
        monkeypatch.setattr(system, "MACOS", True)
        monkeypatch.setattr(fcntl, "fcntl", lambda _, what: asked.append(what) if can else (tmp_path / "none").stat())
        monkeypatch.setattr(os, "fsync", lambda descriptor: asked.append("fsync"))
        system.sync_directory(tmp_path)
        assert asked == [51 if can else "fsync"]

    def test_windows_opens_no_folder(self, on_windows):
        assert system.sync_directory(Path("there is no such folder")) is None


@pytest.mark.parametrize(("windows", "mode"), [(False, 0o400), (True, 0o600)])
def test_a_file_is_protected_where_it_can_be_removed_again(monkeypatch, tmp_path, windows, mode):
    monkeypatch.setattr(system, "WINDOWS", windows)
    file = tmp_path / "file"
    file.touch(0o600)
    system.protect(file)
    assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.parametrize(
    ("windows", "refused", "names"),
    [
        (True, True, ["a:b", "a<b", "what?", 'say "x"', "a|b", "a*", "a\\b", "a/b", "a\nb", "end.", "end "]),
        (True, True, ["con", "NUL.txt", "lpt1", "COM².h5", "aux .png", "CONOUT$"]),
        (True, False, [".", "..", "a b", "épée", "console", "com", "com10"]),
        (True, False, ["conin", "auxiliary.txt", ".hidden", "a.b.h5"]),
        (False, False, ["a:b"]),
    ],
)
def test_windows_refuses_a_name(monkeypatch, windows, refused, names):
    monkeypatch.setattr(system, "WINDOWS", windows)
    assert {name: system.refuses_name(name) for name in names} == dict.fromkeys(names, refused)


class TestWho:
    def test_processes(self):
        assert system.process_is_alive(os.getpid())
        assert system.process_is_alive(os.getppid())
        assert not system.process_is_alive(ended_process())
        # A number that no process can have is not called dead.
        assert system.process_is_alive(2**80)

    def test_windows_asks_its_kernel_and_never_sends_a_signal(self, on_windows, monkeypatch):
        class Kernel:
            def OpenProcess(self, access, inherited, process):
                return process if process in (7, 8) else 0

            def GetExitCodeProcess(self, handle, code):
                code._obj.value = {7: 259, 8: 1}[handle]
                return 1

            def CloseHandle(self, handle):
                closed.append(handle)

        closed = []
        monkeypatch.setattr(system.ctypes, "WinDLL", lambda name, **options: Kernel(), raising=False)
        monkeypatch.setattr(system.ctypes, "get_last_error", lambda: 87, raising=False)
        monkeypatch.setattr(os, "kill", None)
        assert [system.process_is_alive(process) for process in (7, 8, 9)] == [True, False, False]
        assert closed == [7, 8]
        monkeypatch.setattr(system.ctypes, "get_last_error", lambda: 5, raising=False)
        assert system.process_is_alive(9)  # another user's

    def test_a_user_without_a_number(self, monkeypatch):
        assert system.user_name() == str(os.getuid())
        monkeypatch.delattr(os, "getuid")
        monkeypatch.setattr(getpass, "getuser", lambda: "Zoë / admin")
        assert system.user_name() == hashlib.sha256("Zoë / admin".encode()).hexdigest()[:12]

    @pytest.mark.parametrize(
        ("mode", "windows", "other", "private"),
        [(0o700, False, 0, True), (0o720, False, 0, False), (0o720, True, 0, True), (0o700, False, 1, False)],
        ids=["private", "of a group", "on Windows", "another user's"],
    )
    def test_a_private_folder(self, tmp_path, monkeypatch, mode, windows, other, private):
        tmp_path.chmod(mode)
        monkeypatch.setattr(system, "WINDOWS", windows)
        monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + other)
        assert system.is_private(tmp_path.stat()) == private
        assert not other or not system.is_private(tmp_path.stat(), forbidden=0)

    def test_two_processes_of_this_boot_have_one_machine(self):
        script = "from collectors.files.system import machine_identity; print(machine_identity())"
        assert run_script(script).strip() == system.machine_identity() != ""

    def test_where_nobody_knows_the_machine(self, monkeypatch, tmp_path):
        # An empty folder in the place of /proc and /sys.
        monkeypatch.setattr(system, "Path", lambda part: tmp_path / part.lstrip("/"))
        assert system.machine_identity() == ""

    def test_processes_with_a_variable(self):
        program = [sys.executable, "-c", "input()"]
        environment = {**os.environ, "TEST_SESSION": "session-of-the-test"}
        with subprocess.Popen(program, env=environment, stdin=subprocess.PIPE) as process:
            assert system.processes_with("TEST_SESSION", "session-of-the-test", b"none") == [process.pid]
            assert system.processes_with("TEST_SESSION", "another", b"none") == []
            process.communicate(b"\n")
        assert system.processes_with("TEST_SESSION", "session-of-the-test", b"none") == []

    def test_processes_that_have_lost_it_have_files_open(self, tmp_path):
        folder = tmp_path / "session-with-files"
        folder.mkdir()
        script = "import sys; file = open(sys.argv[1], 'w'); print('open', flush=True); input()"
        program = [sys.executable, "-c", script, folder / "log"]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"open\n"
            title = os.fsencode(sys.executable)
            assert system.processes_with("TEST_SESSION", "session-with-files", title) == [process.pid]
            assert system.processes_with("TEST_SESSION", "session-with-files", b"ray::") == []
            process.communicate(b"\n")


class TestLocks:
    def test_a_lock_that_somebody_holds(self, tmp_path):
        with system.holding(tmp_path / "lock"):
            with pytest.raises(TimeoutError), system.holding(tmp_path / "lock", wait=False):
                pass
        with system.holding(tmp_path / "lock", wait=False):
            assert (tmp_path / "lock").exists()

    def test_a_file_that_is_open_for_writing(self, tmp_path, monkeypatch):
        file = tmp_path / "file"
        with file.open("w") as writer, file.open() as reader:
            assert not system.is_locked_for_writing(reader.fileno())
            fcntl.flock(writer, fcntl.LOCK_EX)
            assert system.is_locked_for_writing(reader.fileno())
            monkeypatch.setattr(system, "WINDOWS", True)
            assert not system.is_locked_for_writing(reader.fileno())


class TestSharedFiles:
    def test_nobody_writes_to_a_sealed_one(self):
        descriptor, path = system.shared_file("test", None)
        assert path == ""
        os.write(descriptor, b"content")
        system.seal(descriptor)
        with pytest.raises(PermissionError):
            os.write(descriptor, b"more")
        other = Path(system.path_of_open(descriptor))
        assert other.read_bytes() == b"content"
        os.close(descriptor)
        assert not other.exists()

    def test_elsewhere_it_lies_on_the_disk(self, monkeypatch, tmp_path):
        monkeypatch.setattr(system, "LINUX", False)
        descriptor, path = system.shared_file("test", str(tmp_path))
        os.write(descriptor, b"content")
        system.seal(descriptor)
        assert Path(path).parent == tmp_path
        assert Path(path).read_bytes() == b"content"
        assert system.path_of_open(descriptor) == ""
        os.close(descriptor)
        # Without a folder it is for this process alone.
        descriptor, path = system.shared_file("test", None)
        assert (path, os.fstat(descriptor).st_nlink) == ("", 0)
        os.close(descriptor)

    @pytest.mark.parametrize("linux", [True, False])
    def test_a_path_for_bytes_is_gone_afterwards(self, monkeypatch, linux):
        monkeypatch.setattr(system, "LINUX", linux)
        with system.path_for_bytes("film.mp4") as path:
            path.write_bytes(b"film")
            assert path.read_bytes() == b"film"
        assert not path.exists()


def test_a_short_folder_for_sockets(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/a/folder/that/is/long")
    assert system.short_temporary_folder(10) == "/tmp"
    assert system.short_temporary_folder(100) == "/a/folder/that/is/long"
    monkeypatch.setattr(system, "WINDOWS", True)
    assert system.short_temporary_folder(10) == "/a/folder/that/is/long"
