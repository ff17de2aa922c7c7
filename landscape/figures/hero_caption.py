"""What must be said about a picture without text: as sentences, and as a strip below it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..drawing.appearance import Appearance
from ..drawing.missing import missing_kinds
from ..drawing.path import sized
from ..drawing.texts import (
    axis_label,
    flat_note,
    main_dataset,
    metric_text,
    plain,
    status_note,
    unit_of,
    value_notes,
)
from ..grid.differences import own_values_text
from ..meshes.path_mesh import path_lines, path_marks
from ..rendering.scene import Scene
from ..scales.levels import number_text

if TYPE_CHECKING:
    from jaxtyping import UInt8


# The strip is laid out as if it were so many inches wide, whatever its pixels.
_INCHES = 12.0
_LETTERS = 178
_LINE, _BAR = 0.165, 0.58
_BETWEEN = {
    "smooth": "drawn smoothly (monotone cubics) through every point, never beyond the four points around",
    "linear": "drawn bilinearly",
}


def caption_lines(scene: Scene) -> list[str]:
    """Returns what a reader must know of a scene, one sentence each, without full stops."""
    space, landscape, metric = scene.space, scene.space.landscape, scene.space.metric
    scale, status, values = space.scale, landscape.status, landscape[metric]
    label = metric_text(landscape, metric, str)
    ends = f"{number_text(scale.low)} to {number_text(scale.high)}"
    lines = [f"Height and colour: {scale.label(label)}, {ends}; light and shade are no data"]
    if scale.flat:
        lines = [flat_note(label, scale.low, number_text(scale.low), space.values)]
    if scale.extend != "neither":
        lines[0] += "; values beyond its ends are drawn as plateaus at its ends"
    notes = [status_note(landscape, status), *value_notes(landscape, metric)]
    missing = [f"{int(where.sum())} {kind}" for kind, where in missing_kinds(values, status).items()]
    notes += [f"holes are points without a value: {', '.join(missing)}"] if missing else []
    lines += ["; ".join(filter(None, notes))] if any(notes) else []
    lines.append(
        f"Between the {len(landscape.x)} x {len(space.plane[1])} points of the grid: {_BETWEEN[scene.interpolation]}"
    )
    sides = [axis_label(landscape, axis, space.frame.geometry) for axis in (0, 1)]
    scaled = "; ".join(space.frame.notes) or "the plane is to scale"
    lines.append(f"Axes: {sides[0]}; {sides[1]}; {scaled}")
    if scene.trajectory:
        names = [f"path of {line.name}" if line.name != "trajectory" else "trajectory" for line in path_lines(space)]
        if names:
            lines.append(
                f"{', '.join(names)}: at the projected {label}; between two checkpoints it follows the surface, which "
                "may hide it"
            )
        differing = own_values_text(landscape.checkpoints, metric, unit_of(landscape), main_dataset(landscape))
        lines += [differing] if differing else []
    return [line[0].upper() + line[1:].replace(r"\$", "$") for line in lines]


def draw_strip(
    scene: Scene, title: str, caption: Sequence[str], appearance: Appearance, width: int
) -> UInt8[np.ndarray, "rows width 4"]:
    """Returns a strip with a colour bar, a legend and the caption, on a clear background."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = [line for text in caption for line in textwrap.wrap(text, _LETTERS)]
    entries = _entries(scene)
    rows = -(-len(entries) // 3)
    bar = max(_BAR, 0.2 * rows + 0.1)
    inches = bar + _LINE * (len(lines) + (1.5 if title else 0)) + 0.25
    with appearance.applied():
        figure = Figure(figsize=(_INCHES, inches), dpi=width / _INCHES)
        figure.patch.set_alpha(0)
        canvas = FigureCanvasAgg(figure)
        if not scene.space.scale.flat:
            _draw_bar(figure, scene, appearance, inches)
        if entries:
            figure.legend(
                handles=entries, loc="upper right", bbox_to_anchor=(0.985, 1 - 0.04 / inches), ncols=3, frameon=False,
                fontsize=8, columnspacing=1.4, handletextpad=0.5, labelcolor=appearance.ink,
            )  # fmt: skip
        top = inches - bar - 0.1
        if title:
            figure.text(
                0.02, top / inches, plain(title, 120), fontsize=10, va="top", color=appearance.ink, weight="bold"
            )
            top -= 1.5 * _LINE
        for index, line in enumerate(lines):
            place = (top - _LINE * index) / inches
            figure.text(0.02, place, plain(line, 400), fontsize=7.5, va="top", color=appearance.ink)
        # Matplotlib types neither.
        agg: Any = canvas
        agg.draw()
    drawn = np.asarray(agg.buffer_rgba()).copy()
    found = np.zeros((len(drawn), width, 4), np.uint8)
    columns = min(width, drawn.shape[1])
    found[:, :columns] = drawn[:, :columns]
    return found


def _draw_bar(figure: Any, scene: Scene, appearance: Appearance, inches: float) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = scene.space.scale
    axes = figure.add_axes((0.02, 1 - 0.24 / inches, 0.36, 0.15 / inches))
    # Equal lengths are equal heights, on every scale.
    low, high = scale.height_range
    drawn = figure.colorbar(
        ScalarMappable(Normalize(low, high), scene.colors), cax=axes, orientation="horizontal", extend=scale.extend
    )
    places = (scale.forward(scale.levels) - low) / (high - low)
    texts = scale.spaced_texts(places, 0.1)
    drawn.set_ticks(scale.forward(scale.levels).tolist(), labels=texts)
    drawn.minorticks_off()
    axes.tick_params(labelsize=7.5, colors=appearance.ink)
    drawn.outline.set_edgecolor(appearance.soft)
    label = scale.label(metric_text(scene.space.landscape, scene.space.metric))
    drawn.set_label(label, fontsize=8, color=appearance.ink)


def _entries(scene: Scene) -> list[Any]:
    from matplotlib.lines import Line2D

    if not scene.trajectory:
        return []
    entries = []
    for line in path_lines(scene.space):
        entries.append(
            Line2D([], [], color=line.color, linewidth=2.2, marker="o", markersize=4.5, label=plain(line.name, 32))
        )
    for mark in path_marks(scene.space):
        entries.append(Line2D([], [], linestyle="none", label=plain(mark.name, 48), **sized(mark.style, 0.7)))
    return entries
