"""How much memory samples may take."""

from __future__ import annotations

import re

from collectors.validation import wrong_type, wrong_value

AUTO = "auto"
_SHARE = 0.5
_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+|%)\s*")
_EXPECTED = '"auto" (half of what is free), a number of bytes, or text such as "8GB" or "25%" (of what is free)'


def memory_limit(value: object, name: str = "sample_memory") -> int | float:
    """Returns the bytes that samples may take (int), or their share of free memory (float): "auto", 8, "8GB", "25%"."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise wrong_type(name, _EXPECTED, value)
    if value == AUTO:
        return _SHARE
    if isinstance(value, int):
        size: int | float = value
    else:
        match = _TEXT.fullmatch(value.lower())
        if value.strip().isdigit():
            size = int(value)
        elif match is None or (match[2] != "%" and match[2] not in _UNITS):
            raise wrong_value(name, _EXPECTED, value)
        elif match[2] == "%":
            size = float(match[1]) / 100
            if size > 1:
                raise wrong_value(name, _EXPECTED, value)
        else:
            size = int(float(match[1]) * _UNITS[match[2]])
    if size <= 0:
        raise wrong_value(name, _EXPECTED, value)
    return size


def size_text(size: float) -> str:
    """Returns a number of bytes in the unit that people would use."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
