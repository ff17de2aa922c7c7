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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from collectors.files.background import retry
from collectors.files.local_files import folders_of_dead_processes
from collectors.files.system import KILL, holding, processes_with, short_temporary_folder

from ..errors import PoolError, closing_on_failure
from ..hardware import environment
from .actors import python_path
from .devices import visible_gpus

FOLDER_PREFIX = "landscape-ray-"
SESSION_VARIABLE = "LANDSCAPE_RAY_SESSION"
"""In the environment of every process of a private Ray; its value is the name of the session's folder."""
_OWNER = "owner"
_TOKEN = secrets.token_hex(32)  # Ray keeps the first one of a process, even where its variable is taken back
_END_SECONDS = 10.0
_REACH_SECONDS = 5.0
_CLIENT_PAUSES_SECONDS = (2.0, 2.0)
# What the head node answers where that process ended at once: in Ray's words, or as it looked at the dead process.
_NO_SERVER = ("Starting Ray client server failed", "psutil.NoSuchProcess", "psutil.ZombieProcess")
# Unix socket paths may have 107 bytes, of which the name of the session and that of the socket take up to 97.
_LONGEST_FOLDER = 10
_NICENESS = "RAY_worker_niceness"
# Set by Ray for a driver that `ray job submit` started.
_SUBMITTED_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def ray_is_running() -> bool:
    """Returns whether this process is connected to a Ray cluster; does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def ray_address(address: str | None) -> str | None:
    """Returns the address of the cluster to join, if any was named."""
    address = address or os.environ.get("RAY_ADDRESS") or None
    return None if address == "local" else address  # Ray's word for a private one


def is_on_a_cluster(address: str | None) -> bool:
    """Returns whether a run computes on a cluster, or on a Ray that this process has started itself."""
    return ray_is_running() or ray_address(address) is not None


def ray_is_asked_for(address: str | None) -> bool:
    """Returns whether somebody wants Ray also where nothing needs it: "local" names a private one."""
    return bool(address or os.environ.get("RAY_ADDRESS"))


class RaySession(contextlib.ExitStack):
    """A Ray that is already initialized, else the cluster at an address (or RAY_ADDRESS), else a private one.

    ``close`` ends a private Ray, or leaves the cluster that was joined; a Ray that was there before stays.
    """

    def __init__(
        self,
        address: str | None,
        *,
        slots: int,
        gpus: tuple[int, ...] = (),
        runtime_env: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self.private = False
        # A Ray that is initialized already keeps its runtime environment, and so does a job that was submitted.
        if ray_is_running():
            self.ray: Any = sys.modules["ray"]
            return
        address = ray_address(address)
        with closing_on_failure(self):
            # What connecting to Ray changes in this process, and disconnecting leaves.
            self.callback(setattr, sys, "excepthook", sys.excepthook)
            self.enter_context(environment({"PYTHONBREAKPOINT": os.environ.get("PYTHONBREAKPOINT")}))
            self.enter_context(_termination_as_before())
            # Ray's own handlers would print a stack and end the process where the user's flush and close.
            with _termination_as_before():
                if address is not None:
                    self._join(address, runtime_env)
                else:
                    # It has no dashboard, asks for a token, and is gone after ``close``, as its folder is.
                    self._start(slots, gpus)

    def _join(self, address: str, runtime_env: Callable[[], dict[str, Any]] | None) -> None:
        ray = self.ray = _import_ray()
        self.callback(ray.shutdown)
        try:
            _check_reachable(address)
            code = None if _SUBMITTED_JOB in os.environ or runtime_env is None else runtime_env()
            _connect(ray, address, code)
        except ray.exceptions.RuntimeEnvSetupError as error:
            raise PoolError(
                f"the code could not be sent to the cluster at {address!r}: {error} Ray takes at most 512 MiB of each "
                "package beside the script; keep data outside of packages, or put the script into a folder of its own."
            ) from error
        except Exception as error:
            raise _no_cluster(address, error) from error

    def _start(self, slots: int, gpus: tuple[int, ...]) -> None:
        remove_dead_sessions(parent := short_temporary_folder(_LONGEST_FOLDER))
        _provide_token()
        ray = self.ray = _import_ray()
        folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=parent))
        # Not before the lock is free: Windows removes no open file.
        self.callback(shutil.rmtree, folder, ignore_errors=True)
        # The system frees the lock when its holder dies.
        self.enter_context(holding(folder / _OWNER))
        self.callback(end_session, folder)
        self.callback(ray.shutdown)
        self.private = True
        variables = {
            "RAY_TMPDIR": None,
            "RAY_USAGE_STATS_ENABLED": "0",
            SESSION_VARIABLE: folder.name,
            # With Ray's own 15, workers would get a thirtieth of a core that another process uses as well.
            _NICENESS: os.environ.get(_NICENESS, "0"),
            **_visible_gpus(gpus),
            **python_path(),
        }
        try:
            with environment(variables), _small_and_on_loopback() as loopback:
                ray.init(
                    address="local",
                    num_cpus=slots,
                    num_gpus=len(gpus),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    _temp_dir=str(folder / "r"),  # which Ray opens to everybody, unlike the one around it
                    **loopback,
                )
        except Exception as error:
            raise PoolError(f"a private Ray could not be started: {error}") from error


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise PoolError(
            f"Ray cannot be imported ({error}). Clusters need it, and several GPUs, of which it gives each worker its "
            "own: install it with `pip install ray` (there is none for Intel Macs and Windows on ARM). Without Ray, "
            "leave address and RAY_ADDRESS out, and name at most one GPU in device_ids; several workers on CPU cores "
            "need no Ray."
        ) from error
    return ray


def check_ray(address: str | None) -> None:
    """Raises a PoolError where Ray is not installed, or where nothing answers at the address of its cluster."""
    if ray_is_running():
        return
    _import_ray()
    if (cluster := ray_address(address)) is not None:
        try:
            _check_reachable(cluster)
        except OSError as error:
            raise _no_cluster(cluster, error) from error


def _no_cluster(address: str, error: Exception) -> PoolError:
    return PoolError(
        f"address={address!r} is not a Ray cluster that can be joined: {str(error).rstrip('.')}. Start one with "
        "`ray start --head`, or leave address (and RAY_ADDRESS) out for a private one."
    )


def _connect(ray: Any, address: str, runtime_env: dict[str, Any] | None) -> None:
    # Through ray:// each client gets a server process, whose start fails now and then on a busy head node.
    retry(
        lambda: ray.init(address=address, log_to_driver=False, logging_level="ERROR", runtime_env=runtime_env),
        _CLIENT_PAUSES_SECONDS,
        when=lambda error: (
            isinstance(error, ConnectionAbortedError) and any(answer in str(error) for answer in _NO_SERVER)
        ),
    )


def _check_reachable(address: str) -> None:
    # Ray itself would try for many minutes.
    host, _, port = address.partition("://")[-1].rpartition(":") if "://" in address else address.rpartition(":")
    if port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS):
            pass


def _provide_token() -> None:
    # Other users of this machine reach the loopback interface, so the token is the lock. Ray reads these variables
    # when it is imported and caches the token for the whole process: an existing choice is respected, ours is made
    # once and kept.
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    if not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = _TOKEN


def _visible_gpus(gpus: tuple[int, ...]) -> dict[str, str | None]:
    if not gpus:
        return {}
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible_gpus(before) if before else None
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[gpu] if names else str(gpu) for gpu in gpus)}


@contextlib.contextmanager
def _termination_as_before() -> Iterator[None]:
    """Puts back what SIGTERM does; only the main thread may."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def _small_and_on_loopback() -> Iterator[dict[str, str]]:
    """Keeps Ray from starting what a private one does not need; yields options that bind its ports to loopback only."""
    # Ray has no public switches for these, so this leaves alone what its internals no longer know.
    from ray._private import parameter, services, utils

    instead: list[tuple[Any, str, Callable[..., Any]]] = [
        # Actors, tasks and objects do without the dashboard's server and its agent, for which Ray would wait: so Ray
        # works where the dashboard's web framework is not installed. No address, no process.
        (services, "start_api_server", lambda *_, **__: ("", None)),
        (utils, "get_dashboard_dependency_error", lambda: ImportError("not wanted")),
        # Ray replaces 127.0.0.1 by an address that other machines can reach.
        (services, "resolve_ip_for_localhost", lambda host: host),
    ]
    # The autoscaler's monitor and that of the logs cost about a second at the start and another at the end.
    parameters, wanted = getattr(parameter, "RayParams", None), {"no_monitor": True, "include_log_monitor": False}
    if parameters is not None and set(wanted) <= set(inspect.signature(parameters).parameters):
        instead.append((parameter, "RayParams", functools.partial(parameters, **wanted)))
    with contextlib.ExitStack() as put_back:
        for module, name, function in instead:
            if hasattr(module, name):
                put_back.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, function)
        yield {"_node_ip_address": "127.0.0.1"} if hasattr(services, "resolve_ip_for_localhost") else {}


def remove_dead_sessions(parent: str | os.PathLike[str]) -> None:
    """Ends private Rays whose owner was killed, and removes their folders in ``parent``."""
    # Ray's processes notice by themselves that their driver is gone, but only after about a minute.
    for folder in folders_of_dead_processes(parent, FOLDER_PREFIX):
        lock = folder / _OWNER
        try:
            # It also shows owners whose process id means nothing here, as in another container with the same /tmp.
            with holding(lock, wait=False) if lock.is_file() else contextlib.nullcontext():
                pass
        except (OSError, TimeoutError):
            continue  # somebody's, perhaps another user's
        end_session(folder)


def end_session(folder: Path) -> None:
    """Kills every process of the private Ray with that folder, waits until they are gone, and removes the folder."""
    deadline = time.monotonic() + _END_SECONDS
    # A raylet may start one more worker while its processes are being listed.
    while processes := session_processes(folder.name):
        for process in processes:
            with contextlib.suppress(OSError):
                os.kill(process, KILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def session_processes(session: str) -> list[int]:
    """Returns the ids of a private Ray's living processes; a process that has ended has no environment any more."""
    return processes_with(SESSION_VARIABLE, session, title=b"ray::")
