"""What a curvature file holds, in memory: a row for each set of weights, which the survey fills and the file stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import numpy as np

from collectors.validation import check_choice, check_float, check_instance, check_int, wrong_type
from workers.curvature.products import MATRICES

from ..file.kind import CURVATURE
from ..record.identity import check_identity
from ..record.record import Record, column

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64, UInt8

MATRIX_NAMES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix"}
"""How texts call the matrices."""
_NEEDED = ("matrix", "unit", "top", "bottom", "weights")


class CurvatureData(Record, kind=CURVATURE, coordinates=("number",), key=("number",)):
    """The curvature of a loss at n sets of weights; NaN where it is not measured, or was not asked for.

    Attributes:
        number: of each set of weights: its step or epoch, increasing, int64[n].
        status: ``PointStatus`` of each: 0 pending, 1 measured, 3 failed, uint8[n].
        sha256: of each set's file, n of them.
        loss: the mean over all samples, float64[n].
        gradient_norm: the length of its gradient, float64[n].
        eigenvalues: the ``top`` largest first, then the ``bottom`` lowest, the lowest first; float64[n, top + bottom].
        residuals: no true eigenvalue is further from an eigenvalue than this; float64[n, top + bottom].
        angle_bound: residual over the gap to the next eigenvalue that was seen: about the sine of the largest angle
            between a vector and the true one, where it is below one; float64[n, top + bottom].
        share_seen_by_optimizer: of files of earlier versions, which measured it where the factors of a ``Thor`` were
            saved; NaN elsewhere; float64[n, top + bottom].
        converged: 1 where the residual is within the tolerance, uint8[n, top + bottom].
        trace: the sum of all eigenvalues, float64[n].
        trace_low: lower end of its 95 % interval, float64[n].
        trace_high: upper end, float64[n].
        products: how many products with the matrix were made, int64[n].
        forward_passes: as how many losses of all samples that took about as long: 5 for each product and 4 for the loss
            with its gradient, int64[n].
        density_nodes: where eigenvalues lie, float64[n, probes, steps]; NaN where a probe needed fewer steps.
        density_weights: the share of all eigenvalues at each node; the sum for each probe is 1; float64[n, probes,
            steps].
        errors: tracebacks of what failed, by number ("number/5").
        attributes: everything else worth keeping, as JSON values: ``matrix``, ``top``, ``bottom``, ``unit``,
            ``weights`` (how many are trainable), ``network``, ``num_samples``, ``seed``, ``tolerance``,
            ``measurement_plan``, ``notes``, ``identity``, ...
        path: the file that it was read from, or None.
    """

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

    def validate(self) -> None:
        """Checks that shapes, types, values and attributes fit together; the errors are those of ``Record``."""
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
            if not isinstance(attributes.get(name, {}), Mapping):
                raise wrong_type(name, "a dict", attributes[name])
        pairs = self.eigenvalues.shape[1]
        if top + bottom != pairs:
            raise ValueError(
                f"the attributes top and bottom must add up to {pairs} eigenpairs, but are {[top, bottom]}."
            )

    def joined(self, stored: Self) -> Self:
        """Returns the rows of both, as ``Record`` says.

        Raises:
            LandscapeIdentityError: a number means other weights in the file than here.
        """
        both = self.places.keys() & stored.places.keys()
        before, now = (
            {
                f"{record.attributes.get('unit')} {number}": record.sha256[row]
                for (number,), row in record.places.items()
                if (number,) in both
            }
            for record in (stored, self)
        )
        check_identity(before, now, str(stored.path), kind=CURVATURE)
        return super().joined(stored)
