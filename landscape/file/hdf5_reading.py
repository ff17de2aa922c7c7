"""Reads members and attributes of an open HDF5 file of ours, trusting nothing in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import MAXIMUM_AXIS_LENGTH
from .hdf5_writing import OWN_ATTRIBUTES

_MAXIMUM_MEMBERS = 10_000


def read_attribute(file: Any, name: str) -> Any:
    """Returns an attribute that is one number or one text of a fixed length; None for any other."""
    # Texts of variable length are not touched: HDF5 keeps them in a heap that has no checksums.
    import h5py

    if name not in file.attrs:
        return None
    attribute = file.attrs.get_id(name)
    if attribute.shape != () or attribute.dtype.kind not in "fiubS" or h5py.check_vlen_dtype(attribute.dtype):
        return None
    value = file.attrs[name]
    return value.decode("utf-8") if isinstance(value, bytes) else value.item()


def reason(error: object) -> str:
    """Returns an error's text in a line; of HDF5's reports of a failed read, only what the system reported."""
    # HDF5 adds the time, the descriptor and the address of a buffer, of which no user makes anything.
    text = str(error)
    # Their time ends with a line break.
    said = re.search(r"errno = \d+, error message = '([^']*)'", text)
    return said[1] if said else (text.splitlines() or [type(error).__name__])[0]


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
        self._check_storage(dataset, name)
        if dataset.dtype.kind not in kinds:
            raise ValueError(f"{name!r} has the type {dataset.dtype}")
        return np.array(dataset[()])

    def _check_storage(self, dataset: Any, name: str) -> None:
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
    """Returns tracebacks by place, as ``write_errors`` wrote them."""
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
