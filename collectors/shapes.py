"""Types of arrays with their shapes, for annotations: ``Float64[NDArray, "rows columns"]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

# Importing jaxtyping takes a tenth of a second, so only type checkers and tests/support/shape_checks.py do.
if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Float32, Float64, Int64, UInt8
else:
    Bool = Float = Float32 = Float64 = Int64 = UInt8 = None

__all__ = ["Bool", "Float", "Float32", "Float64", "Int64", "UInt8"]
