"""What a curvature file holds, in memory: a row for each set of weights, which the survey fills and the file stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np

from collectors.shapes import Float64, Int64, UInt8
from collectors.validation import check_choice, check_float, check_instance, check_int
from workers.curvature.products import MATRICES

from ..record.hdf5 import CURVATURE
from ..record.identity import check_identity
from ..record.record import Record, column

MATRIX_NAMES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix"}  # how texts call the matrices
_NEEDED = ("matrix", "unit", "top", "bottom", "weights")


class CurvatureData(Record, kind=CURVATURE, coordinates=("number",), key=("number",)):
    """The curvature of a loss at n sets of weights, in arrays that ``Curvature`` explains; NaN where not measured."""

    number: Int64[np.ndarray, " n"] = column("number", dtype=np.int64)
    sha256: tuple[str, ...] = column("number", dtype=str)
    status: UInt8[np.ndarray, " n"] = column("number", dtype=np.uint8)
    loss: Float64[np.ndarray, " n"] = column("number")
    gradient_norm: Float64[np.ndarray, " n"] = column("number")
    trace: Float64[np.ndarray, " n"] = column("number")
    trace_low: Float64[np.ndarray, " n"] = column("number")
    trace_high: Float64[np.ndarray, " n"] = column("number")
    eigenvalues: Float64[np.ndarray, "n pairs"] = column("number", "pair")
    residuals: Float64[np.ndarray, "n pairs"] = column("number", "pair")
    angle_bound: Float64[np.ndarray, "n pairs"] = column("number", "pair")
    share_seen_by_optimizer: Float64[np.ndarray, "n pairs"] = column("number", "pair", optional=True)
    converged: UInt8[np.ndarray, "n pairs"] = column("number", "pair", dtype=np.uint8)
    products: Int64[np.ndarray, " n"] = column("number", dtype=np.int64)
    forward_passes: Int64[np.ndarray, " n"] = column("number", dtype=np.int64)
    density_nodes: Float64[np.ndarray, "n probes steps"] = column("number", "probe", "step", place="density/nodes")
    density_weights: Float64[np.ndarray, "n probes steps"] = column("number", "probe", "step", place="density/weights")

    @property
    def trace_interval(self) -> Float64[np.ndarray, "n 2"]:
        """The 95 % interval of each trace, its lower and its upper end; shape (n, 2)."""
        return np.stack([self.trace_low, self.trace_high], axis=1)

    def validate(self) -> None:
        super().validate()
        if (self.number[1:] <= self.number[:-1]).any():
            raise ValueError(f"number must be increasing, but got {self.number}.")
        attributes = self.attributes
        if missing := [name for name in _NEEDED if attributes.get(name) is None]:
            raise ValueError(f"the attributes lack {missing}.")
        check_choice("matrix", attributes["matrix"], MATRICES)
        check_instance("unit", attributes["unit"], str, "a str")
        top, bottom, _ = (check_int(name, attributes[name], minimum=0) for name in ("top", "bottom", "weights"))
        if attributes.get("tolerance") is not None:
            check_float("tolerance", attributes["tolerance"])
        for name in ("identity", "versions"):
            check_instance(name, attributes.get(name, {}), Mapping, "a dict")
        pairs = self.eigenvalues.shape[1]
        if top + bottom != pairs:
            raise ValueError(
                f"the attributes top and bottom must add up to {pairs} eigenpairs, but are {[top, bottom]}."
            )

    def joined(self, stored: Self) -> Self:
        """Returns both records' rows; a LandscapeIdentityError where a number means other weights in ``stored``."""
        both = sorted(self.places.keys() & stored.places.keys())
        before, now = (
            {f"{record.attributes.get('unit')} {key[0]}": record.sha256[record.places[key]] for key in both}
            for record in (stored, self)
        )
        check_identity(before, now, str(stored.path), kind=CURVATURE)
        return super().joined(stored)
