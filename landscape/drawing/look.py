"""The options of pictures: of landscapes, and of curvature and comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar

from ..grid.data import LandscapeData
from ..scales.choosing import Clip
from ..scales.levels import Levels
from ..scales.scale import Scale
from .camera import CameraChoice

if TYPE_CHECKING:
    import matplotlib.axes
    from matplotlib.colors import Colormap


MARK_MINIMA = "plot_contour, plot_contour_lines, plot_heatmap and plot_profile mark minima"
Axes: TypeAlias = "matplotlib.axes.Axes"
"""A name for type checkers: the first picture loads matplotlib."""


class Look(TypedDict, total=False):
    """The options of every picture; each may be left out.

    Attributes:
        metric: which of the landscape's metrics; "loss" by default.
        levels: about how many lines and ticks, or how they are spaced ("linear", "log", "quantile"), or their values;
            None chooses from the data.
        scale: "auto", "log", "linear" or "symlog" (logarithmic on both sides of zero), or the ``Scale`` of other
            pictures, which then show the same value in the same colour.
        colormap: matplotlib's name of the colours; the default is perceptually uniform and readable to colour-blind
            people.
        trajectory: whether runs' paths, networks and the origin are drawn.
        clip: the largest value that gets a colour of its own, or (smallest, largest); None chooses from the data. The
            colour bar or the axis says what is clipped.
        theme: "light" or "dark"; None follows the axes, or matplotlib's settings.
        style: "screen", or "paper": as wide as a column (3.4 in), type of 6 to 8 points, no title; or as wide as a
            venue asks, to 0.01 in: "neurips" (5.5 in), "icml" (3.25, several pictures 6.75), "nature" (3.50 and 7.20);
            "slides" is 10 in wide with large type.
        font: "sans", or "serif" as in most papers' text.
        aspect: "equal" draws a plane to scale: its axes are distances in weight space, the same on both, and oblique
            directions stand at their own angle. "fill" lets the plane's coordinates fill a square, and the picture
            says by how much that stretches it. A plane of more than 6 : 1 is always drawn like that. A line has no
            aspect.
        title: in place of the landscape's own; "" leaves it out.
        size: width and height in inches of a figure of its own, without the legend below a surface; None chooses.
        legend: whether there is a legend.
        camera: from where a surface is seen: "default", "front", "side", "above", "low", or (azimuth, elevation) in
            degrees, the same for every file; "auto" looks for the best view of the path. None is "default".
        topology: whether the grid's minima and the saddles between them are marked, on a plane seen from above or on a
            profile; a number marks the minima with a barrier higher than that. See ``Landscape.topology``.
    """

    metric: str
    levels: Levels
    scale: str | Scale
    colormap: str | Colormap
    trajectory: bool
    clip: Clip
    theme: str | None
    style: str
    font: str
    aspect: str
    title: str | None
    size: tuple[float, float] | None
    legend: bool
    camera: CameraChoice | None
    topology: bool | float


class CurvatureLook(TypedDict, total=False):
    """The options of every picture of curvature; each may be left out.

    Attributes:
        theme: "light" or "dark"; None follows the axes, or matplotlib's settings.
        style: "screen", or "paper": as wide as a column (3.4 in), type of 6 to 8 points, no name of the network; or a
            venue's, as in ``Look``.
        font: "sans" or "serif".
        title: in place of the network's name; "" leaves it out. What was measured is always said.
        size: width and height in inches of a figure of its own; None chooses.
        legend: whether there is a legend.
    """

    theme: str | None
    style: str
    font: str
    title: str | None
    size: tuple[float, float] | None
    legend: bool


_Options = TypeVar("_Options", Look, CurvatureLook)


def check_look(function: str, look: _Options, kind: type[Any] = Look) -> _Options:
    """Returns the options if all are those of ``kind``; a ``TypeError`` names the first unknown one."""
    known = kind.__annotations__
    unknown = sorted(set(look) - set(known))
    if unknown:
        raise TypeError(f"{function} has no argument {unknown[0]!r}; it has {', '.join(known)}.")
    return look


def check_dimensions(function: str, landscape: LandscapeData, *, plane: bool = True) -> None:
    """Refuses a line where a picture needs a plane, and a plane where it needs a line."""
    if plane == (landscape.y is None):
        needs, found, use = ("plane", "line", "plot_profile") if plane else ("line", "plane", "plot_contour")
        raise ValueError(f"{function} needs a {needs}, but the landscape is a {found}; use {use}.")
