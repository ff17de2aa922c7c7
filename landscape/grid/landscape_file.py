"""The landscape file, written and read whole: equal data give equal bytes, which xarray's h5netcdf engine opens."""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from collectors.errors import LandscapeError
from workers.metric_names import PLANE_BUFFERS_SUFFIX, PROJECTED_PREFIX, name_in_set

from ..record import hdf5
from ..record.checks import PointStatus, check_attributes, ordered
from ..record.whole_file import GivenPath, Image, path_of, read_whole
from ..record.writer import FileFormat, save_whole
from .checkpoints import CheckpointsData, OriginData
from .data import DirectionsData, LandscapeData
from .sample_chunks import LEVEL, Chunks, FiledChunks, JournalChunks, SampleJournal, SpooledChunks, place_on_grid
from .samples import UNNAMED, KeptLosses, check_size

_FIXED = ("x", "y", "status")
_FIXED_COLUMNS = (
    "number", "x", "y", "residual", "norm", "run", "status", "projected_status", "with_plane_buffers_status",
)  # fmt: skip
_FIXED_OF_ORIGIN = ("x", "y", "status", "number")
_CHECKPOINT_TEXTS = ("name", "run_name", "sha256")
_ORIGIN_TEXTS = ("role", "name", "run")
_SAMPLES = "samples"
_REDUCTION = "reduction"
_DIGESTS = "loss_sha256"
_FILTERS = [2, 1]  # HDF5's numbers of shuffling and gzip
_COMPRESSED: dict[str, Any] = {
    "shuffle": True, "compression": "gzip", "compression_opts": LEVEL, "track_times": False,
}  # fmt: skip


def read_landscape(path: GivenPath) -> LandscapeData:
    place = path_of(path)
    data = read_whole(place, hdf5.LANDSCAPE, read_root)
    data.path = place
    return data


class UnfinishedLandscape(SampleJournal):
    """A landscape file while it is measured: the losses of samples are added to a journal beside it."""

    def image(self, data: LandscapeData) -> Image | None:
        """Returns the file without the losses of samples, which ``write`` adds to the journal; None without any."""
        if not data.kept_samples:
            return None
        chunks = [data.kept_samples[name].chunks for name in sorted(data.kept_samples)]
        self.collect(cast("list[SpooledChunks]", chunks))
        return landscape_bytes(data, with_chunks=False)


def landscape_bytes(data: LandscapeData, *, with_chunks: bool = True) -> bytes:
    # In memory, a full disk meets ordinary writing, not HDF5, which leaves its handles open when it fails in closing.
    data.validate()
    check_attributes(data.attributes)
    buffer = io.BytesIO()
    with hdf5.file_in(buffer) as file:
        measured, kept = data.status == PointStatus.MEASURED, data.kept_samples.values()
        whole = not kept or (with_chunks and all(samples.measured[measured].all() for samples in kept))
        hdf5.write_attributes(file, hdf5.LANDSCAPE, data.attributes, complete=data.complete and whole)
        axes = {"x": data.x} if data.y is None else {"x": data.x, "y": data.y}
        for name, axis in axes.items():
            hdf5.put(file, name, axis).make_scale(name)
        scales = [file[name] for name in reversed(axes)]
        for name, values in (*ordered(data.metrics).items(), ("status", data.status)):
            hdf5.put(file, name, values, scales)
        _write_samples(file, data.kept_samples, measured, scales, with_chunks=with_chunks)
        hdf5.write_errors(file, data.errors)
        _write_checkpoints(file, data)
        _write_origin(file, data.origin)
        directions = hdf5.put_group(file, "directions")
        for name, values in vars(data.directions).items():
            if values is not None:
                hdf5.put(directions, name, np.asarray(values, np.float64))
        hdf5.write_digest(file)
    return buffer.getvalue()


def checkpoint_columns(checkpoints: CheckpointsData) -> dict[str, NDArray[Any]]:
    """Returns the numbers of n checkpoints as columns by the names that they have in the file, ``number`` first."""
    columns = {
        **{name: getattr(checkpoints, name) for name in ("number", "x", "y", "residual", "norm", "run")},
        "final": checkpoints.final.astype(np.uint8),
        "status": checkpoints.status,
        **ordered(checkpoints.metrics),
        **{PROJECTED_PREFIX + name: values for name, values in ordered(checkpoints.projected).items()},
        f"{PROJECTED_PREFIX}status": checkpoints.projected_status,
        **{name + PLANE_BUFFERS_SUFFIX: values for name, values in ordered(checkpoints.with_plane_buffers).items()},
        "with_plane_buffers_status": checkpoints.with_plane_buffers_status,
    }
    return {name: values for name, values in columns.items() if values is not None}


def _write_checkpoints(file: Any, data: LandscapeData) -> None:
    if data.checkpoints is None:
        return
    group = hdf5.put_group(file, "checkpoints")
    columns = checkpoint_columns(data.checkpoints)
    hdf5.put(group, "number", columns.pop("number")).make_scale("number")
    for texts in ("name", "sha256"):
        columns[texts] = hdf5.as_texts(getattr(data.checkpoints, texts))
    for name, values in columns.items():
        hdf5.put(group, name, values, [group["number"]])
    # A dimension of its own, without which xarray would not open the group.
    hdf5.put(group, "run_name", hdf5.as_texts(data.checkpoints.runs)).make_scale("run_name")


def _write_origin(file: Any, origin: OriginData) -> None:
    group = hdf5.put_group(file, "origin")
    for name, value in {"x": origin.x, "y": origin.y, **ordered(origin.metrics)}.items():
        if value is not None:
            hdf5.put(group, name, np.float64(value))
    hdf5.put(group, "status", np.uint8(origin.status))
    for name in _ORIGIN_TEXTS:
        hdf5.put(group, name, hdf5.as_texts([getattr(origin, name)])[0])
    if origin.number is not None:
        hdf5.put(group, "number", np.int64(origin.number))


def read_root(file: Any, size: int) -> LandscapeData:
    """Returns a landscape from an open HDF5 file of ``size`` bytes; raises anything where its contents are wrong."""
    reader = hdf5.BoundedReader(size)
    arrays, groups = reader.members(file)
    directions, _ = reader.members(groups["directions"])
    data = LandscapeData(
        x=arrays["x"],
        y=arrays.get("y"),
        metrics=ordered({name: values for name, values in arrays.items() if name not in _FIXED}),
        status=arrays["status"],
        directions=DirectionsData(
            directions["norms"],
            cosine=float(directions["cosine"]) if "cosine" in directions else None,
            **{name: directions.get(name) for name in ("explained_variance_ratio", "eigenvalues", "residuals")},
        ),
        origin=_origin(reader, groups["origin"]),
        checkpoints=_checkpoints(reader, groups["checkpoints"]) if "checkpoints" in groups else None,
        errors=hdf5.read_errors(reader, groups["errors"]),
        attributes=hdf5.read_attributes(file),
    )
    data.validate()
    check_attributes(data.attributes)
    if _SAMPLES in groups:
        sets = data.attributes.get("datasets")
        first = sets[0]["name"] if sets else None
        data.kept_samples = _read_samples(reader, groups[_SAMPLES], data.status == PointStatus.MEASURED, first)
        for name, kept in data.kept_samples.items():
            if _REDUCTION not in groups[_SAMPLES][name]["loss"].attrs:
                metric = "loss" if name in (first, UNNAMED) else name_in_set("loss", name)
                kept.is_sum = metric in data.metrics and _adds_up(kept, data.metrics[metric])
        data.validate()
    return data


def _checkpoints(reader: hdf5.BoundedReader, group: Any) -> CheckpointsData:
    columns, _ = reader.members(group, _CHECKPOINT_TEXTS)
    # Files that were written before checkpoints had digests lack them.
    columns.setdefault("sha256", np.full(len(columns["name"]), b""))
    texts: dict[str, Any] = {name: tuple(item.decode() for item in columns.pop(name)) for name in _CHECKPOINT_TEXTS}
    final = columns.pop("final")
    if final.dtype != np.uint8 or (final > 1).any():
        raise ValueError(f"'final' must hold 0 or 1, but has {final.dtype} values up to {final.max(initial=0)}")
    fixed: dict[str, Any] = {name: columns.pop(name) for name in _FIXED_COLUMNS if name in columns}
    feet = {name: columns.pop(name) for name in list(columns) if name.startswith(PROJECTED_PREFIX)}
    others = {name: columns.pop(name) for name in list(columns) if name.endswith(PLANE_BUFFERS_SUFFIX)}
    return CheckpointsData(
        **{"y": None, "with_plane_buffers_status": None, **fixed},
        metrics=ordered(columns),
        projected=ordered({name.removeprefix(PROJECTED_PREFIX): values for name, values in feet.items()}),
        with_plane_buffers=ordered({name.removesuffix(PLANE_BUFFERS_SUFFIX): others[name] for name in others}),
        runs=texts.pop("run_name"),
        final=final.astype(np.bool_),
        **texts,
    )


def _origin(reader: hdf5.BoundedReader, group: Any) -> OriginData:
    values, _ = reader.members(group, _ORIGIN_TEXTS)
    texts = {name: values.pop(name).item().decode("utf-8") for name in _ORIGIN_TEXTS}
    return OriginData(
        x=float(values["x"]),
        y=float(values["y"]) if "y" in values else None,
        metrics=ordered({name: float(value) for name, value in values.items() if name not in _FIXED_OF_ORIGIN}),
        status=PointStatus(int(values["status"])),
        number=int(values["number"]) if "number" in values else None,
        **texts,
    )


def _write_samples(
    file: Any,
    kept: Mapping[str, KeptLosses],
    measured: NDArray[np.bool_],
    scales: Sequence[Any],
    *,
    with_chunks: bool,
) -> None:
    """Adds losses of samples, targets and weights to an open HDF5 file with the axes ``scales``: y and x, or x."""
    if not kept:
        return
    root = hdf5.put_group(file, _SAMPLES)
    for name in sorted(kept):
        item = kept[name]
        group = hdf5.put_group(root, name)
        # As it is written every few seconds; nobody needs it but xarray, as a scale.
        numbers = np.arange(item.count, dtype=np.int64)
        group.create_dataset("sample", data=numbers, chunks=True, **_COMPRESSED).make_scale("sample")
        chunk_shape = (*(1 for _ in item.shape), item.count)
        losses = group.create_dataset(
            "loss", (*item.shape, item.count), "<f4", chunks=chunk_shape, fillvalue=np.nan, **_COMPRESSED
        )
        # A point that is to be measured again may have some of its losses.
        flats = [flat for flat in item.chunks if measured.reshape(-1)[flat]]
        digests = [b""] * math.prod(item.shape)
        if isinstance(item.chunks, SpooledChunks) and not with_chunks:
            for flat in flats:
                digests[flat] = item.chunks.digest(flat)
        for flat, chunk in item.chunks.items(flats) if with_chunks else ():
            losses.id.write_direct_chunk((*place_on_grid(flat, item.shape), 0), chunk)
            digests[flat] = hdf5.chunk_digest(chunk)
        hdf5.put_text(losses, _REDUCTION, "sum" if item.is_sum else "mean")
        hdf5.scaled(losses, (*scales, group["sample"]))
        hdf5.put(group, _DIGESTS, hdf5.as_texts(digests).reshape(item.shape), scales)
        for label, values in (("target", item.targets), ("weight", item.weights)):
            if values is not None:
                hdf5.put(group, label, values, [group["sample"]])


def _read_samples(
    reader: hdf5.BoundedReader, root: Any, measured: NDArray[np.bool_], first: str | None
) -> dict[str, KeptLosses]:
    """Returns the losses of samples by the data set's name, the main one first; their values stay in the file."""
    flats = np.flatnonzero(measured).tolist()
    sizes: dict[str, int] = {}
    found: dict[str, KeptLosses] = {}
    for name in sorted(hdf5.member_names(root), key=lambda name: (name != first, name)):
        group = root[name]
        columns = {label: group[label] for label in hdf5.member_names(group)}
        losses = columns["loss"]
        sizes[name] = _check_losses(losses, measured.shape, name)
        check_size(measured.shape, sizes)
        targets = reader.array(columns["target"], "target", "i").astype(np.int64) if "target" in columns else None
        weights = reader.array(columns["weight"], "weight", "f").astype(np.float64) if "weight" in columns else None
        # Files that were written before chunks had digests lack them.
        digests = dict.fromkeys(flats, b"")
        if _DIGESTS in columns:
            stored = reader.array(columns[_DIGESTS], _DIGESTS, "S").ravel()[flats].tolist()
            digests = {flat: digest for flat, digest in zip(flats, stored, strict=True) if digest}
        count, complete = losses.id.get_num_chunks(), bool(hdf5.read_attribute(root.file, "complete"))
        # Those of an unfinished file may lie beside it, and some may be lost.
        if count not in ((len(flats),) if complete else (0, len(digests))):
            raise ValueError(f"{count} points have losses of samples {name!r}, but {len(flats)} are measured")
        chunks = _chunks_of(losses, sorted(root).index(name), digests)
        is_sum = hdf5.read_attribute(losses, _REDUCTION) == "sum"
        found[name] = KeptLosses(name, measured.shape, sizes[name], targets, weights, chunks, is_sum)
    return found


def _adds_up(kept: KeptLosses, loss: NDArray[Any]) -> bool:
    """Returns whether a loss is the sum of its samples', in a file of an earlier version, which does not say so."""
    for flat in kept.chunks:
        with contextlib.suppress(LandscapeError):  # of a damaged chunk, which is raised where it is asked for
            each = kept.at(*place_on_grid(flat, kept.shape))[kept.counted].astype(np.float64)
            if np.isfinite(each.sum()) and each.any():
                value = loss.reshape(-1)[flat]
                return kept.weights is None and abs(each.sum() - value) < abs(each.mean() - value)
    return False


def _chunks_of(losses: Any, number: int, digests: Mapping[int, bytes]) -> Chunks:
    file, shape = losses.file, losses.shape[:-1]
    path, size, is_unfinished = Path(file.filename), losses.id.get_storage_size(), losses.id.get_num_chunks() == 0
    if file.driver != "fileobj":
        if is_unfinished:
            return JournalChunks(path, number, digests)
        return FiledChunks(path.absolute(), losses.name, shape, size, digests)
    # It came from a server, and its bytes are gone once it is read.
    chunks = SpooledChunks()
    for flat, digest in () if is_unfinished else digests.items():
        place = place_on_grid(flat, shape)
        chunk = bytes(losses.id.read_direct_chunk((*place, 0))[1])
        if digest not in (b"", hdf5.chunk_digest(chunk)):
            raise ValueError(f"the losses of samples at point {place} are not those that were written")
        chunks.add(flat, chunk)
    return chunks


def _check_losses(losses: Any, shape: tuple[int, ...], name: str) -> int:
    """Returns how many samples there are, after checking how their losses are stored."""
    count = losses.shape[-1] if losses.shape else 0
    chunk = (*(1 for _ in shape), count)
    properties = losses.id.get_create_plist()
    filters = [properties.get_filter(index)[0] for index in range(properties.get_nfilters())]
    expected = (*shape, count), np.dtype("<f4"), chunk, _FILTERS, 0
    found = losses.shape, losses.dtype, losses.chunks, filters, properties.get_external_count()
    if found != expected or count < 1:
        raise ValueError(f"the losses of samples {name!r} are stored as {found}, but {expected} was expected")
    return int(count)


def save_landscape(path: str | os.PathLike[str], data: LandscapeData, *, overwrite: bool = False) -> Path:
    saved = save_whole(path, lambda: landscape_bytes(data), hdf5.LANDSCAPE, overwrite=overwrite)
    SampleJournal(saved).remove()  # of an unfinished landscape that is replaced
    return saved


LANDSCAPE_FILE = FileFormat(hdf5.LANDSCAPE, read_landscape, landscape_bytes, unfinished=UnfinishedLandscape)
