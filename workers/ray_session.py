"""Joins a Ray cluster, or starts a private one and ends it without a trace."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from .errors import PoolError

_FOLDER_PREFIX = "landscape-ray-"


def ray_is_running() -> bool:
    """Returns whether this process is connected to a Ray cluster; does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def ray_address(address: str | None) -> str | None:
    """Returns the address of the cluster to join, if any was named."""
    return address or os.environ.get("RAY_ADDRESS") or None


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
        self._joined = False
        self._folder: Path | None = None
        if ray_is_running():
            self.ray: Any = sys.modules["ray"]
            return
        address = ray_address(address)
        if address is not None:
            self._join(address)
        else:
            self._start(slots, gpus)

    def close(self) -> None:
        """Ends the private Ray, or leaves the cluster that was joined; a Ray that was there before stays."""
        if self.private or self._joined:
            self.ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self.private = self._joined = False

    def __enter__(self) -> RaySession:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self, address: str) -> None:
        import ray

        self.ray = ray
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            raise PoolError(
                f"address={address!r} names no Ray cluster that can be joined: {error} Start one with `ray start "
                "--head`, or "
                "leave address (and RAY_ADDRESS) out for a private one."
            ) from error
        self._joined = True

    def _start(self, slots: int, gpus: tuple[int, ...]) -> None:
        remove_dead_sessions()
        _provide_token()
        import ray

        self.ray = ray
        # Unix socket paths may have 107 bytes, which a long temporary directory would exceed.
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-", dir=_short_temporary_folder()))
        self.private = True
        try:
            with _visible_gpus(gpus), _without_inherited_temporary_folder():
                ray.init(
                    address="local",
                    num_cpus=slots,
                    num_gpus=len(gpus),
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    _temp_dir=str(self._folder),
                )
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception):
                raise
            raise PoolError(f"a private Ray could not be started: {error}") from error


def remove_dead_sessions() -> None:
    """Removes the folders of private Rays whose owner was killed and whose processes have ended."""
    folders = list(Path(_short_temporary_folder()).glob(f"{_FOLDER_PREFIX}*-*"))
    if not folders:
        return
    commands = _running_commands()
    for folder in folders:
        owner = folder.name.removeprefix(_FOLDER_PREFIX).split("-")[0]
        in_use = any(folder.name in command for command in commands)
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and not in_use:
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


@contextlib.contextmanager
def _visible_gpus(gpus: tuple[int, ...]) -> Iterator[None]:
    if not gpus:
        yield
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = before.split(",") if before else None
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names[gpu].strip() if names else str(gpu) for gpu in gpus)
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


@contextlib.contextmanager
def _without_inherited_temporary_folder() -> Iterator[None]:
    # RAY_TMPDIR of a user would win over our own folder.
    before = os.environ.pop("RAY_TMPDIR", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["RAY_TMPDIR"] = before
