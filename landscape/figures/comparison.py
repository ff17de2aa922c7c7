"""A comparison: how far the loss rises around the networks of each recipe, the mean with the band of its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Unpack

import numpy as np

from collectors.shapes import Float64
from collectors.validation import check_bool

from ..drawing.canvas import Picture
from ..drawing.look import Axes, CurvatureLook
from ..drawing.sheet import begin_picture
from ..drawing.texts import plain

_THIN = 0.6  # lines, of single networks, in points on a screen
_FEWEST = 3
_LONGEST = 32
_HEADINGS = {
    "inconclusive": "inconclusive: the interval of the difference holds 0",
    "no interval": "no interval says which one is flatter",
}


class MeasuredComparison(Protocol):
    """What is drawn: how far the loss rises around the networks of several recipes."""

    @property
    def t(self) -> Float64[np.ndarray, " points"]: ...  # places on a line, 0 in the middle
    @property
    def recipes(self) -> tuple[str, ...]: ...  # their names, in order
    @property
    def attributes(self) -> Mapping[str, Any]: ...  # radius, directions, normalization, num_samples, confidence
    # How far the loss rises from each network of a recipe, the mean over directions.
    def curves(self, recipe: str) -> Float64[np.ndarray, "networks points"]: ...
    # Their mean over networks, and the ends of its interval.
    def band(self, recipe: str) -> tuple[Any, Any, Any]: ...
    def table(self) -> Sequence[Any]: ...  # the answers, of which the verdict is written


def plot_comparison(
    comparison: MeasuredComparison, ax: Axes | None = None, *, networks: bool = True, **look: Unpack[CurvatureLook]
) -> Axes:
    """Draws how far the loss rises around the networks of each recipe: the mean, with the band of its interval.

    The band is the interval of the mean over networks and directions at each place, for three networks of a recipe or
    more. It is about each recipe alone; which of two is flatter, the interval of their difference says: directions
    are the same for both, so that two bands may overlap although the recipes differ. The title has the verdict.

    Args:
        comparison: of two recipes or more.
        ax: where to draw; None makes a figure of its own, which is ``axes.figure``.
        networks: whether each network's own curve, the mean over directions, is drawn thinly.
        **look: theme, style, title, size; see ``CurvatureLook``.

    Returns:
        The axes.

    Raises:
        TypeError: an argument is unknown or has the wrong type.
        ValueError: an argument has a wrong value.
    """
    check_bool("networks", networks)
    with begin_picture(Picture, "plot_comparison", ax, look, 2.9) as sheet:
        for place, recipe in enumerate(comparison.recipes):
            _draw_recipe(sheet, comparison, place, recipe, networks)
        if networks and any(len(comparison.curves(recipe)) > 1 for recipe in comparison.recipes):
            thin = _THIN * sheet.appearance.factor
            sheet.entries += sheet.ax.plot([], [], color=sheet.appearance.soft, linewidth=thin, label="each network")
        _write(sheet, comparison)
        sheet.finish()
    return sheet.ax


def _draw_recipe(sheet: Picture, comparison: MeasuredComparison, place: int, recipe: str, networks: bool) -> None:
    ax, look, curves = sheet.ax, sheet.appearance, comparison.curves(recipe)
    if not len(curves):
        return
    color = look.series[place % len(look.series)]
    dashes: Any = "-" if place < len(look.series) else (0, (5, 2))
    count, mean = len(curves), curves.mean(0)
    if networks and count > 1:
        ax.plot(comparison.t, curves.T, color=color, linewidth=_THIN * look.factor, alpha=0.35, zorder=2)
    if count >= _FEWEST:
        _, low, high = comparison.band(recipe)
        ax.fill_between(comparison.t, low, high, color=color, alpha=0.22, linewidth=0, zorder=1)
    size = 3.5 * look.factor
    sheet.entries += ax.plot(
        comparison.t, mean, color=color, linestyle=dashes, linewidth=2 * look.factor, marker="o", markersize=size,
        zorder=4, label=f"{plain(recipe, _LONGEST)} ({count} network{'' if count == 1 else 's'})",
    )  # fmt: skip


def _write(sheet: Picture, comparison: MeasuredComparison) -> None:
    ax, look, known, usual = sheet.ax, sheet.appearance, comparison.attributes, ""
    if sheet.heading is None and len(answers := comparison.table()) == 1:
        verdict = answers[0].verdict
        usual = _HEADINGS.get(verdict, plain(verdict, 60))
    count = known.get("num_samples")
    samples = "all samples" if count is None else f"{int(count):,} samples"
    each = "1 direction" if known["directions"] == 1 else f"{known['directions']} directions"
    lines = [f"mean over {each} ({plain(known['normalization'], 12)}), {samples}"]
    most = max(len(comparison.curves(recipe)) for recipe in comparison.recipes)
    if most == 1:
        lines.append("one network of each says nothing about the recipes")
    if most >= _FEWEST:
        lines.append(f"band: {100 * float(known['confidence']):g} % interval of the mean")
    sheet.set_title(usual, lines, small=look.paper or not sheet.own)
    between = "\n" if look.paper else " "
    ax.set_xlabel(f"distance from the network,{between}in lengths of the direction")
    ax.set_ylabel("rise of the loss")
    ax.axhline(0, color=look.soft, linewidth=0.8 * look.factor, zorder=0.5)
    ax.grid(alpha=look.grid_alpha)
