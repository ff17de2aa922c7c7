"""What a figure in a notebook can show of a landscape with several data sets: each metric, and their differences."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.metric_names import MetricName, other_datasets

from ..drawing.appearance import Appearance
from ..drawing.texts import metric_text, printable
from ..figures.difference import difference
from ..grid.data import LandscapeData
from ..scales.choosing import choose_scale
from ..scales.landscape_scale import joint_scale, known, landscape_scale
from ..scales.scale import Scale
from .content import metric_differences

Picture = tuple[list[dict[str, Any]], dict[str, Any]]
"""The traces and the layout of a figure."""

# Each view is in the notebook's file, some 50 kB of a 40 x 40 plane.
_MOST_METRICS, _MOST_DIFFERENCES = 12, 4
# Plotly draws surfaces in single precision: a smaller range, as a share of the values, would be terraces.
_SMALLEST_RANGE = 1e-5


@dataclass(frozen=True)
class MetricView:
    """One metric of a landscape as a figure shows it: its text, its scale, and whether colours change at zero."""

    landscape: LandscapeData
    metric: str
    text: str
    scale: Scale
    diverging: bool = False

    @property
    def values(self) -> NDArray[Any]:
        return known(self.landscape[self.metric], self.landscape.status)

    @property
    def is_flat(self) -> bool:
        low, high = (float(self.scale.forward(end)) for end in (self.scale.low, self.scale.high))
        narrow = self.landscape.y is not None and high - low < _SMALLEST_RANGE * max(abs(low), abs(high))
        return self.scale.flat or narrow

    def height_of_origin(self) -> NDArray[Any]:
        return self.scale.tall.heights(np.array([self.landscape.origin.metrics.get(self.metric, np.nan)]))

    def of_checkpoints(self, kind: str) -> NDArray[Any]:
        """Returns the checkpoints' own values ("metrics") or those at their feet ("projected"), shape (n,)."""
        found = self.landscape.checkpoints
        assert found is not None
        values: NDArray[Any] = getattr(found, kind).get(self.metric, np.full(len(found.number), np.nan))
        return values


def metric_views(landscape: LandscapeData) -> list[MetricView]:
    """Returns what a figure can show, the loss first: of one data set the loss alone, of several all metrics."""
    if not other_datasets(landscape.metrics):
        return [MetricView(landscape, "loss", "loss", landscape_scale(landscape))]
    names = {metric: MetricName.read(metric, landscape.metrics) for metric in landscape.metrics}
    names = {metric: name for metric, name in names.items() if not name.is_error}
    chosen = sorted(names, key=lambda metric: metric != "loss")[:_MOST_METRICS]
    pairs = [pair["metrics"] for pair in metric_differences(landscape)[:_MOST_DIFFERENCES]]
    texts = [" \u2212 ".join(metric_text(landscape, name, str) for name in pair) for pair in pairs]
    # All views show one landscape, so that what they have in common is in the notebook once.
    extended = _with_differences(landscape, dict(zip(texts, pairs, strict=True)))
    views = []
    for metric in chosen:
        # Metrics of one quantity share a scale, so that the colours of two data sets can be compared.
        alike = [other for other in chosen if names[other].quantity == names[metric].quantity]
        scale = joint_scale([landscape] * len(alike), alike)
        views.append(MetricView(extended, metric, metric_text(landscape, metric, str), scale))
    for text, (one, _) in zip(texts, pairs, strict=True):
        scale = choose_scale(known(extended[text], extended.status), symmetric=True, metric=one)
        views.append(MetricView(extended, text, text, scale, diverging=True))
    return [view for view in views if view.metric == "loss" or not view.is_flat]


def _with_differences(landscape: LandscapeData, pairs: Mapping[str, tuple[str, str]]) -> LandscapeData:
    def added(values: Mapping[str, Any]) -> dict[str, Any]:
        there = {name: pair for name, pair in pairs.items() if all(metric in values for metric in pair)}
        return {**values, **{name: difference(values[one], values[two]) for name, (one, two) in there.items()}}

    found, origin = landscape.checkpoints, replace(landscape.origin, metrics=added(landscape.origin.metrics))
    path = found and replace(found, metrics=added(found.metrics), projected=added(found.projected))
    plane = landscape.x, landscape.y, added(landscape.metrics), landscape.status, landscape.directions
    return LandscapeData(*plane, origin, path, attributes=dict(landscape.attributes))


def metric_menu(views: list[MetricView], pictures: list[Picture], look: Appearance) -> dict[str, Any]:
    """Returns plotly's menu that shows one view instead of another, each with its picture."""
    # Pictures of one landscape have the same traces, except where a metric is not known of its checkpoints.
    alike = [index for index, (traces, _) in enumerate(pictures) if len(traces) == len(pictures[0][0])]
    traces = [_changing([flat(pictures[index][0][trace]) for index in alike]) for trace in range(len(pictures[0][0]))]
    layouts = _changing([flat(pictures[index][1]) for index in alike])
    # What differs between any two views is set by each, so that the order of choices does not matter.
    names = sorted({name for found in traces for name in found[0]})
    changed = [index for index, found in enumerate(traces) if found[0]]
    buttons = []
    for place, index in enumerate(alike):
        data = {name: [traces[trace][place].get(name) for trace in changed] for name in names}
        args = [data, layouts[place], changed]
        buttons.append({"label": literal(views[index].text, 60), "method": "update", "args": args})
    return {
        "buttons": buttons, "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "pad": {"b": 6},
        "bgcolor": look.page, "bordercolor": look.soft, "font": {"color": look.ink},
    }  # fmt: skip


def _changing(pictures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns of each picture the values, as lists, of those names that are not the same in all of them."""
    listed = [{name: _listed(value) for name, value in picture.items()} for picture in pictures]
    names = {name: None for picture in listed for name in picture}
    # Whoever turned a surface keeps the view on the next one.
    names = {name: None for name in names if not name.startswith("scene.camera")}
    different = [name for name in names if any(picture.get(name) != listed[0].get(name) for picture in listed)]
    return [{name: picture.get(name) for name in different} for picture in listed]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested values by the names with dots that plotly takes."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def _listed(value: Any, digits: int = 12) -> Any:
    """Returns arrays as lists, of numbers of seven digits if they are float32; what is not finite becomes None."""
    if isinstance(value, np.ndarray):
        return _listed(value.tolist(), 7 if value.dtype == np.float32 else digits)
    if isinstance(value, list | tuple):
        return [_listed(item, digits) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.{digits}g}") if np.isfinite(value) else None
    return value


def literal(text: object, limit: int = 72) -> str:
    """Returns text that plotly writes as it is: it knows a few HTML tags, and formulas between dollar signs."""
    # In a template, %{...} is a variable.
    return html.escape(printable(text, limit), quote=False).replace("$", "&#36;").replace("%{", "%&#123;")
