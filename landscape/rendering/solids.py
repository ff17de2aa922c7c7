"""Solids with a material: the surface with its underside, lines and tubes, balls, and marks that face the viewer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64


@dataclass(frozen=True)
class Solid:
    """Triangles with a colour for each vertex, before the light falls on them.

    Attributes:
        vertices: shape (n, 3), in the scene's units.
        triangles: rows of ``vertices``, shape (m, 3).
        normals: of length 1, shape (n, 3); None for lines of one brightness, without light and shade.
        colors: of the material, 0 to 1 as on a screen, shape (n, 4); the fourth is not used.
        sky: share of the sky that each vertex sees, shape (n,) or a number.
        lamp: share of the lamp that each vertex sees, shape (n,) or a number.
        sides: "both", or only triangles that are seen from their "front" or their "back".
    """

    vertices: Float64[np.ndarray, "n 3"]
    triangles: Int64[np.ndarray, "m 3"]
    normals: Float64[np.ndarray, "n 3"] | None
    colors: Float64[np.ndarray, "n 4"]
    sky: Any = 1.0
    lamp: Any = 1.0
    sides: str = "both"


def grid_triangles(known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns two triangles for each cell whose four corners are known, counter-clockwise, shape (m, 3)."""
    rows, columns = known.shape
    number = np.arange(rows * columns).reshape(rows, columns)
    corners = (number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1])
    cells = np.stack(corners, axis=-1)[known[:-1, :-1] & known[:-1, 1:] & known[1:, 1:] & known[1:, :-1]]
    return np.asarray(cells[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3))


def grid_normals(places: Float64[np.ndarray, "ny nx 3"]) -> Float64[np.ndarray, "ny nx 3"]:
    """Returns normals, upwards, of a surface without holes."""
    found = np.cross(np.gradient(places, axis=1), np.gradient(places, axis=0))
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), 1e-300))


def level_line(points: Float64[np.ndarray, "m 3"], radius: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns a thin bar along a level line, no two neighbours of it at one place: vertices, triangles and normals."""
    closed = len(points) > 3 and bool(np.allclose(points[0], points[-1]))
    steps = np.diff(points[:, :2], axis=0)
    steps /= np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-300)
    before = np.vstack([steps[-1:] if closed else steps[:1], steps])
    after = np.vstack([steps, steps[:1] if closed else steps[-1:]])
    along = before + after
    along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 0.5)
    aside = np.column_stack([-along[:, 1], along[:, 0], np.zeros(len(along))])
    upward = np.broadcast_to((0.0, 0.0, 1.0), aside.shape)
    around = np.stack([aside, upward, -aside, -upward], axis=1)
    vertices = points[:, None] + radius * around
    first = np.arange(len(points) - 1)[:, None] * 4 + np.arange(4)
    beside = np.arange(len(points) - 1)[:, None] * 4 + (np.arange(4) + 1) % 4
    triangles = np.stack([first, beside, beside + 4, first, beside + 4, first + 4], axis=-1).reshape(-1, 3)
    return vertices.reshape(-1, 3), triangles, around.reshape(-1, 3)


def joined(parts: Sequence[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    """Returns vertices, triangles and further columns of several pieces as those of one."""
    if not parts:
        return []
    starts = np.cumsum([0, *(len(part[0]) for part in parts)])
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    columns[1] = np.concatenate([part[1] + start for part, start in zip(parts, starts, strict=False)])
    return columns


def balls(centres: Float64[np.ndarray, "k 3"], radius: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns balls: vertices, triangles and normals."""
    across, down = 20, 12
    longitudes = np.linspace(0, 2 * math.pi, across, endpoint=False)
    latitudes = np.linspace(0, math.pi, down)
    ring = np.sin(latitudes)[:, None]
    normals = np.stack(
        [
            ring * np.cos(longitudes),
            ring * np.sin(longitudes),
            np.broadcast_to(np.cos(latitudes)[:, None], (down, across)),
        ],
        axis=-1,
    ).reshape(-1, 3)
    first = np.arange(down - 1)[:, None] * across + np.arange(across)
    beside = np.arange(down - 1)[:, None] * across + (np.arange(across) + 1) % across
    triangles = np.stack([first, first + across, beside + across, first, beside + across, beside], axis=-1)
    one = triangles.reshape(-1, 3)
    found = joined([(centre + radius * normals, one, normals) for centre in centres])
    return found[0], found[1], found[2]


def smooth_normals(vertices: NDArray[Any], triangles: NDArray[Any]) -> NDArray[Any]:
    """Returns normals of length 1, means of those of the triangles around, shape (n, 3)."""
    first, second, third = (vertices[corner] for corner in triangles.T)
    faces = np.cross(second - first, third - first)
    total = np.zeros_like(vertices)
    for corner in triangles.T:
        np.add.at(total, corner, faces)
    return np.asarray(total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-300))


def medal(
    outline: Float64[np.ndarray, "k 2"], centre: Float64[np.ndarray, " 3"], axes: Float64[np.ndarray, "3 3"]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns facets of an open, counter-clockwise outline that face ``axes[2]``: vertices, triangles and normals."""
    radius = float(np.linalg.norm(outline, axis=1).max())
    rim = centre + outline @ axes[:2]
    peak = centre + 0.4 * radius * axes[2]
    corners = np.stack([np.broadcast_to(peak, rim.shape), rim, np.roll(rim, -1, axis=0)], axis=1)
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    triangles = np.arange(3 * len(rim)).reshape(-1, 3)
    return corners.reshape(-1, 3), triangles, np.repeat(normals, 3, axis=0)


def plate(
    outline: Float64[np.ndarray, "k 2"], centre: Float64[np.ndarray, " 3"], axes: Float64[np.ndarray, "3 3"]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns a flat shape of an outline that faces ``axes[2]``, as ``medal`` does: vertices, triangles and normals."""
    rim = np.vstack([centre, centre + outline @ axes[:2]])
    number = np.arange(len(outline))
    triangles = np.column_stack([np.zeros_like(number), 1 + number, 1 + np.roll(number, -1)])
    return rim, triangles, np.broadcast_to(axes[2], rim.shape).copy()


def ring(
    radius: float, thickness: float, centre: Float64[np.ndarray, " 3"], axes: Float64[np.ndarray, "3 3"]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns a ring that faces ``axes[2]``, of a wire with radius ``thickness``: vertices, triangles and normals."""
    around, across = 72, 14
    big = np.linspace(0, 2 * math.pi, around, endpoint=False)
    small = np.linspace(0, 2 * math.pi, across, endpoint=False)
    outward = np.cos(big)[:, None] * axes[0] + np.sin(big)[:, None] * axes[1]
    normals = np.cos(small)[None, :, None] * outward[:, None] + np.sin(small)[None, :, None] * axes[2]
    vertices = centre + radius * outward[:, None] + thickness * normals
    first = np.arange(around)[:, None] * across + np.arange(across)
    after = (np.arange(around)[:, None] + 1) % around * across + np.arange(across)
    turn = np.roll(np.arange(across), -1)
    triangles = np.stack([first, after, after[:, turn], first, after[:, turn], first[:, turn]], axis=-1)
    return vertices.reshape(-1, 3), triangles.reshape(-1, 3), normals.reshape(-1, 3)
