"""A path and its marks in front of a surface and behind it; loads matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpl_toolkits.mplot3d.art3d import Line3D  # type: ignore[import-untyped]
from mpl_toolkits.mplot3d.proj3d import proj_transform  # type: ignore[import-untyped]
from numpy.typing import NDArray

from .occlusion import Relief

# How strong a mark or a stretch of the path is behind the surface.
FAINT = 0.5
DOTTED = (0, (1.0, 1.2))


class SurfaceLine(Line3D):  # type: ignore[misc]
    """A line, or marks, whose hidden part is faint; a hidden line is dotted too.

    What the surface hides is found whenever the picture is drawn, so it holds for every camera.
    """

    def __init__(self, points: NDArray[Any], relief: Relief, **style: Any) -> None:
        """Makes the line.

        Args:
            points: places with heights, shape (n, 3).
            relief: the surface that hides them.
            **style: as for matplotlib's ``Line2D``.
        """
        super().__init__(*np.asarray(points, np.float64).T, **style)
        self.relief = relief

    def hidden(self) -> NDArray[Any]:
        """Returns which points the surface hides from the camera that the axes have now, shape (n,)."""
        return self.relief.hides(np.column_stack(self.get_data_3d()), self.axes.get_proj())

    def draw(self, renderer: Any) -> None:
        """Draws the hidden part, then what is in front of it."""
        if not self.get_visible():
            return
        hidden = self.hidden()
        faint: dict[str, Any] = {"alpha": FAINT * (1.0 if self.get_alpha() is None else self.get_alpha())}
        behind = hidden
        if self.get_linestyle() != "None":
            faint["linestyle"] = DOTTED
            # A hidden stretch begins where the visible one ends, so that no gap opens between the two.
            behind = hidden | np.append(hidden[1:], False) | np.append(False, hidden[:-1])
        self._part(behind, **faint).draw(renderer)
        self._part(~hidden).draw(renderer)
        # Layouts ask where the whole line lies.
        across, up, _ = proj_transform(*self.get_data_3d(), self.axes.M)
        self.set_data(across, up)
        self.stale = False

    def _part(self, where: NDArray[Any], **changes: Any) -> Line3D:
        """Returns a line that looks like this one, of some of its points."""
        part = Line3D(*(np.where(where, column, np.nan) for column in self.get_data_3d()))
        part.update_from(self)
        part.set_figure(self.get_figure())
        part.axes = self.axes
        part.set(**changes)
        return part
