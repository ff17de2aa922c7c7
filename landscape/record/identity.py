"""What makes an experiment the same one, and whether a file holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from collectors.files.places import AnyPath
from workers.evaluator import EvaluatorDescription
from workers.measurement_options import MeasurementOptions

from ..errors import LandscapeIdentityError
from .kind import LANDSCAPE, FileKind

_SHOWN = 8
_GRID = ("x", "y")
REMEDY = "Pass overwrite=True to measure it anew, or another output= to keep both."


def measured_identity(description: EvaluatorDescription) -> dict[str, Any]:
    """Returns what each identity says of the loss: over which samples it is a mean, and how it is computed."""
    options = description.options
    return {
        # Left out of the usual identity, which files had before there was a choice.
        **({} if options.precision == "float32" else {"precision": options.precision}),
        **({"seed_each_point": options.seed} if options.seed_each_point else {}),
        "samples": {"count": description.num_samples, "sha256": description.samples_sha256},
    }


def buffers_identity(options: MeasurementOptions) -> dict[str, Any]:
    """Returns what an identity says of buffers such as BatchNorm's running statistics."""
    size = {"batch_size": options.recalibration_batch_size} if options.buffers == "recalibrate" else {}
    return {"policy": options.buffers, **size}


def check_identity(
    stored: Mapping[str, Any],
    wanted: Mapping[str, Any],
    path: str | AnyPath,
    remedy: str = REMEDY,
    kind: FileKind = LANDSCAPE,
) -> None:
    """Raises LandscapeIdentityError, with all differences, if a file's identity is not this run's, as JSON."""
    # An identity names the precision only where it is not the usual one, and older files name the grid as well.
    before, now = ({**_flat({"precision": "float32"}), **_flat(_without_grid(item))} for item in (stored, wanted))
    names = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
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


def _without_grid(identity: Any) -> Any:
    # It comes from a file, where it may be anything.
    return {key: identity[key] for key in identity if key not in _GRID} if isinstance(identity, Mapping) else identity


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
