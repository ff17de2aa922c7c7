"""Where a run directory is: in a folder of this machine, or behind an fsspec URL such as ``s3://bucket/run``."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

from ..errors import RunDirectoryError
from ..validation import check_path, wrong_value
from . import system
from .local_files import TemporaryFolder, naming, write_bytes
from .remote_path import RemotePath

# One letter is a drive of Windows.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
_LOST_SLASHES = re.compile(r"[a-z][a-z0-9+.-]+:/[^/]")

_COPIES_AT_MOST = 64 * 2**30

AnyPath: TypeAlias = Path | RemotePath


class LocalCopies:
    """Temporary copies of remote checkpoints, which planes read several times: half the free space, at most 64 GiB."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder("landscape-copy-")
        self._left = min(shutil.disk_usage(self._folder.path).free // 2, _COPIES_AT_MOST)
        self._copies: dict[str, Path] = {}

    def copy_of(self, file: RemotePath) -> Path | None:
        """Returns a file's copy; None if there is no room for it."""
        name, size = str(file), file.size()
        if name not in self._copies:
            if size > self._left:
                return None
            self._left -= size
            target = self._folder.path / f"{len(self._copies)}{file.suffix}"
            file.copy_to(target)
            self._copies[name] = target
        return self._copies[name]


def _of_file_url(place: str) -> str:
    """Returns the path that stands behind ``file://``: a host is this machine or, on Windows, that of a share."""
    place = re.sub(r"(?i)^localhost(?=/)", "", place)
    if not system.WINDOWS:
        return place
    if re.match(r"/?[A-Za-z]:", place):
        return place.removeprefix("/")
    return place if place.startswith(("/", ".")) else f"//{place}"


@contextlib.contextmanager
def on_this_machine(place: AnyPath, skip: Callable[[str], bool]) -> Iterator[Path]:
    """Gives a path on this machine: what lies behind a URL is copied, of a folder its files, and removed at the end."""
    if isinstance(place, Path):
        yield place
        return
    temporary = TemporaryFolder("landscape-copy-")
    try:
        target = temporary.path / place.name
        if place.is_dir():
            target.mkdir()
            for file in place.files():
                if not skip(file.name):
                    file.copy_to(target / file.name)
        elif place.is_file():
            place.copy_to(target)
        yield target
    finally:
        temporary.remove()


def with_slashes(place: object) -> str:
    """Returns a path with "/" between its parts on every system, or a URL as it is."""
    text = str(place)
    return text.replace("\\", "/") if system.WINDOWS and not is_url(text) else text


def has_lost_slashes(path: object) -> bool:
    """Returns whether a path was a URL until ``pathlib`` took one of its slashes."""
    return _LOST_SLASHES.match(with_slashes(path)) is not None


def lost_slashes_hint(path: object) -> str:
    """Returns what the error for a missing path adds if the path was a URL once, else an empty text."""
    return " A URL must be a str; a Path loses its slashes." if has_lost_slashes(path) else ""


def write_to(place: AnyPath, content: bytes) -> None:
    """Writes a file whole, on this machine or behind a URL."""
    if isinstance(place, RemotePath):
        RemotePath.write_bytes(place, content)
    else:
        write_bytes(place, content)


def removable_files(folder: AnyPath) -> Sequence[AnyPath]:
    """Returns a folder's files, and on this machine its links, whatever they lead to; none if it does not exist."""
    if isinstance(folder, RemotePath):
        return folder.files()
    return [path for path in folder.iterdir() if path.is_file() or path.is_symlink()] if folder.is_dir() else []


def is_url(path: object) -> bool:
    return isinstance(path, str) and _URL.match(path) is not None


def check_can_be_directory(name: str, path: Path, *, writable: bool = False) -> None:
    """Checks that a path of this machine is a directory or can become one; nothing is created."""
    _check_parts(name, path)
    existing = next(part for part in (path, *path.parents) if os.path.lexists(part))
    with naming(path):
        if not existing.is_dir():
            raise NotADirectoryError(f"{name} must be a directory, but {existing} is {_no_directory(existing)}.")
    effective = os.access in os.supports_effective_ids
    if writable and not os.access(existing, os.W_OK | os.X_OK, effective_ids=effective):
        raise PermissionError(
            f"{name} must be writable, but {existing} is not; choose another path or change its permissions."
        )


def check_can_be_file(name: str, path: Path) -> None:
    """Checks that a file can be written at a path of this machine, as far as directories matter."""
    _check_parts(name, path)
    with naming(path):
        if not path.parent.is_dir():
            exists = os.path.lexists(path.parent)
            came = f"is {_no_directory(path.parent)}" if exists else "does not exist; create it first"
            raise NotADirectoryError(f"{name} must lie in a directory that exists, but {path.parent} {came}.")
        if path.is_dir():
            raise IsADirectoryError(f"{name} must be the path of a file, but {path} is a directory; add a file name.")


def _no_directory(path: Path) -> str:
    return f"{'a file' if path.exists() else 'a link to what is not there'}; choose another path"


def _check_parts(name: str, path: Path) -> None:
    for part in path.parts:
        if part != path.anchor and system.refuses_name(part):
            raise wrong_value(name, f"a path without the part {part!r}, which Windows takes for no file", str(path))


def check_directory(name: str, path: object) -> AnyPath:
    """Returns where a directory is; ``file://`` is a folder of this machine like any other."""
    if isinstance(path, RemotePath):
        return path
    if not isinstance(path, str) or not is_url(path):
        return check_path(name, path)
    scheme, _, place = path.partition("://")
    if scheme.lower() in ("file", "local") and "::" not in path:
        return check_path(name, _of_file_url(unquote(place)))
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(
            f"{name} {path!r} is a URL, which needs the package fsspec: pip install 'summary-landscape[remote]'."
        ) from error
    try:
        return RemotePath(*url_to_fs(path))
    except ImportError as error:
        raise ImportError(
            f"{name} {path!r} needs another package ({error}); for s3:// that is pip install 'summary-landscape[s3]'."
        ) from error
    except ValueError as error:
        raise wrong_value(name, f"a path or a URL that fsspec knows ({error})", path) from error
    except Exception as error:
        raise RunDirectoryError(
            f"{name} {path!r} cannot be reached: {type(error).__name__}: {error}. Check the address, that its server "
            "is there, and your credentials."
        ) from error
