"""The kinds of pictures by the names that users give them."""

from __future__ import annotations

from .contour import CONTOUR, CONTOUR_LINES
from .heatmap import HEATMAP
from .profile import PROFILE
from .surface3d import SURFACE

PLANE_KINDS = {"contour": CONTOUR, "lines": CONTOUR_LINES, "heatmap": HEATMAP, "surface": SURFACE}
KINDS = {**PLANE_KINDS, "profile": PROFILE}
