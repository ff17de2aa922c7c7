"""Two planes measured on the same grid, one minus the other: where each of them is lower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collectors.validation import wrong_type

from ..file.checks import PointStatus
from ..file.data import LandscapeData
from .contour import draw_filled
from .sheet import Kind, Look, begin
from .texts import missed_notes, plain, title

if TYPE_CHECKING:
    from typing import Unpack

    from jaxtyping import UInt8
    from matplotlib.axes import Axes


def plot_difference(first: LandscapeData, second: LandscapeData, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
    """Draws the first plane's metric minus the second's, in colours that change at zero, with the first one's path.

    Args:
        first: a plane.
        second: a plane on the same grid.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        **look: metric, levels, scale ("auto", "linear" or "symlog"), colormap (of two hues), trajectory, clip (largest
            difference), theme, style, aspect; see ``Look``.

    Returns:
        The axes.

    Raises:
        KeyError: a landscape has no such metric.
        ValueError: a landscape is a line, the grids differ, or an argument has a wrong value.
        TypeError: an argument is unknown or has the wrong type.
    """
    for name, landscape in (("first", first), ("second", second)):
        if not isinstance(landscape, LandscapeData):
            raise wrong_type(name, "a Landscape", landscape)
    if first.y is None or second.y is None:
        raise ValueError("plot_difference needs two planes, but got a line; plot_multiples draws lines side by side.")
    check_same_grid(first, second)
    metric = look.get("metric", "loss")
    values = difference(first[metric], second[metric])
    with begin(
        DIFFERENCE, first, ax, look, values=values, status=joint_status(first.status, second.status), diverging=True,
        label=f"difference of {plain(metric)}", estimates=missed_notes(first, second),
    ) as sheet:  # fmt: skip
        sheet.heading = "" if sheet.own and sheet.appearance.paper else _heading(first, second)
        draw_filled(sheet)
        sheet.finish()
    return sheet.ax


def check_same_grid(first: LandscapeData, second: LandscapeData) -> None:
    """Checks that two landscapes were measured at the same coordinates.

    Raises:
        ValueError: they were not; the text names the axis.
    """
    for name, ours, theirs in (("x", first.x, second.x), ("y", first.y, second.y)):
        if ours is None or theirs is None:
            same = ours is theirs
            texts = ["no points" if axis is None else f"{len(axis)} points" for axis in (ours, theirs)]
        else:
            near = 1e-9 * float(np.ptp(ours) or 1.0)
            same = len(ours) == len(theirs) and bool(np.allclose(ours, theirs, rtol=0, atol=near))
            texts = [f"{len(axis)} points from {axis[0]:.4g} to {axis[-1]:.4g}" for axis in (ours, theirs)]
        if not same:
            raise ValueError(
                f"the two landscapes must have the same grid, but along {name} the first has {texts[0]} and the "
                f"second {texts[1]}; measure both with the same size and range, or use plot_multiples."
            )


def difference(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Returns first minus second; infinities of the same sign have no difference and give NaN."""
    with np.errstate(invalid="ignore"):
        return np.asarray(first - second)


def joint_status(first: UInt8[np.ndarray, "*grid"], second: UInt8[np.ndarray, "*grid"]) -> UInt8[np.ndarray, "*grid"]:
    """Returns what is known about a difference: failed where either failed, else pending, else interpolated."""
    joint = np.full(first.shape, PointStatus.MEASURED, np.uint8)
    for status in (PointStatus.INTERPOLATED, PointStatus.PENDING, PointStatus.FAILED):
        joint[(first == status) | (second == status)] = status
    return joint


def _heading(first: LandscapeData, second: LandscapeData) -> str:
    """Returns what is subtracted from what: by the titles or, where these are the same, by the files' names."""
    names = [title(first), title(second)]
    if names[0] != names[1]:
        return f"{names[0]}\nminus {names[1]}"
    files = [landscape.path for landscape in (first, second)]
    for known_as in (lambda path: path.stem, lambda path: f"{path.parent.name}/{path.stem}"):
        short = [None if path is None else plain(known_as(path), 32) for path in files]
        if None not in short and short[0] != short[1]:
            return f"{names[0]}\n{short[0]} minus {short[1]}"
    return f"{names[0]}\nfirst minus second"


DIFFERENCE = Kind("plot_difference", draw_filled)
