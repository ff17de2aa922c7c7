"""How much of a loss's eigenvectors a second-order optimizer sees: their part in the span of its own leading ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.weights.kronecker import LayerFactors, leading_vectors

if TYPE_CHECKING:
    from jaxtyping import Float64

LEADING = 20
"""How many leading eigenvectors of the optimizer's curvature span what it sees."""


def share_seen(
    directions: Sequence[Mapping[str, NDArray[Any]]], factors: Sequence[LayerFactors], leading: int = LEADING
) -> Float64[np.ndarray, " pairs"]:
    """Returns the length of each direction's part in the span of the optimizer's leading eigenvectors.

    Args:
        directions: of length one: name to array for every trainable parameter.
        factors: of each layer that the optimizer treats.
        leading: how many eigenvectors span what it sees; fewer where there are not as many.
    """
    # They are orthogonal and of length one.
    vectors = leading_vectors(factors, leading)
    return np.array([np.linalg.norm([vector.along(direction) for vector in vectors]) for direction in directions])
