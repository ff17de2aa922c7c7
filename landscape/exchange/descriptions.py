"""Long names, units ("1" for all numbers, which are pure), flags and errors of variables, in CF conventions' words."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

import numpy as np

from workers.metric_names import PLANE_BUFFERS_SUFFIX, PROJECTED_PREFIX, MetricName

from ..drawing.texts import axis_label, main_dataset, unit_of
from ..grid.data import LandscapeData
from ..record.checks import PointStatus

if TYPE_CHECKING:
    import xarray

_PURE = "1"
_QUANTITIES = {
    "loss_error": "estimated error of the interpolated loss",
    "max_eigenvalue": "largest eigenvalue of the Hessian",
    "min_eigenvalue": "smallest eigenvalue of the Hessian",
    "convexity_ratio": "ratio of the sizes of the smallest and the largest eigenvalue of the Hessian",
}
_OF_NETWORKS = {
    "residual": "distance in weight space from the network to its foot on the plane",
    "norm": "distance in weight space from the network to the origin",
    "run": "place of the run in the attribute runs, -1 for a network of no run",
    "final": "whether training ended with these weights",
    "name": "name of the network",
    "role": "which network it is",
}
_OF_SAMPLES = {"sample_loss": "loss of each sample", "target": "target of the sample", "weight": "weight of the sample"}
_STATUS = {
    "status": "status of the measurement",
    f"{PROJECTED_PREFIX}status": "status of the measurement at the foot on the plane",
    "with_plane_buffers_status": "status of the measurement with the plane's buffers",
}


def describe(dataset: xarray.Dataset, landscape: LandscapeData, group: str = "") -> xarray.Dataset:
    """Writes long name and unit of each variable and coordinate into a dataset, which it returns."""
    for name in map(str, dataset.variables):
        variable = dataset[name]
        attributes: dict[str, Any] = {"long_name": _long_name(name, landscape, group)}
        if variable.dtype.kind not in "OSU":
            attributes["units"] = _PURE
        if name.removesuffix("_coordinate") in ("x", "y"):
            attributes["comment"] = "a multiple of the direction"
        if name in _STATUS:
            attributes |= {
                "flag_values": np.array([int(status) for status in PointStatus], np.uint8),
                "flag_meanings": " ".join(status.name.lower() for status in PointStatus),
            }
        if name == "final":
            attributes |= {"flag_values": np.array([0, 1], np.uint8), "flag_meanings": "no yes"}
        if related := _related(name, landscape, dataset.variables):
            attributes["ancillary_variables"] = related
        variable.attrs.update(attributes)
    return dataset


def _long_name(name: str, landscape: LandscapeData, group: str) -> str:
    place = name.removesuffix("_coordinate")
    if place in ("x", "y"):
        axis = 0 if place == "x" else 1
        along = axis_label(landscape, axis).replace(r"\$", "$")
        at = {"": "", "checkpoints": ", at the foot of the network on the plane", "origin": ", at the origin"}
        return along + at[group]
    if name == "number":
        unit = unit_of(landscape)
        return "number of the checkpoint" if unit == "checkpoint" else f"{unit} of the checkpoint"
    if found := _OF_SAMPLES.get(name) or _STATUS.get(name) or (_OF_NETWORKS.get(name) if group else None):
        return found
    if name.startswith(PROJECTED_PREFIX):
        return f"{_metric(name.removeprefix(PROJECTED_PREFIX), landscape)} at the foot on the plane"
    if name.endswith(PLANE_BUFFERS_SUFFIX):
        return f"{_metric(name.removesuffix(PLANE_BUFFERS_SUFFIX), landscape)} with the plane's buffers"
    return _metric(name, landscape)


def _metric(name: str, landscape: LandscapeData) -> str:
    found = MetricName.read(name, landscape.metrics)
    words = found.text(main_dataset(landscape))
    quantity = _QUANTITIES.get(found.quantity, found.quantity)
    if quantity.endswith("_stderr"):
        quantity = f"standard error of the {quantity.removesuffix('_stderr')}"
    return quantity + words.removeprefix(found.quantity)


def _related(name: str, landscape: LandscapeData, among: Container[Any]) -> str:
    """Returns the variables that say how exact a metric is, and whether it was measured at all."""
    if name in landscape.metrics:
        prefix, suffix, status = "", "", "status"
    elif name.startswith(PROJECTED_PREFIX) and name not in _STATUS:
        prefix, suffix, status = PROJECTED_PREFIX, "", f"{PROJECTED_PREFIX}status"
    elif name.endswith(PLANE_BUFFERS_SUFFIX):
        prefix, suffix, status = "", PLANE_BUFFERS_SUFFIX, "with_plane_buffers_status"
    else:
        return ""
    metric = MetricName.read(name.removeprefix(prefix).removesuffix(suffix), landscape.metrics)
    errors = [] if metric.is_error else [metric.standard_error, *(["loss_error"] if str(metric) == "loss" else [])]
    return " ".join(each for each in (*(f"{prefix}{error}{suffix}" for error in errors), status) if each in among)
