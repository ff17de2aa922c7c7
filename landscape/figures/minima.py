"""Minima of the grid and the saddles between them, as marks on a picture of a plane or a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.path import EDGE, halo, sized
from ..drawing.texts import plain
from ..topology.topology import Topology, counted_minima
from ..topology.words import letter, shallow_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..drawing.sheet import Sheet
    from ..grid.data import LandscapeData


MINIMUM: dict[str, Any] = {"marker": "v", "color": "#b6ff3c", "markeredgecolor": EDGE, "markersize": 9}
SADDLE: dict[str, Any] = {"marker": "X", "color": "#ff9de2", "markeredgecolor": EDGE, "markersize": 7.5}


def draw_minima(sheet: Sheet) -> None:
    """Marks minima, with letters from the lowest on, and saddles on a sheet; does nothing where none were asked for."""
    found = sheet.topology
    if found is None:
        return
    place = _placing(sheet)
    for points, style, label in (
        (found.saddles, SADDLE, saddles_label(found)),
        (found.minima, MINIMUM, minima_label(found, sheet.landscape, furnished=sheet.furniture)),
    ):
        if points:
            places = np.array([place(point) for point in points])
            sheet.entries += sheet.ax.plot(
                *places.T, linestyle="none", label=label, zorder=6.5, clip_on=False,
                **sized(style, sheet.appearance.factor),
            )  # fmt: skip

    def write_letters() -> None:
        for index, minimum in enumerate(found.minima):
            sheet.ax.annotate(
                letter(index), place(minimum), xytext=_letter_shift(sheet, place(minimum)),
                textcoords="offset points", ha="center", va="center",
                fontsize=sheet.appearance.number_size, fontweight="bold", color=MINIMUM["color"], zorder=8,
                path_effects=halo(0.3 * sheet.appearance.number_size),
            )  # fmt: skip

    sheet.late.append(write_letters)


def minima_label(found: Topology, landscape: LandscapeData, *, furnished: bool = True) -> str:
    # A legend that several pictures share says no numbers.
    if not furnished:
        return "minima of the grid, not of the network"
    lines = [f"{counted_minima(len(found.minima))} of the grid, not of the network"]
    lines += [text for text in (shallow_text(found, landscape),) if text]
    return plain("; ".join(lines), 240).replace("; ", "\n")


def saddles_label(found: Topology) -> str:
    return "saddle between them" if len(found.saddles) == 1 else "saddles between them"


def minima_pixels(sheet: Sheet) -> NDArray[Any]:
    """Returns boxes (left, bottom, right, top) in pixels around the marks and their letters, which must stay free."""
    found, place = sheet.topology, _placing(sheet)
    points = [] if found is None else [*found.minima, *found.saddles]
    pixels = sheet.ax.transData.transform(np.array([place(point) for point in points]).reshape(-1, 2))
    half = 12 * sheet.appearance.factor * sheet.ax.figure.dpi / 72
    return np.hstack([pixels - half, pixels + half])


def letter_pixels(sheet: Sheet) -> NDArray[Any]:
    """Returns boxes (left, bottom, right, top) in pixels around the letters, over which no name may be written."""
    found, place = sheet.topology, _placing(sheet)
    pixel = sheet.ax.figure.dpi / 72
    boxes = []
    for minimum in [] if found is None else found.minima:
        x, y = sheet.ax.transData.transform(place(minimum)) + np.array(_letter_shift(sheet, place(minimum))) * pixel
        half = 0.6 * sheet.appearance.number_size * pixel
        boxes.append([x - half, y - half, x + half, y + half])
    return np.array(boxes).reshape(-1, 4)


def _letter_shift(sheet: Sheet, point: tuple[float, float]) -> tuple[float, float]:
    """Returns where a minimum's letter lies, in points from its mark: towards the middle, so never beyond the axes."""
    middle = np.reshape(sheet.ax.get_window_extent().extents, (2, 2)).mean(axis=0)
    right, up = np.where(sheet.ax.transData.transform(point) > middle, -1, 1) * 7.5 * sheet.appearance.factor
    return float(right), float(up)


def _placing(sheet: Sheet) -> Callable[[Any], tuple[float, float]]:
    def on_plane(point: Any) -> tuple[float, float]:
        across, up = sheet.frame.place(point.x, point.y)
        return float(across), float(up)

    def on_line(point: Any) -> tuple[float, float]:
        return point.x, point.value

    return on_line if sheet.landscape.y is None else on_plane
