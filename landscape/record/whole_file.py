"""Files that are read whole, and rewritten whole and moved into place, so that a name never holds half a file."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from collectors.errors import FileWriteError, LandscapeError
from collectors.files import system
from collectors.files.file_kinds import ENOUGH_BYTES, other_kind
from collectors.files.local_files import writing
from collectors.files.places import AnyPath, check_directory, is_url, lost_slashes_hint
from collectors.files.remote_path import RemotePath
from collectors.validation import check_instance

from .. import errors
from ..replacing import first_bytes, not_replaced
from . import hdf5
from .checks import PointStatus, check_attributes, check_axis, check_status
from .hdf5 import KINDS, LANDSCAPE, FileKind

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
GivenPath: TypeAlias = str | os.PathLike[str] | RemotePath
# Large arrays are parts of their own, so that they need not be copied.
Image: TypeAlias = "bytes | Sequence[Buffer]"

_KINDS = {kind.format: kind for kind in KINDS}
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Twice the losses of samples that a file may hold, which are most of it.
_LARGEST_DOWNLOAD = 2**32
# Of a larger file, as one with the losses of samples, only parts are read for its header.
_READ_AT_ONCE = 2**22
_fetched: ContextVar[dict[str, bytes] | None] = ContextVar("fetched", default=None)


def write_image(path: str | os.PathLike[str], image: Image, kind: FileKind = LANDSCAPE) -> None:
    """Puts a file's bytes in place, or raises LandscapeWriteError and leaves what was on the disk untouched."""
    target = Path(path).resolve()
    with explained(path, kind), writing(target) as file:
        for part in parts_of(image):
            file.write(part)


@contextmanager
def explained(path: str | os.PathLike[str], kind: FileKind) -> Iterator[None]:
    """Makes a LandscapeWriteError of what keeps a file from being written."""
    try:
        yield
    except FileWriteError as error:
        target = Path(path).resolve()
        kept = "The file on the disk is untouched" if os.path.lexists(target) else "No file was there, and none is now"
        raise errors.LandscapeWriteError(
            f"{kind.word} file {path} cannot be written: {error.reason}. {kept}. "
            "Free some space or choose another output directory, then run again: it continues from the file."
        ) from error


def parts_of(image: Image) -> Sequence[Buffer]:
    return [image] if isinstance(image, bytes) else image


def read_whole(path: GivenPath, kind: FileKind, read: Callable[[Any, int], T]) -> T:
    """Returns what ``read``, which may raise anything for wrong contents, makes of the HDF5 file and its size."""
    import h5py

    path = path_of(path)
    source = _source(path, kind)
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    with _reading(path, kind):
        opened = _opened(source) if isinstance(source, bytes) else h5py.File(source, "r", locking="best-effort")
        with opened as file:
            version = _check_format(file, path, kind)
            found = read(file, size)
            # A version that became another one by a flipped bit has its digest still.
            if version > kind.oldest or hdf5.CONTENTS in file.attrs:
                hdf5.check_digest(file)
            return found


def check_replaceable(path: AnyPath, kind: FileKind) -> None:
    """Checks that a file may take the place of what is there; a damaged or empty file of ours may be replaced."""
    begins = first_bytes(path, len(_SIGNATURE))
    is_of_kind = begins != _SIGNATURE or _format_of(path, kind.format) == kind.format
    if not _SIGNATURE.startswith(begins) or not is_of_kind:
        raise not_replaced(path, kind.word)


def holds_ours(path: AnyPath) -> bool:
    # A pipe would be waited for.
    return (isinstance(path, RemotePath) or path.is_file()) and _format_of(path) in _KINDS


def kind_of(path: GivenPath) -> FileKind:
    """Returns of which of our kinds a file is; that of a landscape where it does not say, so that reading it does."""
    place = path_of(path)
    source, fetched = _source(place, LANDSCAPE), _fetched.get()
    if fetched is not None and isinstance(source, bytes):
        fetched[str(place)] = source
    return _KINDS.get(_format_of(source), LANDSCAPE)


@contextmanager
def fetched_once() -> Iterator[None]:
    """Keeps what ``kind_of`` fetched of a file behind a URL until the file is read."""
    token = _fetched.set({})
    try:
        yield
    finally:
        _fetched.reset(token)


def _format_of(source: AnyPath | bytes, damaged: str = "") -> Any:
    """Returns the attribute ``format`` of an HDF5 file, and ``damaged`` where that cannot be read."""
    try:
        with _opened(source) as file:
            return hdf5.read_attribute(file, "format")
    except Exception:  # the library reports damage by nearly every kind of exception
        return damaged


def read_file_attributes(path: GivenPath) -> dict[str, Any]:
    """Returns the attributes of a file of any of our kinds; the errors are those of ``read_whole``."""
    place = path_of(path)
    with fetched_once():
        return read_whole(place, kind_of(place), _attributes)


def _attributes(file: Any, _size: int) -> dict[str, Any]:
    attributes = hdf5.read_attributes(file)
    check_attributes(attributes)
    return attributes


@dataclass(frozen=True)
class Header:
    """What a file of ours says of itself; its measured values are not read, and may be damaged."""

    kind: FileKind
    complete: bool  # whether nothing is left to measure
    shape: tuple[int, ...]  # of its tasks: rows and columns of a grid, or how many sets of weights
    counts: Mapping[PointStatus, int]  # how many of them have each status
    numbers: Sequence[int]  # of a run's checkpoints whose curvature it holds; empty for other files
    axes: Sequence[Sequence[float]]  # the coordinates of a landscape's grid, x first; empty for other files
    attributes: Mapping[str, Any]  # as the file has them


def read_header(path: AnyPath) -> Header | None:
    """Returns what a file says of itself; None where it is an HDF5 file of another program."""
    source = _source(path, LANDSCAPE, _READ_AT_ONCE)
    with _reading(path, LANDSCAPE):
        size = path.size() if isinstance(path, RemotePath) else path.stat().st_size
        with _opened(source if isinstance(source, bytes) and len(source) == size else path) as file:
            kind = _KINDS.get(hdf5.read_attribute(file, "format"))
            if kind is None:
                return None
            _check_format(file, path, kind)
            names, reader = hdf5.member_names(file), hdf5.BoundedReader(size)
            status = reader.array(file["status"], "status")
            numbers = reader.array(file["number"], "number").tolist() if "number" in names else []
            check_status("status", status, status.shape)
            axes = [reader.array(file[name], name) for name in ("x", "y") if name in names]
            for axis in axes:
                check_axis("an axis", axis)
            attributes = _attributes(file, size)
            counts = {item: int((status == item).sum()) for item in PointStatus}
            complete, coordinates = bool(hdf5.read_attribute(file, "complete")), [axis.tolist() for axis in axes]
            return Header(kind, complete, status.shape, counts, numbers, coordinates, attributes)


def path_of(path: GivenPath) -> AnyPath:
    """Returns where a file lies, on this machine or behind a URL."""
    if isinstance(path, RemotePath) or is_url(path):
        return check_directory("path", path)
    return Path(check_instance("path", path, str | os.PathLike, "a path (str or os.PathLike)"))


@contextmanager
def _opened(source: AnyPath | bytes) -> Iterator[Any]:
    """Opens an HDF5 file, whoever has locked it."""
    import h5py

    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream, h5py.File(stream) as file:
        yield file


@contextmanager
def _reading(path: AnyPath, kind: FileKind) -> Iterator[None]:
    """Makes an error of ours of whatever reading a file raises."""
    try:
        yield
    except LandscapeError:
        raise
    except BlockingIOError as error:
        raise _locked(path, kind) from error
    except Exception as error:  # the library reports damage by nearly every kind of exception
        raise _damaged(path, f"{type(error).__name__}: {hdf5.reason(error)}", kind) from error


def _source(path: AnyPath, kind: FileKind, size: int | None = None) -> Path | bytes:
    """Returns a file, or at most ``size`` bytes of what is behind a URL, once it begins as a file of ours does."""
    if not isinstance(path, RemotePath):
        _check_openable(path, kind)
        return path
    fetched = (_fetched.get() or {}).pop(str(path), None)
    try:
        image = path.read_bytes(0, size or _LARGEST_DOWNLOAD) if fetched is None else fetched
    except FileNotFoundError as error:
        raise _not_found(path, kind) from error
    except OSError as error:
        raise LandscapeError(
            f"{kind.word} file {path} cannot be read: {error.strerror}. Check the address and your right to read there."
        ) from error
    if len(image) == _LARGEST_DOWNLOAD:
        raise errors.LandscapeFormatError(
            f"{path} has {_LARGEST_DOWNLOAD} bytes or more and can be no {kind.word} file. Correct the address."
        )
    if not image.startswith(_SIGNATURE):
        raise _no_signature(path, image[:ENOUGH_BYTES], kind)
    return image


def _check_openable(path: Path, kind: FileKind) -> None:
    try:
        with system.open_for_reading(path) as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            begins = file.read(ENOUGH_BYTES) if regular else b""
            locked = regular and system.is_locked_for_writing(file.fileno())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _not_found(path, kind) from error
    except IsADirectoryError as error:
        raise errors.LandscapeFormatError(
            f"the path {path} is a directory; give that of a {kind.word} file in it."
        ) from error
    except OSError as error:
        raise LandscapeError(
            f"{kind.word} file {path} cannot be opened: {error.strerror}. Correct its permissions or copy it."
        ) from error
    if not regular:
        raise errors.LandscapeFormatError(f"{path} is no regular file; give the path of a {kind.word} file.")
    if locked:
        raise _locked(path, kind)
    if not begins.startswith(_SIGNATURE):
        raise _no_signature(path, begins, kind)


def _locked(path: AnyPath, kind: FileKind) -> errors.LandscapeLockedError:
    return errors.LandscapeLockedError(
        f"{kind.word} file {path} is locked: another program has it open for writing. Close it there, or read a copy."
    )


def _not_found(path: AnyPath, kind: FileKind) -> errors.LandscapeNotFoundError:
    return errors.LandscapeNotFoundError(
        f"there is no {kind.word} file {path}. Measure the {kind.word} first, or correct the path."
        f"{lost_slashes_hint(path)}"
    )


def _no_signature(path: AnyPath, begins: bytes, kind: FileKind) -> LandscapeError:
    if not begins:
        return errors.LandscapeDamagedError(
            f"{kind.word} file {path} is empty. It was left as it is: copy it again from where it came, or measure it "
            "again with overwrite=True."
        )
    other = other_kind(begins)
    if other is not None:
        return errors.LandscapeFormatError(
            f"{path} is no {kind.word} file, but {other}. It was left as it is. To write a {kind.word} file, give "
            "another path."
        )
    if _SIGNATURE.startswith(begins):
        return _damaged(path, "it ends within its first bytes", kind)
    # Nobody is told to replace it, because it may be anything.
    return errors.LandscapeDamagedError(
        f"{kind.word} file {path} is damaged, or none at all: it does not begin as an HDF5 file does. It was left as "
        f"it is: give the path of a {kind.word} file; to write one, give another path."
    )


def _check_format(file: Any, path: AnyPath, kind: FileKind) -> int:
    found = hdf5.read_attribute(file, "format")
    if found != kind.format:
        ours = _KINDS.get(found)
        what = f"an HDF5 file of another program (its attribute 'format' is not {kind.format!r})"
        if ours is not None:
            what = f"a {ours.word} file, which {ours.reader} reads"
        raise errors.LandscapeFormatError(
            f"{path} is {what}. Give the path of a {kind.word} file; to write one, give another path."
        )
    version = int(hdf5.read_attribute(file, "format_version"))
    if not kind.oldest <= version <= kind.version:
        remedy = "Install a newer summary-landscape."
        if version < kind.oldest:
            remedy = "Measure it again with overwrite=True, or read it with the version that wrote it."
        raise errors.LandscapeFormatError(
            f"{kind.word} file {path} has format_version {version}, this program reads {kind.oldest} and "
            f"{kind.version}. {remedy}"
        )
    return version


def _damaged(path: AnyPath, why: str, kind: FileKind) -> errors.LandscapeDamagedError:
    return errors.LandscapeDamagedError(
        f"{kind.word} file {path} is damaged ({why}). It was left as it is: copy it again from where it came, "
        "or measure it again with overwrite=True."
    )
