"""Turns a landscape into the bytes of its file: equal data, equal bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import PLANE_BUFFERS_SUFFIX, PROJECTED_PREFIX

from .attributes import check_attributes
from .checkpoints import CheckpointsData, OriginData
from .checks import ordered
from .data import LandscapeData

FORMAT = "summary-landscape"
FORMAT_VERSION = 2
OWN_ATTRIBUTES = frozenset(("format", "format_version", "complete", "json_attributes"))
_NATIVE_ATTRIBUTES = frozenset(
    ("decomposition", "unit", "step_per_epoch", "num_samples", "seed", "normalization", "buffers", "network",
     "created", "title")
)  # fmt: skip
_TRACEBACK_LIMIT = 32 * 1024


def landscape_bytes(data: LandscapeData) -> bytes:
    """Returns a landscape as the bytes of its file.

    The file is built in memory: a full disk then meets ordinary writing rather than HDF5, which leaves its
    handles open when it fails while closing.

    Raises:
        TypeError: an attribute is no JSON value, or has the wrong type.
        ValueError: names, shapes, types or status values do not fit together.
    """
    data.validate()
    check_attributes(data.attributes)
    buffer = io.BytesIO()
    with _file_in(buffer) as file:
        _write_attributes(file, data)
        _write_grid(file, data)
        _write_errors(file, data.errors)
        _write_checkpoints(file, data)
        _write_origin(file, data.origin)
        directions = _group(file, "directions")
        for name, values in vars(data.directions).items():
            if values is not None:
                _put(directions, name, np.asarray(values, np.float64))
    return buffer.getvalue()


def _write_attributes(file: Any, data: LandscapeData) -> None:
    _put_text(file, "format", FORMAT)
    file.attrs["format_version"] = FORMAT_VERSION
    file.attrs["complete"] = data.complete
    as_json = []
    for name in sorted(set(data.attributes) - OWN_ATTRIBUTES):
        value = data.attributes[name]
        if name in _NATIVE_ATTRIBUTES and _is_native(value):
            if isinstance(value, str):
                _put_text(file, name, value)
            else:
                file.attrs[name] = value
        else:
            _put_text(file, name, _json(f"attribute {name!r}", value))
            as_json.append(name)
    _put_text(file, "json_attributes", json.dumps(as_json))


def _write_grid(file: Any, data: LandscapeData) -> None:
    _put(file, "x", data.x).make_scale("x")
    scales = [file["x"]]
    if data.y is not None:
        _put(file, "y", data.y).make_scale("y")
        scales.insert(0, file["y"])
    for name, values in (*ordered(data.metrics).items(), ("status", data.status)):
        dataset = _put(file, name, values)
        for axis, scale in enumerate(scales):
            dataset.dims[axis].attach_scale(scale)


def _write_errors(file: Any, errors: Mapping[str, str]) -> None:
    group = _group(file, "errors")
    errors = dict(sorted(errors.items()))
    # Points tend to fail for one reason: each different traceback is stored once.
    tracebacks = [_shortened(_text(traceback)) for traceback in errors.values()]
    unique = {text: index for index, text in enumerate(dict.fromkeys(tracebacks))}
    _put(group, "place", _texts([_text(place) for place in errors]))
    _put(group, "traceback_index", np.array([unique[text] for text in tracebacks], np.int64))
    _put(group, "traceback", _texts(list(unique)))


def checkpoint_columns(checkpoints: CheckpointsData) -> dict[str, NDArray[Any]]:
    """Returns the numbers of n checkpoints as columns by the names that they have in the file, ``number`` first."""
    columns: dict[str, NDArray[Any]] = {"number": checkpoints.number, "x": checkpoints.x}
    if checkpoints.y is not None:
        columns["y"] = checkpoints.y
    columns |= {"residual": checkpoints.residual, "norm": checkpoints.norm, "run": checkpoints.run}
    columns |= {"final": checkpoints.final.astype(np.uint8), "status": checkpoints.status}
    columns |= ordered(checkpoints.metrics)
    columns |= {PROJECTED_PREFIX + name: values for name, values in ordered(checkpoints.projected).items()}
    columns[f"{PROJECTED_PREFIX}status"] = checkpoints.projected_status
    if checkpoints.with_plane_buffers_status is not None:
        kept = ordered(checkpoints.with_plane_buffers)
        columns |= {name + PLANE_BUFFERS_SUFFIX: values for name, values in kept.items()}
        columns["with_plane_buffers_status"] = checkpoints.with_plane_buffers_status
    return columns


def _write_checkpoints(file: Any, data: LandscapeData) -> None:
    if data.checkpoints is None:
        return
    group = _group(file, "checkpoints")
    columns = checkpoint_columns(data.checkpoints)
    _put(group, "number", columns.pop("number")).make_scale("number")
    columns["name"] = _texts([_text(name) for name in data.checkpoints.name])
    for name, values in columns.items():
        _put(group, name, values).dims[0].attach_scale(group["number"])
    # A dimension of its own, without which xarray would not open the group.
    _put(group, "run_name", _texts([_text(name) for name in data.checkpoints.runs])).make_scale("run_name")


def _write_origin(file: Any, origin: OriginData) -> None:
    group = _group(file, "origin")
    for name, value in {"x": origin.x, "y": origin.y, **ordered(origin.metrics)}.items():
        if value is not None:
            _put(group, name, np.float64(value))
    _put(group, "status", np.uint8(origin.status))
    for name in ("role", "name", "run"):
        _put(group, name, _texts([_text(getattr(origin, name))])[0])
    if origin.number is not None:
        _put(group, "number", np.int64(origin.number))


def _file_in(buffer: io.BytesIO) -> Any:
    import h5py

    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, buffer)
    # The oldest layout with checksums over the metadata; every HDF5 since 2008 reads it.
    access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_V18)
    return h5py.File(h5py.h5f.create(b"landscape", h5py.h5f.ACC_TRUNC, fcpl=creation, fapl=access))


def _group(file: Any, name: str) -> Any:
    import h5py

    creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    creation.set_obj_track_times(False)
    return h5py.Group(h5py.h5g.create(file.id, name.encode(), gcpl=creation))


def _put(group: Any, name: str, values: Any) -> Any:
    return group.create_dataset(name, data=values, track_times=False)


def _put_text(file: Any, name: str, text: str) -> None:
    import h5py

    # Text of a fixed length: HDF5 keeps the other kind in a heap without checksums, and one damaged byte
    # there can keep it reading for ever.
    encoded = text.encode("utf-8")
    file.attrs.create(name, encoded, dtype=h5py.string_dtype("utf-8", max(len(encoded), 1)))


def _texts(texts: Sequence[bytes]) -> NDArray[Any]:
    import h5py

    return np.array(texts, h5py.string_dtype("utf-8", max([1, *map(len, texts)])))


def _text(text: str) -> bytes:
    # HDF5 strings end at a NUL and are UTF-8; a traceback may contain anything.
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")


def _shortened(traceback: bytes) -> bytes:
    # Every text of the array takes as much room as the longest.
    if len(traceback) <= _TRACEBACK_LIMIT:
        return traceback
    half = _TRACEBACK_LIMIT // 2
    text = traceback[:half].decode("utf-8", "ignore") + "\n[...]\n" + traceback[-half:].decode("utf-8", "ignore")
    return text.encode("utf-8")


def _is_native(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable()
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**63
    return isinstance(value, bool | float)


def _json(label: str, value: Any) -> str:
    def plain(item: Any) -> Any:
        if isinstance(item, np.ndarray | np.generic):
            return item.tolist()
        raise TypeError(f"{label} must be a JSON value, but has {type(item).__name__}: {item!r}.")

    return json.dumps(value, sort_keys=True, default=plain)
