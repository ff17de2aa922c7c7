"""What makes an experiment the same one, and whether a file holds it; what else every file says of its measuring."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from collectors.files.places import AnyPath
from workers.evaluator import DataSetDescription, EvaluatorDescription
from workers.measurement_plan import plan_text
from workers.pools.first_call import FirstCall

from ..errors import LandscapeIdentityError
from .hdf5 import LANDSCAPE, FileKind

_SHOWN = 8
_GRID = {"x", "y"}
# Of a plan; one of another precision is another experiment.
_UNSAID = ("reason", "precision")
REMEDY = "Pass overwrite=True to measure it anew, or another output= to keep both."
OF_LOSS = ("precision", "seed_each_point", "samples")
"""What the identity of every measured loss has."""
FUNCTION = "function"
"""The attribute that names the callback_fn with which a landscape was measured."""
REDUCTION = "reduction"
"""The attribute that is "sum" where the loss is a sum over samples, and no mean; earlier versions lack it."""
RUN = "run_directory"
FURTHER_RUNS = "further_run_directories"
"""The attribute that says where the run of a landscape is, seen from the file, if the file does not lie in it."""


def identity_of(
    description: EvaluatorDescription, names: Sequence[str], asked: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns an identity: what was ``asked`` for, and, of what workers measure and how, that which is in ``names``.

    The names are "precision", "seed_each_point", "samples", "metrics", "groups", "extremes", "keep_samples" and
    "buffers". Files that were written before there was a choice lack the usual one, and so does the identity.
    """
    options = description.options
    computed = {"batch_size": options.recalibration_batch_size} if options.buffers == "recalibrate" else {}
    known = {
        "precision": None if options.precision == "float32" else options.precision,
        "seed_each_point": options.seed if options.seed_each_point else None,
        "samples": {"count": description.num_samples, "sha256": description.samples_sha256},
        "metrics": list(description.metrics),
        # Functions cannot be compared, but the groups that they make of the samples.
        "groups": description.groups_sha256 or None,
        "extremes": "hessian" if options.extremes else None,
        "keep_samples": True if options.keep_samples else None,
        "buffers": {"policy": options.buffers, **computed},
    }
    return {**(asked or {}), **{name: known[name] for name in names if known[name] is not None}}


def eigenvectors_identity(
    measured: Mapping[str, Any], matrix: str, origin: str, which: Sequence[str], *, tolerance: float, seed: int
) -> dict[str, Any]:
    """Returns what eigenvectors are of, but not their bits: another machine finds other last digits."""
    return {
        "decomposition": matrix,
        "origin": origin,
        **{name: measured[name] for name in ("samples", "seed_each_point") if name in measured},
        "which": list(which),
        "tolerance": tolerance,
        "seed": seed,
    }


def check_identity(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    path: str | AnyPath,
    remedy: str = REMEDY,
    kind: FileKind = LANDSCAPE,
) -> None:
    """Raises LandscapeIdentityError, with all differences, if a file's identity is not this run's, as JSON."""
    # An identity names the precision only where it is not the usual one, and older files name the grid as well.
    before, now = ({**_flat({"precision": "float32"}), **_flat(item)} for item in (stored, wanted))
    names = [name for name in sorted({*before, *now} - _GRID) if before.get(name) != now.get(name)]
    if not names:
        return
    lines = [f"  {name}: the file has {_short(before, name)}, this run {_short(now, name)}" for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        lines.append(f"  and {len(names) - _SHOWN} more: {', '.join(names[_SHOWN : 3 * _SHOWN])}")
    raise LandscapeIdentityError(
        f"{kind.word} file {path} holds another experiment; it was left as it is. These differ:\n"
        + "\n".join(lines)
        + f"\n{remedy}"
    )


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    # An identity comes from a file, where it may be anything.
    if isinstance(value, Mapping) and (value or not prefix):
        flat: dict[str, str] = {}
        for key, item in value.items():
            flat |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: json.dumps(value, sort_keys=True)}


def _short(values: Mapping[str, str], name: str, limit: int = 48) -> str:
    text = values.get(name, "nothing")
    return text if len(text) <= limit else f"{text[: limit - 15]}...{text[-12:]}"


def measured_attributes(description: EvaluatorDescription) -> dict[str, Any]:
    # SOURCE_DATE_EPOCH is the convention by which builds are made reproducible to the byte.
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(fixed), UTC) if fixed else datetime.now(UTC)
    return {
        "network": description.space.network,
        "num_samples": description.num_samples,
        **({"datasets": [data_set_json(item) for item in description.datasets]} if description.datasets else {}),
        "seed_each_point": description.options.seed_each_point,
        "partition_dependent": description.partition_dependent,
        **({REDUCTION: "sum"} if description.is_sum else {}),
        "measurement_plan": description.plan.to_json(),
        "notes": list(description.notes),
        "created": moment.isoformat(timespec="seconds"),
        "versions": _versions(description.space.framework),
    }


def plan_change(before: Mapping[str, Any], now: Mapping[str, Any], kind: FileKind) -> list[str]:
    """Returns the note that a file, of the attributes ``before``, is continued by another plan, where it is."""
    plans = [
        {name: value for name, value in (attributes.get("measurement_plan") or {}).items() if name not in _UNSAID}
        for attributes in (before, now)
    ]
    if plans[0] == plans[1]:
        return []
    first, then = map(plan_text, plans)
    return [f"the {kind.word} was continued in another way: first in {first}; then in {then}."]


def function_attribute(callback_fn: Callable[[], Any]) -> dict[str, str]:
    """Returns the attribute ``module:function`` of a callback_fn; empty where that imports none, as of a lambda."""
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
    return "." if str(run) == str(folder) else str(run.absolute() if isinstance(run, Path) else run)


def data_set_json(item: DataSetDescription) -> dict[str, Any]:
    return {"name": item.name, "num_samples": item.num_samples, "sha256": item.samples_sha256}


def _versions(framework: str) -> dict[str, str]:
    module = sys.modules.get(framework)
    try:
        ours = version("summary-landscape")
    except ModuleNotFoundError:
        ours = "unknown"
    versions = {"python": sys.version.split()[0], "numpy": np.__version__, "summary-landscape": ours}
    return versions if module is None else {**versions, framework: str(module.__version__)}
