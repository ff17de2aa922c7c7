"""Our HDF5 files: their kinds; arrays, texts, attributes and the digest, read without trusting anything."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import MAXIMUM_AXIS_LENGTH

CONTENTS = "contents"
OWN_ATTRIBUTES = frozenset(("format", "format_version", "complete", "json_attributes", CONTENTS))
_NATIVE_ATTRIBUTES = frozenset(
    ("decomposition", "unit", "step_per_epoch", "num_samples", "seed", "normalization", "buffers", "network",
     "created", "title", "matrix", "top", "bottom", "weights")
)  # fmt: skip
_TRACEBACK_LIMIT = 32 * 1024
_MAXIMUM_MEMBERS = 10_000


@dataclass(frozen=True)
class FileKind:
    word: str  # what it holds, as texts call it
    format: str  # its attribute ``format``
    version: int  # the ``format_version`` that is written
    oldest: int  # the oldest one that is read; HDF5 files of it have no digest of their contents
    reader: str  # what reads it, as a user calls it


LANDSCAPE = FileKind("landscape", "summary-landscape", 3, 2, "Landscape.load")
CURVATURE = FileKind("curvature", "summary-landscape-curvature", 2, 1, "Curvature.load")
COMPARISON = FileKind("comparison", "summary-landscape-comparison", 2, 1, "Comparison.load")
KINDS = (LANDSCAPE, CURVATURE, COMPARISON)


def write_attributes(file: Any, kind: FileKind, attributes: Mapping[str, Any], *, complete: bool) -> None:
    """Writes a file's attributes: those of every file of ours, and JSON values by name."""
    put_text(file, "format", kind.format)
    file.attrs["format_version"] = kind.version
    file.attrs["complete"] = complete
    as_json = []
    for name in sorted(set(attributes) - OWN_ATTRIBUTES):
        value = attributes[name]
        if name not in _NATIVE_ATTRIBUTES or not _is_native(value):
            value = _json(f"attribute {name!r}", value)
            as_json.append(name)
        if isinstance(value, str):
            put_text(file, name, value)
        else:
            file.attrs[name] = value
    put_text(file, "json_attributes", json.dumps(as_json))


def write_errors(file: Any, errors: Mapping[str, str]) -> None:
    group = put_group(file, "errors")
    errors = dict(sorted(errors.items()))
    # Points tend to fail for one reason: each different traceback is stored once.
    tracebacks = [_shortened(as_text(traceback)) for traceback in errors.values()]
    unique = {text: index for index, text in enumerate(dict.fromkeys(tracebacks))}
    put(group, "place", as_texts(errors))
    put(group, "traceback_index", np.array([unique[text] for text in tracebacks], np.int64))
    put(group, "traceback", as_texts(unique))


def file_in(buffer: io.BytesIO) -> Any:
    """Returns a new HDF5 file in a buffer, without any times in it."""
    import h5py

    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, buffer)
    # The oldest layout with checksums over the metadata; every HDF5 since 2008 reads it.
    access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_V18)
    return h5py.File(h5py.h5f.create(b"landscape", h5py.h5f.ACC_TRUNC, fcpl=creation, fapl=access))


def put_group(file: Any, name: str) -> Any:
    import h5py

    creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    creation.set_obj_track_times(False)
    return h5py.Group(h5py.h5g.create(file.id, name.encode(), gcpl=creation))


def put(group: Any, name: str, values: Any, scales: Sequence[Any] = ()) -> Any:
    """Returns a new data set, whose axes have the scales."""
    return scaled(group.create_dataset(name, data=values, track_times=False), scales)


def scaled(dataset: Any, scales: Sequence[Any]) -> Any:
    for axis, scale in enumerate(scales):
        dataset.dims[axis].attach_scale(scale)
    return dataset


def put_text(file: Any, name: str, text: str) -> None:
    # Text of a fixed length: HDF5 keeps the other kind in a heap without checksums, and one damaged byte
    # there can keep it reading for ever.
    encoded = text.encode("utf-8")
    file.attrs.create(name, encoded, dtype=as_texts([encoded]).dtype)


def as_texts(texts: Iterable[str | bytes]) -> NDArray[Any]:
    """Returns texts, encoded or not, as an array that can be stored."""
    import h5py

    encoded = [text if isinstance(text, bytes) else as_text(text) for text in texts]
    return np.array(encoded, h5py.string_dtype("utf-8", max([1, *map(len, encoded)])))


def as_text(text: str) -> bytes:
    """Returns a text encoded so that it can be stored."""
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
    return isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _json(label: str, value: Any) -> str:
    def plain(item: Any) -> Any:
        if isinstance(item, np.ndarray | np.generic):
            return item.tolist()
        raise TypeError(f"{label} must be a JSON value, but has {type(item).__name__}: {item!r}.")

    return json.dumps(value, sort_keys=True, default=plain)


def read_attribute(file: Any, name: str) -> Any:
    """Returns an attribute that is one number or one text of a fixed length; None for any other."""
    if name not in file.attrs:
        return None
    attribute = file.attrs.get_id(name)
    # Texts of variable length, of the kind "O", are not touched: HDF5 keeps them in a heap that has no checksums.
    if attribute.shape != () or attribute.dtype.kind not in "fiubS":
        return None
    value = file.attrs[name]
    return value.decode("utf-8") if isinstance(value, bytes) else value.item()


def reason(error: object) -> str:
    """Returns an error's text in a line; of HDF5's reports of a failed read, only what the system reported."""
    # HDF5 adds the time, the descriptor and the address of a buffer, of which no user makes anything.
    text = str(error)
    # Their time ends with a line break.
    found = re.search(r"errno = \d+, error message = '([^']*)'", text)
    return found[1] if found else (text.splitlines() or [type(error).__name__])[0]


class BoundedReader:
    """Reads arrays of at most ``axes`` axes until they have claimed the file's ``size`` bytes."""

    # Without the bound, a small file whose members all name the same bytes would fill the memory.

    def __init__(self, size: int, axes: int = 2) -> None:
        self._remaining, self._axes = size, axes

    def members(self, group: Any, texts: Sequence[str] = ()) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Returns a group's arrays, read, and its groups, unread; ``texts`` names the arrays of texts among them."""
        import h5py

        arrays, groups = {}, {}
        for name in member_names(group):
            member = group[name]
            if isinstance(member, h5py.Group):
                groups[name] = member
            elif isinstance(member, h5py.Dataset):
                arrays[name] = self.array(member, name, "S" if name in texts else "fiu")
        return arrays, groups

    def array(self, dataset: Any, name: str, kinds: str = "fiu") -> NDArray[Any]:
        """Returns a data set's values, when its type is of one of the kinds (NumPy's letters)."""
        import h5py

        shape = dataset.shape
        if shape is None or len(shape) > self._axes or max(shape, default=0) > MAXIMUM_AXIS_LENGTH**2:
            raise ValueError(f"{name!r} has the shape {shape}")
        properties = dataset.id.get_create_plist()
        inside = properties.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
        if not inside or properties.get_external_count():
            raise ValueError(f"{name!r} is stored in chunks, by reference or in another file")
        claimed = math.prod(shape) * dataset.dtype.itemsize
        if dataset.id.get_storage_size() < claimed:
            raise ValueError(f"{name!r} claims {claimed} bytes, more than are there")
        self._remaining -= claimed
        if self._remaining < 0:
            raise ValueError(f"{name!r} claims more bytes than the file has")
        if dataset.dtype.kind not in kinds:
            raise ValueError(f"{name!r} has the type {dataset.dtype}")
        return np.array(dataset[()])


def member_names(group: Any) -> list[str]:
    """Returns the names of a group's members, all of which are in the file itself."""
    import h5py

    if len(group) > _MAXIMUM_MEMBERS:
        raise ValueError(f"a group claims {len(group)} members")
    names = list(group)
    for name in names:
        # A soft or an external link may lead to any file that this user can read.
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name!r} is a link to another place")
    return names


def read_errors(reader: BoundedReader, group: Any) -> dict[str, str]:
    if not {"place", "traceback", "traceback_index"} <= set(member_names(group)):
        raise ValueError("errors lacks a data set")
    places = reader.array(group["place"], "errors/place", kinds="S")
    indices = reader.array(group["traceback_index"], "errors/traceback_index")
    tracebacks = reader.array(group["traceback"], "errors/traceback", kinds="S")
    if places.shape != indices.shape or (indices < 0).any():
        raise ValueError(f"errors has {places.shape} places and {indices.shape} indices")
    texts = [text.decode("utf-8") for text in tracebacks]
    return {place.decode("utf-8"): texts[index] for place, index in zip(places, indices, strict=True)}


def read_attributes(file: Any) -> dict[str, Any]:
    """Returns the file's attributes, JSON decoded; what other programs may have added in other types is left."""
    as_json = set(json.loads(read_attribute(file, "json_attributes")))
    attributes = {}
    for name in file.attrs:
        value = None if name in OWN_ATTRIBUTES else read_attribute(file, name)
        if value is not None:
            attributes[name] = json.loads(value) if name in as_json else value
    return attributes


def write_digest(file: Any) -> None:
    """Adds the digest of all that an open file holds."""
    names = sorted(file.attrs)
    put_text(file, CONTENTS, json.dumps({"sha256": _digest(file, names), "attributes": names}))


def check_digest(file: Any) -> None:
    """Raises a ValueError where an open file's contents differ from those whose digest was written."""
    written = json.loads(read_attribute(file, CONTENTS))
    if _digest(file, written["attributes"]) != written["sha256"]:
        raise ValueError("its contents are not those that were written, for their SHA-256 differs")


def chunk_digest(chunk: bytes) -> bytes:
    return hashlib.sha256(chunk).hexdigest().encode()


def _digest(file: Any, attributes: Sequence[str]) -> str:
    found = hashlib.sha256()
    for name in attributes:
        found.update(repr((name, read_attribute(file, name))).encode())
    for part in _parts(file):
        found.update(part)
    return found.hexdigest()


def _parts(group: Any) -> Iterator[bytes]:
    import h5py

    for name in sorted(member_names(group)):
        member = group[name]
        if isinstance(member, h5py.Group):
            yield repr((name, len(member))).encode()
            yield from _parts(member)
        else:
            yield repr((name, member.dtype.str, member.shape)).encode()
            if member.chunks is None:
                yield np.asarray(member[()]).tobytes()
