"""What a curvature file holds, in memory: a row for each set of weights, which the survey fills and the file stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..file.checks import PointStatus, check_array, check_status

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64, UInt8

    from collectors.files.places import AnyPath

MATRIX_NAMES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix"}
"""How texts call the matrices."""
SCALARS = ("loss", "gradient_norm", "trace", "trace_low", "trace_high")
"""Names of the columns of numbers, float64[n]."""
COUNTS = ("products", "forward_passes")
"""Names of the columns of whole numbers, int64[n]."""
SHARE_SEEN = "share_seen_by_optimizer"
OF_PAIRS = ("eigenvalues", "residuals", "angle_bound", SHARE_SEEN)
"""Names of the columns with a number for each eigenpair, float64[n, top + bottom]."""


@dataclass(eq=False, repr=False)
class CurvatureData:
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

    number: Int64[np.ndarray, " n"]
    status: UInt8[np.ndarray, " n"]
    sha256: tuple[str, ...]
    loss: Float64[np.ndarray, " n"]
    gradient_norm: Float64[np.ndarray, " n"]
    eigenvalues: Float64[np.ndarray, "n pairs"]
    residuals: Float64[np.ndarray, "n pairs"]
    angle_bound: Float64[np.ndarray, "n pairs"]
    share_seen_by_optimizer: Float64[np.ndarray, "n pairs"]
    converged: UInt8[np.ndarray, "n pairs"]
    trace: Float64[np.ndarray, " n"]
    trace_low: Float64[np.ndarray, " n"]
    trace_high: Float64[np.ndarray, " n"]
    products: Int64[np.ndarray, " n"]
    forward_passes: Int64[np.ndarray, " n"]
    density_nodes: Float64[np.ndarray, "n probes steps"]
    density_weights: Float64[np.ndarray, "n probes steps"]
    errors: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    path: AnyPath | None = None

    @classmethod
    def empty(
        cls,
        number: Sequence[int],
        sha256: Sequence[str],
        *,
        pairs: int,
        density: tuple[int, int] = (0, 0),
        attributes: Mapping[str, Any] | None = None,
    ) -> CurvatureData:
        """Returns n sets of weights of which nothing is measured.

        Args:
            number: of each, increasing.
            sha256: of each.
            pairs: how many eigenpairs are asked for.
            density: how many probes, and steps of each.
            attributes: what else the file says.
        """
        count = len(number)
        columns: dict[str, Any] = {name: np.full(count, np.nan) for name in SCALARS}
        columns |= {name: np.full((count, pairs), np.nan) for name in OF_PAIRS}
        columns |= {name: np.zeros(count, np.int64) for name in COUNTS}
        return cls(
            number=np.array(number, np.int64),
            status=np.zeros(count, np.uint8),
            sha256=tuple(sha256),
            **columns,
            converged=np.zeros((count, pairs), np.uint8),
            density_nodes=np.full((count, *density), np.nan),
            density_weights=np.full((count, *density), np.nan),
            attributes=dict(attributes or {}),
        )

    @property
    def complete(self) -> bool:
        """Whether nothing is pending."""
        return not (self.status == PointStatus.PENDING).any()

    @property
    def status_counts(self) -> dict[PointStatus, int]:
        """How many sets of weights have each status."""
        return {status: int((self.status == status).sum()) for status in PointStatus}

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All arrays by their names, each with n rows, ``number`` first."""
        names = ("number", "status", *SCALARS, *OF_PAIRS, "converged", *COUNTS, "density_nodes", "density_weights")
        return {name: getattr(self, name) for name in names}

    def validate(self) -> None:
        """Checks that shapes, types and values fit together.

        Raises:
            ValueError: they do not; the text names the array, what was expected and what came.
        """
        count = len(self.number) if self.number.ndim == 1 else -1
        check_array("number", self.number, (count,), np.int64)
        if count < 1 or (self.number[1:] <= self.number[:-1]).any():
            raise ValueError(f"number must be at least one number, increasing, but got {self.number}.")
        check_status("status", self.status, (count,))
        if len(self.sha256) != count:
            raise ValueError(f"sha256 must be {count} texts, but got {len(self.sha256)}.")
        for name in SCALARS:
            check_array(name, getattr(self, name), (count,), np.float64)
        pairs = self.eigenvalues.shape[1] if self.eigenvalues.ndim == 2 else -1
        for name in OF_PAIRS:
            check_array(name, getattr(self, name), (count, pairs), np.float64)
        check_array("converged", self.converged, (count, pairs), np.uint8)
        for name in COUNTS:
            check_array(name, getattr(self, name), (count,), np.int64)
        density = self.density_nodes.shape[1:]
        if len(density) != 2:
            raise ValueError(f"density_nodes must have three axes, but got the shape {self.density_nodes.shape}.")
        for name in ("density_nodes", "density_weights"):
            check_array(name, getattr(self, name), (count, *density), np.float64)
        ends = [self.attributes.get(name) for name in ("top", "bottom")]
        counts = [end for end in ends if isinstance(end, int) and end >= 0]
        if len(counts) < len(ends) or sum(counts) != pairs:
            raise ValueError(f"the attributes top and bottom must add up to {pairs} eigenpairs, but are {ends}.")
