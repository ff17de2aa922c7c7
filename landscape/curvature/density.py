"""Where eigenvalues lie, as a smooth curve made of weighted nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collectors.validation import check_float, check_int, wrong_value

from ..figures.spectrum import curves_of

if TYPE_CHECKING:
    from jaxtyping import Float64

_SHARE = 0.01
# Standard deviations beyond the last node that are drawn.
_BEYOND = 4.0


def smoothed(
    nodes: Float64[np.ndarray, "probes steps"],
    weights: Float64[np.ndarray, "probes steps"],
    width: float | None,
    size: int,
) -> tuple[Float64[np.ndarray, " size"], Float64[np.ndarray, " size"]]:
    """Returns increasing places and the density at each, whose integral is 1: normal curves around the nodes."""
    check_int("size", size, minimum=2)
    known = np.isfinite(nodes)
    if not known.any():
        raise ValueError(
            "no density of the eigenvalues was measured here; measure it with density_probes=4 (of 40 products each)."
        )
    low, high = float(nodes[known].min()), float(nodes[known].max())
    if width is None:
        width = _SHARE * (high - low) or _SHARE * max(abs(high), 1.0)
    elif check_float("width", width) <= 0:
        raise wrong_value("width", "a number above 0", width)
    places = np.linspace(low - _BEYOND * width, high + _BEYOND * width, size)
    return places, curves_of(nodes, weights, places, width).mean(axis=0)
