"""The pictures a landscape draws of itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes

    from .figures import Look
    from .surface import Landscape


class Drawing:
    """What ``Landscape`` has of ``figures``, which only a picture loads.

    All take the options of ``figures.Look``: metric, levels, scale, colormap, trajectory, clip, theme, style.
    """

    def plot_contour(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws filled contours with the trajectory and the convergence point; see ``figures.plot_contour``."""
        from .figures import plot_contour

        return plot_contour(self._self, ax, **look)

    def plot_contour_lines(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws contour lines alone; see ``figures.plot_contour_lines``."""
        from .figures import plot_contour_lines

        return plot_contour_lines(self._self, ax, **look)

    def plot_heatmap(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws every point as its cell; see ``figures.plot_heatmap``."""
        from .figures import plot_heatmap

        return plot_heatmap(self._self, ax, **look)

    def plot_surface(self, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws the surface in three dimensions; see ``figures.plot_surface``."""
        from .figures import plot_surface

        return plot_surface(self._self, ax, **look)

    def plot_profile(self, ax: Axes | None = None, *, others: str | Sequence[str] = (), **look: Unpack[Look]) -> Axes:
        """Draws a line's loss, and other metrics on a second axis; see ``figures.plot_profile``."""
        from .figures import plot_profile

        return plot_profile(self._self, ax, others=others, **look)

    def plot_difference(self, other: Landscape, ax: Axes | None = None, **look: Unpack[Look]) -> Axes:
        """Draws this landscape minus another one on the same grid; see ``figures.plot_difference``."""
        from .figures import plot_difference

        return plot_difference(self._self, other, ax, **look)

    def save_animation(
        self, path: str | os.PathLike[str], kind: str = "contour", *, seconds: float = 6.0, **look: Unpack[Look]
    ) -> Path:
        """Writes the optimizer's walk over the plane as GIF or MP4; see ``figures.save_animation``."""
        from .figures import save_animation

        return save_animation(self._self, path, kind, seconds=seconds, **look)

    @property
    def _self(self) -> Landscape:
        return cast("Landscape", cast(Any, self))
