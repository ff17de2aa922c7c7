"""A landscape before its first point: its geometry, identity and plan."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.files.places import AnyPath, check_directory
from collectors.validation import wrong_type, wrong_value
from workers.evaluator import DataSetDescription, EvaluatorDescription
from workers.measurement_plan import MeasurementPlan

from ..errors import LandscapeNotFoundError
from ..planes.networks import columns_of
from ..planes.plane import Plane
from ..record.identity import buffers_identity, measured_identity
from ..record.store import continued_plan
from ..record.whole_file import read_file_attributes
from .checkpoints import CheckpointsData
from .data import DirectionsData, LandscapeData
from .kept_plane import curvature_attribute
from .samples import kept_losses

if TYPE_CHECKING:
    from jaxtyping import Float64


FUNCTION = "function"
"""The attribute that names the callback_fn with which a landscape was measured."""
RUN = "run_directory"
FURTHER_RUNS = "further_run_directories"
"""The attribute that says where the run of a landscape is, seen from the file, if the file does not lie in it."""

_EXTREMES = (
    "max_eigenvalue and min_eigenvalue are the ends of the Hessian's spectrum at each point, each to 1 % of itself, "
    "and convexity_ratio is |min / max|; NaN where an end is not known so well after 200 products."
)
_INTERPOLATED = (
    "buffers such as BatchNorm's running statistics are interpolated between the networks that the axes go through, at "
    "which they are its own; beyond them no network has a negative share (it counts as zero, and all add up to one)."
)


def new_landscape(
    description: EvaluatorDescription,
    plane: Plane,
    x: Float64[np.ndarray, " nx"],
    y: Float64[np.ndarray, " ny"] | None,
    attributes: Mapping[str, Any],
) -> LandscapeData:
    """Returns the landscape of a plane on a grid, everything pending."""
    checkpoints = None
    if plane.projection is not None:
        places, who = vars(plane.projection), columns_of(plane.networks)
        checkpoints = CheckpointsData.empty(
            **places, **who, metric_names=description.metrics, has_buffers=bool(plane.space.buffers)
        )
    own = {
        **measured_attributes(description),
        "decomposition": plane.decomposition,
        "normalization": plane.normalization,
        # Of random directions alone; the identity has it with the rest of what they were drawn from.
        "perturb_one_dimensional": plane.identity.get("perturb_one_dimensional"),
        # Not that of the survey, which is the attribute "seed": a plane is drawn before, by its own.
        "directions_seed": plane.identity.get("seed"),
        # A function has no name that could be trusted to be the same one again.
        **({"groups": "target"} if description.options.groups == "target" else {}),
        "buffers": description.options.buffers,
        "notes": [
            *description.notes,
            *plane.notes,
            *([_INTERPOLATED] if description.options.buffers == "interpolate" else []),
            *([_EXTREMES] if description.options.extremes else []),
        ],
        "identity": _identity(description, plane),
        **curvature_attribute(plane),
    }
    bends = plane.curvature
    directions = DirectionsData(
        plane.norms,
        plane.explained_variance_ratio,
        plane.cosine,
        None if bends is None else np.array(bends.eigenvalues),
        None if bends is None else np.array(bends.residuals),
    )
    data = LandscapeData.empty(x, y, directions, description.metrics, checkpoints, {**attributes, **own})
    vars(data.origin).update(asdict(plane.origin_role))
    data.kept_samples = kept_losses(description.kept, data.shape)
    return data


def measured_attributes(description: EvaluatorDescription) -> dict[str, Any]:
    """Returns the attributes of every file on how it was measured, and when."""
    return {
        "network": description.space.network,
        "num_samples": description.num_samples,
        **({"datasets": [_data_set(item) for item in description.datasets]} if description.datasets else {}),
        "seed_each_point": description.options.seed_each_point,
        "partition_dependent": description.partition_dependent,
        "measurement_plan": description.plan.to_json(),
        "notes": list(description.notes),
        "created": _now(),
        "versions": _versions(description.space.framework),
    }


def function_attribute(callback_fn: Callable[[], Any]) -> dict[str, str]:
    """Returns the attribute ``module:function`` of a callback_fn; empty where that imports none, as of a lambda."""
    from workers.pools.first_call import FirstCall

    callback_fn = callback_fn.func if isinstance(callback_fn, FirstCall) else callback_fn
    module, name = (str(getattr(callback_fn, item, "")) for item in ("__module__", "__qualname__"))
    is_there = getattr(sys.modules.get(module), name, None) is callback_fn
    return {FUNCTION: f"{module}:{name}"} if is_there and module != "__main__" else {}


def run_attributes(run: AnyPath, further: Mapping[str, AnyPath], folder: AnyPath) -> dict[str, Any]:
    """Returns attributes with the ways from ``folder`` to a plane's runs; that to ``run`` is left out if it is "."."""
    own = _way(run, folder)
    others = {name: _way(other, folder) for name, other in further.items()}
    return {**({} if own == "." else {RUN: own}), **({FURTHER_RUNS: others} if others else {})}


def _way(run: AnyPath, folder: AnyPath) -> str:
    if isinstance(run, Path) and isinstance(folder, Path):
        # Neither a moved project nor a name in a home directory must matter.
        return os.path.relpath(run.resolve(), folder.resolve())
    return "." if run == folder else str(run.absolute() if isinstance(run, Path) else run)


def choose_plan(given: object, continued: Sequence[AnyPath], precision: str = "float32") -> MeasurementPlan | None:
    """Returns the given plan or that of a given file, else of the first file that is continued; None without any."""
    if given is not None:
        plan = given if isinstance(given, MeasurementPlan) else _plan_of_file(given)
        if plan.precision not in ("float32", precision):
            raise ValueError(
                f'plan was made for precision="{plan.precision}", but precision is "{precision}". Pass '
                f'precision="{plan.precision}", or another plan.'
            )
        return plan
    for path in continued:
        try:
            stored = read_file_attributes(path).get("measurement_plan")
        except LandscapeNotFoundError:
            continue
        if stored is not None:
            return continued_plan(stored, path)
    return None


def _plan_of_file(given: object) -> MeasurementPlan:
    if not isinstance(given, str | os.PathLike):
        raise wrong_type("plan", "a MeasurementPlan, the path of a landscape file, or None", given)
    path = check_directory("plan", given)
    stored = read_file_attributes(path).get("measurement_plan")
    if stored is None:
        raise wrong_value("plan", "a landscape file that says how it was measured (an imported one does not)", given)
    try:
        return MeasurementPlan.from_json(stored)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"plan must be a landscape file whose measurement plan can be used here, but that of {path} cannot "
            f"({error}). Give another file, or leave plan out."
        ) from error


def _identity(description: EvaluatorDescription, plane: Plane) -> dict[str, Any]:
    options = description.options
    measured, buffers = measured_identity(description), buffers_identity(options)
    if options.buffers != "fixed" and plane.end_buffers:
        buffers["at_networks"] = "own"
    # The main data set's name is but a name.
    others = {item.name: _data_set(item) for item in description.datasets[1:]}
    further = {"further": others} if others else {}
    return {
        **measured,
        **({"extremes": "hessian"} if options.extremes else {}),
        **({"keep_samples": True} if options.keep_samples else {}),
        "plane": plane.identity,
        "samples": {**measured["samples"], **further},
        "metrics": list(description.metrics),
        **({"groups": description.groups_sha256} if description.groups_sha256 else {}),
        "buffers": buffers,
    }


def _data_set(item: DataSetDescription) -> dict[str, Any]:
    return {"name": item.name, "num_samples": item.num_samples, "sha256": item.samples_sha256}


def _now() -> str:
    # SOURCE_DATE_EPOCH is the convention by which builds are made reproducible to the byte.
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
    return moment.isoformat(timespec="seconds")


def _versions(framework: str) -> dict[str, str]:
    module = sys.modules.get(framework)
    versions = {"python": sys.version.split()[0], "numpy": np.__version__, "summary-landscape": _own_version()}
    if module is not None:
        versions[framework] = str(module.__version__)
    return versions


def _own_version() -> str:
    try:
        return version("summary-landscape")
    except ModuleNotFoundError:
        return "unknown"
