"""What a call gives, as arrays by name: of what it returns, and of the files that it leaves in its folder."""

import json
from collections.abc import Mapping

import h5py
import numpy as np
from safetensors import safe_open

_OF_CHECKPOINTS = (
    "number", "x", "y", "residual", "norm", "status", "metrics", "projected", "projected_status", "with_plane_buffers",
    "with_plane_buffers_status", "run", "runs", "name", "final", "sha256",
)  # fmt: skip
_OF_CURVATURE = (
    "number", "status", "sha256", "loss", "gradient_norm", "eigenvalues", "residuals", "angle_bound", "converged",
    "trace", "trace_interval", "products", "forward_passes", "density_nodes", "density_weights",
)  # fmt: skip
_OF_COMPARISONS = (
    "recipe", "name", "sha256", "t", "status", "loss", "block_rise", "block_size", "trace", "trace_low", "trace_high",
)  # fmt: skip


def of_landscape(landscape):
    """Returns all that a landscape says in numbers, and where it failed."""
    checkpoints = landscape.checkpoints
    return {
        "x": landscape.x,
        "y": landscape.y,
        "status": landscape.status,
        "metrics": dict(landscape.metrics),
        "directions": [landscape.directions.norms, landscape.cosine, landscape.explained_variance_ratio],
        "origin": {"role": landscape.origin.role, "metrics": dict(landscape.origin.metrics)},
        "checkpoints": checkpoints and {name: getattr(checkpoints, name) for name in _OF_CHECKPOINTS},
        "failed": sorted(landscape.errors),
    }


def of_plane(plane):
    """Returns a plane's vectors, and the coordinates of the networks on it."""
    projection = plane.projection
    return {
        "origin": dict(plane.origin),
        "buffers": dict(plane.buffers),
        "directions": [dict(direction) for direction in plane.directions],
        "end_buffers": [dict(buffers) for buffers in plane.end_buffers],
        "explained_variance_ratio": plane.explained_variance_ratio,
        "projection": projection and {name: getattr(projection, name) for name in ("x", "y", "residual", "norm")},
    }


def of_curvature(curvature):
    return {name: getattr(curvature, name) for name in _OF_CURVATURE}


def of_comparison(comparison):
    """Returns what was measured, and what it says of each pair of recipes."""
    measures = ("rise_at_radius", "steepest_rise", "radius_of_rise", "loss")
    return {
        **{name: getattr(comparison, name) for name in _OF_COMPARISONS},
        "values": {measure: comparison.values(measure) for measure in measures},
        "answers": {measure: [vars(answer) for answer in comparison.table(measure)] for measure in measures},
        "band": [comparison.band(recipe) for recipe in comparison.recipes],
    }


def of_barrier(barrier):
    numbers = [barrier.height, barrier.stderr, barrier.at, barrier.limit]
    return {"barrier": numbers, "landscape": of_landscape(barrier.landscape)}


def of_path(path):
    """Returns a curve's losses, its length, and its weights at a few places."""
    places = {str(t): path.point(t) for t in (0.0, 0.25, 0.5, 1.0)}
    return {"losses": path.losses, "length": [path.length, path.chord], "points": places, "bend": path.bend()}


def flat(value, name):
    """Yields the arrays of nested mappings, lists, arrays, tensors, numbers and texts, each with its name."""
    if isinstance(value, Mapping):
        for key in value:
            yield from flat(value[key], f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from flat(item, f"{name}[{index}]")
    elif isinstance(value, str | bytes):
        yield name, np.array(value)
    elif value is None:
        yield name, np.array("None")
    else:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        if array.dtype == object:
            raise TypeError(f"{name} must hold arrays, numbers or texts, but holds {value!r}")
        yield name, array


def of_files(folder):
    """Yields the arrays and the identities of all HDF5 and safetensors files in a folder, and below."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".h5":
            yield from _of_hdf5(path, name)
        elif path.suffix == ".safetensors":
            with safe_open(path, "np") as file:
                for key in sorted(file.keys()):
                    yield f"{name}:{key}", file.get_tensor(key)
                yield from _identity(file.metadata() or {}, name)


def _of_hdf5(path, name):
    with h5py.File(path, locking=False) as file:
        found = []
        file.visititems(lambda key, item: found.append(key) if isinstance(item, h5py.Dataset) else None)
        for key in sorted(found):
            yield f"{name}:{key}", _plain(file[key][()])
        yield from _identity(file.attrs, name)


def _identity(attributes, name):
    if "identity" in attributes:
        text = attributes["identity"]
        yield f"{name}:identity", np.array(json.dumps(json.loads(text), sort_keys=True))


def _plain(value):
    """Returns texts as an array of their bytes; all else as it is."""
    array = np.asarray(value)
    return np.array(array.tolist(), np.bytes_) if array.dtype == object else array
