"""Pictures of landscapes: thin functions of data and axes that return the axes and never show anything."""

from .canvas import figure_pixels, save_figure
from .contour import plot_contour
from .profile import plot_profile
from .surface3d import plot_surface

__all__ = ["figure_pixels", "plot_contour", "plot_profile", "plot_surface", "save_figure"]
