"""The group ``samples`` of a landscape file: written chunk by chunk, and read without trusting anything in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..record.hdf5 import BoundedReader, as_texts, chunk_digest, member_names, put, put_group
from .sample_chunks import LEVEL, FiledChunks, SpooledChunks
from .samples import KeptLosses, check_size

GROUP = "samples"
_DIGESTS = "loss_sha256"
_FILTERS = [2, 1]  # HDF5's numbers of shuffling and gzip


def write_samples(file: Any, kept: Mapping[str, KeptLosses], scales: Sequence[Any]) -> None:
    """Adds losses of samples, targets and weights to an open HDF5 file with the axes ``scales``: y and x, or x."""
    if not kept:
        return
    root = put_group(file, GROUP)
    for name in sorted(kept):
        item = kept[name]
        group = put_group(root, name)
        put(group, "sample", np.arange(item.count, dtype=np.int64)).make_scale("sample")
        losses = group.create_dataset(
            "loss",
            (*item.shape, item.count),
            "<f4",
            chunks=(*(1 for _ in item.shape), item.count),
            shuffle=True,
            compression="gzip",
            compression_opts=LEVEL,
            fillvalue=np.nan,
            track_times=False,
        )
        digests = [b""] * math.prod(item.shape)
        for flat, chunk in item.chunks.items():
            losses.id.write_direct_chunk((*(int(index) for index in np.unravel_index(flat, item.shape)), 0), chunk)
            digests[flat] = chunk_digest(chunk)
        for axis, scale in enumerate((*scales, group["sample"])):
            losses.dims[axis].attach_scale(scale)
        digested = put(group, _DIGESTS, as_texts(digests).reshape(item.shape))
        for axis, scale in enumerate(scales):
            digested.dims[axis].attach_scale(scale)
        for label, values in (("target", item.targets), ("weight", item.weights)):
            if values is not None:
                put(group, label, values).dims[0].attach_scale(group["sample"])


def read_samples(
    reader: BoundedReader, root: Any, measured: NDArray[np.bool_], first: str | None
) -> dict[str, KeptLosses]:
    """Returns the losses of samples by the data set's name, the main one first; their values stay in the file."""
    flats = np.flatnonzero(measured)
    names = member_names(root)
    sizes: dict[str, int] = {}
    found: dict[str, KeptLosses] = {}
    for name in sorted(names, key=lambda name: (name != first, name)):
        group = root[name]
        columns = {label: group[label] for label in member_names(group)}
        losses = columns["loss"]
        sizes[name] = _check_losses(losses, measured.shape, len(flats), name)
        check_size(measured.shape, sizes)
        targets = reader.array(columns["target"], "target", "i") if "target" in columns else None
        weights = reader.array(columns["weight"], "weight", "f") if "weight" in columns else None
        # Files that were written before chunks had digests lack them.
        digests = (
            reader.array(columns[_DIGESTS], _DIGESTS, "S").ravel()[flats].tolist() if _DIGESTS in columns else None
        )
        found[name] = KeptLosses(
            name,
            measured.shape,
            sizes[name],
            None if targets is None else targets.astype(np.int64),
            None if weights is None else weights.astype(np.float64),
            _chunks_of(root.file, losses, flats, measured.shape, digests),
        )
    return found


def _chunks_of(
    file: Any, losses: Any, flats: NDArray[np.int64], shape: tuple[int, ...], digests: Sequence[bytes] | None
) -> FiledChunks | SpooledChunks:
    if file.driver != "fileobj":
        path, size = Path(file.filename).absolute(), losses.id.get_storage_size()
        return FiledChunks(path, losses.name, flats, shape, size, digests)
    # It came from a server, and its bytes are gone once it is read.
    chunks = SpooledChunks()
    for index, flat in enumerate(flats.tolist()):
        place = (*(int(index) for index in np.unravel_index(flat, shape)), 0)
        chunk = bytes(losses.id.read_direct_chunk(place)[1])
        if digests is not None and digests[index] != chunk_digest(chunk):
            raise ValueError(f"the losses of samples at point {place[:-1]} are not those that were written")
        chunks.add(flat, chunk)
    return chunks


def _check_losses(losses: Any, shape: tuple[int, ...], points: int, name: str) -> int:
    """Returns how many samples there are, after checking how their losses are stored."""
    count = losses.shape[-1] if losses.shape else 0
    chunk = (*(1 for _ in shape), count)
    properties = losses.id.get_create_plist()
    filters = [properties.get_filter(index)[0] for index in range(properties.get_nfilters())]
    expected = (*shape, count), np.dtype("<f4"), chunk, _FILTERS, 0
    found = losses.shape, losses.dtype, losses.chunks, filters, properties.get_external_count()
    if found != expected or count < 1:
        raise ValueError(f"the losses of samples {name!r} are stored as {found}, but {expected} was expected")
    if losses.id.get_num_chunks() != points:
        chunks = losses.id.get_num_chunks()
        raise ValueError(f"{chunks} points have losses of samples {name!r}, but {points} are measured")
    return int(count)
