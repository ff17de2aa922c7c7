"""Reads HDF5 data sets out of files that may come from anywhere.

Links out of the file, storage outside it and filters are refused before they are followed, and a shape is believed
only where the file is large enough to hold it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from collectors.network_state import Array

from .landscape_checks import MAXIMUM_AXIS_LENGTH

_MAXIMUM_MEMBERS = 10_000


class BoundedReader:
    """Reads members of groups until they have claimed as many bytes as the file has.

    Without the bound, a small file whose members all name the same bytes would fill the memory.
    """

    def __init__(self, size: int) -> None:
        self._remaining = size

    def members(self, group: Any) -> tuple[dict[str, Array], dict[str, Any]]:
        """Returns a group's arrays, read, and its groups, unread."""
        import h5py

        arrays, groups = {}, {}
        for name in member_names(group):
            member = group[name]
            if isinstance(member, h5py.Group):
                groups[name] = member
            elif isinstance(member, h5py.Dataset):
                arrays[name] = self.array(member, name)
        return arrays, groups

    def array(self, dataset: Any, name: str, kinds: str = "fiu") -> Array:
        """Returns a data set's values, when its type is of one of the kinds (NumPy's letters)."""
        self._check_storage(dataset, name)
        if dataset.dtype.kind not in kinds:
            raise ValueError(f"{name!r} has the type {dataset.dtype}")
        return np.array(dataset[()])

    def _check_storage(self, dataset: Any, name: str) -> None:
        import h5py

        shape = dataset.shape
        if shape is None or len(shape) > 2 or max(shape, default=0) > MAXIMUM_AXIS_LENGTH**2:
            raise ValueError(f"{name!r} has the shape {shape}")
        properties = dataset.id.get_create_plist()
        inside = properties.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
        if not inside or properties.get_external_count():
            raise ValueError(f"{name!r} is stored in chunks, by reference or in another file")
        claimed = math.prod(shape) * dataset.dtype.itemsize
        if dataset.id.get_storage_size() < claimed:
            raise ValueError(f"{name!r} claims {claimed} bytes, more than are there")
        self._charge(claimed, name)

    def _charge(self, count: int, name: str) -> None:
        self._remaining -= count
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
