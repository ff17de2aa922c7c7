"""What Linux, macOS and Windows do differently with files and processes; who else asks is refused."""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from .background import retry

LINUX, MACOS, WINDOWS = (sys.platform == name for name in ("linux", "darwin", "win32"))

# Without O_BINARY, Windows would write \r\n for \n; the others keep a file from programs that this one starts.
OPEN_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0)
WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)

_PAUSES_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_F_FULLFSYNC = 51
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""What ends a process at once; on Windows every signal does."""
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
_PROCESS_QUERY, _STILL_ACTIVE = 0x1000, 259
_REFUSED_NAME = re.compile(
    r'.*[<>:"|?*\\/\x00-\x1f].*|.*[ .]|(con|prn|aux|nul|con(in|out)\$|(com|lpt)[0-9¹²³])( *\..*)?',
    re.IGNORECASE | re.DOTALL,
)


def open_for_reading(path: Path) -> BinaryIO:
    """Opens a file, and a named pipe without waiting for a writer."""
    return os.fdopen(os.open(path, os.O_RDONLY | OPEN_FLAGS | WITHOUT_WAITING), "rb")


def replace(source: Path, target: Path) -> None:
    """Moves a file over another; on Windows that fails while anybody, such as a virus scanner, has one of them open."""
    pauses = _PAUSES_SECONDS if WINDOWS else ()
    try:
        retry(lambda: source.replace(target), pauses, when=lambda error: isinstance(error, PermissionError))
    except PermissionError as error:
        if not WINDOWS:
            raise
        reason = "a program, perhaps this one, has it open, and Windows replaces no open file; close it there"
        raise PermissionError(error.errno, reason, str(target)) from error


def refuses_name(name: str) -> bool:
    """Returns whether the system has no file of that name; Windows takes ``a:b`` for a stream that no folder lists."""
    return WINDOWS and name not in (".", "..") and _REFUSED_NAME.fullmatch(name) is not None


def as_compared(name: str) -> str:
    """Returns the same for all names that stand for one file; only Linux tells ``Net`` from ``net``."""
    return name if LINUX else unicodedata.normalize("NFC", name).casefold()


def sync(descriptor: int) -> None:
    """Returns when a file is on the disk; macOS' own fsync leaves it in the disk's cache."""
    if MACOS:
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(descriptor, _F_FULLFSYNC)
            return
    os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable; Windows does that by itself."""
    if WINDOWS:
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def protect(path: Path) -> None:
    """Makes a file read-only, but not on Windows, where nobody could remove it then."""
    if not WINDOWS:
        path.chmod(0o400)


def process_is_alive(process: int) -> bool:
    if WINDOWS:
        # os.kill(process, 0) would send Ctrl-C there.
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
        handle = kernel.OpenProcess(_PROCESS_QUERY, False, process)
        if not handle:
            return bool(ctypes.get_last_error() == 5)  # type: ignore[attr-defined]
        code = ctypes.c_ulong()
        known = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        kernel.CloseHandle(handle)
        return not known or code.value == _STILL_ACTIVE
    try:
        os.kill(process, 0)
    except (OSError, OverflowError) as error:
        return not isinstance(error, ProcessLookupError)
    return True


def user_name() -> str:
    """Returns what tells this user from others of the machine, as a part of a file's name."""
    if hasattr(os, "getuid"):
        return str(os.getuid())
    return hashlib.sha256(getpass.getuser().encode()).hexdigest()[:12]


def is_private(found: os.stat_result, forbidden: int = 0o022) -> bool:
    """Returns whether a file or folder is this user's, without ``forbidden`` mode bits; on Windows its place tells."""
    return WINDOWS or (found.st_uid == os.geteuid() and not found.st_mode & forbidden)


def is_locked_for_writing(descriptor: int) -> bool:
    """Returns whether HDF5 has a file open for writing; on Windows reading it fails by itself then."""
    if WINDOWS:
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


@contextlib.contextmanager
def holding(file: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds a lock that the system frees when its holder dies; without waiting, a TimeoutError says that it has one."""
    from filelock import FileLock

    with FileLock(file, timeout=-1 if wait else 0, thread_local=False, fallback_to_soft=False):
        yield


def machine_identity() -> str:
    """Returns what tells this boot and container, where process ids mean something, from others; "" where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except (OSError, ValueError):
        return ""


def forks_workers() -> bool:
    """Returns whether a process that has imported libraries can be forked; theirs do not allow it on macOS."""
    return LINUX


def start_python(
    arguments: Sequence[str], connection: socket.socket, *, stderr: BinaryIO, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Starts this Python in a process that takes a connection with ``connection_of_parent``, and gets no Ctrl-C."""
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": stderr}
    if not WINDOWS:
        # The connection stays open here.
        streams["stdin"] = connection.fileno()
        return subprocess.Popen([sys.executable, *arguments], **streams, env=environment, start_new_session=True)
    # The python.exe of a virtual environment only starts another one, which the connection would not reach.
    python = sys._base_executable  # type: ignore[attr-defined]
    if python != sys.executable:
        environment = {**environment, "__PYVENV_LAUNCHER__": sys.executable}
    hidden = subprocess.CREATE_NO_WINDOW  # type: ignore[attr-defined]
    process = subprocess.Popen(
        [python, *arguments], **streams, stdin=subprocess.PIPE, env=environment, creationflags=hidden
    )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(connection.share(process.pid))  # type: ignore[attr-defined]
    return process


def connection_of_parent() -> socket.socket:
    """Returns the connection that ``start_python`` gave this process, whose standard input is empty from then on."""
    if WINDOWS:
        connection: socket.socket = socket.fromshare(sys.stdin.buffer.read())  # type: ignore[attr-defined]
    else:
        connection = socket.socket(fileno=os.dup(0))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    connection.setblocking(True)
    return connection


def end_of_file(file: BinaryIO, size: int) -> bytes:
    """Returns the last bytes of a file that other processes may be writing to."""
    descriptor = file.fileno()
    start = max(0, os.fstat(descriptor).st_size - size)
    if not WINDOWS:
        return os.pread(descriptor, size, start)
    os.lseek(descriptor, start, os.SEEK_SET)
    try:
        return os.read(descriptor, size)
    finally:
        os.lseek(descriptor, 0, os.SEEK_END)


def shared_file(name: str, folder: str | None) -> tuple[int, str]:
    """Returns (descriptor, path or "") of a new file to map: in memory on Linux, else in the folder or unnamed."""
    if LINUX:
        return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), ""
    if folder is not None:
        return tempfile.mkstemp(prefix=f"{name}-", dir=folder)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno()), ""


def path_of_open(descriptor: int) -> str:
    """Returns a path by which other processes open a file that is open here; "" where there is none."""
    return f"/proc/{os.getpid()}/fd/{descriptor}" if LINUX else ""


def seal(descriptor: int) -> None:
    """Sees to it that no process can change an unnamed file any more, where the system can do that."""
    if LINUX:
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)


@contextlib.contextmanager
def path_for_bytes(name: str) -> Iterator[Path]:
    """Gives the path of an empty file, in memory where that can be, which is gone afterwards."""
    if LINUX:
        descriptor = os.memfd_create(name)
        try:
            yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / name


def processes_with(variable: str, value: str, title: bytes) -> list[int]:
    """Returns the ids of other living processes whose environment has a variable; its value is a folder's name, too."""
    mark = f"{variable}={value}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(path.name) == os.getpid():
                continue
            if mark in (path / "environ").read_bytes().split(b"\0") or (
                # A title may overwrite a part of the environment; then an open file of the folder tells.
                (path / "cmdline").read_bytes().startswith(title)
                and any(f"/{value}/" in str(item.readlink()) for item in (path / "fd").iterdir())
            ):
                found.append(int(path.name))
    return found


def end_with_parent() -> None:
    """Lets this process end as soon as the one that forked it does, where the system can do that."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, KILL)


def end_first_where_memory_runs_out() -> None:
    """Offers this process to a system that is short of memory, which might end its parent otherwise."""
    with contextlib.suppress(OSError):
        switch = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(switch, b"1000")
        finally:
            os.close(switch)


def short_temporary_folder(longest: int) -> str:
    """Returns the temporary folder, or a shorter one if it has more than ``longest`` bytes: for names of sockets."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= longest or WINDOWS else "/tmp"
