"""Whether a landscape file belongs to the experiment that is about to be measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from collectors.run_files import AnyPath

from .errors import LandscapeIdentityError

_SHOWN = 8
_ABSENT = "absent"


def check_identity(stored: Mapping[str, Any], wanted: Mapping[str, Any], path: str | AnyPath) -> None:
    """Compares the identity in a file with the one that is to be measured, as JSON values.

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
        + "\nPass overwrite=True to measure it anew, or name= to write another file beside it."
    )


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(value, Mapping) and (value or not prefix):
        flat: dict[str, str] = {}
        for key, item in value.items():
            flat |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: json.dumps(value, sort_keys=True)}


def _short(values: Mapping[str, str], name: str, limit: int = 48) -> str:
    text = values.get(name, _ABSENT)
    return text if len(text) <= limit else f"{text[: limit - 15]}...{text[-12:]}"
