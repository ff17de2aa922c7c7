"""Curvature: what users hold in a notebook of how sharp a loss is along a training."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.files.remote_path import RemotePath
from collectors.shapes import Float64
from collectors.validation import check_float, check_int, wrong_value

from .. import figures
from ..figures.spectrum import curves_of
from ..planes.axis_curvature import BOTTOM, FROM_THE_TOP, USUAL, AxisCurvature, check_rise, check_which
from ..planes.from_checkpoints import plane_of_eigenvectors
from ..planes.plane import Plane
from ..record.checks import PointStatus
from ..record.identity import eigenvectors_identity
from ..record.record import ReadOnlyRecord
from ..record.run import MeasurementReport
from ..roles import CHECKPOINT, OriginRole, named_origin
from .data import MATRIX_NAMES, CurvatureData, Eigenvectors, read_vectors, write_vectors
from .facts import counted, curvature_caption

# Of the range of the nodes: how wide a node is drawn.
_SHARE = 0.01
# Standard deviations beyond the last node that are drawn.
_BEYOND = 4.0


class Curvature(ReadOnlyRecord, CurvatureData):
    """How a loss bends at n sets of weights, such as a run's checkpoints; everything it hands out is read-only.

    Rows are sets of weights, in the order of ``number``. What is not measured, or was not asked for, is NaN. The
    methods ``plot_sharpness`` and ``plot_spectrum`` are the functions of ``figures``; ``caption(kind, number)`` returns
    what a paper says under them: ``kind`` is "sharpness" or "spectrum".

    Args:
        data: what was measured.
        path: the file it lies in; None for the one that ``data`` was read from, if any.
        report: what measuring it cost, if it was measured just now.
        vectors: eigenvectors that are in memory, by number; those of a file are read when they are asked for.

    Attributes:
        number: of each set of weights: its step or epoch, increasing, int64[n].
        status: ``PointStatus`` of each: 0 pending, 1 measured, 3 failed, uint8[n].
        sha256: of each set's file, n of them.
        loss: over all samples, the mean or, where the loss adds them up, the sum; float64[n].
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
        path: the file it lies in, or None.
        report: what measuring it cost, or None.
    """

    _vectors: Mapping[int, Eigenvectors]

    def __init__(
        self,
        data: CurvatureData,
        path: str | os.PathLike[str] | RemotePath | None = None,
        report: MeasurementReport | None = None,
        vectors: Mapping[int, Eigenvectors] | None = None,
    ) -> None:
        super().__init__(data, path, report, _vectors=dict(vectors or {}))

    @property
    def matrix(self) -> str:
        """Whose eigenvalues these are: "hessian" or "ggn" (the generalised Gauss-Newton matrix)."""
        return str(self.attributes["matrix"])

    @property
    def unit(self) -> str:
        """What ``number`` counts: "step", "epoch" or "checkpoint"."""
        return str(self.attributes["unit"])

    @property
    def top(self) -> int:
        """How many columns hold the largest eigenvalues; they come first."""
        return int(self.attributes["top"])

    @property
    def bottom(self) -> int:
        """How many columns hold the lowest eigenvalues; they come last, the lowest first."""
        return int(self.attributes["bottom"])

    @property
    def weights(self) -> int:
        """How many trainable weights there are, and so how many eigenvalues."""
        return int(self.attributes["weights"])

    def row(self, number: int | None = None) -> int:
        """Returns the row of a step or epoch; None takes the last one that is measured.

        Raises:
            TypeError: number is no whole number.
            ValueError: there is no such number, or nothing is measured.
        """
        if number is None:
            measured = np.flatnonzero(self.status == PointStatus.MEASURED)
            if not len(measured):
                raise ValueError("number must be given, because no set of weights is measured yet.")
            return int(measured[-1])
        rows = np.flatnonzero(self.number == check_int("number", number))
        if not len(rows):
            raise wrong_value("number", f"one of {self.number.tolist()}", number)
        return int(rows[0])

    def density(
        self, number: int | None = None, width: float | None = None, size: int = 1000
    ) -> tuple[Float64[np.ndarray, " size"], Float64[np.ndarray, " size"]]:
        """Returns how eigenvalues are distributed, each node drawn as a normal curve.

        Args:
            number: of the weights; None takes the last one that is measured.
            width: of the curves, their standard deviation; None takes a hundredth of the range of the nodes.
            size: how many places.

        Returns:
            Places, increasing, and the density there, whose integral is 1 (all eigenvalues); both of shape (size,).

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a wrong value, or no density was measured (``density_probes``).
        """
        row = self.row(number)
        check_int("size", size, minimum=2)
        nodes = self.density_nodes[row]
        known = np.isfinite(nodes)
        if not known.any():
            raise ValueError(
                "no density of the eigenvalues was measured here; measure it with density_probes=4 (of 40 products "
                "each)."
            )
        low, high = float(nodes[known].min()), float(nodes[known].max())
        if width is None:
            width = _SHARE * (high - low) or _SHARE * max(abs(high), 1.0)
        elif check_float("width", width) <= 0:
            raise wrong_value("width", "a number above 0", width)
        places = np.linspace(low - _BEYOND * width, high + _BEYOND * width, size)
        return places, curves_of(nodes, self.density_weights[row], places, width).mean(axis=0)

    def vectors(self, number: int | None = None) -> tuple[dict[str, NDArray[Any]], ...]:
        """Returns the eigenvectors, in the order of ``eigenvalues``: of each, an array for every trainable parameter.

        Args:
            number: of the weights; None takes the last one that is measured.

        Raises:
            TypeError: number is no whole number.
            ValueError: there is no such number.
            LandscapeError: they were not kept (``keep_vectors``), or their file is missing or damaged.
        """
        return self.eigenvectors(number).directions

    def eigenvectors(self, number: int | None = None) -> Eigenvectors:
        """Returns the eigenvectors with the weights at which they were found, as ``vectors`` does."""
        row = self.row(number)
        found = int(self.number[row])
        return self._vectors[found] if found in self._vectors else read_vectors(self, row)

    caption = curvature_caption
    plot_sharpness = figures.plot_sharpness
    plot_spectrum = figures.plot_spectrum

    def plane(
        self,
        number: int | None = None,
        which: str | Sequence[str] = USUAL,
        *,
        rise: float = 1.0,
        name: str | None = None,
    ) -> Plane:
        """Returns the plane, or the line, through a set of weights along eigenvectors that were kept.

        It is the one that ``hessian_plane`` finds there, and costs nothing more.

        Args:
            number: of the weights; None takes the last one that is measured.
            which: one (a line) or two of "top", "second", "third", "fourth", "fifth" and "bottom".
            rise: how much the loss rises along an axis to its end, as far as it is a parabola.
            name: what pictures call the network; by default the checkpoint's number, if it has one.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: an argument has a wrong value, or that eigenvalue was not measured.
            LandscapeError: the eigenvectors were not kept (``keep_vectors``), or their file is missing or damaged.
        """
        names, row = check_which("which", which), self.row(number)
        rise = check_rise("rise", rise)
        places = [self.top if name == BOTTOM else FROM_THE_TOP.index(name) for name in names]
        for one, place in zip(names, places, strict=True):
            if place >= (self.top + self.bottom if one == BOTTOM else self.top):
                raise wrong_value("which", f"among the {self.top} largest and {self.bottom} lowest that are here", one)
        found = self.eigenvectors(number)
        known = self.attributes
        values, errors = (tuple(values[row, places].tolist()) for values in (self.eigenvalues, self.residuals))
        axes = AxisCurvature(self.matrix, names, values, errors, int(known["num_samples"]), rise)
        identity = eigenvectors_identity(
            known["identity"], self.matrix, self.sha256[row], names, tolerance=known["tolerance"], seed=known["seed"]
        )
        role = named_origin(name)
        if name is None and self.unit != CHECKPOINT:
            role = OriginRole(CHECKPOINT, number=int(self.number[row]))
        along = [{key: array.copy() for key, array in found.directions[place].items()} for place in places]
        notes = known.get("notes") or ()
        return plane_of_eigenvectors(found.weights, found.space, along, axes, identity, notes=notes, role=role)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes a curvature file, which ``load`` reads, with eigenvectors that are in memory, and returns its path.

        Raises:
            LandscapeLockedError: a survey is writing that file.
            LandscapeWriteError: a file is there and ``overwrite`` is false, or it cannot be written.
            NotADirectoryError: the file's directory does not exist.
        """
        saved = super().save(path, overwrite=overwrite)
        for number, vectors in self._vectors.items():
            write_vectors(saved, self, self.row(number), vectors)
        return saved

    def __repr__(self) -> str:
        counts = self.status_counts
        numbers = f"{self.number[0]}" if len(self.number) == 1 else f"{self.number[0]} to {self.number[-1]}"
        parts = [f"{MATRIX_NAMES[self.matrix]} at {counted(len(self.number), self.unit)} ({numbers})"]
        largest = self.eigenvalues[:, 0][np.isfinite(self.eigenvalues[:, 0])] if self.top else np.zeros(0)
        if len(largest):
            parts.append(f"largest eigenvalue {largest.min():.4g} to {largest.max():.4g}")
        if counts[PointStatus.MEASURED] < len(self.number):
            parts.append(f"{counts[PointStatus.MEASURED]} of {len(self.number)} measured")
        return f"Curvature({'; '.join(parts)})"
