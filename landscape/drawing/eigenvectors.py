"""What pictures say of planes along eigenvectors: which matrix, which vector, how much the loss bends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..planes.axis_curvature import BOTTOM, FROM_THE_TOP

if TYPE_CHECKING:
    from ..grid.data import LandscapeData

_FACTORS = "factor"
# Earlier versions drew planes along the factors of a second-order optimizer.
MATRIX_NAMES = {"hessian": "Hessian", "ggn": "Gauss-Newton", "factors": _FACTORS}
_OF_OPTIMIZER = "optimizer's curvature"
_PLACES = {**dict(zip(FROM_THE_TOP, ("1st", "2nd", "3rd", "4th", "5th"), strict=True)), BOTTOM: "lowest"}


def is_along_eigenvectors(landscape: LandscapeData) -> bool:
    return str(landscape.attributes.get("decomposition", "")).lower() in MATRIX_NAMES


def eigenvector_label(landscape: LandscapeData, axis: int) -> str:
    """Returns the label of axis 0 (x) or 1 (y), such as "1st Hessian eigenvector (λ = 36.09 ± 0.02)"."""
    matrix = MATRIX_NAMES[str(landscape.attributes["decomposition"]).lower()]
    which = _said(landscape).get("which")
    name = which[axis] if isinstance(which, list | tuple) and len(which) > axis else None
    place = f"{_PLACES[name]} " if isinstance(name, str) and name in _PLACES else ""
    value = eigenvalue_text(landscape, axis)
    return f"{place}{matrix} eigenvector" + (f" ({value})" if value else "")


def short_eigenvector_label(landscape: LandscapeData, axis: int) -> str:
    """Returns the label of an axis in a few words, such as "1st eigenvector (λ = 36.09)"."""
    name = eigenvector_label(landscape, axis).replace(f"{_matrix_name(landscape)} ", "")
    return name.split(" ±")[0] + (")" if " ±" in name else "")


def eigenvalue_text(landscape: LandscapeData, axis: int) -> str:
    """Returns an eigenvalue with how exact it is; empty where the file does not say it."""
    values, residuals = landscape.directions.eigenvalues, landscape.directions.residuals
    if values is None or not math.isfinite(values[axis]):
        return ""
    value = float(values[axis])
    if _matrix_name(landscape) == _FACTORS:
        return f"{_OF_OPTIMIZER} {value:.4g}"
    text = f"λ = {value:.4g}"
    if residuals is not None and math.isfinite(residuals[axis]):
        text += f" ± {float(residuals[axis]):.0e}".replace("e-0", "e-").replace("e+0", "e+")
    return text


def matrix_text(landscape: LandscapeData) -> str:
    """Returns of which matrix and over how many samples the directions are eigenvectors; empty for others."""
    if not is_along_eigenvectors(landscape):
        return ""
    if _matrix_name(landscape) == _FACTORS:
        return _OF_OPTIMIZER
    matrix = {"Hessian": "Hessian", "Gauss-Newton": "Gauss-Newton matrix"}[_matrix_name(landscape)]
    count = _said(landscape).get("num_samples")
    return f"{matrix} of {count:,} samples" if isinstance(count, int) else matrix


def eigenvectors_text(landscape: LandscapeData) -> str | None:
    """Returns the eigenvectors with their eigenvalues for a list of facts; None where the directions are none."""
    if not is_along_eigenvectors(landscape):
        return None
    axes = range(1 if landscape.y is None else 2)
    found = [eigenvector_label(landscape, axis).replace(f"{_matrix_name(landscape)} eigenvector ", "") for axis in axes]
    found = [text.replace(f"{_OF_OPTIMIZER} ", "") for text in found]
    return f"{matrix_text(landscape)}: {', '.join(found)}"


def _matrix_name(landscape: LandscapeData) -> str:
    return MATRIX_NAMES[str(landscape.attributes["decomposition"]).lower()]


def _said(landscape: LandscapeData) -> Mapping[str, Any]:
    found = landscape.attributes.get("curvature")
    return found if isinstance(found, Mapping) else {}
