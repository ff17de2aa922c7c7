"""How a picture looks: colours for light and dark pages, sizes for screens and papers, legends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from collectors.validation import check_choice, wrong_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


THEMES = ("light", "dark")
STYLES = ("screen", "paper")
DIVERGING = "RdBu_r"
# Okabe and Ito (2008), distinct to all common kinds of colour vision; the darker half on light, the lighter on dark.
_SERIES = {
    "light": ("#0072b2", "#d55e00", "#009e73", "#a8568c", "#8a6d00"),
    "dark": ("#56b4e9", "#e69f00", "#2ec4a0", "#e39ac4", "#f0e442"),
}
_COLORS = {
    "light": {"page": "#ffffff", "ink": "#111111", "soft": "#767676", "faint": "#d5d5d5"},
    "dark": {"page": "#14171c", "ink": "#ececec", "soft": "#9aa1ac", "faint": "#3a404a"},
}
_MISSING = {
    "light": {
        "pending": {"facecolor": "#dcdcdc", "edgecolor": "#858585", "hatch": "..."},
        "failed": {"facecolor": "#bdbdbd", "edgecolor": "#404040", "hatch": "xxxx"},
        "not finite": {"facecolor": "#e8e8e8", "edgecolor": "#595959", "hatch": "////"},
    },
    "dark": {
        "pending": {"facecolor": "#3c444f", "edgecolor": "#969eaa", "hatch": "..."},
        "failed": {"facecolor": "#5a626e", "edgecolor": "#cdd2da", "hatch": "xxxx"},
        "not finite": {"facecolor": "#2b3038", "edgecolor": "#aab1bc", "hatch": "////"},
    },
}
_Corner: TypeAlias = Literal["upper right", "upper left", "lower left", "lower right"]
_CORNERS: dict[_Corner, tuple[int, int]] = {
    "upper right": (1, 1),
    "upper left": (0, 1),
    "lower left": (0, 0),
    "lower right": (1, 0),
}


@dataclass(frozen=True)
class Appearance:
    """Colours and sizes of one picture.

    Attributes:
        theme: "light" or "dark".
        style: "screen", or "paper": as wide as a column, small type, no title because a caption says it.
        own_colors: whether the page, the frame and the text are recoloured too, or stay as matplotlib has them.
    """

    theme: str = "light"
    style: str = "screen"
    own_colors: bool = True

    @property
    def paper(self) -> bool:
        """Whether the picture is for a column of a paper."""
        return self.style == "paper"

    @property
    def page(self) -> str:
        """The background."""
        return _COLORS[self.theme]["page"]

    @property
    def ink(self) -> str:
        """Text and frame."""
        return _COLORS[self.theme]["ink"]

    @property
    def soft(self) -> str:
        """What is less important than ink."""
        return _COLORS[self.theme]["soft"]

    @property
    def faint(self) -> str:
        """Grids and empty boxes' frames."""
        return _COLORS[self.theme]["faint"]

    @property
    def series(self) -> tuple[str, ...]:
        """Colours of curves, the most important first."""
        return _SERIES[self.theme]

    @property
    def missing(self) -> dict[str, dict[str, Any]]:
        """How cells without a value are hatched, by kind."""
        return _MISSING[self.theme]

    @property
    def factor(self) -> float:
        """By how much lines and marks shrink on paper."""
        return 0.62 if self.paper else 1.0

    @property
    def text_size(self) -> float:
        """Titles and labels of axes, in points."""
        return 8.0 if self.paper else 10.0

    @property
    def small_size(self) -> float:
        """Ticks and legends, in points."""
        return 7.0 if self.paper else 9.0

    @property
    def number_size(self) -> float:
        """Numbers beside lines and checkpoints, in points."""
        return 6.0 if self.paper else 8.0

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Draws everything inside the block like this, and restores the user's matplotlib settings after it."""
        import matplotlib

        # matplotlib types the settings' names as literals, which a computed dictionary cannot have.
        settings: Any = self._settings()
        with matplotlib.rc_context(settings):
            yield

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "font.size": self.text_size,
            "axes.labelsize": self.text_size,
            "axes.titlesize": self.text_size * 1.1,
            "xtick.labelsize": self.small_size,
            "ytick.labelsize": self.small_size,
            "legend.fontsize": self.small_size,
            "hatch.linewidth": 0.5 + 0.3 * self.factor,
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
        return settings


def choose_appearance(theme: str | None, style: str, ax: Axes | None) -> Appearance:
    """Returns the appearance that was asked for; without a theme it follows the axes, or matplotlib's settings.

    Raises:
        TypeError: ``theme`` or ``style`` is no string.
        ValueError: ``theme`` or ``style`` is unknown.
    """
    check_choice("style", style, STYLES)
    if theme is not None:
        return Appearance(check_choice("theme", theme, THEMES), style)
    import matplotlib
    from matplotlib.colors import to_rgba

    behind = matplotlib.rcParams["figure.facecolor"] if ax is None else ax.get_facecolor()
    red, green, blue, alpha = to_rgba(behind)
    dark = alpha > 0 and 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
    return Appearance("dark" if dark else "light", style, own_colors=False)


def find_colormap(name: Any) -> Colormap:
    """Returns matplotlib's colours of that name, or the colours themselves.

    Raises:
        ValueError: there are no such colours.
    """
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
    if not entries:
        return
    if outside:
        draw_legend_below(ax.figure, entries, appearance, columns=2 if appearance.paper else 4)
        return
    size = min(appearance.small_size, 7)
    ax.legend(handles=entries, loc=_emptiest_corner(ax), fontsize=size, framealpha=0.85, facecolor=appearance.page)


def draw_legend_below(figure: Any, entries: Sequence[Any], appearance: Appearance, columns: int) -> None:
    """Writes a legend under everything that a figure shows."""
    figure.legend(
        handles=entries, loc="outside lower center", ncols=min(len(entries), columns), frameon=False,
        fontsize=appearance.small_size - (0 if appearance.paper else 1), columnspacing=1.4, handletextpad=0.5,
        labelspacing=0.5,
    )  # fmt: skip


def _emptiest_corner(ax: Axes) -> _Corner:
    lines = [np.asarray(line.get_xydata(), np.float64) for line in ax.get_lines()]
    points = np.vstack([np.empty((0, 2)), *(line[:, :2] for line in lines)])
    fractions = ax.transAxes.inverted().transform(ax.transData.transform(points))
    fractions = fractions[np.isfinite(fractions).all(axis=1)]

    def nearness(corner: _Corner) -> float:
        distance = np.abs(fractions - np.array(_CORNERS[corner])).max(axis=1)
        return float((distance < 0.45).sum() + (0.4 - np.minimum(distance, 0.4)).sum())

    return min(_CORNERS, key=nearness)
