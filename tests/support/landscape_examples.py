"""A landscape that holds a bit of everything a file can hold."""

import math

import numpy as np

from landscape.grid.checkpoints import CheckpointsData, OriginData
from landscape.grid.data import DirectionsData, LandscapeData
from landscape.grid.landscape_file import landscape_bytes
from landscape.grid.samples import KeptLosses
from landscape.record.checks import PointStatus
from landscape.record.hdf5 import CONTENTS
from landscape.record.whole_file import write_image

# With which the text of a failed point begins.
HEADER = "Traceback (most recent call last):\n"
SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324])


def as_version_before(file):
    """Makes an open landscape file, or one of curvature or a comparison, one that has no digest of its contents."""
    file.attrs["format_version"] = int(file.attrs["format_version"]) - 1
    del file.attrs[CONTENTS]


def write_landscape(path, data):
    """Puts a landscape's file in place, as a survey does, whatever is there."""
    write_image(path, landscape_bytes(data))


def build(rows=3, columns=5, *, buffers=True, trajectory=True, seed=0):
    """Returns a landscape in which no two numbers are equal and every kind of special number occurs."""
    random = np.random.default_rng(seed)
    line = rows is None
    path = None
    if trajectory:
        y = None if line else random.normal(size=4)
        path = CheckpointsData.empty(
            [3, 5, 8, 9], random.normal(size=4), y, random.random(4), random.random(4), ("loss", "accuracy"),
            has_buffers=buffers, run=[0, 0, 1, -1], runs=("SGD é", "$adam"), name=["", "", "", "average of both ☕"],
            final=[False, True, False, False],
        )  # fmt: skip
        for values in (path.metrics, path.projected, path.with_plane_buffers):
            for name in values:
                values[name][:] = random.normal(size=4)
        path.metrics["loss"][:3] = SPECIAL[:3]
        path.status[:] = [0, 1, 2, 3]
        path.projected_status[:] = [3, 1, 1, 1]
    data = LandscapeData.empty(
        np.linspace(-1, 2, columns),
        None if line else np.linspace(10, 40, rows or 0),
        DirectionsData(random.random(1 if line else 2), None if line else random.random(2), None if line else 0.25),
        ("loss", "loss_stderr", "accuracy", "aa"),
        path,
        {
            "decomposition": "pca", "seed": 3, "step_per_epoch": None, "num_samples": 10**18, "network": "Nett$_é",
            "intervals": [[1, 2, 3]], "identity": {"b": {"c": [1.5, None, "x"]}, "a": True}, "title": "ä\0b",
            "versions": {}, "extra": math.inf,
        },
    )  # fmt: skip
    for name in data.metrics:
        data.metrics[name][...] = random.normal(size=data.shape)
    data.metrics["loss"].flat[: min(len(SPECIAL), data.status.size)] = SPECIAL[: data.status.size]
    data.status.flat[:4] = [0, 1, 2, 3]
    data.errors = {"grid/1,2": "Traceback\n  é \ud800 \0", "origin": "", "checkpoints/4/own": "Traceback\n"}
    data.origin = OriginData(
        x=-0.0,
        y=None if line else 0.0,
        metrics={"loss": math.nan, "loss_stderr": 0.1, "accuracy": 0.5, "aa": 1.0},
        status=PointStatus.FAILED,
        role="final weights",
        run="SGD é",
        number=5,
    )
    return data


def with_samples(data, *counts, seed=0):
    """Returns the landscape with losses of samples at its measured points, of data sets that have so many."""
    random = np.random.default_rng(seed)
    data.status[...] = np.where(data.status == PointStatus.MEASURED, data.status, PointStatus.PENDING)
    names = [f"set {number}" for number in range(len(counts))]
    for name, count in zip(names, counts, strict=True):
        kept = KeptLosses(name, data.shape, count, random.integers(9, size=count), random.random(count))
        for flat in np.flatnonzero(data.status == PointStatus.MEASURED):
            kept.store(int(flat), random.gamma(1.0, size=count).astype(np.float32))
        data.kept_samples[name] = kept
    data.attributes["datasets"] = [
        {"name": name, "num_samples": count, "sha256": "0" * 64} for name, count in zip(names, counts, strict=True)
    ]
    data.validate()
    return data


def measured_everywhere(rows, columns):
    data = LandscapeData.empty(np.arange(float(columns)), np.arange(float(rows)), DirectionsData(np.ones(2), None, 0.0))
    data.status[...] = PointStatus.MEASURED
    data.metrics["loss"][...] = 1.0
    return data
