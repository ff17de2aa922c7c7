"""Compiled networks in files that are loaded without the compiler (PyTorch's AOTInductor, on CPUs), and the folders."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from collectors.errors import FileWriteError
from collectors.files import system
from collectors.files.local_files import write_bytes

from ... import hardware
from ...errors import first_line
from .ahead_of_time import OPTIONS, PackageError, compile_ahead
from .network_code import UnknownCodeError, code_of_network

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_MOST_BYTES = 256 * 2**20
_WRITABLE = 0o022  # by others


@dataclass(frozen=True)
class PackageFolder:
    """The folder of packages: this user's alone, because what lies in it is run."""

    path: Path

    def find(self, key: str) -> Path | None:
        """Returns the package's library where it is whole and ours."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            check_private(self.path)
            library, facts = self.path / f"{key}.so", self.path / f"{key}.json"
            found = [path.lstat() for path in (library, facts)]
            if not all(stat.S_ISREG(item.st_mode) and system.is_private(item, 0o002) for item in found):
                return None
            if hashlib.sha256(library.read_bytes()).hexdigest() == json.loads(facts.read_text("utf-8"))["sha256"]:
                os.utime(library)
                return library
        return None

    def keep(self, key: str, library: bytes) -> Path:
        """Writes a package's library and returns its path; the packages that were used least recently make room."""
        try:
            make_private(self.path)
            path = self.path / f"{key}.so"
            write_bytes(path, library)
            facts = {"sha256": hashlib.sha256(library).hexdigest(), "torch": torch.__version__}
            write_bytes(path.with_suffix(".json"), json.dumps(facts).encode())
        except (OSError, FileWriteError) as error:
            raise PackageError(f"its package cannot be kept: {error}") from error
        with contextlib.suppress(OSError):
            libraries = [other for other in self.path.glob("*.so") if other != path]
            total = path.stat().st_size
            for other in sorted(libraries, key=lambda other: other.stat().st_mtime, reverse=True):
                total += other.stat().st_size
                if total > _MOST_BYTES:
                    self.discard(other.stem)
        return path

    def discard(self, key: str) -> None:
        for suffix in (".so", ".json"):
            with contextlib.suppress(OSError):
                (self.path / f"{key}{suffix}").unlink()


def make_private(path: Path) -> None:
    """Makes a folder from which code is run, for this user alone; OSError where somebody else could put code there."""
    # Where a user's files are the group's by default, the folder around it would be refused.
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode) and system.is_private(found, _WRITABLE):
        path.chmod(0o700)
    check_private(path)


def check_private(path: Path, forbidden: int = 0o077) -> None:
    """Raises OSError where somebody else could put files into a folder, or put another one in its place."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or not system.is_private(found, forbidden):
        raise PermissionError(f"{path} is not a folder of this user alone (mode 0700)")
    for parent in path.resolve().parents:
        found = parent.stat()
        # Root's too are safe, and those from which each user can remove only their own files.
        forbidden = 0 if found.st_mode & stat.S_ISVTX else _WRITABLE
        if not (system.is_private(found, forbidden) or (found.st_uid == 0 and not found.st_mode & forbidden)):
            raise PermissionError(f"other users can write to {parent}, which holds {path}")


def package_folder() -> PackageFolder:
    return PackageFolder(_cache_folder() / "packages")


def danger() -> str:
    """Returns why no code may be kept in these folders and run from them; "" where they are this user's alone."""
    users = _users_folder()
    try:
        make_private(package_folder().path)
        if users is not None:
            users.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_private(users, forbidden=0o022)
        else:
            make_private(_compiler_folder())
    except OSError as error:
        names = "XDG_CACHE_HOME" + (f" and {CACHE_VARIABLE}" if users is not None else "")
        return f"the folder of compiled code is not safe ({error}); set {names} to a folder that is"
    return ""


def compiler_cache() -> contextlib.AbstractContextManager[None]:
    """Lets PyTorch keep compiled code in this user's folder; the environment is the user's again afterwards."""
    return hardware.environment({CACHE_VARIABLE: str(_compiler_folder())})


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "summary-landscape"


def _compiler_folder() -> Path:
    return _users_folder() or _cache_folder() / "torchinductor"


def _users_folder() -> Path | None:
    """Returns the user's folder of compiled code, or None: PyTorch itself may have set the variable, to its default."""
    folder = os.environ.get(CACHE_VARIABLE)
    module = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    default = module.default_cache_dir() if module is not None else None
    return Path(folder) if folder and folder != default else None


class PackagedNetwork:
    """A network that runs from packages, one for each shape of its inputs; ``builds``: also from new ones."""

    def __init__(
        self,
        network: nn.Module,
        folder: PackageFolder,
        threads: int,
        options: dict[str, Any],
        code: Callable[[Any], str] = code_of_network,
        builds: bool = True,
    ) -> None:
        self._network, self._folder, self._options = network, folder, {**options, **OPTIONS}
        self.builds = builds
        """Whether packages are made of what has none yet."""
        # Packages hold no weights: they read these where they lie, whatever their values.
        self._tensors = {
            name: tensor.detach()
            for tensors in (network.named_parameters, network.named_buffers)
            for name, tensor in tensors(remove_duplicate=False)
        }
        if not system.LINUX or any(tensor.device.type != "cpu" for tensor in self._tensors.values()):
            raise PackageError("it is not on a CPU under Linux")
        try:
            found = code(network)
        except UnknownCodeError as error:
            raise PackageError(f"packages of it cannot be told apart: {error}") from error
        deterministic = torch.are_deterministic_algorithms_enabled()
        backends = (torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled())
        switches = (*backends, torch.get_default_dtype(), deterministic)
        self._identity = repr((found, threads, sorted(self._options.items()), switches, _cpu()))
        self._runners: dict[Any, tuple[str, Any]] = {}
        self.found = False
        """Whether a package was there."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs the network; PackageError where it cannot be packaged for these inputs."""
        if named or not inputs or not all(type(item) is torch.Tensor for item in inputs):
            raise PackageError("its inputs are not tensors alone")
        # A package does not check what it is given: it would write beyond its memory.
        shapes = (
            *((item.shape, item.stride(), item.dtype, item.device.type) for item in inputs),
            # Autocast is compiled into the code.
            torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
        )
        if shapes not in self._runners:
            self._runners[shapes] = self._open(inputs, repr(shapes))
        return self._runners[shapes][1].run(list(inputs))[0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def discard(self) -> None:
        while self._runners:
            self._folder.discard(self._runners.popitem()[1][0])
        self.found = False

    def _open(self, inputs: tuple[torch.Tensor, ...], shapes: str) -> tuple[str, Any]:
        key = hashlib.sha256(f"{self._identity}{shapes}".encode()).hexdigest()[:32]
        library = self._folder.find(key)
        self.found |= library is not None
        if library is None:
            if not self.builds:
                raise PackageError("there is no package of it")
            with compiler_cache():
                library = self._folder.keep(key, compile_ahead(self._network, inputs, self._options, self._tensors))
        try:
            runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
            names = runner.get_constant_names_to_original_fqns()
            tensors = {name: self._tensors[original] for name, original in names.items()}
            runner.update_constant_buffer(tensors, False, True, True)
        except (RuntimeError, TypeError, AttributeError, KeyError) as error:
            self._folder.discard(key)
            raise PackageError(f"its package cannot be loaded: {first_line(error)}") from error
        return key, runner


@functools.cache
def _cpu() -> str:
    """Returns what the compiler makes use of: code for one CPU ends the process on another."""
    found = [platform.machine(), torch.backends.cpu.get_cpu_capability(), *hardware.cpu_description()]
    return hashlib.sha256(repr(found).encode()).hexdigest()
