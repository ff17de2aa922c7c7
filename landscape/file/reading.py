"""Reads an open landscape file, trusting nothing in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from workers.metric_names import PLANE_BUFFERS_SUFFIX, PROJECTED_PREFIX

from .attributes import check_attributes
from .checkpoints import CheckpointsData, OriginData
from .checks import PointStatus, ordered
from .data import DirectionsData, LandscapeData
from .hdf5_reading import BoundedReader, read_attributes, read_errors
from .samples_in_file import GROUP, read_samples

_FIXED = ("x", "y", "status")


_FIXED_COLUMNS = (
    "number", "x", "y", "residual", "norm", "run", "status", "projected_status", "with_plane_buffers_status",
)  # fmt: skip


_FIXED_OF_ORIGIN = ("x", "y", "status", "number")


_CHECKPOINT_TEXTS = ("name", "run_name", "sha256")
_ORIGIN_TEXTS = ("role", "name", "run")


def read_root(file: Any, size: int) -> LandscapeData:
    """Returns a landscape from an open HDF5 file of ``size`` bytes; raises anything where its contents are wrong."""
    reader = BoundedReader(size)
    arrays, groups = reader.members(file)
    directions, _ = reader.members(groups["directions"])
    data = LandscapeData(
        x=arrays["x"],
        y=arrays.get("y"),
        metrics=ordered({name: values for name, values in arrays.items() if name not in _FIXED}),
        status=arrays["status"],
        directions=DirectionsData(
            norms=directions["norms"],
            explained_variance_ratio=directions.get("explained_variance_ratio"),
            cosine=float(directions["cosine"]) if "cosine" in directions else None,
            eigenvalues=directions.get("eigenvalues"),
            residuals=directions.get("residuals"),
        ),
        origin=_origin(reader, groups["origin"]),
        checkpoints=_checkpoints(reader, groups["checkpoints"]) if "checkpoints" in groups else None,
        errors=read_errors(reader, groups["errors"]),
        attributes=read_attributes(file),
    )
    data.validate()
    check_attributes(data.attributes)
    if GROUP in groups:
        sets = data.attributes.get("datasets")
        first = sets[0]["name"] if sets else None
        data.kept_samples = read_samples(reader, groups[GROUP], data.status == PointStatus.MEASURED, first)
        data.validate()
    return data


def _checkpoints(reader: BoundedReader, group: Any) -> CheckpointsData:
    columns, _ = reader.members(group, _CHECKPOINT_TEXTS)
    # Files that were written before checkpoints had digests lack them.
    columns.setdefault("sha256", np.full(len(columns["name"]), b""))
    texts = {name: tuple(text.decode("utf-8") for text in columns.pop(name)) for name in _CHECKPOINT_TEXTS}
    final = columns.pop("final")
    if final.dtype != np.uint8 or (final > 1).any():
        raise ValueError(f"'final' must hold 0 or 1, but has {final.dtype} values up to {final.max(initial=0)}")
    metrics, projected, with_plane_buffers = {}, {}, {}
    for name, values in columns.items():
        if name in _FIXED_COLUMNS:
            continue
        if name.startswith(PROJECTED_PREFIX):
            projected[name.removeprefix(PROJECTED_PREFIX)] = values
        elif name.endswith(PLANE_BUFFERS_SUFFIX):
            with_plane_buffers[name.removesuffix(PLANE_BUFFERS_SUFFIX)] = values
        else:
            metrics[name] = values
    fixed: dict[str, Any] = {name: columns[name] for name in _FIXED_COLUMNS if name in columns}
    return CheckpointsData(
        **{"y": None, "with_plane_buffers_status": None, **fixed},
        metrics=ordered(metrics),
        projected=ordered(projected),
        with_plane_buffers=ordered(with_plane_buffers),
        runs=texts["run_name"],
        name=texts["name"],
        sha256=texts["sha256"],
        final=final.astype(np.bool_),
    )


def _origin(reader: BoundedReader, group: Any) -> OriginData:
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
