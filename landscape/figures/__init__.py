"""Pictures of landscapes: thin functions of data and axes that return the axes and never show anything."""

from ..scales.choosing import choose_scale
from ..scales.scale import Scale
from .animation import save_animation, walk_frames
from .canvas import figure_pixels, save_figure
from .contour import plot_contour, plot_contour_lines, plot_heatmap
from .difference import plot_difference
from .multiples import plot_multiples
from .profile import plot_profile
from .sheet import Look
from .surface3d import plot_surface

__all__ = [
    "Look",
    "Scale",
    "choose_scale",
    "figure_pixels",
    "plot_contour",
    "plot_contour_lines",
    "plot_difference",
    "plot_heatmap",
    "plot_multiples",
    "plot_profile",
    "plot_surface",
    "save_animation",
    "save_figure",
    "walk_frames",
]
