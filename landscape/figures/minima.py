"""Minima of the grid and the saddles between them, as marks on a picture of a plane or a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.path import EDGE, halo, write_beside
from ..drawing.sheet import Sheet
from ..drawing.texts import plain
from ..grid.data import LandscapeData
from ..topology.topology import Topology, counted_minima, letter, shallow_text

MINIMUM: dict[str, Any] = {"marker": "v", "color": "#b6ff3c", "markeredgecolor": EDGE, "markersize": 9}
SADDLE: dict[str, Any] = {"marker": "X", "color": "#ff9de2", "markeredgecolor": EDGE, "markersize": 7.5}


def draw_minima(sheet: Sheet) -> None:
    """Marks minima, with letters from the lowest on, and saddles on a sheet; does nothing where none were asked for."""
    found, size = sheet.topology, sheet.appearance.number_size
    if found is None:
        return
    for points, style, label in marks_of(found, sheet.landscape, furnished=sheet.furniture):
        if points:
            x, y = _places(sheet, points).T
            sheet.mark(x, y, label, style, 6.5, clip_on=False)

    def write_letters() -> None:
        places = _places(sheet, found.minima)
        style = {"fontweight": "bold", "color": MINIMUM["color"], "zorder": 8, "path_effects": halo(0.3 * size)}
        for index, (place, shift) in enumerate(zip(places, _letter_shift(sheet, places).tolist(), strict=True)):
            write_beside(sheet.ax, letter(index), place, shift, size, **style)

    sheet.late.append(write_letters)


def marks_of(
    found: Topology, landscape: LandscapeData, *, furnished: bool = True
) -> list[tuple[Sequence[Any], dict[str, Any], str]]:
    between = "saddle between them" if len(found.saddles) == 1 else "saddles between them"
    label = minima_label(found, landscape, furnished=furnished)
    return [(found.saddles, SADDLE, between), (found.minima, MINIMUM, label)]


def minima_label(found: Topology, landscape: LandscapeData, *, furnished: bool = True) -> str:
    # A legend that several pictures share says no numbers.
    if not furnished:
        return "minima of the grid, not of the network"
    lines = [f"{counted_minima(len(found.minima))} of the grid, not of the network", shallow_text(found, landscape)]
    return plain("; ".join(filter(None, lines)), 240).replace("; ", "\n")


def minima_pixels(sheet: Sheet) -> NDArray[Any]:
    """Returns boxes (left, bottom, right, top) in pixels around the marks and their letters, which must stay free."""
    found = sheet.topology
    pixels = sheet.ax.transData.transform(_places(sheet, [] if found is None else [*found.minima, *found.saddles]))
    half = 12 * sheet.appearance.factor * sheet.ax.figure.dpi / 72
    return np.hstack([pixels - half, pixels + half])


def letter_pixels(sheet: Sheet) -> NDArray[Any]:
    """Returns boxes (left, bottom, right, top) in pixels around the letters, over which no name may be written."""
    places = _places(sheet, [] if sheet.topology is None else sheet.topology.minima)
    pixel = sheet.ax.figure.dpi / 72
    pixels = sheet.ax.transData.transform(places) + _letter_shift(sheet, places) * pixel
    half = 0.6 * sheet.appearance.number_size * pixel
    return np.hstack([pixels - half, pixels + half])


def _letter_shift(sheet: Sheet, places: NDArray[Any]) -> NDArray[Any]:
    """Returns where minima's letters lie, in points from their marks: towards the middle, so never beyond the axes."""
    middle = np.reshape(sheet.ax.get_window_extent().extents, (2, 2)).mean(axis=0)
    return np.where(sheet.ax.transData.transform(places) > middle, -1, 1) * 7.5 * sheet.appearance.factor


def _places(sheet: Sheet, points: Sequence[Any]) -> NDArray[Any]:
    x, y, values = (np.array([getattr(point, name) for point in points], float) for name in ("x", "y", "value"))
    return np.column_stack([x, values] if sheet.landscape.y is None else sheet.frame.place(x, y))
