"""What a process that reads damaged files is watched for: time, memory, foreign files, code, untyped errors."""

import codecs
import contextlib
import ctypes
import faulthandler
import os
import resource
import shutil
import signal
import struct
import sys
import traceback
from collections import Counter
from pathlib import Path

SECONDS = 5.0
WAITING = 60.0
MEMORY = 2**30
_IN_OPEN = 0x20
_RUNS_CODE = ("exec", "compile", "import", "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork",
              "subprocess.Popen", "ctypes.dlopen", "marshal.loads")  # fmt: skip
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
_OUT_OF_MEMORY = ("allocate", "allocation", "cannot allocate", "out of memory")


class Guard:
    """Runs cases; keeps what went wrong instead of stopping at the first.

    A case that computes for five seconds ends the process with a traceback, and so does one that waits for a minute (a
    busy machine may let a process wait). Memory beyond one GiB is refused by the operating system, and the refusal is
    found in the chain of errors. Only ``inside`` may be read; nobody, the HDF5 library included, may open ``secret``.
    """

    def __init__(self, inside, secret, expected):
        self.cases = 0
        self.outcomes = Counter()
        self.findings = {}
        self._inside = os.path.realpath(inside)
        self._expected = expected
        self._events = []
        self._watching = False
        self._opened = opened_in(secret)
        for name in ("ascii", "cp437", *(f"utf_{width}{order}" for width in (16, 32) for order in ("", "_le", "_be"))):
            codecs.lookup(name)  # Python loads a codec with its first text, which would look like running code
        sys.addaudithook(self._audit)
        # Written in C, so that it also ends what HDF5 does without coming back to Python.
        faulthandler.register(signal.SIGPROF, chain=True)
        self.base = virtual_bytes("VmSize")
        resource.setrlimit(resource.RLIMIT_AS, (self.base + MEMORY, self.base + MEMORY))

    @property
    def memory(self):
        """Bytes of address space that reading took at most, beyond those of the process before."""
        return virtual_bytes("VmPeak") - self.base

    @contextlib.contextmanager
    def case(self, path):
        self.cases += 1
        self._events.clear()
        self._opened()  # what was opened while the file was damaged
        before = _state(path)
        faulthandler.dump_traceback_later(WAITING, exit=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        self._watching = True
        problem = None
        try:
            yield
            self.outcomes["read"] += 1
        except self._expected as error:
            self.outcomes[type(error).__name__] += 1
            problem = _memory_problem(error)
        except BaseException as error:
            self._watching = False
            last = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error}"
        finally:
            self._watching = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            faulthandler.cancel_dump_traceback_later()
        for found in (problem, *self._events, *self._opened()):
            if found is not None:
                self._keep(found, path)
        if _state(path) != before:
            self._keep("the file was changed", path)

    def _keep(self, problem, path):
        key = problem.split(": ", maxsplit=1)[0]
        if key not in self.findings:
            copy = path.with_name(f"finding_{len(self.findings)}_{path.name}")
            shutil.copy(path, copy)
            self.findings[key] = f"{problem[:300]} ({copy})"

    def _audit(self, event, arguments):
        if not self._watching:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            writes = isinstance(arguments[1], str) and any(letter in arguments[1] for letter in "wax+")
            # Where threadpoolctl looks for BLAS.
            is_list_of_libraries = path == f"/proc/{os.getpid()}/maps" and not writes
            if not is_list_of_libraries and (not path.startswith(self._inside + os.sep) or writes):
                self._events.append(f"opened {path}: mode {arguments[1]}")
        elif event in _RUNS_CODE or event in _CHANGES:
            self._events.append(f"event {event}: {arguments!r:.200}")


def virtual_bytes(name):
    """Returns an entry of this process's status in bytes."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _state(path):
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _memory_problem(error):
    while error is not None:
        if isinstance(error, MemoryError) or any(text in str(error).lower() for text in _OUT_OF_MEMORY):
            return f"asked for more than {MEMORY} bytes: {type(error).__name__} {error}"
        error = error.__cause__ or error.__context__
    return None


def opened_in(folder):
    """Returns a function that tells what was opened in a folder since it was asked last, by whatever library."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_OPEN) < 0:
        raise OSError(ctypes.get_errno(), "inotify does not work here")

    def opened():
        found = []
        with contextlib.suppress(BlockingIOError):
            events, place = os.read(descriptor, 65536), 0
            while place < len(events):
                length = struct.unpack_from("iIII", events, place)[3]
                name = events[place + 16 : place + 16 + length].rstrip(b"\0").decode()
                found.append(f"opened the secret {name}: outside the run directory")
                place += 16 + length
        return found

    return opened
