"""What pictures of curvature share: what they need to know, axes, headings and legend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from collectors.shapes import Float64, Int64, UInt8

from ..roles import CHECKPOINT
from .appearance import PAPER_WIDTH
from .canvas import Picture, begin_page
from .look import Axes, CurvatureLook, check_look
from .texts import plain

_MATRICES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix (GGN)"}
_SMALL = "₀₁₂₃₄₅₆₇₈₉"
_Kind = TypeVar("_Kind", bound=Picture)


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

    @property
    def matrix(self) -> str:
        name = str(self.curvature.attributes.get("matrix", "hessian")).lower()
        return _MATRICES.get(name, plain(name, 24))

    @property
    def unit(self) -> str:
        return plain(self.curvature.attributes.get("unit") or CHECKPOINT, 32)

    @property
    def network(self) -> str:
        network = self.curvature.attributes.get("network")
        name = network.get("name") if isinstance(network, Mapping) else network
        return plain(name, 40) if name else ""

    def write_title(self, named: str, *notes: str) -> None:
        """Writes what is shown, with the matrix and the samples, which a number of curvature means nothing without."""
        count = self.curvature.attributes.get("num_samples")
        samples = "all samples" if count is None else f"{int(count):,} sample{'' if count == 1 else 's'}"
        what = f"{self.matrix} of the loss, {samples}"
        self.set_title(named, [what, *notes], small=self.appearance.paper or not self.own)


@contextlib.contextmanager
def begin_picture(
    kind: type[_Kind], function: str, ax: Axes | None, look: CurvatureLook, paper_height: float, **more: Any
) -> Iterator[_Kind]:
    """Checks the options of a picture of no landscape; yields it, with attributes ``more``, on ``ax`` or a figure."""
    check_look(function, look, CurvatureLook)
    paper = (PAPER_WIDTH, paper_height)
    with begin_page(look, ax, lambda style: style.fitted(paper if style.paper else (6.4, 4.4))) as page:
        yield kind(**page, **more)


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
