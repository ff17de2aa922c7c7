"""The path of a run with many checkpoints as plotly draws it in a notebook: in the colours of time, with arrowheads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..drawing.times import RAMPS, Marked, Times, marked_text, strong_color
from .metric_views import literal
from .timed_paths import hex_colors, run_pieces

if TYPE_CHECKING:
    from ..grid.data import LandscapeData


_EDGE = {"color": "#1a1a1a", "width": 1}
_SILENT = {"showlegend": False, "hoverinfo": "skip"}


@dataclass(frozen=True)
class TimedRun:
    """One run's path on a plane in the colours of time; ``marks`` are what ``map_marks`` returns."""

    landscape: LandscapeData
    index: int
    times: Times
    name: str
    marks: tuple[Marked, NDArray[Any], NDArray[Any]]

    def traces(
        self,
        feet: tuple[NDArray[Any], NDArray[Any]],
        draped: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
        between: int,
        ends: list[dict[str, Any]],
        hover: Callable[[Any], dict[str, Any]],
    ) -> list[dict[str, Any]]:
        """Returns traces of map and surface; ``draped`` is the path's x, y, height, ``between`` places a checkpoint."""
        dots, arrows, chevrons = self.marks
        x, y, z = draped
        colors = self._colors
        at = arrows[:, 0].round().astype(int)
        lift = np.interp(arrows[:, 0], np.arange(len(feet[0])), z[::between])
        gap = np.full((len(arrows), 1), np.nan)
        wings = [np.hstack([chevrons[:, :, axis], gap]).ravel() for axis in (0, 1)]
        return [
            *self._on_map(feet),
            {**self._dots(feet), **hover(slice(None))},
            {
                "type": "scatter", "mode": "markers", **_SILENT, "x": arrows[:, 1], "y": arrows[:, 2],
                "marker": {
                    "symbol": "arrow", "size": 13, "angle": arrows[:, 3], "color": [colors[each] for each in at],
                    "line": _EDGE,
                },
            },
            *ends,
            self._bar(),
            {
                "type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, **_SILENT,
                "line": {"color": np.repeat(colors, between)[: len(x)].tolist(), "width": 6},
            },
            {
                "type": "scatter3d", "mode": "lines", "x": wings[0], "y": wings[1], "z": np.repeat(lift, 4), **_SILENT,
                "connectgaps": False, "line": {"color": strong_color(self.index), "width": 6},
            },
            {
                "type": "scatter3d", "mode": "markers", "x": feet[0][dots.rows], "y": feet[1][dots.rows],
                "z": z[::between][dots.rows], "marker": {"size": 3, "color": "#ffffff", "line": _EDGE},
                **hover(dots.rows), "showlegend": False,
            },
        ]  # fmt: skip

    @property
    def _numbers(self) -> NDArray[Any]:
        found = self.landscape.checkpoints
        assert found is not None
        return found.number[found.paths[self.index]]

    @property
    def _colors(self) -> list[str]:
        return hex_colors(self.times, self.index, self._numbers)

    def _on_map(self, feet: tuple[NDArray[Any], NDArray[Any]]) -> list[dict[str, Any]]:
        """Returns the rim, the coloured pieces, and the legend's entry: plotly's lines have one colour each."""
        line, colors, marked = {"type": "scatter", "mode": "lines"}, self._colors, marked_text([self.marks[0]])
        found: list[dict[str, Any]] = [
            {**line, **_SILENT, "x": feet[0], "y": feet[1], "line": {"color": "rgba(20,20,20,0.85)", "width": 5.5}}
        ]
        for first, last in run_pieces(self._numbers):
            piece = {"x": feet[0][first : last + 1], "y": feet[1][first : last + 1]}
            found.append({**line, **_SILENT, **piece, "line": {"color": colors[(first + last) // 2], "width": 3}})
        name = self.name + (f" ({marked})" if marked else "")
        entry = {"name": name, "x": [None], "y": [None], "line": {"color": strong_color(self.index), "width": 3}}
        return [*found, {**line, **entry}]

    def _dots(self, feet: tuple[NDArray[Any], NDArray[Any]]) -> dict[str, Any]:
        """Returns all checkpoints, so that each can be pointed at; those without a dot have no size."""
        sizes = np.zeros(len(feet[0]))
        sizes[self.marks[0].rows] = 5
        marker = {"size": sizes, "color": "#ffffff", "line": {**_EDGE, "width": np.where(sizes > 0, 1, 0)}}
        return {
            "type": "scatter", "mode": "markers", "name": self.name, "x": feet[0], "y": feet[1], "marker": marker,
            "showlegend": False,
        }  # fmt: skip

    def _bar(self) -> dict[str, Any]:
        """Returns the bar of the run's time under the map; those of several runs lie one under the other."""
        found, ramp = self.landscape.checkpoints, RAMPS[self.index % len(RAMPS)]
        assert found is not None
        last = self.index == len(found.paths) - 1
        bar = {
            "orientation": "h", "x": 0.225, "len": 0.34, "y": -0.17 - 0.02 * self.index, "yanchor": "top",
            "thickness": 7, "outlinewidth": 0.5, "xpad": 0, "ypad": 0, "nticks": 6,
            "ticks": "outside" if last else "", "ticklen": 3,
            "title": {"text": literal(self.times.label) if last else "", "side": "bottom", "font": {"size": 11}},
        }  # fmt: skip
        if not last:
            bar["tickvals"] = []
        return {
            "type": "scatter", "mode": "markers", **_SILENT, "x": [None], "y": [None],
            "marker": {
                "color": [self.times.low], "cmin": self.times.low, "cmax": self.times.high, "showscale": True,
                "colorscale": [[place / (len(ramp) - 1), color] for place, color in enumerate(ramp)], "colorbar": bar,
            },
        }  # fmt: skip
