"""Joins a Ray cluster, or starts a private one and ends it without a trace."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from collectors.atomic_files import process_is_alive

from .errors import PoolError

_FOLDER_PREFIX = "landscape-ray-"
_REACH_SECONDS = 5.0


def ray_is_running() -> bool:
    """Returns whether this process is connected to a Ray cluster; does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def ray_address(address: str | None) -> str | None:
    """Returns the address of the cluster to join, if any was named."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    return None if address == "local" else address  # Ray's word for a private one


class RaySession:
    """A Ray that is already initialised, else the cluster at an address, else a private one.

    The private one has no dashboard, asks for a token, keeps its files in a folder of its own, and is gone after
    ``close``.

    Args:
        address: of a cluster; None looks at RAY_ADDRESS.
        slots: how many workers the private one is sized for.
        gpus: ids of the GPUs it may see.

    Raises:
        PoolError: there is no cluster at the address, or Ray cannot start.
    """

    def __init__(self, address: str | None, *, slots: int, gpus: tuple[int, ...] = ()) -> None:
        self.private = False
        self._folder: Path | None = None
        self._ended = contextlib.ExitStack()
        if ray_is_running():
            self.ray: Any = sys.modules["ray"]
            return
        address = ray_address(address)
        try:
            self._ended.enter_context(_ray_leaves_no_trace())
            if address is not None:
                self._join(address)
            else:
                self._start(slots, gpus)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the private Ray, or leaves the cluster that was joined; a Ray that was there before stays."""
        self._ended.close()
        self.private = False

    def __enter__(self) -> RaySession:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self, address: str) -> None:
        import ray

        self.ray = ray
        self._ended.callback(ray.shutdown)
        try:
            _check_reachable(address)
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            raise PoolError(
                f"address={address!r} names no Ray cluster that can be joined: {error} Start one with `ray start "
                "--head`, or leave address (and RAY_ADDRESS) out for a private one."
            ) from error

    def _start(self, slots: int, gpus: tuple[int, ...]) -> None:
        remove_dead_sessions()
        _provide_token()
        import ray

        self.ray = ray
        # Unix socket paths may have 107 bytes, which a long temporary directory would exceed.
        folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-", dir=_short_temporary_folder()))
        self._folder = folder
        self._ended.callback(shutil.rmtree, folder, ignore_errors=True)
        self._ended.callback(ray.shutdown)
        self.private = True
        environment = {"RAY_TMPDIR": None, "RAY_USAGE_STATS_ENABLED": "0", **_visible_gpus(gpus), **_python_path()}
        try:
            with _environment(environment), _without_monitors():
                ray.init(
                    address="local",
                    num_cpus=slots,
                    num_gpus=len(gpus),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    _temp_dir=str(folder),
                )
        except Exception as error:
            raise PoolError(f"a private Ray could not be started: {error}") from error


def _check_reachable(address: str) -> None:
    # Ray itself would try for many minutes.
    host, _, port = address.partition("://")[-1].rpartition(":") if "://" in address else address.rpartition(":")
    if port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS):
            pass


def remove_dead_sessions() -> None:
    """Removes the folders of private Rays whose owner was killed and whose processes have ended."""
    folders = list(Path(_short_temporary_folder()).glob(f"{_FOLDER_PREFIX}*-*"))
    if not folders:
        return
    commands = _running_commands()
    for folder in folders:
        owner = folder.name.removeprefix(_FOLDER_PREFIX).split("-")[0]
        in_use = any(folder.name in command for command in commands)
        if owner.isdigit() and not process_is_alive(int(owner)) and not in_use:
            shutil.rmtree(folder, ignore_errors=True)


def _running_commands() -> list[str]:
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            commands.append(path.read_bytes().decode(errors="replace"))
    return commands


def _short_temporary_folder() -> str:
    folder = tempfile.gettempdir()
    return folder if len(folder) <= 20 else "/tmp"


def _provide_token() -> None:
    # Ray binds its ports on every interface, so the token is the lock. Ray reads these variables when it is
    # imported and caches the token for the whole process: an existing choice is respected, ours is made once and kept.
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    if not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _visible_gpus(gpus: tuple[int, ...]) -> dict[str, str | None]:
    if not gpus:
        return {}
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = before.split(",") if before else None
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[gpu].strip() if names else str(gpu) for gpu in gpus)}


def _python_path() -> dict[str, str | None]:
    # Workers import this package before they know the driver's search path.
    ours = str(Path(__file__).parents[1])
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([before, ours] if before else [ours])}


@contextlib.contextmanager
def _environment(changes: dict[str, str | None]) -> Iterator[None]:
    """Sets environment variables (None: removes them) that Ray's processes inherit, for a while."""
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _ray_leaves_no_trace() -> Iterator[None]:
    """Puts back what connecting to Ray changes in this process and disconnecting leaves."""
    hook, debugger = sys.excepthook, {"PYTHONBREAKPOINT": os.environ.get("PYTHONBREAKPOINT")}
    main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        sys.excepthook = hook
        _set_environment(debugger)
        if main_thread and threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _without_monitors() -> Iterator[None]:
    """Keeps Ray from starting its autoscaler's and its log monitor.

    Neither serves a private Ray; they cost about a second at the start and another at the end. Ray has no public
    switch for them, so this does nothing where its inside looks otherwise.
    """
    from ray._private import parameter

    original = getattr(parameter, "RayParams", None)
    wanted = {"no_monitor": True, "include_log_monitor": False}
    if original is None or not set(wanted) <= set(inspect.signature(original).parameters):
        yield
        return
    parameter.RayParams = functools.partial(original, **wanted)
    try:
        yield
    finally:
        parameter.RayParams = original
