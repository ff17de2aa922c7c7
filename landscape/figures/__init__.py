"""Pictures of landscapes: thin functions of data and axes that return the axes and never show anything."""

from ..drawing.camera import CAMERAS, Camera
from ..drawing.canvas import figure_pixels, save_figure
from ..drawing.look import CurvatureLook, Look
from ..scales.choosing import choose_scale
from ..scales.scale import Scale
from .barriers import plot_barriers, plot_routes
from .comparison import plot_comparison
from .contour import plot_contour, plot_contour_lines, plot_heatmap
from .difference import plot_difference
from .films.film import save_animation
from .films.frames import orbit_frames, walk_frames
from .hero import Rendering, plot_hero
from .minima import plot_merge_tree, plot_persistence
from .multiples import plot_multiples, plot_uncertainty
from .profile import plot_profile
from .sharpness import plot_sharpness
from .spectrum import plot_spectrum
from .surface3d import plot_surface

__all__ = [
    "CAMERAS",
    "Camera",
    "CurvatureLook",
    "Look",
    "Rendering",
    "Scale",
    "choose_scale",
    "figure_pixels",
    "orbit_frames",
    "plot_barriers",
    "plot_comparison",
    "plot_contour",
    "plot_contour_lines",
    "plot_difference",
    "plot_heatmap",
    "plot_hero",
    "plot_merge_tree",
    "plot_multiples",
    "plot_persistence",
    "plot_profile",
    "plot_routes",
    "plot_sharpness",
    "plot_spectrum",
    "plot_surface",
    "plot_uncertainty",
    "save_animation",
    "save_figure",
    "walk_frames",
]
