"""Light on solids, the same with every graphics driver: a sky, a lamp with soft shadows, and a faint gloss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Float64


_DIRECTIONS = 16
# Distances of the neighbours that may hide the sky, in steps of the grid.
_REACHES = (1, 2, 3, 4, 6, 8, 11, 15, 21, 29, 40, 56, 78, 110, 160)
_SHADOW_STEPS = 96
# The lamp's size, as the tangent of half the angle that it takes on the sky.
_SOFTNESS = 0.22
# Of the lamp, seen from the middle: left of the viewer, above the horizon.
_LAMP_AZIMUTH, _LAMP_ELEVATION = -62.0, 42.0
_FILL_AZIMUTH, _FILL_ELEVATION = 75.0, 25.0
_SKY, _GROUND = np.array([[0.52, 0.54, 0.58], [0.40, 0.38, 0.36]], np.float32)
_LAMP, _FILL = np.array([[0.86, 0.83, 0.78], [0.10, 0.11, 0.14]], np.float32)
# Brightness up to which colours stay as they are; what is brighter approaches white.
_SHOULDER = np.float32(0.8)


@dataclass(frozen=True)
class Lamps:
    """Directions, of length 1, to the brightest lamp and to that which brightens shadows; both move with the viewer."""

    lamp: Float64[np.ndarray, " 3"]
    fill: Float64[np.ndarray, " 3"]


def lamps_beside(azimuth: float) -> Lamps:
    """Returns the lamps of a viewer who stands at an azimuth, in degrees."""
    return Lamps(
        _direction(azimuth + _LAMP_AZIMUTH, _LAMP_ELEVATION), _direction(azimuth + _FILL_AZIMUTH, _FILL_ELEVATION)
    )


def sky_seen(heights: Float64[np.ndarray, "ny nx"], to_world: Float64[np.ndarray, "2 2"]) -> NDArray[Any]:
    """Returns the share of the sky each point sees; ``to_world`` takes grid steps (columns, rows) to heights' units."""
    solid = np.where(np.isnan(heights), -np.inf, heights)
    total = np.zeros(heights.shape)
    for angle in 2 * math.pi * np.arange(_DIRECTIONS) / _DIRECTIONS:
        slopes = _steepest(solid, to_world, angle, _REACHES)
        total += 1 / (1 + slopes**2)
    return total / _DIRECTIONS


def lamp_seen(
    heights: Float64[np.ndarray, "ny nx"], to_world: Float64[np.ndarray, "2 2"], lamp: Float64[np.ndarray, " 3"]
) -> NDArray[Any]:
    """Returns the share of a large lamp, in a direction of length 1, that each point sees; see ``sky_seen``."""
    solid = np.where(np.isnan(heights), -np.inf, heights)
    reaches = tuple(range(1, min(_SHADOW_STEPS, max(heights.shape)), 1))
    slopes = _steepest(solid, to_world, math.atan2(lamp[1], lamp[0]), reaches)
    slope = lamp[2] / math.hypot(lamp[0], lamp[1])
    share = np.clip((slope + _SOFTNESS - slopes) / (2 * _SOFTNESS), 0, 1)
    return np.asarray(share**2 * (3 - 2 * share))


def lit(
    colors: Float64[np.ndarray, "n 3"],
    normals: Float64[np.ndarray, "n 3"],
    toward: Float64[np.ndarray, "n 3"],
    lamps: Lamps,
    sky: Any = 1.0,
    lamp: Any = 1.0,
    gloss: float = 0.035,
) -> NDArray[np.float32]:
    """Returns colours under the light, 0 to 1 in sRGB; ``sky`` and ``lamp`` are shares seen, shape (n,) or a number."""
    colors, normals, toward = (np.asarray(part, np.float32) for part in (colors, normals, toward))
    sky, lamp = (np.broadcast_to(np.asarray(share, np.float32), len(normals))[:, None] for share in (sky, lamp))
    first, second = lamps.lamp.astype(np.float32), lamps.fill.astype(np.float32)
    upward = 0.5 + 0.5 * normals[:, 2:]
    falling = lamp * np.maximum(normals @ first, 0)[:, None]
    filling = np.maximum(normals @ second, 0)[:, None]
    light = sky * (upward * (_SKY - _GROUND) + _GROUND + filling * _FILL) + falling * _LAMP
    between = toward + first
    shining = np.einsum("ij,ij->i", normals, between) / np.sqrt(np.einsum("ij,ij->i", between, between))
    grazing = 1 - np.clip(np.einsum("ij,ij->i", normals, toward), 0, 1)
    reflected = lamp[:, 0] * _to_the_48th(np.maximum(shining, 0)) + 0.5 * sky[:, 0] * (grazing * grazing) ** 2
    bright = _linear(colors) * light + gloss * reflected[:, None]
    rest = np.float32(1 - _SHOULDER)
    bent = _SHOULDER + rest * (1 - np.exp(np.minimum(_SHOULDER - bright, 0) / rest))
    return _screen(np.where(bright > _SHOULDER, bent, bright))


def _to_the_48th(values: NDArray[Any]) -> NDArray[Any]:
    sixteenth = np.square(np.square(np.square(np.square(values))))
    return np.asarray(sixteenth * np.square(sixteenth))


def _steepest(solid: NDArray[Any], to_world: NDArray[Any], angle: float, reaches: tuple[int, ...]) -> NDArray[Any]:
    """Returns the slope to the horizon in one direction, at least 0."""
    step = np.linalg.solve(to_world, [math.cos(angle), math.sin(angle)])
    step /= np.abs(step).max()
    rows, columns = solid.shape
    found = np.zeros(solid.shape)
    for reach in reaches:
        right, up = (round(float(part) * reach) for part in step)
        if abs(right) >= columns or abs(up) >= rows:
            break
        distance = float(np.hypot(*(to_world @ (right, up))))
        from_cells = (slice(max(0, -up), rows - max(0, up)), slice(max(0, -right), columns - max(0, right)))
        to_cells = (slice(max(0, up), rows - max(0, -up)), slice(max(0, right), columns - max(0, -right)))
        with np.errstate(invalid="ignore"):
            slopes = (solid[to_cells] - solid[from_cells]) / distance
        np.fmax(found[from_cells], slopes, out=found[from_cells])
    # From a hole everything is infinitely high.
    return np.where(np.isfinite(found), found, 0.0)


def _direction(azimuth: float, elevation: float) -> NDArray[Any]:
    around, up = math.radians(azimuth), math.radians(elevation)
    return np.array([math.cos(up) * math.cos(around), math.cos(up) * math.sin(around), math.sin(up)])


def _linear(colors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns how bright colours of a screen (sRGB) are."""
    return np.asarray(_BRIGHTNESS[np.round((len(_BRIGHTNESS) - 1) * np.clip(colors, 0, 1)).astype(np.int32)])


def _screen(bright: NDArray[np.float32]) -> NDArray[np.float32]:
    bright = np.clip(bright, 0, 1)
    return np.where(bright <= 0.0031308, 12.92 * bright, 1.055 * bright ** np.float32(1 / 2.4) - 0.055)


def _brightness_table() -> NDArray[np.float32]:
    colors = np.linspace(0, 1, 4096)
    exact = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    return np.asarray(exact, np.float32)


_BRIGHTNESS = _brightness_table()
