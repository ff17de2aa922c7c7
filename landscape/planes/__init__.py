"""Planes and lines through weight space: which directions, and where checkpoints lie on them."""

from .from_weights import custom_plane as custom_plane
from .from_weights import line_between as line_between
from .from_weights import pca_plane as pca_plane
from .from_weights import plane_through as plane_through
from .from_weights import random_line as random_line
from .from_weights import random_plane as random_plane
from .networks import Network as Network
from .plane import Plane as Plane
from .projection import ProjectedCheckpoints as ProjectedCheckpoints
