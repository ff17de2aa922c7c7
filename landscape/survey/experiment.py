"""A landscape before its first point: its geometry and identity, and whether a file holds the same experiment."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.errors import LandscapeError
from collectors.files.places import AnyPath, check_directory
from collectors.validation import wrong_type, wrong_value
from workers.evaluator import EvaluatorDescription
from workers.measurement_plan import MeasurementPlan

from ..errors import LandscapeIdentityError, LandscapeNotFoundError
from ..file.checkpoints import CheckpointsData
from ..file.data import DirectionsData, LandscapeData
from ..file.landscape_file import read_landscape
from ..planes.plane import Plane

if TYPE_CHECKING:
    from jaxtyping import Float64


_SHOWN = 8
_INTERPOLATED = (
    "buffers such as BatchNorm's running statistics are interpolated between the networks that the axes go through; "
    "beyond them no network has a negative share (it counts as zero, and the shares add up to one)."
)
REMEDY = "Pass overwrite=True to measure it anew, or another output= to keep both."


def new_landscape(
    description: EvaluatorDescription,
    plane: Plane,
    x: Float64[np.ndarray, " nx"],
    y: Float64[np.ndarray, " ny"] | None,
    attributes: Mapping[str, Any],
) -> LandscapeData:
    """Returns the landscape of a plane on a grid, everything pending.

    Args:
        description: what the workers measure.
        plane: what is measured.
        x: coordinates along the first direction, shape (nx,).
        y: coordinates along the second direction, shape (ny,); None for a line.
        attributes: what else the file says.
    """
    seen, members = plane.projection, plane.members
    checkpoints = None
    if seen is not None:
        checkpoints = CheckpointsData.empty(
            members.number,
            seen.x,
            seen.y,
            seen.residual,
            seen.norm,
            description.metrics,
            has_buffers=bool(plane.space.buffers),
            run=members.run,
            runs=members.runs,
            name=members.name,
            final=members.final,
        )
    own = {
        "decomposition": plane.decomposition,
        "normalization": plane.normalization,
        # Of random directions alone; the identity has it with the rest of what they were drawn from.
        "perturb_one_dimensional": plane.identity.get("perturb_one_dimensional"),
        # Not that of the survey, which is the attribute "seed": a plane is drawn before, by its own.
        "directions_seed": plane.identity.get("seed"),
        "network": plane.space.network,
        "num_samples": description.num_samples,
        "buffers": description.options.buffers,
        "partition_dependent": description.partition_dependent,
        "measurement_plan": description.plan.to_json(),
        "notes": [
            *description.notes,
            *plane.notes,
            *([_INTERPOLATED] if description.options.buffers == "interpolate" else []),
        ],
        "created": _now(),
        "versions": _versions(plane.space.framework),
        "identity": _identity(description, plane, x, y),
    }
    directions = DirectionsData(plane.norms, plane.explained_variance_ratio, plane.cosine)
    data = LandscapeData.empty(x, y, directions, description.metrics, checkpoints, {**attributes, **own})
    vars(data.origin).update(asdict(plane.origin_role))
    return data


def take_roles(stored: LandscapeData, fresh: LandscapeData) -> None:
    """Writes this run's names and roles into the landscape of a file; names are no part of the identity."""
    for name in ("role", "name", "run", "number"):
        setattr(stored.origin, name, getattr(fresh.origin, name))
    if stored.checkpoints is not None and fresh.checkpoints is not None:
        for name in ("number", "run", "runs", "name", "final"):
            setattr(stored.checkpoints, name, getattr(fresh.checkpoints, name))


def check_identity(stored: Mapping[str, Any], wanted: Mapping[str, Any], path: str | AnyPath) -> None:
    """Compares the identity in a file with this run's, as JSON values.

    Args:
        stored: the file's identity, nested dictionaries allowed.
        wanted: this run's.
        path: the file, for the error's text.

    Raises:
        LandscapeIdentityError: they differ; the text lists where, and both values.
    """
    before, now = _flat(stored), _flat(wanted)
    names = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    if not names:
        return
    lines = [f"  {name}: the file has {_short(before, name)}, this run {_short(now, name)}" for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        lines.append(f"  and {len(names) - _SHOWN} more: {', '.join(names[_SHOWN : 3 * _SHOWN])}")
    raise LandscapeIdentityError(
        f"landscape file {path} holds another experiment; it was left as it is. These differ:\n"
        + "\n".join(lines)
        + f"\n{REMEDY}"
    )


def choose_plan(given: object, continued: Sequence[AnyPath]) -> MeasurementPlan | None:
    """Returns the plan that a user gave, else that of the first file which is continued; None where there is none.

    Args:
        given: a plan, the landscape file (or its URL) whose plan is taken, or None.
        continued: the landscape files that may be there already; going on with their plan gives the same bits.

    Raises:
        TypeError: ``given`` is neither a plan nor a path.
        ValueError: the file that was given says nothing about its plan, or this version cannot use it.
        LandscapeError: a file cannot be read, or its plan cannot be used by this version.
    """
    if isinstance(given, MeasurementPlan):
        return given
    if given is not None:
        return _plan_of_file(given)
    for path in continued:
        try:
            stored = read_landscape(path).attributes.get("measurement_plan")
        except LandscapeNotFoundError:
            continue
        if stored is not None:
            try:
                return MeasurementPlan.from_json(stored)
            except (TypeError, ValueError) as error:
                raise LandscapeError(
                    f"landscape file {path} was measured with a plan that cannot be used here ({error}). {REMEDY}"
                ) from error
    return None


def _plan_of_file(given: object) -> MeasurementPlan:
    if not isinstance(given, str | os.PathLike):
        raise wrong_type("plan", "a MeasurementPlan, the path of a landscape file, or None", given)
    path = check_directory("plan", given)
    stored = read_landscape(path).attributes.get("measurement_plan")
    if stored is None:
        raise wrong_value("plan", "a landscape file that says how it was measured (an imported one does not)", given)
    try:
        return MeasurementPlan.from_json(stored)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"plan must be a landscape file whose measurement plan can be used here, but that of {path} cannot "
            f"({error}). Give another file, or leave plan out."
        ) from error


def _identity(
    description: EvaluatorDescription,
    plane: Plane,
    x: Float64[np.ndarray, " nx"],
    y: Float64[np.ndarray, " ny"] | None,
) -> dict[str, Any]:
    options = description.options
    buffers: dict[str, Any] = {"policy": options.buffers}
    if options.buffers == "recalibrate":
        buffers["batch_size"] = options.recalibration_batch_size
    return {
        "plane": plane.identity,
        "x": _axis_identity(x),
        "y": None if y is None else _axis_identity(y),
        "samples": {"count": description.num_samples, "sha256": description.samples_sha256},
        "metrics": list(description.metrics),
        "buffers": buffers,
    }


def _axis_identity(axis: Float64[np.ndarray, " n"]) -> list[str]:
    # Nine digits: the last bits of projected checkpoints may differ between machines.
    return [f"{value:.9g}" for value in axis]


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


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(value, Mapping) and (value or not prefix):
        flat: dict[str, str] = {}
        for key, item in value.items():
            flat |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: json.dumps(value, sort_keys=True)}


def _short(values: Mapping[str, str], name: str, limit: int = 48) -> str:
    text = values.get(name, "absent")
    return text if len(text) <= limit else f"{text[: limit - 15]}...{text[-12:]}"
