"""What pictures of curvature share: what they need to know, their options, axes, headings and legend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from collectors.validation import check_instance, wrong_type

from ..record.checks import PointStatus
from ..roles import CHECKPOINT
from .appearance import PAPER_WIDTH, Appearance, appearance_of, draw_legend
from .canvas import check_size, new_axes, settle
from .texts import plain, plain_lines

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64, UInt8
    from matplotlib.axes import Axes


_MATRICES = {"hessian": "Hessian", "ggn": "Gauss-Newton matrix (GGN)"}
_SMALL = "₀₁₂₃₄₅₆₇₈₉"
MISSING = {"pending": ".", "failed": "x"}


class MeasuredCurvature(Protocol):
    """What is drawn: the curvature at n checkpoints, NaN where it is not measured."""

    @property
    def number(self) -> Int64[np.ndarray, " n"]:
        """The checkpoints' numbers, ascending."""

    @property
    def status(self) -> UInt8[np.ndarray, " n"]:
        """``PointStatus`` of each."""

    @property
    def eigenvalues(self) -> Float64[np.ndarray, "n pairs"]:
        """The largest first, then those of the lower end."""

    @property
    def residuals(self) -> Float64[np.ndarray, "n pairs"]:
        """No true eigenvalue is further from an eigenvalue than this."""

    @property
    def converged(self) -> UInt8[np.ndarray, "n pairs"]:
        """1 where the residual is within what was asked for."""

    @property
    def trace(self) -> Float64[np.ndarray, " n"]:
        """The estimated sum of all eigenvalues."""

    @property
    def trace_interval(self) -> Float64[np.ndarray, "n 2"]:
        """The two ends of its 95 % interval; NaN where there are less than two probes."""

    @property
    def density_nodes(self) -> Float64[np.ndarray, "n probes steps"]:
        """Where eigenvalues lie, NaN where a probe needed fewer steps."""

    @property
    def density_weights(self) -> Float64[np.ndarray, "n probes steps"]:
        """The share of all eigenvalues at each node."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What was measured: matrix, num_samples, network, unit, top, weights, and learning_rate where it is known."""


class CurvatureLook(TypedDict, total=False):
    """The options of every picture of curvature; each may be left out.

    Attributes:
        theme: "light" or "dark"; None follows the axes, or matplotlib's settings.
        style: "screen", or "paper": as wide as a column (3.4 in), type of 6 to 8 points, no name of the network; or a
            venue's, as in ``Look``.
        font: "sans" or "serif".
        title: in place of the network's name; "" leaves it out. What was measured is always said.
        size: width and height in inches of a figure of its own; None chooses.
    """

    theme: str | None
    style: str
    font: str
    title: str | None
    size: tuple[float, float] | None


@dataclass
class CurvatureSheet:
    """A picture of curvature in the making; ``own`` says whether its axes stand alone on a figure of ours."""

    curvature: MeasuredCurvature
    ax: Axes
    own: bool
    appearance: Appearance
    heading: str | None
    entries: list[Any] = field(default_factory=list)

    def write_title(self, named: str, *notes: str) -> None:
        """Writes what is shown, with the matrix and the samples, which a number of curvature means nothing without."""
        first = self.heading
        if first is None:
            first = "" if self.own and self.appearance.paper else named
        lines = [first, f"{matrix_name(self.curvature)} of the loss, {samples_text(self.curvature)}", *notes]
        size = self.appearance.text_size if self.appearance.paper or not self.own else None
        self.ax.set_title("\n".join(line for line in lines if line), fontsize=size)

    def finish(self) -> None:
        draw_legend(self.ax, self.entries, self.appearance, outside=self.own)
        if self.own:
            settle(self.ax.figure)


@contextlib.contextmanager
def begin_curvature(
    function: str, curvature: MeasuredCurvature, ax: Axes | None, look: CurvatureLook, paper_height: float = 3.3
) -> Iterator[CurvatureSheet]:
    """Checks the options; yields a sheet on ``ax`` or a new figure, ``paper_height`` inches high on a paper."""
    with begin_picture(function, ax, look, paper_height) as (drawn, appearance, heading):
        yield CurvatureSheet(curvature, drawn, ax is None, appearance, heading)


@contextlib.contextmanager
def begin_picture(
    function: str, ax: Axes | None, look: CurvatureLook, paper_height: float
) -> Iterator[tuple[Axes, Appearance, str | None]]:
    """Checks the options of a picture; yields axes, how they look, and the title's first line, if one was given."""
    unknown = sorted(set(look) - set(CurvatureLook.__annotations__))
    if unknown:
        known = ", ".join(CurvatureLook.__annotations__)
        raise TypeError(f"{function} has no argument {unknown[0]!r}; it has {known}.")
    if ax is not None and not hasattr(ax, "transData"):
        raise wrong_type("ax", "matplotlib axes or None", ax)
    appearance = appearance_of(look, ax)
    size = check_size(look.get("size"), ax)
    heading = look.get("title")
    if heading is not None:
        heading = plain_lines(check_instance("title", heading, str, "a str or None"))
    with appearance.applied():
        if ax is None:
            usual = (PAPER_WIDTH, paper_height) if appearance.paper else (6.4, 4.4)
            ax = new_axes(*(size or appearance.fitted(usual)))
        yield ax, appearance, heading


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
