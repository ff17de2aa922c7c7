"""The landscape file: HDF5, rewritten as a whole and moved into place, so that the name never holds half a file.

Nothing in the bytes depends on when, where or by whom they were written: equal data give equal files. Every
grid array carries the HDF5 dimension scales ``x`` and ``y``, so that
``xarray.open_dataset(path, engine="h5netcdf")`` opens the file as it is.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collectors.checkpoint_file import replace_durably, temporary_sibling
from collectors.errors import LandscapeError
from collectors.network_state import Array

from .errors import (
    LandscapeDamagedError,
    LandscapeFormatError,
    LandscapeLockedError,
    LandscapeNotFoundError,
    LandscapeWriteError,
)
from .landscape_data import PLANE_BUFFERS_SUFFIX, PROJECTED_PREFIX, LandscapeData
from .landscape_identity import check_identity
from .landscape_lock import clean_temporaries, lock_landscape
from .landscape_reader import read_root

__all__ = ["check_identity", "clean_temporaries", "lock_landscape", "read_landscape", "write_landscape"]

FORMAT = "summary-landscape"
FORMAT_VERSION = 1
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NATIVE_ATTRIBUTES = frozenset(
    ("decomposition", "unit", "step_per_epoch", "num_samples", "seed", "normalization", "buffers", "network",
     "created", "title")
)  # fmt: skip
_OWN_ATTRIBUTES = frozenset(("format", "format_version", "complete", "json_attributes"))


def write_landscape(path: str | os.PathLike[str], data: LandscapeData) -> None:
    """Writes a landscape, replacing the file of that name once the new one is whole and on the disk.

    Raises:
        LandscapeWriteError: the file cannot be written; what was on the disk is untouched.
        TypeError: an attribute is no JSON value.
        ValueError: names, shapes, types or status values do not fit together.
    """
    target = Path(path).resolve()
    image = landscape_bytes(data)
    temporary = temporary_sibling(target)
    try:
        try:
            temporary.write_bytes(image)
            replace_durably(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        kept = "The file on the disk is untouched" if _exists(target) else "No file was there, and none is now"
        raise LandscapeWriteError(
            f"landscape file {path} cannot be written: {error.strerror or error}. {kept}. "
            "Free some space or choose another output directory, then run again: it goes on from the file."
        ) from error


def read_landscape(path: str | os.PathLike[str]) -> LandscapeData:
    """Reads a landscape into memory and closes the file; nothing on the disk changes.

    Raises:
        LandscapeNotFoundError: there is no such file.
        LandscapeLockedError: another program has the file open for writing.
        LandscapeDamagedError: it is truncated, no HDF5 file, or its contents do not fit together.
        LandscapeFormatError: it is another program's, or a newer version wrote it.
        LandscapeError: the operating system refuses to open it.
    """
    path = Path(path)
    _check_openable(path)
    import h5py

    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            _check_format(file, path)
            return read_root(file, path.stat().st_size, own_attributes=_OWN_ATTRIBUTES)
    except LandscapeError:
        raise
    except BlockingIOError as error:
        raise LandscapeLockedError(
            f"landscape file {path} is locked: another program has it open for writing. Close it there, or read a copy."
        ) from error
    except Exception as error:  # the library reports damage by nearly every kind of exception
        raise _damaged(path, f"{type(error).__name__}: {error}".splitlines()[0]) from error


def landscape_bytes(data: LandscapeData) -> bytes:
    """Returns a landscape as the bytes of its file.

    The file is built in memory: a full disk then meets ordinary writing rather than HDF5, which leaves its
    handles open when it fails while closing.

    Raises:
        TypeError: an attribute is no JSON value.
        ValueError: names, shapes, types or status values do not fit together.
    """
    import h5py

    data.validate()
    # The oldest layout, because only there h5py < 3.16 cannot store times in groups.
    with h5py.File("landscape", "w", driver="core", backing_store=False, libver=("v108", "v108")) as file:
        _write_attributes(file, data)
        _write_grid(file, data)
        _write_errors(file, data.errors)
        _write_trajectory(file, data)
        convergence = file.create_group("convergence")
        _put(convergence, "x", np.float64(data.convergence.x))
        if data.convergence.y is not None:
            _put(convergence, "y", np.float64(data.convergence.y))
        for name, value in data.convergence.metrics.items():
            _put(convergence, name, np.float64(value))
        _put(convergence, "status", np.uint8(data.convergence.status))
        directions = file.create_group("directions")
        _put(directions, "norms", data.directions.norms)
        if data.directions.explained_variance_ratio is not None:
            _put(directions, "explained_variance_ratio", data.directions.explained_variance_ratio)
        if data.directions.cosine is not None:
            _put(directions, "cosine", np.float64(data.directions.cosine))
        file.flush()
        return bytes(file.id.get_file_image())


def _write_attributes(file: Any, data: LandscapeData) -> None:
    file.attrs["format"] = FORMAT
    file.attrs["format_version"] = FORMAT_VERSION
    file.attrs["complete"] = data.complete
    as_json = []
    for name in sorted(set(data.attributes) - _OWN_ATTRIBUTES):
        value = data.attributes[name]
        if name in _NATIVE_ATTRIBUTES and _is_native(value):
            file.attrs[name] = value
        else:
            file.attrs[name] = _json(f"attribute {name!r}", value)
            as_json.append(name)
    file.attrs["json_attributes"] = json.dumps(as_json)


def _write_grid(file: Any, data: LandscapeData) -> None:
    _put(file, "x", data.x).make_scale("x")
    scales = [file["x"]]
    if data.y is not None:
        _put(file, "y", data.y).make_scale("y")
        scales.insert(0, file["y"])
    for name, values in (*data.metrics.items(), ("status", data.status)):
        dataset = _put(file, name, values)
        for axis, scale in enumerate(scales):
            dataset.dims[axis].attach_scale(scale)


def _write_errors(file: Any, errors: Mapping[str, str]) -> None:
    import h5py

    group = file.create_group("errors")
    places = [_text(place) for place in errors]
    # Points tend to fail for one reason: each different traceback is stored once.
    tracebacks = [_text(traceback) for traceback in errors.values()]
    unique = {text: index for index, text in enumerate(dict.fromkeys(tracebacks))}
    width = max((len(place) for place in places), default=1)
    _put(group, "place", np.array(places, f"S{max(width, 1)}"))
    _put(group, "traceback_index", np.array([unique[text] for text in tracebacks], np.int64))
    _put(group, "traceback", list(unique), h5py.string_dtype())


def _write_trajectory(file: Any, data: LandscapeData) -> None:
    trajectory = data.trajectory
    if trajectory is None:
        return
    group = file.create_group("trajectory")
    _put(group, "number", trajectory.number).make_scale("number")
    columns: dict[str, Array] = {"x": trajectory.x}
    if trajectory.y is not None:
        columns["y"] = trajectory.y
    columns |= {"residual": trajectory.residual, "norm": trajectory.norm, "status": trajectory.status}
    columns |= trajectory.metrics
    columns |= {PROJECTED_PREFIX + name: values for name, values in trajectory.projected.items()}
    columns[f"{PROJECTED_PREFIX}status"] = trajectory.projected_status
    if trajectory.with_plane_buffers_status is not None:
        kept = trajectory.with_plane_buffers
        columns |= {name + PLANE_BUFFERS_SUFFIX: values for name, values in kept.items()}
        columns["with_plane_buffers_status"] = trajectory.with_plane_buffers_status
    for name, values in columns.items():
        _put(group, name, values).dims[0].attach_scale(group["number"])


def _put(group: Any, name: str, values: Any, dtype: Any = None) -> Any:
    return group.create_dataset(name, data=values, dtype=dtype, track_times=False)


def _text(text: str) -> bytes:
    # HDF5 strings end at a NUL and are UTF-8; a traceback may contain anything.
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")


def _is_native(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" not in value and value.isascii()
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**63
    return isinstance(value, bool | float)


def _json(label: str, value: Any) -> str:
    def plain(item: Any) -> Any:
        if isinstance(item, np.ndarray | np.generic):
            return item.tolist()
        raise TypeError(f"{label} must be a JSON value, but has {type(item).__name__}: {item!r}.")

    return json.dumps(value, sort_keys=True, default=plain)


def _check_openable(path: Path) -> None:
    try:
        # Opening a named pipe would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            signature = file.read(len(_SIGNATURE)) if regular else b""
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LandscapeNotFoundError(
            f"there is no landscape file {path}. Measure the landscape first, or correct the path."
        ) from error
    except IsADirectoryError as error:
        raise LandscapeFormatError(f"{path} is a directory; give the path of a landscape file in it.") from error
    except OSError as error:
        raise LandscapeError(
            f"landscape file {path} cannot be opened: {error.strerror}. Correct its permissions or copy it."
        ) from error
    if not regular:
        raise LandscapeFormatError(f"{path} is no regular file; give the path of a landscape file.")
    if signature != _SIGNATURE:
        raise _damaged(path, "it does not begin as an HDF5 file does")


def _check_format(file: Any, path: Path) -> None:
    if "format" not in file.attrs or file.attrs["format"] != FORMAT:
        raise LandscapeFormatError(
            f"{path} is an HDF5 file of another program (its attribute 'format' is not {FORMAT!r}). "
            "Give the path of a landscape file, or another name= to write one."
        )
    version = int(file.attrs["format_version"])
    if version != FORMAT_VERSION:
        raise LandscapeFormatError(
            f"landscape file {path} has format_version {version}, this program reads {FORMAT_VERSION}. "
            "Install a newer summary-landscape."
        )


def _damaged(path: Path, why: str) -> LandscapeDamagedError:
    return LandscapeDamagedError(
        f"landscape file {path} is damaged ({why}). It was left as it is: copy it again from where it came, "
        "or measure it again with overwrite=True or another name=."
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
