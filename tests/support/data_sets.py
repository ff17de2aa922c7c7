"""Landscapes whose metrics were measured on two data sets, as a survey of both leaves them."""

import numpy as np


def with_test_set(data, *, named=True, dataset="test"):
    """Adds every metric on a second data set, in place: the loss higher and shifted, all else lower; returns the data.

    Without ``named``, the file does not say what its data sets are called.
    """
    checkpoints = data.checkpoints
    groups = [data.metrics, data.origin.metrics]
    groups += [] if checkpoints is None else [checkpoints.metrics, checkpoints.projected]
    for group in groups:
        for name in [name for name in group if "@" not in name]:
            values = np.asarray(group[name])
            other = 1.5 * np.roll(values, 1) + 0.3 if name == "loss" else 0.9 * values
            group[f"{name}@{dataset}"] = other if values.ndim else float(other)
    if checkpoints is not None and checkpoints.with_plane_buffers:
        checkpoints.with_plane_buffers.update(
            {f"{name}@{dataset}": 1.1 * values for name, values in list(checkpoints.with_plane_buffers.items())}
        )
    if named:
        data.attributes["datasets"] = [
            {"name": name, "num_samples": count, "sha256": 64 * digit}
            for name, count, digit in (("train", 256, "a"), (dataset, 64, "b"))
        ]
    data.validate()
    return data
