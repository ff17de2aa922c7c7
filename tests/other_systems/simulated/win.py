"""Simulates Windows for the product's own code, on Linux (paths keep their slashes).

Usage: python win.py -c "from landscape.cli import main; main()" demo --output out   (or a script; children follow)
"""

import builtins
import errno
import io
import mmap
import os
import platform
import re
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import uuid

import sim_core

_MISSING = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "posix", "crypt", "spwd"}
_OS = {
    "fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "getgroups", "setuid", "seteuid", "setgid",
    "getresuid", "getresgid", "initgroups", "chown", "lchown", "fchown", "chroot", "mkfifo", "mknod", "pipe2",
    "sysconf", "sysconf_names", "confstr", "pathconf", "fpathconf", "uname", "nice", "killpg", "setsid", "getsid",
    "getpgid", "getpgrp", "setpgid", "setpgrp", "wait", "wait3", "wait4", "waitid", "WNOHANG", "WUNTRACED",
    "WCONTINUED", "memfd_create", "statvfs", "fstatvfs", "fchdir", "fdatasync", "sync", "lockf", "pread", "pwrite",
    "preadv", "pwritev", "readv", "writev", "getloadavg", "ttyname", "ctermid", "openpty", "register_at_fork",
    "sendfile", "getxattr", "setxattr", "listxattr", "removexattr", "eventfd", "getrandom", "copy_file_range",
    "splice", "pidfd_open", "getpriority", "setpriority", "posix_fadvise", "posix_fallocate", "posix_spawn",
    "posix_spawnp", "tcgetpgrp", "tcsetpgrp", "unshare", "setns", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW",
    "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_NOCTTY", "O_NDELAY", "O_ACCMODE", "O_ASYNC", "O_PATH", "O_TMPFILE",
    "O_DIRECT", "O_NOATIME", "O_LARGEFILE", "get_blocking", "set_blocking",
}  # fmt: skip
if sys.version_info < (3, 13):
    _OS |= {"fchmod", "lchmod"}
_SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}
_O_BINARY, _O_TEXT, _O_NOINHERIT = 0x0800_0000, 0x1000_0000, 0x2000_0000
_text_descriptors = set()
_RESERVED = re.compile(r"(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?", re.IGNORECASE)
_LONGEST = 259


def _of_os(name):
    beginnings = ("sched_", "SCHED_", "MFD_", "EX_", "P_PID", "PRIO_", "WIF", "WEXIT", "WTERM")
    return name in _OS or name.startswith(beginnings)


def _refuse(code, winerror, text, path, other=None):
    sim_core.note(f"[WinError {winerror}] {text}: {path}" + (f" -> {other}" if other else ""))
    error = OSError(code, f"[WinError {winerror}] {text}", os.fsdecode(path))
    raise error


def _is_of_tempfile():
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") in ("sim_core", "win"):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "tempfile"


def _check_name(path):
    if isinstance(path, int):
        return
    text = os.path.abspath(os.fsdecode(path))
    if len(text) > _LONGEST:
        _refuse(errno.ENOENT, 206, "The filename or extension is too long", path)
    for part in text.split("/"):
        if re.search(r'[<>:"|?*\\\x00-\x1f]', part) or (part and part[-1] in " ." and part not in (".", "..")):
            _refuse(errno.EINVAL, 123, "The filename, directory name, or volume label syntax is incorrect", path)
        if _RESERVED.fullmatch(part):
            _refuse(errno.EINVAL, 5, f"{part} is a device", path)


def _is_in_use(path):
    real = os.path.realpath(os.fsdecode(path))
    found = sim_core.open_paths()
    if real in found:
        return found[real]
    if os.path.isdir(real) and any(item.startswith(real + "/") for item in found):
        return "a folder of open files"
    return None


def _is_read_only(path):
    try:
        return os.path.isfile(path) and not os.lstat(path).st_mode & 0o200
    except OSError:
        return False


def _is_locked(path):
    """Returns whether somebody holds the file lock, which on Windows nobody else can read or write through."""
    import fcntl

    try:
        descriptor = sim_core._real_os_open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _wrap_os():
    real = {name: getattr(os, name) for name in ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "symlink",
                                                  "link", "open", "write", "read", "fdopen", "close", "fsync", "kill",
                                                  "ftruncate", "dup")}  # fmt: skip

    def moving(name):
        def move(source, target, **named):
            if sim_core.asked_by_product():
                _check_name(target)
                if why := _is_in_use(source):
                    _refuse(errno.EACCES, 32, f"The process cannot access the file ({why})", source, target)
                if os.path.lexists(target):
                    if name == "rename":
                        _refuse(errno.EEXIST, 183, "Cannot create a file when that file already exists", source, target)
                    if why := _is_in_use(target):
                        _refuse(errno.EACCES, 5, f"Access is denied (the target is {why})", source, target)
                    if _is_read_only(target):
                        _refuse(errno.EACCES, 5, "Access is denied (the target is read-only)", source, target)
            return real[name](source, target, **named)

        return move

    def removing(name):
        def remove(path, **named):
            by_tempfile = _is_of_tempfile()
            if not named and not by_tempfile and sim_core.asked_by_product() and os.path.lexists(path):
                if why := _is_in_use(path):
                    _refuse(errno.EACCES, 32, f"The process cannot access the file ({why})", path)
                if _is_read_only(path):
                    _refuse(errno.EACCES, 5, "Access is denied (read-only)", path)
            return real[name](path, **named)

        return remove

    def mkdir(path, *arguments, **named):
        if sim_core.asked_by_product():
            _check_name(path)
        return real["mkdir"](path, *arguments, **named)

    def symlink(source, target, *arguments, **named):
        if sim_core.asked_by_product():
            _refuse(errno.EPERM, 1314, "A required privilege is not held by the client", source, target)
        return real["symlink"](source, target, *arguments, **named)

    def open_(path, flags, *arguments, **named):
        # Files of tempfile are binary there, and gone when they are closed; here it removes them while they are open.
        if _is_of_tempfile() or not sim_core.asked_by_product():
            return real["open"](path, flags, *arguments, **named)
        if os.path.isdir(path):
            _refuse(errno.EACCES, 5, "Permission denied (a directory)", path)
        if flags & os.O_CREAT:
            _check_name(path)
        descriptor = real["open"](path, flags & ~(_O_BINARY | _O_TEXT | _O_NOINHERIT), *arguments, **named)
        _text_descriptors.discard(descriptor)
        if not flags & _O_BINARY:
            sim_core.note(f"os.open without O_BINARY: {os.fsdecode(path)} is translated as text")
            _text_descriptors.add(descriptor)
        return descriptor

    def write(descriptor, content):
        if descriptor not in _text_descriptors or not sim_core.asked_by_product():
            return real["write"](descriptor, content)
        content = bytes(content)
        translated = content.replace(b"\n", b"\r\n")
        while translated:
            translated = translated[real["write"](descriptor, translated) :]
        return len(content)

    def read(descriptor, count):
        if sim_core.asked_by_product():
            path = sim_core._real_readlink(f"/proc/self/fd/{descriptor}")
            if path.endswith(".lock") and _is_locked(path):
                _refuse(errno.EACCES, 33, "Another process has locked a portion of the file", path)
        found = real["read"](descriptor, count)
        return found.replace(b"\r\n", b"\n") if descriptor in _text_descriptors else found

    def fdopen(descriptor, mode="r", *arguments, **named):
        file = real["fdopen"](descriptor, mode, *arguments, **named)
        if descriptor in _text_descriptors and "b" in mode and "r" in mode and sim_core.asked_by_product():
            content = file.read().replace(b"\r\n", b"\n").partition(b"\x1a")[0]
            return _Translated(file, content)
        return file

    def close(descriptor):
        _text_descriptors.discard(descriptor)
        return real["close"](descriptor)

    def fsync(descriptor):
        if sim_core.asked_by_product():
            import fcntl

            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                _refuse(errno.EBADF, 6, "_commit of a descriptor that is not writable", f"descriptor {descriptor}")
        return real["fsync"](descriptor)

    def kill(process, number):
        if not sim_core.asked_by_product():
            return real["kill"](process, number)
        if number in (0, 1):
            # CTRL_C_EVENT is 0: Windows sends Ctrl-C, to everything on the console if it is no group's process.
            try:
                real["kill"](process, 0)
            except ProcessLookupError:
                _refuse(errno.EINVAL, 87, "The parameter is incorrect (os.kill(pid, 0) of no process)", str(process))
            sim_core.note(f"os.kill({process}, {int(number)}) SENDS CTRL-C TO THE CONSOLE")
            return None
        return real["kill"](process, signal.SIGKILL)  # TerminateProcess

    os.replace, os.rename = moving("replace"), moving("rename")
    os.unlink, os.remove, os.rmdir = removing("unlink"), removing("remove"), removing("rmdir")
    os.mkdir, os.symlink, os.open, os.write, os.read = mkdir, symlink, open_, write, read
    write.__wrapped__ = real["write"]
    os.fdopen, os.close, os.fsync = fdopen, close, fsync
    shutil._use_fd_functions = False
    return {"kill": kill}


class _Translated(io.BytesIO):
    def __init__(self, file, content):
        super().__init__(content)
        self._file = file

    def fileno(self):
        return self._file.fileno()

    def close(self):
        self._file.close()
        super().close()


def _wrap_open():
    before = io.open

    def open_(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *arguments, **named):
        if not isinstance(file, int) and sim_core.asked_by_product():
            if set(mode) & set("wax+"):
                _check_name(file)
                if str(file).endswith(".lock") and _is_locked(file):
                    _refuse(errno.EACCES, 33, "Another process has locked a portion of the file", file)
                if _is_read_only(file):
                    _refuse(errno.EACCES, 5, "Permission denied (read-only)", file)
            if "b" not in mode:
                if encoding in (None, "locale"):
                    sim_core.note(f"text file in cp1252: {os.fsdecode(file)}")
                    encoding = "cp1252"
                if newline is None and set(mode) & set("wax"):
                    newline = "\r\n"
        return before(file, mode, buffering, encoding, errors, newline, *arguments, **named)

    io.open = builtins.open = open_


def _mmap(fileno, length, tagname=None, access=0, offset=0, **other):
    if other:
        sim_core.note(f"mmap with {sorted(other)}")
        raise TypeError(f"mmap() got an unexpected keyword argument {next(iter(other))!r}")
    return mmap.mmap(fileno, length, access=access, offset=offset)


class _Popen(subprocess.Popen):
    def __init__(self, *arguments, **named):
        if named.get("pass_fds"):
            sim_core.note("Popen with pass_fds")
            raise ValueError("pass_fds not supported on Windows.")
        for name in ("preexec_fn", "start_new_session"):
            if named.get(name):
                sim_core.note(f"Popen with {name}")
                raise ValueError(f"{name} is not supported on Windows platforms")
        named.pop("creationflags", None)
        super().__init__(*arguments, **named)


class _Socket(socket.socket):
    """A socket that another process can be given; here a thread hands it to the one that knows its name."""

    def share(self, process):
        sim_core._real_stat(f"/proc/{process}")
        name = f"\0share {os.getpid()} {uuid.uuid4()}"
        waiting, copy = socket.socket(socket.AF_UNIX), os.dup(self.fileno())
        waiting.bind(name)
        waiting.listen(1)

        def hand_over():
            other, _ = waiting.accept()
            with waiting, other:
                socket.send_fds(other, [b"!"], [copy])
            os.close(copy)

        threading.Thread(target=hand_over, daemon=True).start()
        return name.encode()


def _socketpair():
    return tuple(_Socket(fileno=one.detach()) for one in socket.socketpair())


def _fromshare(name):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(name.decode())
        return _Socket(fileno=socket.recv_fds(connection, 1, 1)[1][0])


class _Kernel:
    """The part of kernel32 that tells of processes and of memory, and C libraries that are not there."""

    def __init__(self, name=None, *arguments, **named):
        if name is None or "kernel32" not in str(name).lower():
            raise OSError(f"[WinError 126] The specified module could not be found: {name}")

    @staticmethod
    def OpenProcess(access, inherited, process):
        try:
            sim_core._real_stat(f"/proc/{process}")
        except OSError:
            return 0
        return process

    @staticmethod
    def GetExitCodeProcess(handle, code):
        code._obj.value = 259
        return 1

    @staticmethod
    def CloseHandle(handle):
        return 1

    @staticmethod
    def GlobalMemoryStatusEx(status):
        import ctypes

        place = ctypes.cast(status, ctypes.POINTER(ctypes.c_ulonglong))
        place[1], place[2] = 16 * 2**30, 4 * 2**30
        return 1


def activate():
    import ctypes

    replaced = _wrap_os()
    views = {
        "sys": sim_core.View(sys, ("getdlopenflags", "setdlopenflags"),
                             {"platform": "win32", "_base_executable": sys.executable}),
        "os": sim_core.View(
            os, _of_os, {**replaced, "O_BINARY": _O_BINARY, "O_TEXT": _O_TEXT, "O_NOINHERIT": _O_NOINHERIT,
                         "supports_effective_ids": set(), "supports_dir_fd": set()},
        ),
        "platform": sim_core.View(platform, (), {"system": lambda: "Windows", "machine": lambda: "AMD64"}),
        "signal": sim_core.View(
            signal,
            lambda name: (name.startswith("SIG") and name.isupper() and name not in _SIGNALS)
            or name.startswith(("pthread_", "sigwait", "sigtimed", "sigpending", "ITIMER_"))
            or name in ("alarm", "setitimer", "getitimer", "pause", "siginterrupt"),
            {"CTRL_C_EVENT": 0, "CTRL_BREAK_EVENT": 1},
        ),
        "select": sim_core.View(select, lambda name: name.startswith(("epoll", "poll", "EPOLL", "POLL"))),
        "selectors": sim_core.View(
            selectors, ("EpollSelector", "PollSelector"), {"DefaultSelector": selectors.SelectSelector}
        ),
        "socket": sim_core.View(
            socket,
            lambda name: name in ("AF_UNIX", "send_fds", "recv_fds", "CMSG_LEN", "SCM_RIGHTS", "SOCK_CLOEXEC",
                                  "SO_REUSEPORT", "MSG_CMSG_CLOEXEC"),
            {"socketpair": _socketpair, "fromshare": _fromshare},
        ),
        "mmap": sim_core.View(
            mmap, lambda name: name.startswith(("PROT_", "MAP_", "MADV_")), {"mmap": _mmap}
        ),
        "ctypes": sim_core.View(
            ctypes, (), {"CDLL": _Kernel, "WinDLL": _Kernel, "get_last_error": lambda: 87,
                         "windll": types.SimpleNamespace(kernel32=_Kernel("kernel32"))},
        ),
        "subprocess": sim_core.View(subprocess, (), {"Popen": _Popen, "CREATE_NO_WINDOW": 0x0800_0000}),
        "time": sim_core.View(time, lambda name: name in ("tzset", "pthread_getcpuclockid") or name[:6] == "clock_"),
    }  # fmt: skip
    sim_core.install(views, missing=_MISSING, hidden_folders=("/proc", "/dev", "/sys", "/tmp/landscape-none"))
    _wrap_open()
    sim_core.use_spawn()
    os.environ["SIM_PLATFORM"] = "win"


if __name__ == "__main__":
    __import__("win").activate()  # not this copy, whose functions would count as the program's own
    sim_core.run_main()
