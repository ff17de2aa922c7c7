"""A path, its marks and its arrowheads in front of a surface and behind it; loads matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from mpl_toolkits.mplot3d.art3d import Line3D  # type: ignore[import-untyped]
from mpl_toolkits.mplot3d.proj3d import proj_transform  # type: ignore[import-untyped]
from numpy.typing import NDArray

from .occlusion import Relief
from .path import arrow_style
from .placement import HEAD, arrow_places, interpolated

# How strong a mark or a stretch of the path is behind the surface.
FAINT = 0.5
DOTTED = (0, (1.0, 1.2))


class SurfaceLine(Line3D):  # type: ignore[misc]
    """A line, or marks, whose hidden part is faint, from every camera; a hidden line is dotted too."""

    def __init__(self, points: NDArray[Any], relief: Relief, *, faint: float = FAINT, **style: Any) -> None:
        """Takes points, shape (n, 3), the surface that hides them, and the strength of the hidden part, 0 to 1."""
        super().__init__(*np.asarray(points, np.float64).T, **style)
        self.relief = relief
        self.faint = faint

    def hidden(self) -> NDArray[Any]:
        """Returns which points the surface hides from the camera that the axes have now, shape (n,)."""
        return self.relief.hides(np.column_stack(self.get_data_3d()), self.axes.get_proj())

    def draw(self, renderer: Any) -> None:
        if not self.get_visible():
            return
        points = np.column_stack(self.get_data_3d())
        across, up, _ = proj_transform(*points.T, self.axes.M)
        # Layouts ask where the whole line lies.
        self.set_data(across, up)
        for part in self._parts(points):
            part.draw(renderer)
        self.stale = False

    def _parts(self, points: NDArray[Any]) -> Iterator[Line3D]:
        """Yields the hidden part, then what is in front of it."""
        hidden = self.hidden()
        faint: dict[str, Any] = {"alpha": self.faint * (1.0 if self.get_alpha() is None else self.get_alpha())}
        behind = hidden
        if self.get_linestyle() != "None":
            faint["linestyle"] = DOTTED
            # A hidden stretch begins where the visible one ends, so that no gap opens between the two.
            behind = hidden | np.append(hidden[1:], False) | np.append(False, hidden[:-1])
        yield self._part(np.where(behind[:, None], points, np.nan), **faint)
        yield self._part(np.where(hidden[:, None], np.nan, points))

    def _part(self, points: NDArray[Any], **changes: Any) -> Line3D:
        part = Line3D(*points.T)
        part.update_from(self)
        part.set_markevery(self.get_markevery())
        part.set_figure(self.get_figure())
        part.axes = self.axes
        part.set(**changes)
        return part


class SurfaceArrows(SurfaceLine):
    """Arrowheads along a path, at equal lengths on the page from every camera; a hidden one is faint."""

    def __init__(self, points: NDArray[Any], relief: Relief, colors: NDArray[Any], head: float = HEAD, **style: Any):
        """Takes a path's points and colours, each of shape (n, 3), and an arrowhead's length in points of 1/72 inch."""
        super().__init__(points, relief, linestyle="none", **style)
        self.colors = colors
        self.head = head

    def _parts(self, points: NDArray[Any]) -> Iterator[Line3D]:
        inches = self.axes.transData.transform(self.get_xydata()) / self.axes.figure.dpi
        for place, _, _, angle in arrow_places(72 * inches, self.head):
            at, color = interpolated(points, place), interpolated(self.colors, place)
            hidden = self.relief.hides(at[None], self.axes.get_proj())[0]
            style = {**arrow_style(angle, color, self.head), "alpha": self.faint if hidden else 1.0}
            yield self._part(at[None], **style, clip_on=False)
