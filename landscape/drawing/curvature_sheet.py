"""What pictures of curvature share: what they need to know, axes, headings and legend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64, Int64, UInt8

from ..record.checks import PointStatus
from ..roles import CHECKPOINT
from .appearance import PAPER_WIDTH, Appearance
from .canvas import Picture, begin_page
from .look import CurvatureLook, check_look
from .texts import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MATRICES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix (GGN)"}
_SMALL = "₀₁₂₃₄₅₆₇₈₉"


class MeasuredCurvature(Protocol):
    """What is drawn: the curvature at n checkpoints, as ``Curvature`` explains it; NaN where it is not measured."""

    number: Int64[np.ndarray, " n"]
    status: UInt8[np.ndarray, " n"]
    eigenvalues: Float64[np.ndarray, "n pairs"]
    residuals: Float64[np.ndarray, "n pairs"]
    converged: UInt8[np.ndarray, "n pairs"]
    trace: Float64[np.ndarray, " n"]
    density_nodes: Float64[np.ndarray, "n probes steps"]
    density_weights: Float64[np.ndarray, "n probes steps"]

    @property
    def trace_interval(self) -> Float64[np.ndarray, "n 2"]: ...  # NaN where there are less than two probes
    @property
    def attributes(self) -> Mapping[str, Any]: ...  # learning_rate is among them where it is known


@dataclass(kw_only=True)
class CurvatureSheet(Picture):
    curvature: MeasuredCurvature

    def write_title(self, named: str, *notes: str) -> None:
        """Writes what is shown, with the matrix and the samples, which a number of curvature means nothing without."""
        what = f"{matrix_name(self.curvature)} of the loss, {samples_text(self.curvature)}"
        self.set_title(named, [what, *notes], small=self.appearance.paper or not self.own)


@contextlib.contextmanager
def begin_curvature(
    function: str, curvature: MeasuredCurvature, ax: Axes | None, look: CurvatureLook
) -> Iterator[CurvatureSheet]:
    """Checks the options; yields a sheet on ``ax`` or a new figure."""
    with begin_picture(function, ax, look, 3.3) as page:
        yield CurvatureSheet(**page, curvature=curvature)


@contextlib.contextmanager
def begin_picture(function: str, ax: Axes | None, look: CurvatureLook, paper_height: float) -> Iterator[dict[str, Any]]:
    """Checks the options of a picture of no landscape; yields what a ``Picture`` needs."""
    check_look(function, look, CurvatureLook)

    def usual(style: Appearance) -> tuple[float, float]:
        return style.fitted((PAPER_WIDTH, paper_height) if style.paper else (6.4, 4.4))

    with begin_page(look, ax, usual) as page:
        yield page


def matrix_name(curvature: MeasuredCurvature) -> str:
    matrix = str(curvature.attributes.get("matrix", "hessian")).lower()
    return _MATRICES.get(matrix, plain(matrix, 24))


def samples_text(curvature: MeasuredCurvature) -> str:
    count = curvature.attributes.get("num_samples")
    return "all samples" if count is None else f"{int(count):,} sample{'' if count == 1 else 's'}"


def unit_text(curvature: MeasuredCurvature) -> str:
    return plain(curvature.attributes.get("unit") or CHECKPOINT, 32)


def network_text(curvature: MeasuredCurvature) -> str:
    network = curvature.attributes.get("network")
    name = network.get("name") if isinstance(network, Mapping) else network
    return plain(name, 40) if name else ""


def symbol(place: int | str) -> str:
    """Returns an eigenvalue's symbol, such as λ₁."""
    return "λ" + "".join(_SMALL[int(digit)] if digit.isdigit() else digit for digit in str(place))


def ends_of(curvature: MeasuredCurvature) -> tuple[int, int]:
    """Returns how many of the eigenvalues are the largest, and how many are of the lower end."""
    pairs = curvature.eigenvalues.shape[1]
    top = curvature.attributes.get("top")
    top = pairs if top is None else min(int(top), pairs)
    return top, pairs - top


def unconverged(curvature: MeasuredCurvature) -> NDArray[Any]:
    """Returns which eigenpairs are less exact than was asked for, bool[n, pairs]."""
    return np.asarray(np.isfinite(curvature.eigenvalues) & (curvature.converged != 1))


def missing_checkpoints(curvature: MeasuredCurvature) -> dict[str, NDArray[Any]]:
    """Returns the numbers of the checkpoints without curvature, by the reason."""
    kinds = {"pending": PointStatus.PENDING, "failed": PointStatus.FAILED}
    found = {name: curvature.number[curvature.status == kind] for name, kind in kinds.items()}
    return {name: numbers for name, numbers in found.items() if len(numbers)}
