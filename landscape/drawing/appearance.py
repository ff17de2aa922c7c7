"""How a picture looks: colours for light and dark pages, sizes for screens and papers, legends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.validation import check_bool, check_choice, wrong_value

from .fitting import fits_across

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


DIVERGING = "RdBu_r"
# Of curves: Okabe and Ito (2008), distinct to all common kinds of colour vision; the darker half on light.
THEMES: dict[str, dict[str, Any]] = {
    "light": {
        "page": "#ffffff",
        "ink": "#111111",
        "soft": "#767676",
        "faint": "#d5d5d5",
        "series": ("#0072b2", "#d55e00", "#009e73", "#a8568c", "#8a6d00"),
        "missing": {
            "pending": {"facecolor": "#dcdcdc", "edgecolor": "#858585", "hatch": "..."},
            "failed": {"facecolor": "#bdbdbd", "edgecolor": "#404040", "hatch": "xxxx"},
            "not finite": {"facecolor": "#e8e8e8", "edgecolor": "#595959", "hatch": "////"},
        },
        "coarse": {"facecolor": "none", "edgecolor": "#ffffff", "hatch": "\\\\\\\\\\"},
    },
    "dark": {
        "page": "#14171c",
        "ink": "#ececec",
        "soft": "#9aa1ac",
        "faint": "#3a404a",
        "series": ("#56b4e9", "#e69f00", "#2ec4a0", "#e39ac4", "#f0e442"),
        "missing": {
            "pending": {"facecolor": "#3c444f", "edgecolor": "#969eaa", "hatch": "..."},
            "failed": {"facecolor": "#5a626e", "edgecolor": "#cdd2da", "hatch": "xxxx"},
            "not finite": {"facecolor": "#2b3038", "edgecolor": "#aab1bc", "hatch": "////"},
        },
        "coarse": {"facecolor": "none", "edgecolor": "#14171c", "hatch": "\\\\\\\\\\"},
    },
}
SMALLEST_TYPE = 6.0
"""In points: what most venues ask for."""
PAPER_WIDTH = 3.4
"""Of the style "paper", for which the heights of figures are given, in inches."""
# Widths in inches of one column and of the whole text, as each venue's instructions say them; type in points.
_SIZES = ("paper", "width", "wide", "factor", "text_size", "small_size", "number_size")
_STYLES = {
    "screen": (False, None, None, 1.0, 10.0, 9.0, 8.0),
    "paper": (True, PAPER_WIDTH, 7.0, 0.62, 8.0, 7.0, 6.0),
    "neurips": (True, 5.5, 5.5, 0.75, 9.0, 8.0, 7.0),
    "icml": (True, 3.25, 6.75, 0.62, 8.0, 7.0, 6.0),
    "nature": (True, 89 / 25.4, 183 / 25.4, 0.6, 7.0, 6.5, 6.0),  # 89 mm and 183 mm; text of at most 7 points
    "slides": (False, 10.0, 12.0, 1.6, 18.0, 16.0, 14.0),
}
STYLES: dict[str, dict[str, Any]] = {name: dict(zip(_SIZES, sizes, strict=True)) for name, sizes in _STYLES.items()}
FONTS: dict[str, dict[str, Any]] = {
    "sans": {},
    # STIX looks like Times, and comes with matplotlib.
    "serif": {"font.family": "STIXGeneral", "mathtext.fontset": "stix"},
}
"""Type faces by name, as matplotlib's settings."""
# Of a figure, in inches.
_HIGHEST = 7.0
_CORNERS: dict[Any, Any] = {"upper right": (1, 1), "upper left": (0, 1), "lower left": (0, 0), "lower right": (1, 0)}


@dataclass(frozen=True)
class Appearance:
    theme: str  # "light" or "dark"
    own_colors: bool  # whether the page, the frame and the text are recoloured too, or stay as matplotlib has them
    page: str  # the background
    ink: str  # text and frame
    soft: str  # what is less important than ink
    faint: str  # grids and empty boxes' frames
    series: tuple[str, ...]  # colours of curves, the most important first
    missing: dict[str, dict[str, Any]]  # how cells without a value are hatched, by kind
    coarse: dict[str, Any]  # how cells are hatched that show the value of another point
    paper: bool  # whether a caption says its title, which it therefore leaves out, in small type
    width: float | None  # of a figure of one picture, in inches; None where the style has none
    wide: float | None  # of a figure of several pictures side by side, in inches; None where the style has none
    factor: float  # by how much lines and marks shrink on paper
    text_size: float  # titles and labels of axes, in points
    small_size: float  # ticks and legends, in points
    number_size: float  # numbers beside lines and checkpoints, in points; the smallest type of a picture
    font: str = "sans"  # "sans" or "serif"
    legend: bool = True

    @property
    def grid_alpha(self) -> float:
        return 0.25 if self.theme == "light" else 0.6

    def fitted(self, size: tuple[float, float], below: float = 0.0) -> tuple[float, float]:
        """Returns a figure's size in inches, as wide as the style says; ``below`` adds height for a bar under it."""
        across, up = size
        below *= math.sqrt(self.factor)
        if self.width is None:
            return across, up + below
        # A wide picture is not as much higher as it is wider, or it would fill the page.
        grown = math.sqrt(self.width / across) if self.paper else self.width / across
        return self.width, min(up * grown + below, _HIGHEST)

    def applied(self) -> AbstractContextManager[None]:
        """Draws everything inside the block like this, and restores the user's matplotlib settings after it."""
        import matplotlib

        # matplotlib types the settings' names as literals, which a computed dictionary cannot have.
        settings: Any = {
            "font.size": self.text_size,
            "axes.labelsize": self.text_size,
            "axes.titlesize": self.text_size * 1.1,
            "xtick.labelsize": self.small_size,
            "ytick.labelsize": self.small_size,
            "legend.fontsize": self.small_size,
            "hatch.linewidth": 0.5 + 0.3 * self.factor,
            **FONTS[self.font],
        }
        if self.paper:
            for axis in ("xtick", "ytick"):
                settings |= {f"{axis}.major.size": 2.5, f"{axis}.major.width": 0.5, f"{axis}.major.pad": 2.5}
            settings |= {"axes.linewidth": 0.5, "grid.linewidth": 0.4, "axes.labelpad": 2.5, "patch.linewidth": 0.5}
        if self.own_colors:
            settings |= dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), self.page)
            settings |= dict.fromkeys(
                ("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor", "xtick.color", "ytick.color"),
                self.ink,
            )
            settings |= {f"axes3d.{axis}axis.panecolor": self.page for axis in "xyz"}
            settings |= {"grid.color": self.faint, "legend.edgecolor": self.faint, "savefig.facecolor": "auto"}
        return matplotlib.rc_context(settings)


def appearance_of(look: Mapping[str, Any], ax: Axes | None) -> Appearance:
    """Returns the appearance that was asked for; without a theme it follows the axes, or matplotlib's settings."""
    sizes = {
        **STYLES[check_choice("style", look.get("style", "screen"), tuple(STYLES))],
        "font": check_choice("font", look.get("font", "sans"), tuple(FONTS)),
        "legend": check_bool("legend", look.get("legend", True)),
    }
    if (theme := look.get("theme")) is not None:
        return Appearance(theme, True, **THEMES[check_choice("theme", theme, tuple(THEMES))], **sizes)
    import matplotlib
    from matplotlib.colors import to_rgba

    behind = matplotlib.rcParams["figure.facecolor"] if ax is None else ax.get_facecolor()
    red, green, blue, alpha = to_rgba(behind)
    theme = "dark" if alpha > 0 and 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "light"
    return Appearance(theme, False, **THEMES[theme], **sizes)


def find_colormap(name: Any) -> Colormap:
    from matplotlib import colormaps
    from matplotlib.colors import Colormap

    if isinstance(name, Colormap):
        return name
    if not isinstance(name, str) or name not in colormaps:
        raise wrong_value(
            "colormap", "matplotlib's name of colours, such as 'viridis', 'cividis', 'magma' or 'RdBu_r'", name
        )
    return colormaps[name]


def readable(colors: Colormap, theme: str) -> Colormap:
    """Returns those colours of a colour map in which lines stand out from the page."""
    from matplotlib.colors import ListedColormap

    rgb = colors(np.linspace(0, 1, 256))
    brightness = rgb[:, :3] @ np.array([0.299, 0.587, 0.114])
    kept = rgb[brightness < 0.66] if theme == "light" else rgb[brightness > 0.34]
    return ListedColormap(kept if len(kept) > 1 else rgb)


def draw_legend(ax: Axes, entries: Sequence[Any], appearance: Appearance, *, outside: bool) -> None:
    """Writes the legend below our own figure, or in the emptiest corner of the user's axes."""
    if not (entries and appearance.legend):
        return
    if outside:
        draw_legend_below(ax.figure, entries, appearance, columns=2 if appearance.paper else 4)
        return
    size = min(appearance.small_size, 7)
    ax.legend(handles=entries, loc=_emptiest_corner(ax), fontsize=size, framealpha=0.85, facecolor=appearance.page)


def draw_legend_below(figure: Any, entries: Sequence[Any], appearance: Appearance, columns: int) -> None:
    style = {"columnspacing": 1.4, "handletextpad": 0.5, "labelspacing": 0.5}
    size = appearance.small_size - (0 if appearance.paper else 1)
    if appearance.paper:
        style |= {"columnspacing": 1.0, "handlelength": 1.3, "labelspacing": 0.2}
    for count in range(min(len(entries), columns), 0, -1):
        legend = figure.legend(
            handles=entries, loc="outside lower center", ncols=count, frameon=False, fontsize=size, **style
        )
        if fits_across(legend, count, paper=appearance.paper) or count == 1:
            return
        legend.remove()


def _emptiest_corner(ax: Axes) -> Any:
    lines = [np.asarray(line.get_xydata(), np.float64) for line in ax.get_lines()]
    points = np.vstack([np.empty((0, 2)), *(line[:, :2] for line in lines)])
    fractions = ax.transAxes.inverted().transform(ax.transData.transform(points))
    fractions = fractions[np.isfinite(fractions).all(axis=1)]

    def nearness(corner: str) -> float:
        distance = np.abs(fractions - np.array(_CORNERS[corner])).max(axis=1)
        return float((distance < 0.45).sum() + (0.4 - np.minimum(distance, 0.4)).sum())

    return min(_CORNERS, key=nearness)
