"""What makes an experiment the same one, and whether a file holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from collectors.files.places import AnyPath
from workers.evaluator import EvaluatorDescription

from ..errors import LandscapeIdentityError
from .hdf5 import LANDSCAPE, FileKind

_SHOWN = 8
_GRID = {"x", "y"}
REMEDY = "Pass overwrite=True to measure it anew, or another output= to keep both."
OF_LOSS = ("precision", "seed_each_point", "samples")
"""What the identity of every measured loss has."""


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
    text = values.get(name, "absent")
    return text if len(text) <= limit else f"{text[: limit - 15]}...{text[-12:]}"
